//! zstd with dictionaries of the program's own pages: the codec for pages that stay.
//!
//! Programs change, and their dictionary should change with them; but a page comes back only with
//! the dictionary it was compressed with. So a codec keeps several dictionaries, each under its
//! [`Generation`]. It compresses with the newest one and decompresses with any. The owner of the
//! pages keeps each page's generation with it (two bits), counts the pages of each, and retires a
//! dictionary that no page needs any more.
//!
//! The compressed page is one byte, the number of the dictionary among all ever adopted, and behind
//! it a zstd frame like that of [`Codec`](crate::Codec). The byte exposes a page whose generation
//! got mixed up, because zstd itself would decompress it to something else.
//!
//! A [`DictionaryCodec`] is an encoder and a decoder. A caller that decompresses on many threads
//! has one [`DictionaryEncoder`] and several [`DictionaryDecoder`]s, and passes each decoder every
//! dictionary that is adopted.
//!
//! Invariants:
//! 1. `marks[newest]` is present, and its dictionary is the one the encoder copies from.
//! 2. No two dictionaries that are present have the same mark.

use core::fmt;

use coldpress_sys::{Bytes, Page};

use crate::dictionary::{DICTIONARY_BYTES, Dictionary};
use crate::error::{CodecError, DecodeError};
use crate::ffi::{ZstdDecoder, ZstdDictionaryEncoder};
use crate::id::ZSTD_LEVELS;
use crate::whole_page;

/// The most dictionaries that a codec keeps.
pub const GENERATIONS: usize = 4;

/// The dictionary, by its number in a [`DictionaryCodec`], that a page was compressed with. The
/// number of a retired dictionary is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generation(Number);

/// The numbers by name, so that an optional generation takes a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Number {
    First,
    Second,
    Third,
    Fourth,
}

// The byte also has room for other ways to compress.
const _: () = assert!(size_of::<Option<Generation>>() == 1);

impl Generation {
    /// All generations, by their numbers.
    pub const ALL: [Self; GENERATIONS] =
        [Self(Number::First), Self(Number::Second), Self(Number::Third), Self(Number::Fourth)];

    /// Returns the generation's number, below [`GENERATIONS`]: an index for callers that count
    /// pages.
    pub fn number(self) -> usize {
        self.0 as usize
    }
}

/// The first byte of each page compressed with a dictionary, by which the dictionary is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u8);

/// A compressor of pages that uses what they have in common. Not shared: one per thread.
pub struct DictionaryEncoder {
    encoder: ZstdDictionaryEncoder,
    /// The marks of the dictionaries that pages may need.
    marks: [Option<Mark>; GENERATIONS],
    newest: Generation,
}

impl fmt::Debug for DictionaryEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DictionaryEncoder").field("newest", &self.newest).finish_non_exhaustive()
    }
}

impl DictionaryEncoder {
    /// Makes an encoder of a zstd level with its first dictionary, and with its work memory from
    /// the global allocator.
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

    /// Returns the size of the work memory, held until this is dropped, without this structure.
    pub fn work_bytes(&self) -> Bytes {
        self.encoder.bytes()
    }

    /// Returns the generation that [`compress`](Self::compress) uses.
    pub fn newest(&self) -> Generation {
        self.newest
    }

    /// Returns the mark of the newest dictionary.
    pub fn newest_mark(&self) -> Mark {
        // The newest is present (invariant 1).
        self.marks[self.newest.number()].unwrap_or(Mark(0))
    }

    /// Compresses with `dictionary` from now on; takes up to a millisecond for its tables. Decoders
    /// must adopt the dictionary before they meet such a page.
    ///
    /// # Errors
    /// [`CodecError::Generations`] when there is no room for the dictionary: retire one first.
    /// [`CodecError::Library`] when the library refuses it. Nothing has changed then, except that
    /// pages may be compressed without a dictionary.
    pub fn adopt(&mut self, dictionary: &Dictionary) -> Result<Generation, CodecError> {
        let free = self.marks.iter().position(Option::is_none);
        let number = free.ok_or(CodecError::Generations(GENERATIONS))?;
        self.encoder.set_dictionary(dictionary.content())?;
        self.marks[number] = Some(self.next_mark());
        self.newest = Generation::ALL[number];
        Ok(self.newest)
    }

