//! The codecs that are compared: those of coldpress, and zstd over groups of pages.

use std::io;

use coldpress_codec::{Codec, Dictionary, DictionaryCodec};
use coldpress_sys::{PAGE_BYTES, Page};
use zstd::bulk::{Compressor, Decompressor};

/// A codec under test, which stores pages and loads them again.
pub(crate) trait Subject {
    /// Returns the number of pages stored together: a page is only loaded with the others.
    fn group(&self) -> usize {
        1
    }

    /// Compresses a group into `out`. Returns the length, or `None` if it does not fit.
    fn store(&mut self, pages: &[Page], out: &mut [u8]) -> Option<usize>;

    /// Returns whether the group in `data` could be decompressed into `pages`.
    fn load(&mut self, data: &[u8], pages: &mut [Page]) -> bool;
}

impl Subject for Codec {
    fn store(&mut self, pages: &[Page], out: &mut [u8]) -> Option<usize> {
        self.compress(pages.first()?, out).map(<[u8]>::len)
    }

    fn load(&mut self, data: &[u8], pages: &mut [Page]) -> bool {
        pages.first_mut().is_some_and(|page| self.decompress(data, page).is_ok())
    }
}

impl Subject for DictionaryCodec {
    fn store(&mut self, pages: &[Page], out: &mut [u8]) -> Option<usize> {
        self.compress(pages.first()?, out).map(<[u8]>::len)
    }

    fn load(&mut self, data: &[u8], pages: &mut [Page]) -> bool {
        let newest = self.newest();
        pages.first_mut().is_some_and(|page| self.decompress(newest, data, page).is_ok())
    }
}

/// Plain zstd over several pages, to show what groups would bring.
pub(crate) struct Grouped {
    pages: usize,
    compressor: Compressor<'static>,
    decompressor: Decompressor<'static>,
}

impl Grouped {
    /// Makes groups of `pages` pages at a level, with a dictionary or without.
    pub(crate) fn new(
        pages: usize,
        level: i32,
        dictionary: Option<&Dictionary>,
    ) -> io::Result<Self> {
        let content = dictionary.map_or(&[][..], Dictionary::content);
        let mut compressor = Compressor::with_dictionary(level, content)?;
        let mut decompressor = Decompressor::with_dictionary(content)?;
        // Makes the frames as short as those of coldpress.
        compressor.include_contentsize(false)?;
        compressor.include_magicbytes(false)?;
        decompressor.include_magicbytes(false)?;
        Ok(Self { pages, compressor, decompressor })
    }
}

impl Subject for Grouped {
    fn group(&self) -> usize {
        self.pages
    }

    fn store(&mut self, pages: &[Page], out: &mut [u8]) -> Option<usize> {
        self.compressor.compress_to_buffer(pages.as_flattened(), out).ok()
    }

    fn load(&mut self, data: &[u8], pages: &mut [Page]) -> bool {
        let bytes = pages.as_flattened_mut();
        let length = self.decompressor.decompress_to_buffer(data, bytes);
        length.is_ok_and(|length| length == self.pages * PAGE_BYTES)
    }
}
