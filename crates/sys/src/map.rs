//! Address space: reserved spans that the kernel fills with memory on touch, and takes back on
//! request.

use core::ffi::c_void;
use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mlock, mmap_anonymous, mprotect, munlock,
    munmap,
};

use crate::errno;
use crate::error::{SysError, SysResult};
use crate::page::{Bytes, PAGE_BYTES};

/// The start and end of every live span, guards included, or two zeros. A scan of this process's
/// mappings recognizes ours by this table.
static SPANS: [[AtomicUsize; 2]; SPANS_MAX] =
    [const { [const { AtomicUsize::new(0) }; 2] }; SPANS_MAX];
/// Maximum spans at a time. Above it [`Span::reserve`] fails with `ENOMEM`.
const SPANS_MAX: usize = 512;

/// Calls `visit` with the first address and the end of each live span of this process, guards
/// included.
pub fn for_each_span(mut visit: impl FnMut(usize, usize)) {
    for [start, end] in &SPANS {
        // Acquire pairs with the Release in `note_span`.
        let last = end.load(Ordering::Acquire);
        // Acquire pairs with the Release in `drop_span`, which may be under way on another thread:
        // a thread that sees that start also sees this end.
        let first = start.load(Ordering::Acquire);
        // Relaxed: ordered by the load above.
        if last != 0 && first != 0 && end.load(Ordering::Relaxed) == last {
            visit(first, last);
        }
    }
}

/// Sets whether children of `fork` inherit the spans that are live now. Fails with the kernel's
/// number; some spans are inherited then, others not.
pub fn inherit_spans(inherited: bool) -> SysResult<()> {
    let mut result = Ok(());
    for_each_span(|start, end| {
        let done = inherit(start + GUARD_BYTES..end - GUARD_BYTES, inherited);
        result = result.and(done);
    });
    result
}

/// Sets whether children of `fork` inherit a range of whole pages (`MADV_DOFORK`, `MADV_DONTFORK`).
/// Fails with `ENOMEM` where a part of it is not mapped, after treating all the rest, or when there
/// is no memory for one more mapping.
pub fn inherit(range: Range<usize>, inherited: bool) -> SysResult<()> {
    let advice = if inherited { Advice::LinuxDoFork } else { Advice::LinuxDontFork };
    // SAFETY: the advice changes no contents, and nothing in this process.
    unsafe { madvise(range.start as *mut c_void, range.end - range.start, advice) }
        .map_err(SysError::of("madvise"))
}

/// Unmaps all spans, with their guards.
///
/// # Safety
/// Nothing may use any of them from now on, nor make another before all are gone.
pub unsafe fn give_up_spans() {
    for_each_span(|start, end| {
        // SAFETY: the range is ours alone, and the caller vouches for the rest.
        let _ = unsafe { munmap(start as *mut c_void, end - start) };
    });
    forget_spans();
}

/// Forgets all spans. For a child of `fork` that has inherited none.
pub fn forget_spans() {
    for [start, end] in &SPANS {
        // Relaxed: there is no other thread.
        end.store(0, Ordering::Relaxed);
        start.store(0, Ordering::Relaxed);
    }
}

