//! A comparison of allocators: the same work for each, in turn, within one run.
//!
//! The same loops in `work` call every allocator through the function table of its `GlobalAlloc`.
//! So a call costs the same for all: one indirect call that the compiler can neither inline nor
//! predict, with a layout it does not know. The body of each `GlobalAlloc` method is inlined into
//! that call, as in a program with that global allocator: for coldpress its whole fast path, for C
//! libraries a jump into the library. [`Nothing`] shows the cost of the loop and the call alone.
//!
//! 1. All allocators get the same layouts and the same order of frees, from a fixed seed.
//! 2. A different allocator starts each round. A warm-up round comes first and is not counted.

mod contest;
mod work;

pub use contest::{Contestant, Result, contest};
pub(crate) use work::Group;
pub use work::{Scale, Work, frame_works, object_works};

use std::alloc::{GlobalAlloc, Layout};

/// An allocator that does nothing: it returns the same address every time.
#[derive(Debug, Default)]
pub struct Nothing;

/// The memory that [`Nothing`] returns: large enough for every layout that a work writes to.
#[repr(align(4096))]
struct PageCell(std::cell::UnsafeCell<[u8; 4096]>);

// SAFETY: no thread reads `PLACE`. The threads of a work write to it one at a time, through
// pointers from `Nothing`, and `Work::run` joins them before it returns.
unsafe impl Sync for PageCell {}

static PLACE: PageCell = PageCell(std::cell::UnsafeCell::new([0; 4096]));

// SAFETY: `PLACE` fits every layout of up to 4096 bytes and of up to that alignment. Overlapping
// allocations break the trait's promise, but only [`work`] calls this allocator, and it keeps
// nothing in its objects.
unsafe impl GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        PLACE.0.get().cast()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[cfg(test)]
mod tests;
