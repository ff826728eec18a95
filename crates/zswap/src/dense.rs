//! Dense pages: those compressed with a dictionary of the program's own pages, and the codec they
//! need.
//!
//! Every entry says how its bytes are coded, in the pool, on their way out and on disk. The codec
//! is made for the first dictionary and given back when no page needs it and nobody is about to
//! use it.
//!
//! Invariants (`Zswap::check` walks them):
//! 1. `pages` counts the entries of each generation, wherever their bytes are.
//! 2. A generation with pages has its dictionary.

use coldpress_codec::{
    CodecError, DEFAULT_DICTIONARY_LEVEL, DecodeError, Dictionary, DictionaryCodec, GENERATIONS,
    Generation,
};
use coldpress_sys::{Bytes, Page};

use crate::codecs::Coding;

/// The codec of dense pages, and how many need each of its dictionaries.
#[derive(Debug, Default)]
pub(crate) struct Dense {
    codec: Option<DictionaryCodec>,
    pages: [usize; GENERATIONS],
}

impl Dense {
    /// Whether pages can be compressed.
    pub(crate) fn is_made(&self) -> bool {
        self.codec.is_some()
    }

    /// Pages there are, of all generations.
    pub(crate) fn pages(&self) -> usize {
        self.pages.iter().sum()
    }

    /// Whether [`Dense::adopt`] has room for a dictionary: a generation that no page needs, or that
    /// was never used. The newest is kept for what comes.
    pub(crate) fn has_room(&self) -> bool {
        let newest = self.codec.as_ref().map(DictionaryCodec::newest);
        let is_free =
            |generation| Some(generation) != newest && self.pages[generation.number()] == 0;
        Generation::ALL.into_iter().any(is_free)
    }

    /// Compresses with `dictionary` from now on. Dictionaries that no page needs are dropped.
    pub(crate) fn adopt(&mut self, dictionary: Dictionary) -> Result<(), CodecError> {
        let Some(codec) = &mut self.codec else {
            self.codec = Some(DictionaryCodec::new(DEFAULT_DICTIONARY_LEVEL, dictionary)?);
            return Ok(());
        };
        for generation in Generation::ALL {
            if self.pages[generation.number()] == 0 {
                codec.retire(generation);
            }
        }
        codec.adopt(dictionary).map(|_| ())
    }

    /// Gives the codec back if no page needs it.
    pub(crate) fn drop_unneeded(&mut self) {
        if self.pages() == 0 {
            self.codec = None;
        }
    }

    /// Compresses `page` into the front of `out`: the part that was filled, and how. `None` when it
    /// does not fit, or there is no dictionary.
    pub(crate) fn compress<'o>(
        &mut self,
        page: &Page,
        out: &'o mut [u8],
    ) -> Option<(&'o [u8], Coding)> {
        let codec = self.codec.as_mut()?;
        let coding = Coding::Dense(codec.newest());
        codec.compress(page, out).map(|bytes| (bytes, coding))
    }

    /// Makes the page of `bytes`, which are of that generation.
    pub(crate) fn decompress(
        &mut self,
        generation: Generation,
        bytes: &[u8],
        page: &mut Page,
    ) -> Result<(), DecodeError> {
        let codec = self.codec.as_mut().ok_or(DecodeError::Dictionary)?;
        codec.decompress(generation, bytes, page)
    }

    /// An entry has come to be coded so.
    pub(crate) fn note_come(&mut self, coding: Coding) {
        if let Coding::Dense(generation) = coding {
            self.pages[generation.number()] += 1;
        }
    }

    /// An entry that was coded so has gone.
    pub(crate) fn note_gone(&mut self, coding: Coding) {
        if let Coding::Dense(generation) = coding {
            self.pages[generation.number()] -= 1;
        }
    }

    /// The work memory held.
    pub(crate) fn work_bytes(&self) -> Bytes {
        self.codec.as_ref().map_or(Bytes(0), DictionaryCodec::work_bytes)
    }

    /// Stops at a broken invariant; `pages` says how many entries have a coding.
    #[cfg(test)]
    pub(crate) fn check(&self, pages: impl Fn(Coding) -> usize) {
        assert_eq!(self.pages, Generation::ALL.map(|generation| pages(Coding::Dense(generation))));
        assert!(self.codec.is_some() || self.pages() == 0);
    }
}
