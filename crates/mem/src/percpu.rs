//! Per-processor lists of numbers: the fast path of frames and of the slab.
//!
//! Idea: every processor has one block of lists, each a length and an array, which the restartable
//! sections of [`coldpress_sys::rseq`] change: no lock, no locked instruction, nothing shared
//! between processors. Where that cannot work, the answer is "take the slow path": before
//! [`CpuLists::init`], without enabled sections, on a processor that was unknown at `init`, and
//! while the lists are drained. So callers are correct without any list, and only faster with them.
//!
//! Draining shuts all lists, restarts all sections that may have read them open, and then owns the
//! lists until it opens them again:
//!
//! ```text
//! section                            drain
//! read limits                        limits := shut
//! read length                        restart all sections
//! within the limits? else slow path  read and empty the lists
//! commit: length := new              limits := open
//! ```
//!
//! Invariants:
//! 1. Values `0..length` of a list are in it, each put there once; lengths stay in the limits.
//! 2. Limits change under `owner` only. Zero marks a block that no thread has used yet: its memory
//!    is not counted, and the first refused value opens it.
//! 3. Blocks are placed before `starts` are set, and never replaced.

#[cfg(test)]
#[cfg(not(miri))]
mod tests;

use core::ptr;
use core::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU16, AtomicU32, AtomicUsize, Ordering};

use coldpress_sys::map::Span;
use coldpress_sys::rseq::{self, Blocks, ListHead};
use coldpress_sys::sync::SpinLock;
use coldpress_sys::{Bytes, PAGE_BYTES, SysResult, cpu};

/// Maximum number of lists.
pub(crate) const LISTS_MAX: usize = 32;
/// Alignment of a list, so that its head and first values share a cache line.
const LIST_ALIGN: usize = 64;

/// Returns the bytes of a list that can take `capacity` values.
fn list_bytes(capacity: u16) -> usize {
    (size_of::<ListHead>() + usize::from(capacity) * size_of::<u32>()).next_multiple_of(LIST_ALIGN)
}

/// Lists of 32-bit values, none of them [`Blocks::NONE`], for each processor. May be part of a
/// `static`.
pub(crate) struct CpuLists {
    /// The number of blocks, one for each processor.
    count: AtomicU32,
    /// The offset of each thread's restartable-sequence area.
    offset: AtomicIsize,
    /// The start of each list in the first block, null while there are no lists.
    starts: [AtomicPtr<u8>; LISTS_MAX],
    /// The number of values that each list can take.
    ceilings: [AtomicU16; LISTS_MAX],
    lists: AtomicUsize,
    /// The number of blocks in use.
    open: AtomicUsize,
    /// The blocks. The holder of the lock may change limits.
    owner: SpinLock<Option<Span>>,
}

