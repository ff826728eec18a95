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
//! A [`DictionaryCodec`] is an encoder and a decoder. Who decompresses on many threads has one
//! [`DictionaryEncoder`] and as many [`DictionaryDecoder`]s, and tells each what was adopted.
//!
//! Invariants:
//! 1. `marks[newest]` is there, and its dictionary is the one the encoder copies from.
//! 2. No two dictionaries that are there have the same mark.

use core::fmt;

use coldpress_sys::{Bytes, Page};

use crate::dictionary::{DICTIONARY_BYTES, Dictionary};
use crate::error::{CodecError, DecodeError};
use crate::ffi::{ZstdDecoder, ZstdDictionaryEncoder};
use crate::id::ZSTD_LEVELS;
use crate::whole_page;

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

/// A dictionary's first byte in each page compressed with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u8);

/// A compressor of pages with what they have in common. Not shared: one per thread.
pub struct DictionaryEncoder {
    encoder: ZstdDictionaryEncoder,
    /// Of the dictionaries that pages may need.
    marks: [Option<Mark>; GENERATIONS],
    newest: Generation,
}

impl fmt::Debug for DictionaryEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DictionaryEncoder").field("newest", &self.newest).finish_non_exhaustive()
    }
}

impl DictionaryEncoder {
    /// An encoder of a zstd level with its first dictionary, and its work memory from the global
    /// allocator.
    ///
    /// # Errors
    /// Those of [`Codec::new`](crate::Codec::new).
    pub fn new(level: i32, first: &Dictionary) -> Result<Self, CodecError> {
        if !ZSTD_LEVELS.contains(&level) {
            return Err(CodecError::Level(level));
        }
        let mut encoder = ZstdDictionaryEncoder::new(level, DICTIONARY_BYTES.0)?;
        encoder.set_dictionary(first.content())?;
        let mut marks = [None; GENERATIONS];
        marks[0] = Some(Mark(0));
        Ok(Self { encoder, marks, newest: Generation::ALL[0] })
    }

    /// The work memory held until this is dropped, without this structure itself.
    pub fn work_bytes(&self) -> Bytes {
        self.encoder.bytes()
    }

    /// What [`compress`](Self::compress) uses.
    pub fn newest(&self) -> Generation {
        self.newest
    }

    /// The mark of the newest dictionary.
    pub fn newest_mark(&self) -> Mark {
        // The newest is there (invariant 1).
        self.marks[self.newest.number()].unwrap_or(Mark(0))
    }

    /// Compresses with `dictionary` from now on; takes up to a millisecond for its tables. Decoders
    /// must adopt it before they meet such a page.
    ///
    /// # Errors
    /// [`CodecError::Generations`] when there is no room for it: retire one first.
    /// [`CodecError::Library`] when the library refuses it. Nothing has changed then, but that
    /// pages may be compressed without a dictionary.
    pub fn adopt(&mut self, dictionary: &Dictionary) -> Result<Generation, CodecError> {
        let free = self.marks.iter().position(Option::is_none);
        let number = free.ok_or(CodecError::Generations(GENERATIONS))?;
        self.encoder.set_dictionary(dictionary.content())?;
        self.marks[number] = Some(self.next_mark());
        self.newest = Generation::ALL[number];
        Ok(self.newest)
    }

    /// Lets a later dictionary have this generation. `false`, and nothing happens, for the newest
    /// one and for one that is not there. Decoders must retire it, too.
    pub fn retire(&mut self, generation: Generation) -> bool {
        generation != self.newest && self.marks[generation.number()].take().is_some()
    }

    /// Compresses `page` with the newest dictionary into the front of `out` and returns that part.
    ///
    /// `None` when the result does not fit; what `out` holds is then unspecified. zstd wants some
    /// bytes (below 16) of room beyond the result to write it.
    pub fn compress<'o>(&mut self, page: &Page, out: &'o mut [u8]) -> Option<&'o [u8]> {
        let Mark(mark) = self.newest_mark();
        let (first, frame) = out.split_first_mut()?;
        *first = mark;
        let length = self.encoder.compress(page, frame)?;
        out.get(..=length)
    }

    /// The mark after that of the newest dictionary, that none has.
    fn next_mark(&self) -> Mark {
        let Mark(mut mark) = self.newest_mark();
        loop {
            mark = mark.wrapping_add(1);
            if self.marks.iter().flatten().all(|other| other.0 != mark) {
                return Mark(mark);
            }
        }
    }
}

/// A decompressor of pages with their dictionaries. Not shared: one per thread.
pub struct DictionaryDecoder {
    decoder: ZstdDecoder,
    dictionaries: [Option<(Mark, Dictionary)>; GENERATIONS],
}

