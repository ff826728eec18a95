//! Layer codec: one page to few bytes, and back.
//!
//! A [`Codec`] owns all the memory that it or its library needs, allocated once when the codec is
//! made. It runs inside other people's programs, so a page costs neither an allocation nor a system
//! call. Functions without state stand beside it: [`mod@same_filled`] finds pages that are one
//! repeated word, and [`mod@checksum`] guards bytes that leave memory.
//!
//! Pages that stay are worth more time. A [`Trainer`] makes a [`Dictionary`] of the pages it is
//! offered, and a [`DictionaryCodec`] compresses with the newest dictionary:
//!
//! ```text
//! pages, now and then -> Trainer::offer, then step, step, ... -> finish -> Dictionary
//! Dictionary -> DictionaryCodec::adopt -> a Generation, kept with each page compressed since
//! ```
//!
//! Invariants:
//! 1. `decompress(compress(page)) == page`, for each codec and each page.
//! 2. No byte is written outside of the caller's buffers, whatever the input.
//! 3. Only making a codec, a part or a copy of one, or a trainer allocates; C is called only with
//!    caller-owned state (see `ffi`).
//! 4. The output depends on the page, the dictionary and the output limit alone, not on pages seen
//!    before.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod checksum;
mod choice;
mod dictionary;
mod dictionary_codec;
mod error;
mod ffi;
mod id;
mod lz4;
mod lzo;
mod room;
pub mod same_filled;
#[cfg(test)]
mod tests;
mod trainer;
mod wk;
mod zstd;

use core::fmt;

pub use checksum::{checksum, fingerprint};
pub use choice::{CodecChoice, ParseCodecError};
pub use dictionary::Dictionary;
pub use dictionary_codec::{
    DictionaryCodec, DictionaryDecoder, DictionaryEncoder, GENERATIONS, Generation, Mark,
};
pub use error::{CodecError, DecodeError};
pub use id::{CodecId, DEFAULT_DICTIONARY_LEVEL, ZSTD_LEVELS};
pub use same_filled::{fill, same_filled};
pub use trainer::Trainer;

use coldpress_sys::{Bytes, PAGE_BYTES, Page};
use lz4::Lz4;
use lzo::Lzo;
use wk::Wk;
use zstd::Zstd;

/// A compressor and decompressor of pages with its work memory. Not shared: one per thread.
pub struct Codec {
    id: CodecId,
    engine: Engine,
}

/// The implementation of a [`Codec`].
enum Engine {
    Wk(Wk),
    Lz4(Lz4),
    Lzo(Lzo),
    Zstd(Zstd),
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Codec {
    /// Makes a codec with its work memory, from the global allocator.
    ///
    /// # Errors
    /// [`CodecError::Level`] when a zstd level is outside of [`ZSTD_LEVELS`],
    /// [`CodecError::NoMemory`] when the work memory cannot be allocated, [`CodecError::Library`]
    /// when the library refuses it.
    pub fn new(id: CodecId) -> Result<Self, CodecError> {
        let engine = match id {
            CodecId::Wk => Engine::Wk(Wk::new()?),
            CodecId::Lz4 => Engine::Lz4(Lz4::new()?),
            CodecId::Lzo => Engine::Lzo(Lzo::new()?),
            CodecId::Zstd { level } => Engine::Zstd(Zstd::new(level)?),
        };
        Ok(Self { id, engine })
    }

    /// Returns which codec this is.
    pub fn id(&self) -> CodecId {
        self.id
    }

    /// Returns the size of the work memory, held until the codec is dropped, without this
    /// structure.
    pub fn work_bytes(&self) -> Bytes {
        match &self.engine {
            Engine::Wk(wk) => wk.work_bytes(),
            Engine::Lz4(lz4) => lz4.work_bytes(),
            Engine::Lzo(lzo) => lzo.work_bytes(),
            Engine::Zstd(zstd) => zstd.work_bytes(),
        }
    }

    /// Compresses `page` into the front of `out` and returns that part.
    ///
    /// Returns `None` when the result does not fit; the contents of `out` are then unspecified.
    /// zstd needs some bytes (below 16) of room beyond the result to write it.
    pub fn compress<'o>(&mut self, page: &Page, out: &'o mut [u8]) -> Option<&'o [u8]> {
        let length = match &mut self.engine {
            Engine::Wk(wk) => wk.compress(page, out),
            Engine::Lz4(lz4) => lz4.compress(page, out),
            Engine::Lzo(lzo) => lzo.compress(page, out),
            Engine::Zstd(zstd) => zstd.compress(page, out),
        }?;
        out.get(..length)
    }

    /// Decompresses `data`, the whole result of one [`compress`](Self::compress), into `page`.
    ///
    /// # Errors
    /// [`DecodeError`] when `data` is not the compressed form of exactly one page. The bytes of
    /// `page` are then unspecified. Damage that still decodes to a page is not found here, but by
    /// [`checksum()`].
    pub fn decompress(&mut self, data: &[u8], page: &mut Page) -> Result<(), DecodeError> {
        match &mut self.engine {
            Engine::Wk(_) => decompress_wk(data, page),
            Engine::Lz4(_) => decompress_lz4(data, page),
            Engine::Lzo(_) => decompress_lzo(data, page),
            Engine::Zstd(zstd) => whole_page(zstd.decompress(data, page)),
        }
    }
}

/// Decompresses as [`Codec::decompress`] of WK does, but without work memory.
///
/// # Errors
/// Those of [`Codec::decompress`].
pub fn decompress_wk(data: &[u8], page: &mut Page) -> Result<(), DecodeError> {
    whole_page(wk::decompress(data, page))
}

/// Decompresses as [`Codec::decompress`] of LZ4 does, but without work memory.
///
/// # Errors
/// Those of [`Codec::decompress`].
pub fn decompress_lz4(data: &[u8], page: &mut Page) -> Result<(), DecodeError> {
    whole_page(Lz4::decompress(data, page))
}

/// Decompresses as [`Codec::decompress`] of LZO does, but without work memory.
///
/// # Errors
/// Those of [`Codec::decompress`].
pub fn decompress_lzo(data: &[u8], page: &mut Page) -> Result<(), DecodeError> {
    whole_page(Lzo::decompress(data, page))
}

/// Checks that a decoder made a whole page; `length` counts the bytes it made, if well-formed.
fn whole_page(length: Option<usize>) -> Result<(), DecodeError> {
    match length {
        Some(PAGE_BYTES) => Ok(()),
        Some(length) => Err(DecodeError::Short(Bytes(length))),
        None => Err(DecodeError::Corrupt),
    }
}
