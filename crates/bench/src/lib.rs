//! The measurements of the benchmarks of memory, and their reports.
//!
//! The command `coldpress-bench` measures coldpress's parts with this library, and `bench/peers`
//! measures other allocators beside them; no other allocator is linked here. Nothing here runs
//! inside a user's program. Modules: [`allocators`] gives every allocator the same work, [`codecs`]
//! measures what codecs make of the pages of programs, [`descriptors`] what the size of a frame's
//! descriptor costs, [`frames`] how whole huge pages stay whole, [`policy`] which page to evict,
//! [`pools`] how densely and how quickly compressed pages are kept, and [`zswap`] what a page costs
//! beside its codec. [`kernel`] is the kernel's own swap as a peer, [`ours`] are the parts of
//! coldpress that are measured, [`touch`] has orders of touches and their times, [`usage`] what
//! programs took. [`statistics`], [`verdict`], [`ticks`], [`report`], [`svg`], [`plot`] and
//! [`machine`] make the figures and say where they come from; [`random`] gives the same numbers in
//! every run.

pub mod allocators;
pub mod codecs;
pub mod descriptors;
pub mod frames;
pub mod kernel;
pub mod machine;
pub mod ours;
pub mod plot;
pub mod policy;
pub mod pools;
pub mod random;
pub mod report;
pub mod statistics;
pub mod svg;
pub mod ticks;
pub mod touch;
pub mod usage;
pub mod verdict;
pub mod zswap;
