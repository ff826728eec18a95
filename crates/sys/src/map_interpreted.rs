//! Address space under miri, which has no `mmap`: the same spans, from the standard library's
//! allocator. A discarded range reads as zero; an inaccessible range is accessible all the same.

use std::alloc::{Layout, alloc_zeroed, dealloc};

use core::ptr::NonNull;

use crate::errno;
use crate::error::{SysError, SysResult};
use crate::page::{Bytes, PAGE_BYTES};

/// Visits nothing: no code looks at mappings here.
pub fn for_each_span(_visit: impl FnMut(usize, usize)) {}

/// Does nothing: there is no `fork` here.
pub fn inherit_spans(_inherited: bool) -> SysResult<()> {
    Ok(())
}

/// Does nothing: there is no `fork` here.
pub fn forget_spans() {}

/// Does nothing: miri has no mappings to keep apart.
pub fn keep_apart(_seed: usize) {}

/// Returns null: there is no address to ask `mmap` for.
pub(crate) fn hint(_length: usize) -> *mut core::ffi::c_void {
    core::ptr::null_mut()
}

/// A private, page-aligned span of address space.
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
    /// Reserves `length` bytes, rounded up to pages, aligned to `align`.
    pub fn reserve(length: Bytes, align: Bytes) -> SysResult<Self> {
        assert!(align.0.is_power_of_two() && align.0 >= PAGE_BYTES);
        let length = length.pages_up().bytes();
        let refused = SysError { call: "reserve", errno: errno::ENOMEM };
        let layout = Layout::from_size_align(length.0, align.0).map_err(|_| refused)?;
        // SAFETY: no caller reserves zero bytes, so the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(refused)?;
        Ok(Self { base, length, align: align.0 })
    }

    /// Reserves a span as [`Span::reserve`] does.
    pub fn reserve_inaccessible(length: Bytes, align: Bytes) -> SysResult<Self> {
        Self::reserve(length, align)
    }

    /// Checks that the range lies in the span, which is readable and writable already.
    pub fn commit(&self, offset: Bytes, length: Bytes) -> SysResult<()> {
        self.range(offset, length);
        Ok(())
    }

    /// Makes a range read as zero; it stays accessible.
    ///
    /// # Safety
    /// As for [`Span::discard`].
    pub unsafe fn decommit(&self, offset: Bytes, length: Bytes) -> SysResult<()> {
        // SAFETY: the caller's promise, handed on.
        unsafe { self.discard(offset, length) }
    }

    /// Returns the first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the first address, as a number.
    pub fn address(&self) -> usize {
        self.base.as_ptr().addr()
    }

    /// Returns the length in bytes, a whole number of pages.
    pub fn length(&self) -> Bytes {
        self.length
    }

    /// Returns the alignment requested at [`Span::reserve`].
    pub fn align(&self) -> Bytes {
        Bytes(self.align)
    }

    /// Makes the bytes of `offset..offset + length` zero.
    ///
    /// # Safety
    /// No code may rely on the bytes of that range, nor hold a reference into it.
    pub unsafe fn discard(&self, offset: Bytes, length: Bytes) -> SysResult<()> {
        self.range(offset, length);
        // SAFETY: the range is inside the span, and the caller gave up its contents.
        unsafe { self.base.add(offset.0).write_bytes(0, length.0) };
        Ok(())
    }

    /// Checks that the range lies in the span; it stays accessible.
    pub fn guard(&self, offset: Bytes, length: Bytes) -> SysResult<()> {
        self.range(offset, length);
        Ok(())
    }

    /// Does nothing: miri has no huge pages.
    pub fn forbid_huge_pages(&self) {}

    /// Does nothing: miri has no core files and no swap devices.
    pub(crate) fn keep_secret(&self) -> SysResult<()> {
        Ok(())
    }

    fn range(&self, offset: Bytes, length: Bytes) {
        assert!(offset.0 + length.0 <= self.length.0 && offset.0.is_multiple_of(PAGE_BYTES));
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.length.0, self.align);
        // SAFETY: `reserve` allocated the span with this layout, and after the drop nothing uses
        // it.
        unsafe { dealloc(self.base.as_ptr(), layout.expect("it was allocated with this layout")) };
    }
}
