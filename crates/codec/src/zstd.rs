//! Zstandard, the dense codec: one frame of one block per page.
//!
//! The frame is the shortest the format has (RFC 8878 section 3.1.1, and zstd.h on
//! `ZSTD_f_zstd1_magicless`): no magic number, content size, checksum or dictionary number, which
//! leaves 2 bytes of frame header and 3 of block header.

use coldpress_sys::{Bytes, Page};

use crate::error::CodecError;
use crate::ffi;
use crate::id::ZSTD_LEVELS;

/// Both contexts, each in static memory sized for one page.
pub(crate) struct Zstd {
    encoder: ffi::ZstdEncoder,
    decoder: ffi::ZstdDecoder,
}

impl Zstd {
    /// Makes a codec of `level`.
    pub(crate) fn new(level: i32) -> Result<Self, CodecError> {
        if !ZSTD_LEVELS.contains(&level) {
            return Err(CodecError::Level(level));
        }
        Ok(Self { encoder: ffi::ZstdEncoder::new(level)?, decoder: ffi::ZstdDecoder::new()? })
    }

    /// Returns the size of both contexts.
    pub(crate) fn work_bytes(&self) -> Bytes {
        self.encoder.bytes() + self.decoder.bytes()
    }

    /// Compresses `page` to the front of `out`. Returns the number of bytes written, or `None` if
    /// they do not fit.
    pub(crate) fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        self.encoder.compress(page, out)
    }

    /// Decompresses `data` to the front of `page`. Returns the number of bytes written, or `None`
    /// if `data` is malformed or longer than the page.
    pub(crate) fn decompress(&mut self, data: &[u8], page: &mut Page) -> Option<usize> {
        self.decoder.decompress(data, &[], page)
    }
}
