//! The measurements of the benchmarks of memory, and their reports.
//!
//! `bench/peers` measures other allocators beside coldpress's with [`allocators`], [`ours`],
//! [`machine`] and [`report`]; no other allocator is linked here. Nothing here runs inside a user's
//! program. Modules, from below:
//!
//! 1. `statistics`, `verdict`, `ticks`, [`report`], `svg`, `plot`, `panels` and [`machine`] make
//!    the figures and say where they come from; `random` gives the same numbers in every run.
//! 2. `kernel` is the kernel's own swap as a peer, `touch` has orders of touches and their times,
//!    `processors` who had the processors' time, `usage` what programs took. `progress` shows how
//!    far a benchmark is, and `interrupt` ends it in order.
//! 3. [`ours`] are the parts of coldpress that are measured, and `frames` is how whole huge pages
//!    stay whole on them. [`allocators`] gives every allocator the same work, `descriptors` finds
//!    what the size of a frame's descriptor costs, `policy` which page to evict, and `pools` how
//!    densely and how quickly compressed pages are kept. Above them, `codecs` measures what codecs
//!    make of the pages of programs, and `zswap` what a page costs beside its codec.
//! 4. `commands` is the command `coldpress-bench`.

pub mod allocators;
mod codecs;
mod commands;
mod descriptors;
mod frames;
mod interrupt;
mod kernel;
pub mod machine;
pub mod ours;
mod panels;
mod plot;
mod policy;
mod pools;
mod processors;
mod progress;
mod random;
pub mod report;
mod statistics;
mod svg;
mod ticks;
mod touch;
mod usage;
mod verdict;
mod zswap;

pub use commands::run;