fn note_span(first: usize, last: usize) -> bool {
    SPANS.iter().any(|[start, end]| {
        // Relaxed on both sides: the place is ours from here on, and the store below publishes it.
        let free = start.compare_exchange(0, first, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if free {
            // Release pairs with the Acquire in `for_each_span`.
            end.store(last, Ordering::Release);
        }
        free
    })
}

fn drop_span(first: usize) {
    for [start, end] in &SPANS {
        // Relaxed: the span's owner drops it, so no other thread changes this place meanwhile.
        if start.load(Ordering::Relaxed) == first {
            end.store(0, Ordering::Relaxed);
            // Release pairs with the exchange in `note_span`: the end is zero before the place is
            // free.
            start.store(0, Ordering::Release);
        }
    }
}

/// The preferred address of our next mapping. Zero: the kernel chooses.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// The lowest address that [`keep_apart`] chooses, far above where the kernel puts programs and
/// their heaps (from 0x5555... on, within a TiB) and far below its mappings (0x7f...). Sanitizers
/// use the rest: AddressSanitizer everything below 0x1000..., MemorySanitizer all but 0x51... to
/// 0x60... and what the kernel uses, and ThreadSanitizer everything from 0x5a... on.
const APART: usize = 0x5780_0000_0000;
/// The chosen address lies at most this far above [`APART`]: 1 TiB.
const APART_BYTES: usize = 1 << 40;
/// Alignment of the chosen address: the memory that one page of page tables maps.
const APART_ALIGN: usize = 2 << 20;

/// Puts our mappings, from now on, where the kernel puts none unasked. A program may give back a
/// part of its memory and map the same addresses again; in the meantime they must not become ours.
/// `seed` chooses the address.
pub fn keep_apart(seed: usize) {
    // Relaxed: a hint, of which every value is right.
    NEXT.store(APART + seed % APART_BYTES / APART_ALIGN * APART_ALIGN, Ordering::Relaxed);
}

/// Returns the address to ask `mmap` for, for a mapping of `length` bytes.
pub(crate) fn hint(length: usize) -> *mut c_void {
    // Relaxed, both: as above.
    if NEXT.load(Ordering::Relaxed) == 0 {
        return ptr::null_mut();
    }
    ptr::without_provenance_mut(
        NEXT.fetch_add(length.next_multiple_of(PAGE_BYTES), Ordering::Relaxed),
    )
}

/// Unmapped bytes on both sides of a span, which keep the kernel from merging it with a neighbour.
const GUARD_BYTES: usize = PAGE_BYTES;

/// A private, page-aligned span of address space; where it is committed, the first touch backs it
/// with memory.
///
/// Children of `fork` do not inherit it, but see [`inherit_spans`]; dropping it unmaps it.
#[derive(Debug)]
pub struct Span {
    base: NonNull<u8>,
    length: Bytes,
    align: usize,
}

// SAFETY: a span is an address and a length; access to its bytes goes through raw pointers whose
// users state their own exclusion.
unsafe impl Send for Span {}
// SAFETY: as for `Send`; `discard` is unsafe and asks for exclusion itself.
unsafe impl Sync for Span {}

impl Span {
    /// Reserves `length` bytes, rounded up to pages, aligned to `align` (a power of two of at least
    /// a page), readable and writable. The span uses no memory until it is touched. Fails with the
    /// kernel's number, usually `ENOMEM` under an address-space limit.
    pub fn reserve(length: Bytes, align: Bytes) -> SysResult<Self> {
        let span = Self::reserve_inaccessible(length, align)?;
        span.commit(Bytes(0), span.length)?;
        Ok(span)
    }

    /// Reserves a span as [`Span::reserve`] does, but no byte is accessible until it is committed.
    pub fn reserve_inaccessible(length: Bytes, align: Bytes) -> SysResult<Self> {
        assert!(align.0.is_power_of_two() && align.0 >= PAGE_BYTES);
        let length = length.pages_up().bytes();
        let total = length.0 + align.0 + 2 * GUARD_BYTES;
        // SAFETY: a fresh private mapping where there is none touches nothing of ours.
        let start = unsafe {
            mmap_anonymous(
                hint(total),
                total,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(SysError::of("mmap"))?;
        // `mlockall(MCL_FUTURE)` would lock, and so fill, what is committed later.
        // SAFETY: the range is the mapping made above.
        let _ = unsafe { munlock(start, total) };
        let first = (start as usize + GUARD_BYTES).next_multiple_of(align.0);
        // SAFETY: `first..first + length` lies inside the mapping made above, by the choice of
        // `total`.
        unsafe { madvise(first as *mut c_void, length.0, Advice::LinuxDontFork) }.map_err(
            |errno| {
                // SAFETY: nothing has been handed out of this mapping.
                let _ = unsafe { munmap(start, total) };
                SysError::of("madvise")(errno)
            },
        )?;
        // The slack before and after the span goes back to the kernel, except for one guard page
        // each.
        let lead = first - GUARD_BYTES - start as usize;
        let tail = first + length.0 + GUARD_BYTES;
        // SAFETY: both ranges are inside our mapping and outside the span.
        unsafe {
            if lead > 0 {
                let _ = munmap(start, lead);
            }
            if start as usize + total > tail {
                let _ = munmap(tail as *mut c_void, start as usize + total - tail);
            }
        }
        if !note_span(first - GUARD_BYTES, first + length.0 + GUARD_BYTES) {
            let kept = (first - GUARD_BYTES) as *mut c_void;
            // SAFETY: nothing has been handed out of this mapping.
            let _ = unsafe { munmap(kept, length.0 + 2 * GUARD_BYTES) };
            return Err(SysError { call: "reserve(too many spans)", errno: errno::ENOMEM });
        }
        let base = NonNull::new(first as *mut u8).expect("mmap returns no null");
        Ok(Self { base, length, align: align.0 })
    }

    /// Makes a range readable and writable; bytes that were inaccessible read as zero. Fails with
    /// the kernel's number, usually `ENOMEM` under a limit of data or of committed memory; a part
    /// of the range may be accessible then.
    pub fn commit(&self, offset: Bytes, length: Bytes) -> SysResult<()> {
        let start = self.range(offset, length);
        // SAFETY: the range is inside the span; access to it is only widened.
        unsafe { mprotect(start, length.0, MprotectFlags::READ | MprotectFlags::WRITE) }
            .map_err(SysError::of("mprotect"))
    }

    /// Commits the whole span as [`Span::commit`] does, and makes it executable. Fails with
    /// `EACCES` or `EPERM` where the system forbids memory that is both writable and executable.
    pub fn commit_executable(&self) -> SysResult<()> {
        let start = self.range(Bytes(0), self.length);
        let access = MprotectFlags::READ | MprotectFlags::WRITE | MprotectFlags::EXEC;
        // SAFETY: the range is the span; access to it is only widened.
        unsafe { mprotect(start, self.length.0, access) }.map_err(SysError::of("mprotect"))
    }

    /// Returns the memory of a range to the system and makes the range inaccessible until it is
    /// committed again. After an error the range is accessible, its bytes as they were or zero.
    ///
    /// # Safety
    /// As for [`Span::discard`], and no code may access the range before it is committed again.
    pub unsafe fn decommit(&self, offset: Bytes, length: Bytes) -> SysResult<()> {
        // SAFETY: the caller's promise, handed on.
        unsafe { self.discard(offset, length) }?;
        self.guard(offset, length)
    }

    /// Returns the first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the first address, as a number.
    pub fn address(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// Returns the length in bytes, a whole number of pages.
    pub fn length(&self) -> Bytes {
        self.length
    }

    /// Returns the alignment requested at [`Span::reserve`].
    pub fn align(&self) -> Bytes {
        Bytes(self.align)
    }

    /// Returns the memory of `offset..offset + length` to the system; the range reads as zero
    /// afterwards.
    ///
    /// # Safety
    /// No code may rely on the bytes of that range, nor hold a reference into it.
    pub unsafe fn discard(&self, offset: Bytes, length: Bytes) -> SysResult<()> {
        let start = self.range(offset, length);
        // SAFETY: the range is inside the span, and the caller gave up its contents.
        unsafe { madvise(start, length.0, Advice::LinuxDontNeed) }.map_err(SysError::of("madvise"))
    }

    /// Makes a range of the span inaccessible, as a guard between its neighbours. The memory stays.
    pub fn guard(&self, offset: Bytes, length: Bytes) -> SysResult<()> {
        let start = self.range(offset, length);
        // SAFETY: the range is inside the span; a later access is a fault, not undefined.
        unsafe { mprotect(start, length.0, MprotectFlags::empty()) }
            .map_err(SysError::of("mprotect"))
    }

    /// Returns the address of a range of whole pages, which must lie inside the span.
    fn range(&self, offset: Bytes, length: Bytes) -> *mut c_void {
        assert!(offset.0 + length.0 <= self.length.0 && offset.0.is_multiple_of(PAGE_BYTES));
        (self.address() + offset.0) as *mut c_void
    }

    /// Keeps huge pages out of the span, so that only touched pages use memory.
    pub fn forbid_huge_pages(&self) {
        // A kernel without huge pages answers EINVAL, which means the same.
        // SAFETY: the advice changes no contents.
        let _ =
            unsafe { madvise(self.base.as_ptr().cast(), self.length.0, Advice::LinuxNoHugepage) };
    }

    /// Keeps the span out of core files, so that a process that dumps this one while it runs does
    /// not touch all of it.
    pub fn forbid_dump(&self) {
        // SAFETY: the advice changes no contents.
        let _ = unsafe { madvise(self.base.as_ptr().cast(), self.length.0, Advice::LinuxDontDump) };
    }

    /// Keeps the span out of core files and, where the limit of locked memory (`RLIMIT_MEMLOCK`)
    /// allows, off swap devices. Fails with the kernel's number when it would be dumped.
    pub(crate) fn keep_secret(&self) -> SysResult<()> {
        let start = self.base.as_ptr().cast();
        // SAFETY: the range is the span; neither call changes its contents.
        unsafe {
            madvise(start, self.length.0, Advice::LinuxDontDump)
                .map_err(SysError::of("madvise"))?;
            let _ = mlock(start, self.length.0);
        }
        Ok(())
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let start = (self.address() - GUARD_BYTES) as *mut c_void;
        drop_span(start as usize);
        // SAFETY: the span and its two guards are ours, and after the drop nothing uses them.
        let _ = unsafe { munmap(start, self.length.0 + 2 * GUARD_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_spans_are_known_and_dropped_ones_are_not() {
        let span = Span::reserve(Bytes::mib(1), Bytes(PAGE_BYTES)).unwrap();
        let address = span.address();
        let known = || {
            let mut found = false;
            for_each_span(|start, end| found |= (start..end).contains(&address));
            found
        };
        assert!(known());
        drop(span);
        assert!(!known());
    }

    #[test]
    fn what_was_decommitted_is_zero_when_it_is_committed_again() {
        let span = Span::reserve_inaccessible(Bytes::mib(4), Bytes::mib(2)).unwrap();
        span.commit(Bytes::mib(2), Bytes::mib(2)).unwrap();
        // SAFETY: the offset is inside the span and committed, and this test is its only user.
        unsafe {
            let byte = span.base().as_ptr().add(3 << 20);
            byte.write(7);
            span.decommit(Bytes::mib(2), Bytes::mib(2)).unwrap();
            span.commit(Bytes(0), Bytes::mib(4)).unwrap();
            assert_eq!(byte.read(), 0);
        }
    }

    #[test]
    fn a_span_is_aligned_zeroed_writable_and_discardable() {
        let span = Span::reserve(Bytes::mib(4), Bytes::mib(2)).unwrap();
        assert_eq!(span.address() % (2 << 20), 0);
        // SAFETY: the offsets are inside the span, and this test is its only user.
        unsafe {
            let byte = span.base().as_ptr().add(12_345);
            assert_eq!(byte.read(), 0);
            byte.write(7);
            span.discard(Bytes(0), Bytes::mib(4)).unwrap();
            assert_eq!(byte.read(), 0);
        }
    }
}
