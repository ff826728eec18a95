//! Room for the program's executable memory.
//!
//! The kernel moves a page only between mappings with the same access, so executable memory waits
//! in a part of limbo that is executable too. The service itself may make none: its filter forbids
//! it (`sys::confine`), because the program could otherwise have the service do what the program
//! may not. So a thread of the program makes the room, and only where the program itself has mapped
//! such memory.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use coldpress_sys::errno::ENOMEM;
use coldpress_sys::map::Span;
use coldpress_sys::page::BLOCK_BYTES;
use coldpress_sys::{Bytes, SysResult};

/// The state while the program has mapped no executable memory.
const NOT_WANTED: u32 = 0;
/// The state once the program has mapped some.
const WANTED: u32 = 1;
/// The state while a thread makes the room.
const BUSY: u32 = 2;
/// The state once the room is there, for as long as the process is.
const THERE: u32 = 3;
/// The state after the system has refused the room.
const REFUSED: u32 = 4;

/// The room for executable memory, once it was wanted.
pub(crate) struct Room {
    state: AtomicU32,
    span: UnsafeCell<MaybeUninit<Span>>,
}

// SAFETY: the span is written once, by the thread that made the state `BUSY`, and read only when
// the state is `THERE`.
unsafe impl Sync for Room {}

impl Room {
    /// Creates a room that is not wanted yet.
    pub(crate) const fn new() -> Self {
        Self { state: AtomicU32::new(NOT_WANTED), span: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Notes that the program has mapped executable memory.
    pub(crate) fn want(&self) {
        // Relaxed: `make` is called after it by the same thread, or by one that starts the service.
        // A thread that misses this store leaves that memory unmanaged.
        let _ =
            self.state.compare_exchange(NOT_WANTED, WANTED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether the room is wanted and not made yet. Most programs never want it, and make no call
    /// for it.
    pub(crate) fn is_wanted(&self) -> bool {
        // Relaxed: `make` looks again.
        self.state.load(Ordering::Relaxed) == WANTED
    }

    /// Makes a room of `length`, in whole pages, if it is wanted and was not made yet.
    pub(crate) fn make(&self, length: Bytes) {
        // Acquire pairs with the Release in `give_back`: the last span is gone. Relaxed on failure:
        // another thread makes it.
        let is_mine = (self.state)
            .compare_exchange(WANTED, BUSY, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if !is_mine {
            return;
        }
        let state = match Self::reserve(length) {
            Ok(span) => {
                // SAFETY: no other thread writes, and none reads before the state is `THERE`.
                unsafe { (*self.span.get()).write(span) };
                THERE
            }
            // Memory may be available when the program maps the next executable range.
            Err(error) if error.errno == ENOMEM => WANTED,
            Err(_) => REFUSED,
        };
        // Release pairs with the Acquire in `span`.
        self.state.store(state, Ordering::Release);
    }

    fn reserve(length: Bytes) -> SysResult<Span> {
        let span = Span::reserve_inaccessible(length, Bytes(BLOCK_BYTES))?;
        span.forbid_huge_pages();
        span.forbid_dump();
        span.commit_executable()?;
        Ok(span)
    }

    /// Returns the room, if it is there.
    pub(crate) fn span(&self) -> Option<&Span> {
        // Acquire pairs with the Release in `make`.
        let is_there = self.state.load(Ordering::Acquire) == THERE;
        // SAFETY: the span was written before the state became `THERE`, and is not written again
        // while it is.
        is_there.then(|| unsafe { (*self.span.get()).assume_init_ref() })
    }

    /// Gives the room back, to be made anew when it is wanted next. No service may use it any more:
    /// either none exists, or one that has not taken the room.
    pub(crate) fn give_back(&self) {
        // Acquire pairs with the Release in `make`. Relaxed on failure: there is no room.
        let is_there = (self.state)
            .compare_exchange(THERE, BUSY, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if is_there {
            // SAFETY: the span was written before the state became `THERE`, has no user by the
            // caller's word, and is not read again before it is written.
            unsafe { (*self.span.get()).assume_init_drop() };
            // Release pairs with the exchange in `make`, which writes another.
            self.state.store(WANTED, Ordering::Release);
        }
    }

    /// Forgets the room in the child of `fork`: it is the parent's, and wanted here if it was
    /// there.
    pub(crate) fn reset(&self) {
        // Relaxed: there is one thread. The span is left as it is, because it is not mapped here.
        if self.state.load(Ordering::Relaxed) != NOT_WANTED {
            self.state.store(WANTED, Ordering::Relaxed);
        }
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    //! The risk: executable memory that nothing asked for, or a child that takes its parent's room
    //! for its own.

    use super::*;

    #[test]
    fn it_is_made_once_when_it_is_wanted() {
        let room = Room::new();
        room.make(Bytes::mib(2));
        assert!(room.span().is_none());
        assert!(!room.is_wanted());
        room.want();
        assert!(room.is_wanted() && room.span().is_none());
        room.make(Bytes::mib(2));
        let Some(span) = room.span() else {
            eprintln!("skipped: this system lets nobody write to memory that it executes");
            return;
        };
        let (start, length) = (span.address(), span.length());
        assert_eq!(length, Bytes::mib(2));
        room.want();
        assert!(!room.is_wanted());
        room.make(Bytes::mib(4));
        assert_eq!(room.span().map(Span::address), Some(start));
        room.reset();
        assert!(room.span().is_none());
        room.make(Bytes::mib(2));
        assert!(room.span().is_some_and(|span| span.address() != start));
        room.give_back();
        assert!(room.span().is_none());
        room.make(Bytes::mib(6));
        assert_eq!(room.span().map(Span::length), Some(Bytes::mib(6)));
    }
}
