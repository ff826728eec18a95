//! What the benchmarks of memory measure, and how they tell it.
//!
//! The command `coldpress` measures its own parts with it, and `bench/peers` measures other
//! allocators beside them; no other allocator is linked here. Nothing here runs inside a program of
//! a user. Modules: [`allocators`] the same work for every allocator, [`codecs`] what codecs make
//! of the pages of programs, [`descriptors`] what the size of a frame's descriptor costs,
//! [`frames`] how whole huge pages stay whole, [`kernel`] the kernel's own swap beside us,
//! [`policy`] which page to give up, [`pools`] how densely and how quickly compressed pages are
//! kept, [`zswap`] what a page costs beside its codec, [`ours`] the parts of coldpress that are
//! measured, [`touch`] orders of touches and their times, [`usage`] what programs took,
//! [`statistics`], [`verdict`], [`ticks`], [`report`], [`svg`], [`plot`] and [`machine`] the
//! figures and where they come from, [`random`] the same numbers in every run.

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
