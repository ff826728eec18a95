//! The C libraries behind safe functions. All `unsafe` of this crate is here.
//!
//! Nothing here reaches `malloc`. LZ4 is called through its external-state entry points, which have
//! no allocation in them. zstd is called through contexts made by `ZSTD_initStatic*`, whose memory
//! the library cannot grow ("static cctx : no resize", zstd_compress.c). Dictionaries are in such
//! memory, too, and decompressing with one takes no memory. zstd allocates elsewhere only for
//! worker threads and streams, and none are used. `tests/no_malloc.rs` counts the allocations.
//!
//! Invariants:
//! 1. A library writes only into its [`Workspace`] and into the slice passed as its output.
//! 2. A [`Workspace`] never moves: zstd keeps pointers into it.

use alloc::boxed::Box;
use core::ffi::c_void;
use core::ptr::NonNull;

use coldpress_sys::Bytes;

use crate::error::CodecError;
use crate::room::table;

mod lz4;
mod zstd;

pub(crate) use lz4::{Lz4State, lz4_decompress};
#[cfg(test)]
pub(crate) use zstd::unzstd;
pub(crate) use zstd::{ZstdDecoder, ZstdDictionaryEncoder, ZstdEncoder};

/// Zeroed memory aligned to 8 bytes (what both libraries require), owned through a raw pointer:
/// zstd keeps pointers into the memory, which an owning `Box` would not allow.
struct Workspace {
    words: NonNull<[u64]>,
}

// SAFETY: the memory is owned and reached only through `&mut self`; neither library keeps anything
// of the thread that uses a context.
unsafe impl Send for Workspace {}

impl Workspace {
    fn new(bytes: usize) -> Result<Self, CodecError> {
        let words = table(bytes.div_ceil(size_of::<u64>()), 0_u64)?;
        Ok(Self { words: NonNull::from(Box::leak(words)) })
    }

    fn bytes(&self) -> Bytes {
        Bytes(self.words.len() * size_of::<u64>())
    }

    fn start(&mut self) -> *mut c_void {
        self.words.as_ptr().cast()
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // SAFETY: the pointer is that of the box leaked in `new`, and only this drop frees it.
        drop(unsafe { Box::from_raw(self.words.as_ptr()) });
    }
}
