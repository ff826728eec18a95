//! A buffer in which an object that lies in pieces is put together.

use core::mem::MaybeUninit;
use core::slice;

use coldpress_sys::Page;

/// Room for one object, on the stack of its user.
pub(super) struct Bounce {
    bytes: MaybeUninit<Page>,
    /// The number of bytes written.
    length: usize,
}

impl Bounce {
    pub(super) const fn new() -> Self {
        Self { bytes: MaybeUninit::uninit(), length: 0 }
    }

    /// Adds the next piece. All pieces together are no longer than a page.
    pub(super) fn push(&mut self, piece: &[u8]) {
        let end = self.length + piece.len();
        assert!(end <= size_of::<Page>(), "an object is no larger than a page");
        // SAFETY: the piece ends in the page, which only this buffer uses.
        unsafe {
            let start = self.bytes.as_mut_ptr().cast::<u8>().add(self.length);
            start.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
        }
        self.length = end;
    }

    /// Returns the pieces, one behind the other.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `length` bytes were written, from the first on.
        unsafe { slice::from_raw_parts(self.bytes.as_ptr().cast(), self.length) }
    }
}
