//! Allocators side by side: the same work, in turn, within one run.
//!
//! Every allocator is called by its `GlobalAlloc` through a table of functions, from the same loops
//! in `work`. So a call costs the same for all: one indirect call that the compiler can neither
//! inline nor foresee, with a layout it does not know. What an implementation of `GlobalAlloc` does
//! inside that call is inlined into it, as in a program that has it as its global allocator: the
//! whole fast path of coldpress, and for C libraries a jump into the library. [`Nothing`] is the
//! cost of the loop and the call alone.
//!
//! 1. All allocators get the same layouts and the same order of frees, from a fixed seed.
//! 2. Round by round another one starts; a round that warms up is not counted.

mod contest;
mod work;

pub use contest::{Contestant, Group, Result, contest};
pub use work::{Scale, Work, frame_works, object_works};

use std::alloc::{GlobalAlloc, Layout};

/// An allocator that does nothing: it hands out one place for ever.
#[derive(Debug, Default)]
pub struct Nothing;

/// The place: large enough for every layout of `work` that is written to.
#[repr(align(4096))]
struct Place(std::cell::UnsafeCell<[u8; 4096]>);

// SAFETY: nobody reads `PLACE`; the threads of a work write to it one at a time, through pointers
// that `Nothing` gave them, and `Work::run` joins them before it returns.
unsafe impl Sync for Place {}

static PLACE: Place = Place(std::cell::UnsafeCell::new([0; 4096]));

// SAFETY: every layout of up to 4096 bytes and of that alignment fits the place. That allocations
// overlap breaks the trait's promise: only [`work`] calls it, which keeps nothing in its objects.
unsafe impl GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        PLACE.0.get().cast()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[cfg(test)]
mod tests;
