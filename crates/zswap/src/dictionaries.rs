//! Dense pages: the encoder of the caller that ages, and the dictionaries that all contexts know.
//!
//! Every entry says how its bytes are coded, in the pool, on their way out and on disk. The encoder
//! is made for the first dictionary. It is given back when no page needs its dictionaries and no
//! caller is about to use it. Only the caller that ages has the encoder, so no other makes a dense
//! page.
//!
//! Invariant: a generation that the encoder knows has its dictionary in every context.

use crate::pool::Pool;
use coldpress_codec::{
    CodecError, DEFAULT_DICTIONARY_LEVEL, Dictionary, DictionaryEncoder, Generation,
};

use crate::Zswap;
use crate::codecs::Coding;
use crate::recompress::Recompression;

impl<P: Pool> Zswap<P> {
    /// Returns whether there is room for a dictionary: a generation that no page needs, or that was
    /// never used. The newest generation is kept for pages to come.
    pub(crate) fn has_room_for_dictionary(&self, encoder: &DictionaryEncoder) -> bool {
        let is_free = |generation| {
            generation != encoder.newest()
                && self.base.objects.contexts.pages(Coding::Dense(generation)) == 0
        };
        Generation::ALL.into_iter().any(is_free)
    }

    /// Makes `dictionary` the one that old pages are compressed with from now on. Drops
    /// dictionaries that no page needs.
    pub(crate) fn adopt_dictionary(
        &self,
        recompression: &mut Recompression,
        dictionary: Dictionary,
    ) -> Result<(), CodecError> {
        let Some(encoder) = &mut recompression.encoder else {
            let encoder = DictionaryEncoder::new(DEFAULT_DICTIONARY_LEVEL, &dictionary)?;
            self.base.objects.contexts.adopt(
                encoder.newest(),
                encoder.newest_mark(),
                dictionary,
            )?;
            recompression.encoder = Some(encoder);
            return Ok(());
        };
        for generation in Generation::ALL {
            let is_unneeded = self.base.objects.contexts.pages(Coding::Dense(generation)) == 0;
            if is_unneeded && encoder.retire(generation) {
                self.base.objects.contexts.retire(generation);
            }
        }
        debug_assert!(self.has_room_for_dictionary(encoder), "all generations are needed");
        let generation = encoder.adopt(&dictionary)?;
        self.base.objects.contexts.adopt(generation, encoder.newest_mark(), dictionary)
    }

    /// Gives the encoder and the dictionaries back if no page needs them.
    pub(crate) fn drop_encoder_if_unneeded(&self, recompression: &mut Recompression) {
        if recompression.encoder.is_some() && self.base.objects.contexts.dense_pages() == 0 {
            recompression.encoder = None;
            self.base.objects.contexts.drop_dense();
        }
    }
}
