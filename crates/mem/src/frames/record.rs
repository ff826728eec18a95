//! Recording: the allocations and frees, kept until the owner of the recording writes them to a
//! [`trace`].
//!
//! Idea: a thread that allocates must not wait for a disk, and may hold a lock of the slab. So
//! events go only into memory here, and the owner of the recording takes them from there now and
//! then. A recorded allocator has no per-CPU lists: every frame takes the slow path, which notes
//! the events, and the fast path knows nothing of recordings.
//!
//! [`trace`]: super::trace
//!
//! Invariants:
//! 1. The taken events, put together, are the beginning of the history: when an event finds no
//!    place, no later one is kept either.
//! 2. Events `taken..kept` lie in the span in their order. A free is noted before its frame can be
//!    handed out again, an allocation after the frame was taken: so the events of a frame are in
//!    order.
//! 3. The lock is the last one taken, and is held over no system call.

use core::sync::atomic::{AtomicBool, Ordering};
use core::{mem, ptr};

use coldpress_sys::errno::{EBUSY, EINVAL};
use coldpress_sys::map::Span;
use coldpress_sys::sync::SpinLock;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount, SysResult};

use super::FrameAllocator;
use super::config::error;
use super::trace::{EVENT_BYTES, Event};

/// The recorder of an allocator's frames.
pub(super) struct Recorder {
    is_on: AtomicBool,
    log: SpinLock<Log>,
}

/// The events not yet taken. The log uses memory for the largest number that waited at one time.
struct Log {
    span: Option<Span>,
    taken: usize,
    kept: usize,
}

impl Recorder {
    /// Makes a recorder that records nothing.
    pub(super) const fn new() -> Self {
        Self { is_on: AtomicBool::new(false), log: SpinLock::new(Log::EMPTY) }
    }

    /// Keeps an event, if there is a recording.
    #[inline]
    pub(super) fn note(&self, event: impl FnOnce() -> Event) {
        // Relaxed: a recording begins before any other code uses the allocator, and the log decides
        // under its lock whether the recording still runs.
        if self.is_on.load(Ordering::Relaxed) {
            self.keep(event());
        }
    }

    #[cold]
    fn keep(&self, event: Event) {
        let mut log = self.log.lock();
        if !log.push(event) {
            // Relaxed: for the log, the flag is written and read under its lock, which is held.
            self.is_on.store(false, Ordering::Relaxed);
        }
    }
}

impl Log {
    const EMPTY: Self = Self { span: None, taken: 0, kept: 0 };

    /// Returns whether there was a place for the event; after one failure there is none.
    fn push(&mut self, event: Event) -> bool {
        let Some(span) = &self.span else { return false };
        if (self.kept + 1) * EVENT_BYTES > span.length().0 {
            return false;
        }
        let word = event.encode().to_le_bytes();
        // SAFETY: the event ends within the span, as was just checked, which is ours while `self`
        // is borrowed mutably; `word` is other memory.
        unsafe {
            let place = span.base().as_ptr().add(self.kept * EVENT_BYTES);
            ptr::copy_nonoverlapping(word.as_ptr(), place, EVENT_BYTES);
        }
        debug_assert!(self.taken <= self.kept, "events are kept before they are taken");
        self.kept += 1;
        true
    }

    fn take(&mut self, bytes: &mut [u8], is_on: bool) -> usize {
        let Some(span) = &self.span else { return 0 };
        assert!(self.kept * EVENT_BYTES <= span.length().0, "all events lie in the span");
        let count = (bytes.len() / EVENT_BYTES).min(self.kept - self.taken);
        // SAFETY: these events were pushed, so they lie in the span; `count` of them fit into
        // `bytes`, which is other memory, because the span is reachable through `self` only.
        unsafe {
            let from = span.base().as_ptr().add(self.taken * EVENT_BYTES);
            ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), count * EVENT_BYTES);
        }
        self.taken += count;
        // The span is reused from its start, except after a lost event.
        if self.taken == self.kept && is_on {
            (self.taken, self.kept) = (0, 0);
        }
        count * EVENT_BYTES
    }
}

impl FrameAllocator {
    /// Records from now on: for the owner of the allocator, after [`FrameAllocator::init`], while
    /// no other code uses it, and instead of [`FrameAllocator::keep_per_processor`]. The call
    /// reserves address space for `events` events that wait to be taken; an event without a place
    /// ends the recording.
    ///
    /// A trace frees a chunk as it was allocated; a program that frees frames of a chunk one by one
    /// leaves none that can be replayed.
    ///
    /// Fails with the kernel's number when there is not enough address space, with `EINVAL` for no
    /// events, with `EBUSY` when frames are in use, when there are per-CPU lists, or when there is
    /// a recording already.
    pub fn record(&self, events: usize) -> SysResult<()> {
        if events == 0 {
            return Err(error(EINVAL));
        }
        let span = Span::reserve(Bytes(events * EVENT_BYTES), Bytes(PAGE_BYTES))?;
        span.forbid_huge_pages();
        if self.frames_used() > PageCount(0) || self.lists.is_ready() {
            return Err(error(EBUSY));
        }
        let mut log = self.recorder.log.lock();
        if log.span.is_some() {
            // The lock is released before the span is dropped, because the span was made earlier.
            return Err(error(EBUSY));
        }
        log.span = Some(span);
        // Relaxed: no other thread uses the allocator yet.
        self.recorder.is_on.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Takes as many of the next events as fit into `bytes`, in the format of the file. Returns the
    /// number of bytes; 0 when no event waits.
    pub fn take_events(&self, bytes: &mut [u8]) -> usize {
        let mut log = self.recorder.log.lock();
        log.take(bytes, self.is_recording())
    }

    /// Returns whether events are recorded: not after an event found no place.
    pub fn is_recording(&self) -> bool {
        // Relaxed: for the log the flag is written and read under its lock; other readers act on it
        // a little later.
        self.recorder.is_on.load(Ordering::Relaxed)
    }

    /// Ends the recording, and drops the events that were not taken.
    pub fn stop_recording(&self) {
        // A block of its own, so that the lock is released before the span is unmapped.
        let old = {
            let mut log = self.recorder.log.lock();
            // Relaxed: the log's lock is held.
            self.recorder.is_on.store(false, Ordering::Relaxed);
            mem::replace(&mut *log, Log::EMPTY)
        };
        drop(old);
    }
}

#[cfg(test)]
mod tests;