    /// Returns whether `generation` was retired, so that a later dictionary may have it. The newest
    /// one, and one that is not present, are not retired. Decoders must retire it, too.
    pub fn retire(&mut self, generation: Generation) -> bool {
        generation != self.newest && self.marks[generation.number()].take().is_some()
    }

    /// Compresses `page` with the newest dictionary into the front of `out` and returns that part.
    ///
    /// Returns `None` when the result does not fit; the contents of `out` are then unspecified.
    /// zstd needs some bytes (below 16) of room beyond the result to write it.
    pub fn compress<'o>(&mut self, page: &Page, out: &'o mut [u8]) -> Option<&'o [u8]> {
        let Mark(mark) = self.newest_mark();
        let (first, frame) = out.split_first_mut()?;
        *first = mark;
        let length = self.encoder.compress(page, frame)?;
        out.get(..=length)
    }

    /// Returns the first mark after that of the newest dictionary that no dictionary has.
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
    /// Makes a decoder without dictionaries, with its work memory from the global allocator.
    ///
    /// # Errors
    /// [`CodecError::NoMemory`] and [`CodecError::Library`], as for
    /// [`Codec::new`](crate::Codec::new).
    pub fn new() -> Result<Self, CodecError> {
        Ok(Self { decoder: ZstdDecoder::new()?, dictionaries: [const { None }; GENERATIONS] })
    }

    /// Makes another decoder that decompresses the same pages.
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

    /// Returns the size of the work memory, held until this is dropped, and of the dictionaries
    /// that are present, without this structure.
    pub fn work_bytes(&self) -> Bytes {
        let dictionaries = self.dictionaries.iter().flatten();
        dictionaries.fold(self.decoder.bytes(), |sum, (_, dictionary)| sum + dictionary.memory())
    }

    /// Decompresses pages of `generation`, which carry `mark`, with `dictionary` from now on.
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
    /// [`DecodeError`] when `data` is not the compressed form of exactly one page, or when that
    /// dictionary is not present or not the right one. The bytes of `page` are then unspecified.
    /// Damage that still decodes to a page is not found here.
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

/// A compressor and decompressor of pages that uses what they have in common. Not shared: one per
/// thread.
#[derive(Debug)]
pub struct DictionaryCodec {
    encoder: DictionaryEncoder,
    decoder: DictionaryDecoder,
}

impl DictionaryCodec {
    /// Makes a codec of a zstd level with its first dictionary, and with its work memory from the
    /// global allocator.
    ///
    /// # Errors
    /// Those of [`Codec::new`](crate::Codec::new).
    pub fn new(level: i32, first: Dictionary) -> Result<Self, CodecError> {
        let encoder = DictionaryEncoder::new(level, &first)?;
        let mut decoder = DictionaryDecoder::new()?;
        decoder.adopt(encoder.newest(), encoder.newest_mark(), first);
        Ok(Self { encoder, decoder })
    }

    /// Returns the size of the work memory, held until this is dropped, and of the dictionaries
    /// that are present, without this structure.
    pub fn work_bytes(&self) -> Bytes {
        self.encoder.work_bytes() + self.decoder.work_bytes()
    }

    /// Returns the generation that [`compress`](Self::compress) uses.
    pub fn newest(&self) -> Generation {
        self.encoder.newest()
    }

    /// Adopts `dictionary` as [`DictionaryEncoder::adopt`] does, for both ways. The former ones
    /// stay.
    ///
    /// # Errors
    /// Those of [`DictionaryEncoder::adopt`].
    pub fn adopt(&mut self, dictionary: Dictionary) -> Result<Generation, CodecError> {
        let generation = self.encoder.adopt(&dictionary)?;
        self.decoder.adopt(generation, self.encoder.newest_mark(), dictionary);
        Ok(generation)
    }

    /// Returns whether `generation` was retired, as [`DictionaryEncoder::retire`] does, for both
    /// ways.
    pub fn retire(&mut self, generation: Generation) -> bool {
        let is_retired = self.encoder.retire(generation);
        if is_retired {
            self.decoder.retire(generation);
        }
        is_retired
    }

    /// Compresses `page` as [`DictionaryEncoder::compress`] does.
    pub fn compress<'o>(&mut self, page: &Page, out: &'o mut [u8]) -> Option<&'o [u8]> {
        self.encoder.compress(page, out)
    }

    /// Decompresses `data` as [`DictionaryDecoder::decompress`] does.
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
