//! zstd with dictionaries of the program's own pages: the codec for pages that stay.
//!
//! Programs change, and so should their dictionary; but a page comes back only with the dictionary
//! it was compressed with. So a codec keeps several, each under its [`Generation`]. It compresses
//! with the newest one and decompresses with any. Who keeps the pages keeps a page's generation
//! with it (two bits), counts them, and retires a dictionary that no page needs any more.
//!
//! The compressed page is one byte, the number of the dictionary among all ever adopted, and behind
//! it a zstd frame as that of [`Codec`](crate::Codec). The byte tells a page whose generation got
//! mixed up, for zstd itself would decompress it to something else.
//!
//! Invariants:
//! 1. `dictionaries[newest]` is there, and is the one the encoder copies from.
//! 2. No two dictionaries that are there have the same mark.

use core::fmt;

use coldpress_sys::{Bytes, PAGE_BYTES, Page};

use crate::dictionary::{DICTIONARY_BYTES, Dictionary};
use crate::error::{CodecError, DecodeError};
use crate::ffi::{ZstdDecoder, ZstdDictionaryEncoder};
use crate::id::ZSTD_LEVELS;

/// Dictionaries that a codec keeps at most.
pub const GENERATIONS: usize = 4;

/// Which dictionary of a [`DictionaryCodec`] a page was compressed with. The number of one that was
/// retired is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generation(Number);

/// The numbers by name, so that what has a generation or none takes a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Number {
    First,
    Second,
    Third,
    Fourth,
}

// Beside it there is room for other ways to compress.
const _: () = assert!(size_of::<Option<Generation>>() == 1);

impl Generation {
    /// All of them, by their numbers.
    pub const ALL: [Self; GENERATIONS] =
        [Self(Number::First), Self(Number::Second), Self(Number::Third), Self(Number::Fourth)];

    /// Its number, below [`GENERATIONS`]: an index for who counts pages.
    pub fn number(self) -> usize {
        self.0 as usize
    }
}

/// A dictionary that pages may need.
struct Adopted {
    dictionary: Dictionary,
    /// The first byte of a page compressed with it.
    mark: u8,
}

/// A compressor and decompressor of pages with what they have in common. Not shared: one per
/// thread.
pub struct DictionaryCodec {
    encoder: ZstdDictionaryEncoder,
    decoder: ZstdDecoder,
    dictionaries: [Option<Adopted>; GENERATIONS],
    newest: Generation,
}

impl fmt::Debug for DictionaryCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DictionaryCodec").field("newest", &self.newest).finish_non_exhaustive()
    }
}

impl DictionaryCodec {
    /// A codec of a zstd level with its first dictionary, and its work memory from the global
    /// allocator.
    ///
    /// # Errors
    /// Those of [`Codec::new`](crate::Codec::new).
    pub fn new(level: i32, first: Dictionary) -> Result<Self, CodecError> {
        if !ZSTD_LEVELS.contains(&level) {
            return Err(CodecError::Level(level));
        }
        let mut encoder = ZstdDictionaryEncoder::new(level, DICTIONARY_BYTES.0)?;
        encoder.set_dictionary(first.content())?;
        let mut dictionaries = [const { None }; GENERATIONS];
        dictionaries[0] = Some(Adopted { dictionary: first, mark: 0 });
        let newest = Generation::ALL[0];
        Ok(Self { encoder, decoder: ZstdDecoder::new()?, dictionaries, newest })
    }

    /// The work memory held until this is dropped, and that of the dictionaries there are, without
    /// this structure itself.
    pub fn work_bytes(&self) -> Bytes {
        let dictionaries = self.dictionaries.iter().flatten();
        let dictionaries = dictionaries.map(|adopted| adopted.dictionary.memory().0).sum();
        self.encoder.bytes() + self.decoder.bytes() + Bytes(dictionaries)
    }

    /// What [`compress`](Self::compress) uses.
    pub fn newest(&self) -> Generation {
        self.newest
    }

    /// Compresses with `dictionary` from now on; takes up to a millisecond for its tables. The
    /// former dictionaries stay.
    ///
    /// # Errors
    /// [`CodecError::Generations`] when there is no room for it: retire one first.
    /// [`CodecError::Library`] when the library refuses it. Nothing has changed then, but that
    /// pages may be compressed without a dictionary.
    pub fn adopt(&mut self, dictionary: Dictionary) -> Result<Generation, CodecError> {
        let free = self.dictionaries.iter().position(Option::is_none);
        let number = free.ok_or(CodecError::Generations(GENERATIONS))?;
        self.encoder.set_dictionary(dictionary.content())?;
        let mark = self.next_mark();
        self.dictionaries[number] = Some(Adopted { dictionary, mark });
        self.newest = Generation::ALL[number];
        Ok(self.newest)
    }

    /// Drops a dictionary. `false`, and nothing happens, for the newest one and for one that is not
    /// there. Pages compressed with it can no longer be decompressed.
    pub fn retire(&mut self, generation: Generation) -> bool {
        generation != self.newest && self.dictionaries[generation.number()].take().is_some()
    }

    /// Compresses `page` with the newest dictionary into the front of `out` and returns that part.
    ///
    /// `None` when the result does not fit; what `out` holds is then unspecified. zstd wants some
    /// bytes (below 16) of room beyond the result to write it.
    pub fn compress<'o>(&mut self, page: &Page, out: &'o mut [u8]) -> Option<&'o [u8]> {
        let mark = self.mark_of(self.newest)?;
        let (first, frame) = out.split_first_mut()?;
        *first = mark;
        let length = self.encoder.compress(page, frame)?;
        out.get(..=length)
    }

    /// Decompresses `data`, the whole result of one [`compress`](Self::compress) with the
    /// dictionary of `generation`, into `page`.
    ///
    /// # Errors
    /// [`DecodeError`] when `data` is not the compressed form of exactly one page, or that
    /// dictionary is not there or not the one. The bytes of `page` are then unspecified. Damage
    /// that still decodes to a page is not found here.
    pub fn decompress(
        &mut self,
        generation: Generation,
        data: &[u8],
        page: &mut Page,
    ) -> Result<(), DecodeError> {
        let (mark, frame) = data.split_first().ok_or(DecodeError::Corrupt)?;
        let adopted = self.dictionaries[generation.number()].as_ref();
        let adopted = adopted.filter(|adopted| adopted.mark == *mark);
        let content = adopted.ok_or(DecodeError::Dictionary)?.dictionary.content();
        let length = self.decoder.decompress(frame, content, page).ok_or(DecodeError::Corrupt)?;
        if length == PAGE_BYTES { Ok(()) } else { Err(DecodeError::Short(Bytes(length))) }
    }

    fn mark_of(&self, generation: Generation) -> Option<u8> {
        self.dictionaries[generation.number()].as_ref().map(|adopted| adopted.mark)
    }

    /// The mark after that of the newest dictionary, that none has.
    fn next_mark(&self) -> u8 {
        let mut mark = self.mark_of(self.newest).unwrap_or_default();
        loop {
            mark = mark.wrapping_add(1);
            if self.dictionaries.iter().flatten().all(|adopted| adopted.mark != mark) {
                return mark;
            }
        }
    }
}
