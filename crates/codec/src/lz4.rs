//! LZ4, the fast codec: block format, no frame, acceleration 1.
//!
//! The state (16 KiB) is cleared for each page, so the output depends on the page alone. The block
//! format holds no length: the caller knows the length of the data, and a page is always a page.

use coldpress_sys::{Bytes, Page};

use crate::error::CodecError;
use crate::ffi;

/// The compressor's state; the decompressor has none.
pub(crate) struct Lz4 {
    state: ffi::Lz4State,
}

impl Lz4 {
    /// Makes a codec with a state of about 16 KiB.
    pub(crate) fn new() -> Result<Self, CodecError> {
        Ok(Self { state: ffi::Lz4State::new()? })
    }

    /// Returns the size of the state.
    pub(crate) fn work_bytes(&self) -> Bytes {
        self.state.bytes()
    }

    /// Compresses `page` to the front of `out`. Returns the number of bytes written, or `None` if
    /// they do not fit.
    pub(crate) fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        self.state.compress(page, out)
    }

    /// Decompresses `data` to the front of `page`. Returns the number of bytes written, or `None`
    /// if `data` is malformed or longer than the page.
    pub(crate) fn decompress(data: &[u8], page: &mut Page) -> Option<usize> {
        ffi::lz4_decompress(data, page)
    }
}