impl CpuLists {
    /// Makes no lists: every call answers "take the slow path".
    pub(crate) const fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            offset: AtomicIsize::new(0),
            starts: [const { AtomicPtr::new(ptr::null_mut()) }; LISTS_MAX],
            ceilings: [const { AtomicU16::new(0) }; LISTS_MAX],
            lists: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            owner: SpinLock::new(None),
        }
    }

    /// Makes one list for each of `capacities` (1 to 65534 values, at most [`LISTS_MAX`] lists and
    /// [`Blocks::STRIDE`] bytes together) on each processor, when the process has enabled
    /// restartable sections; else does nothing. Takes no memory until a list is used. A second call
    /// does nothing.
    pub(crate) fn init(&self, capacities: &[u16]) -> SysResult<()> {
        assert!(capacities.len() <= LISTS_MAX);
        assert!(capacities.iter().all(|capacity| (1..u16::MAX).contains(capacity)));
        let Some(offset) = rseq::offset() else { return Ok(()) };
        let count = cpu::count()?;
        let mut owner = self.owner.lock();
        if owner.is_some() {
            return Ok(());
        }
        assert!(capacities.iter().map(|it| list_bytes(*it)).sum::<usize>() <= Blocks::STRIDE);
        let span = Span::reserve(Bytes(Blocks::STRIDE * count), Bytes(PAGE_BYTES))?;
        span.forbid_huge_pages();
        // Relaxed, all of them: the stores of `starts` below order them.
        self.count.store(count as u32, Ordering::Relaxed);
        self.offset.store(offset, Ordering::Relaxed);
        self.lists.store(capacities.len(), Ordering::Relaxed);
        let mut start = span.base().as_ptr();
        for (list, capacity) in capacities.iter().enumerate() {
            // Relaxed: as above.
            self.ceilings[list].store(*capacity, Ordering::Relaxed);
            // Release pairs with the Acquire in `blocks` and `is_ready`.
            self.starts[list].store(start, Ordering::Release);
            start = start.wrapping_add(list_bytes(*capacity));
        }
        *owner = Some(span);
        Ok(())
    }

    /// Returns whether there are any lists.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        // Acquire pairs with the Release in `init`. The first list is stored first; until the
        // others follow, readers take them for shut.
        !self.starts[0].load(Ordering::Acquire).is_null()
    }

    /// Takes a value from a list of this processor. `None`: take the slow path.
    #[inline]
    pub(crate) fn pop(&self, list: usize) -> Option<u32> {
        let blocks = self.blocks(list)?;
        // SAFETY: the blocks hold a list there, with room up to its ceiling (see `init`), and exist
        // as long as this does. The code that enabled the sections vouches for the thread.
        unsafe { blocks.pop() }
    }

    /// Returns whether a value went into a list of this processor, which must be in use. `false`:
    /// take the slow path, which tries [`CpuLists::push`] first. This function keeps nothing for a
    /// second try, so that the fast path saves no registers.
    #[inline]
    pub(crate) fn push_in_use(&self, list: usize, value: u32) -> bool {
        debug_assert_ne!(value, Blocks::NONE);
        let Some(blocks) = self.blocks(list) else { return false };
        // SAFETY: as in `pop`: the blocks hold a list there.
        unsafe { blocks.push(value) }
    }

    /// Returns whether a value went into a list of this processor. `false`: take the slow path.
    pub(crate) fn push(&self, list: usize, value: u32) -> bool {
        let push = || self.push_in_use(list, value);
        push() || (self.blocks(list).is_some() && self.open_block(list) && push())
    }

    /// Takes up to `to.len()` values from a list of this processor, and returns their number.
    pub(crate) fn pop_many(&self, list: usize, to: &mut [u32]) -> usize {
        let Some(blocks) = self.blocks(list) else { return 0 };
        // SAFETY: as in `pop`, and the slice is writable.
        let popped = unsafe { blocks.pop_many(to.as_mut_ptr(), to.len() as u32) } as usize;
        assert!(popped <= to.len(), "more values than there is room for");
        popped
    }

    /// Puts the first of `values` into a list of this processor, as many as fit, and returns their
    /// number.
    pub(crate) fn push_many(&self, list: usize, values: &[u32]) -> usize {
        let Some(blocks) = self.blocks(list) else { return 0 };
        // SAFETY: as in `pop`, and the slice is readable.
        let push = || unsafe { blocks.push_many(values.as_ptr(), values.len() as u32) };
        let pushed = push();
        let pushed = if pushed == 0 && self.open_block(list) { push() } else { pushed } as usize;
        assert!(pushed <= values.len(), "more values than there are");
        pushed
    }

    /// Drains the lists of all processors, and calls `f` with list and value of each. Meanwhile all
    /// threads take the slow path, `f` too; `f` must not drain these lists itself. Does nothing
    /// when the kernel does not restart sections, although it agreed to when they were enabled.
    pub(crate) fn drain_all(&self, f: &mut dyn FnMut(usize, u32)) {
        if !self.is_ready() {
            return;
        }
        // Held over a system call: the lock orders drains only, and waiters yield.
        let _owner = self.owner.lock();
        self.set_limits(true);
        if rseq::restart_all().is_ok() {
            self.for_each_head(|list, head| {
                // Relaxed, both: after the restart no section changes the list, and this thread
                // sees all earlier changes; ceilings were written once, before `starts`.
                let length = head.length.load(Ordering::Relaxed);
                let ceiling = self.ceilings[list].load(Ordering::Relaxed);
                assert!(length <= ceiling.into(), "list {list} is longer than its memory");
                for index in 0..length as usize {
                    // SAFETY: the head is followed by its values (see `init`), and no section
                    // writes to a list that is shut.
                    f(list, unsafe { (&raw const *head).add(1).cast::<u32>().add(index).read() });
                }
                // Relaxed: the store of the limits below orders it.
                head.length.store(0, Ordering::Relaxed);
            });
        }
        self.set_limits(false);
    }

    /// Returns roughly how many values a list has on all processors together.
    pub(crate) fn length(&self, list: usize) -> usize {
        let mut length = 0;
        if self.is_ready() {
            self.for_each_head(|other, head| {
                if other == list {
                    // Relaxed: the counter stands alone.
                    length += head.length.load(Ordering::Relaxed) as usize;
                }
            });
        }
        length
    }

    /// Returns the maximum memory of the lists: the blocks of the processors that have used one.
    pub(crate) fn memory(&self) -> Bytes {
        // Relaxed, all: the counters stand alone; there are lists once a block is open.
        let lists = self.lists.load(Ordering::Relaxed);
        let capacity = |list: &AtomicU16| list.load(Ordering::Relaxed);
        let block: usize = self.ceilings[..lists].iter().map(|it| list_bytes(capacity(it))).sum();
        Bytes(self.open.load(Ordering::Relaxed) * block.next_multiple_of(PAGE_BYTES))
    }

    /// Returns the arguments with which the sections find a list.
    #[inline]
    fn blocks(&self, list: usize) -> Option<Blocks> {
        // Acquire pairs with the Release in `init`.
        let base = self.starts[list].load(Ordering::Acquire);
        if base.is_null() {
            return None;
        }
        // Relaxed, both: they were written once, before `starts`.
        let count = self.count.load(Ordering::Relaxed);
        Some(Blocks { base, count, offset: self.offset.load(Ordering::Relaxed) })
    }

    /// Returns whether it opened the lists of this processor: only when no thread has used them
    /// yet.
    #[cold]
    fn open_block(&self, list: usize) -> bool {
        // Relaxed: this thread has seen the list's start, which was written later.
        let offset = self.offset.load(Ordering::Relaxed);
        // SAFETY: the sections are enabled with this offset; the code that enabled them vouches for
        // the thread, whose memory exists while it runs.
        let Some(processor) = unsafe { cpu::RseqArea::of_current(offset) }.cpu() else {
            return false;
        };
        // Relaxed: this thread has seen `starts` set.
        if processor >= self.count.load(Ordering::Relaxed) as usize {
            return false;
        }
        let is_new = || {
            // Relaxed: limits change under the lock only, where they are read again.
            self.head(processor, list).limits.load(Ordering::Relaxed) == 0
        };
        if !is_new() {
            return false;
        }
        // A try, without waiting: the caller may hold a lock that a drain waits for.
        let Some(_owner) = self.owner.try_lock() else { return false };
        let opens = is_new();
        if opens {
            // Relaxed: the counter stands alone.
            self.open.fetch_add(1, Ordering::Relaxed);
            self.set_block_limits(processor, false);
        }
        opens
    }

    /// Shuts all open blocks, or opens all that were shut. Needs the lock.
    fn set_limits(&self, shut: bool) {
        // Relaxed: this thread has seen `starts` set.
        for processor in 0..self.count.load(Ordering::Relaxed) as usize {
            // Relaxed: the lock orders it.
            if self.head(processor, 0).limits.load(Ordering::Relaxed) != 0 {
                self.set_block_limits(processor, shut);
            }
        }
    }

    /// Shuts or opens the lists of one processor. Needs the lock.
    fn set_block_limits(&self, processor: usize, shut: bool) {
        debug_assert!(self.owner.try_lock().is_none(), "limits change under the lock");
        // Relaxed: written once, before `starts`.
        for list in 0..self.lists.load(Ordering::Relaxed) {
            let ceiling = self.ceilings[list].load(Ordering::Relaxed);
            let limits = if shut { ListHead::SHUT } else { ListHead::open_up_to(ceiling) };
            // Release pairs with the reads of a section, limits before length: a section that sees
            // a list open again sees it empty.
            self.head(processor, list).limits.store(limits, Ordering::Release);
        }
    }

    /// Calls `f` for each list in use.
    fn for_each_head(&self, mut f: impl FnMut(usize, &ListHead)) {
        // Relaxed: this thread has seen `starts` set, and may miss blocks that are just being
        // opened.
        for processor in 0..self.count.load(Ordering::Relaxed) as usize {
            for list in 0..self.lists.load(Ordering::Relaxed) {
                let head = self.head(processor, list);
                if head.limits.load(Ordering::Relaxed) == 0 {
                    break;
                }
                f(list, head);
            }
        }
    }

    fn head(&self, processor: usize, list: usize) -> &ListHead {
        // Acquire pairs with the Release in `init`.
        let start = self.starts[list].load(Ordering::Acquire);
        // SAFETY: callers stay below `count` and `lists` and have seen `starts` set, so there is a
        // head, in memory that exists as long as this does. Zeros are a head, and its fields are
        // atomics.
        unsafe { &*start.add(processor * Blocks::STRIDE).cast::<ListHead>() }
    }
}