impl fmt::Debug for DictionaryDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DictionaryDecoder").finish_non_exhaustive()
    }
}

impl DictionaryDecoder {
    /// A decoder without dictionaries, and its work memory from the global allocator.
    ///
    /// # Errors
    /// [`CodecError::NoMemory`] and [`CodecError::Library`], as
    /// [`Codec::new`](crate::Codec::new).
    pub fn new() -> Result<Self, CodecError> {
        Ok(Self { decoder: ZstdDecoder::new()?, dictionaries: [const { None }; GENERATIONS] })
    }

    /// Another one that decompresses the same pages.
    ///
    /// # Errors
    /// Those of [`DictionaryDecoder::new`].
    pub fn try_clone(&self) -> Result<Self, CodecError> {
        let mut clone = Self::new()?;
        for (to, from) in clone.dictionaries.iter_mut().zip(&self.dictionaries) {
            if let Some((mark, dictionary)) = from {
                *to = Some((*mark, dictionary.try_clone()?));
            }
        }
        Ok(clone)
    }

    /// The work memory held until this is dropped, and that of the dictionaries there are, without
    /// this structure itself.
    pub fn work_bytes(&self) -> Bytes {
        let dictionaries = self.dictionaries.iter().flatten();
        dictionaries.fold(self.decoder.bytes(), |sum, (_, dictionary)| sum + dictionary.memory())
    }

    /// Decompresses pages of `generation`, which are marked so, with `dictionary` from now on.
    pub fn adopt(&mut self, generation: Generation, mark: Mark, dictionary: Dictionary) {
        self.dictionaries[generation.number()] = Some((mark, dictionary));
    }

    /// Drops a dictionary. Pages compressed with it can no longer be decompressed.
    pub fn retire(&mut self, generation: Generation) {
        self.dictionaries[generation.number()] = None;
    }

    /// Decompresses `data`, the whole result of one [`DictionaryEncoder::compress`] with the
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
        let adopted = adopted.filter(|(Mark(own), _)| own == mark);
        let (_, dictionary) = adopted.ok_or(DecodeError::Dictionary)?;
        let length = self.decoder.decompress(frame, dictionary.content(), page);
        whole_page(length)
    }
}

/// A compressor and decompressor of pages with what they have in common. Not shared: one per
/// thread.
#[derive(Debug)]
pub struct DictionaryCodec {
    encoder: DictionaryEncoder,
    decoder: DictionaryDecoder,
}

impl DictionaryCodec {
    /// A codec of a zstd level with its first dictionary, and its work memory from the global
    /// allocator.
    ///
    /// # Errors
    /// Those of [`Codec::new`](crate::Codec::new).
    pub fn new(level: i32, first: Dictionary) -> Result<Self, CodecError> {
        let encoder = DictionaryEncoder::new(level, &first)?;
        let mut decoder = DictionaryDecoder::new()?;
        decoder.adopt(encoder.newest(), encoder.newest_mark(), first);
        Ok(Self { encoder, decoder })
    }

    /// The work memory held until this is dropped, and that of the dictionaries there are, without
    /// this structure itself.
    pub fn work_bytes(&self) -> Bytes {
        self.encoder.work_bytes() + self.decoder.work_bytes()
    }

    /// What [`compress`](Self::compress) uses.
    pub fn newest(&self) -> Generation {
        self.encoder.newest()
    }

    /// As [`DictionaryEncoder::adopt`], for both ways. The former dictionaries stay.
    ///
    /// # Errors
    /// Those of [`DictionaryEncoder::adopt`].
    pub fn adopt(&mut self, dictionary: Dictionary) -> Result<Generation, CodecError> {
        let generation = self.encoder.adopt(&dictionary)?;
        self.decoder.adopt(generation, self.encoder.newest_mark(), dictionary);
        Ok(generation)
    }

    /// As [`DictionaryEncoder::retire`], for both ways.
    pub fn retire(&mut self, generation: Generation) -> bool {
        let is_retired = self.encoder.retire(generation);
        if is_retired {
            self.decoder.retire(generation);
        }
        is_retired
    }

    /// As [`DictionaryEncoder::compress`].
    pub fn compress<'o>(&mut self, page: &Page, out: &'o mut [u8]) -> Option<&'o [u8]> {
        self.encoder.compress(page, out)
    }

    /// As [`DictionaryDecoder::decompress`].
    ///
    /// # Errors
    /// Those of [`DictionaryDecoder::decompress`].
    pub fn decompress(
        &mut self,
        generation: Generation,
        data: &[u8],
        page: &mut Page,
    ) -> Result<(), DecodeError> {
        self.decoder.decompress(generation, data, page)
    }
}
