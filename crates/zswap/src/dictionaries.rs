//! Dense pages: the encoder of the caller that ages, and the dictionaries that all contexts know.
//!
//! Every entry says how its bytes are coded, in the pool, on their way out and on disk. The encoder
//! is made for the first dictionary. It is given back when no page needs its dictionaries and no
//! caller is about to use it. Only the caller that ages has the encoder, so no other makes a dense
//! page.
//!
//! Invariant: a generation that the encoder knows has its dictionary in every context.

use coldpress_codec::{
    CodecError, DEFAULT_DICTIONARY_LEVEL, Dictionary, DictionaryEncoder, Generation,
};
use coldpress_sys::{Bytes, Page};

use crate::codecs::Coding;
use crate::contexts::Contexts;

/// The encoder of dense pages, if it is made. All calls are given the contexts of the same store.
#[derive(Debug, Default)]
pub(crate) struct DenseEncoder {
    made: Option<DictionaryEncoder>,
}

impl DenseEncoder {
    /// Returns whether pages can be made dense.
    pub(crate) fn is_made(&self) -> bool {
        self.made.is_some()
    }

    /// Returns whether there is room for a dictionary: a generation that no page needs, or that was
    /// never used. The newest generation is kept for pages to come.
    pub(crate) fn has_room(&self, contexts: &Contexts) -> bool {
        let newest = self.made.as_ref().map(DictionaryEncoder::newest);
        let is_free = |generation| {
            Some(generation) != newest && contexts.pages(Coding::Dense(generation)) == 0
        };
        Generation::ALL.into_iter().any(is_free)
    }

    /// Makes `dictionary` the one that old pages are compressed with from now on. Drops
    /// dictionaries that no page needs.
    pub(crate) fn adopt(
        &mut self,
        dictionary: Dictionary,
        contexts: &Contexts,
    ) -> Result<(), CodecError> {
        debug_assert!(self.has_room(contexts), "all generations are needed");
        let Some(encoder) = &mut self.made else {
            let encoder = DictionaryEncoder::new(DEFAULT_DICTIONARY_LEVEL, &dictionary)?;
            contexts.adopt(encoder.newest(), encoder.newest_mark(), dictionary)?;
            self.made = Some(encoder);
            return Ok(());
        };
        for generation in Generation::ALL {
            let is_unneeded = contexts.pages(Coding::Dense(generation)) == 0;
            if is_unneeded && encoder.retire(generation) {
                contexts.retire(generation);
            }
        }
        let generation = encoder.adopt(&dictionary)?;
        contexts.adopt(generation, encoder.newest_mark(), dictionary)
    }

    /// Compresses `page` into `room` with the newest dictionary. `None` if there is no encoder, or
    /// the page does not fit.
    pub(crate) fn compress<'r>(
        &mut self,
        page: &Page,
        room: &'r mut [u8],
    ) -> Option<(&'r [u8], Coding)> {
        let encoder = self.made.as_mut()?;
        let coding = Coding::Dense(encoder.newest());
        encoder.compress(page, room).map(|bytes| (bytes, coding))
    }

    /// Gives the encoder and the dictionaries back if no page needs them.
    pub(crate) fn drop_if_unneeded(&mut self, contexts: &Contexts) {
        if self.is_made() && contexts.dense_pages() == 0 {
            self.made = None;
            contexts.drop_dense();
        }
    }

    /// Returns the memory of the encoder.
    pub(crate) fn memory(&self) -> Bytes {
        self.made.as_ref().map(DictionaryEncoder::work_bytes).unwrap_or_default()
    }
}
