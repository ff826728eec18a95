//! Address space under miri, which has no `mmap`: the same spans, from the standard library's
//! allocator. What is given back reads as zero; what is inaccessible is not told apart.

use std::alloc::{Layout, alloc_zeroed, dealloc};

use core::ptr::NonNull;

use crate::error::{SysError, SysResult};
use crate::page::{Bytes, PAGE_BYTES};

/// Would call `visit` for each live span: nobody looks at mappings here.
pub fn for_each_span(_visit: impl FnMut(usize, usize)) {}

/// Would say whether children inherit spans: there is no `fork` here.
pub fn inherit_spans(_inherited: bool) -> SysResult<()> {
    Ok(())
}

/// Would forget all spans: there is no `fork` here.
pub fn forget_spans() {}

/// Would keep mappings of ours apart from others': there are none here.
pub fn keep_apart(_seed: usize) {}

/// What to ask of `mmap`: nothing.
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
        let refused = SysError { call: "reserve", errno: 12 };
        let layout = Layout::from_size_align(length.0, align.0).map_err(|_| refused)?;
        // SAFETY: nobody reserves zero bytes.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(refused)?;
        Ok(Self { base, length, align: align.0 })
    }

    /// As [`Span::reserve`].
    pub fn reserve_inaccessible(length: Bytes, align: Bytes) -> SysResult<Self> {
        Self::reserve(length, align)
    }

    /// Makes a range readable and writable, which it is.
    pub fn commit(&self, offset: Bytes, length: Bytes) -> SysResult<()> {
        self.range(offset, length);
        Ok(())
    }

    /// Makes a range inaccessible, which reads as zero when it is committed again.
    ///
    /// # Safety
    /// As for [`Span::discard`].
    pub unsafe fn decommit(&self, offset: Bytes, length: Bytes) -> SysResult<()> {
        // SAFETY: the caller's promise, handed on.
        unsafe { self.discard(offset, length) }
    }

    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The first address, as a number.
    pub fn address(&self) -> usize {
        self.base.as_ptr().addr()
    }

    /// The length in bytes, a whole number of pages.
    pub fn length(&self) -> Bytes {
        self.length
    }

    /// The alignment asked for at [`Span::reserve`].
    pub fn align(&self) -> Bytes {
        Bytes(self.align)
    }

    /// Makes the bytes of `offset..offset + length` zero.
    ///
    /// # Safety
    /// Nobody may rely on the bytes of that range, nor hold a reference into it.
    pub unsafe fn discard(&self, offset: Bytes, length: Bytes) -> SysResult<()> {
        self.range(offset, length);
        // SAFETY: the range is inside the span, and the caller gave up its contents.
        unsafe { self.base.add(offset.0).write_bytes(0, length.0) };
        Ok(())
    }

    /// Would make a range of the span inaccessible.
    pub fn guard(&self, offset: Bytes, length: Bytes) -> SysResult<()> {
        self.range(offset, length);
        Ok(())
    }

    /// Would keep huge pages out of the span.
    pub fn forbid_huge_pages(&self) {}

    /// Would keep the span out of core files and off swap devices.
    pub fn keep_secret(&self) -> SysResult<()> {
        Ok(())
    }

    fn range(&self, offset: Bytes, length: Bytes) {
        assert!(offset.0 + length.0 <= self.length.0 && offset.0.is_multiple_of(PAGE_BYTES));
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.length.0, self.align);
        // SAFETY: `reserve` allocated the span with this layout, and nobody uses it any more.
        unsafe { dealloc(self.base.as_ptr(), layout.expect("it was allocated with this layout")) };
    }
}
