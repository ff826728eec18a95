//! Dictionaries: what a program's pages have in common, taken from the pages themselves.
//!
//! A [`Dictionary`] is plain content ("raw content" in zstd.h): pieces of pages one behind the
//! other, the most common ones last, where a reference to them is shortest. It holds no entropy
//! tables, which ZDICT would add. Measured on pages of four programs, such tables make the strong
//! levels 0 to 4 % denser. They make some pages at the fast levels 10 % less dense, where zstd uses
//! them even if a page's own tables would be better. And ZDICT calls `malloc`.

use alloc::vec::Vec;
use core::fmt;

use coldpress_sys::Bytes;

use crate::error::CodecError;

/// The most bytes of a dictionary. Measured on pages of programs: 4 KiB save half as much where a
/// dictionary helps most; 64 KiB save 0 to 2.5 % more, and need four times the memory for tables.
pub(crate) const DICTIONARY_BYTES: Bytes = Bytes::kib(16);

/// The first bytes of a dictionary in zstd's own format (RFC 8878 section 5).
const ZSTD_MAGIC: [u8; 4] = 0xec30_a437_u32.to_le_bytes();

/// Content that pages can be compressed with. It works only as a whole: a page compressed with one
/// dictionary is decompressed only with an equal one.
#[derive(Clone, PartialEq, Eq)]
pub struct Dictionary {
    /// At most [`DICTIONARY_BYTES`].
    content: Vec<u8>,
    /// Start of the used content in `content`, which must not begin with [`ZSTD_MAGIC`].
    start: usize,
}

impl fmt::Debug for Dictionary {
    /// Formats the dictionary without its content, which is memory of the program.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("bytes", &self.content().len()).finish_non_exhaustive()
    }
}

impl Dictionary {
    /// Makes a dictionary of this content, cut to 16 KiB. If zstd would take the content for
    /// its own format, the first byte is left out.
    pub fn new(mut content: Vec<u8>) -> Self {
        content.truncate(DICTIONARY_BYTES.0);
        let start = usize::from(content.starts_with(&ZSTD_MAGIC));
        Self { content, start }
    }

    /// Returns the content that pages are compressed with.
    pub fn content(&self) -> &[u8] {
        self.content.get(self.start..).unwrap_or_default()
    }

    /// Makes an equal dictionary.
    ///
    /// # Errors
    /// [`CodecError::NoMemory`] when the allocator has no memory for the content.
    pub fn try_clone(&self) -> Result<Self, CodecError> {
        let mut content = Vec::new();
        let refused = |_| CodecError::NoMemory(Bytes(self.content.len()));
        content.try_reserve_exact(self.content.len()).map_err(refused)?;
        content.extend_from_slice(&self.content);
        Ok(Self { content, start: self.start })
    }

    /// Returns the size of the memory held, without this structure.
    pub fn memory(&self) -> Bytes {
        Bytes(self.content.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_never_taken_for_another_format() {
        let plain = Dictionary::new(vec![7; 300]);
        assert_eq!(plain.content(), [7; 300]);
        let magic = Dictionary::new([&ZSTD_MAGIC[..], &[7; 300]].concat());
        assert_eq!(magic.content(), [&ZSTD_MAGIC[1..], &[7; 300]].concat());
        assert_eq!(Dictionary::new(ZSTD_MAGIC.to_vec()).content(), &ZSTD_MAGIC[1..]);
        assert_eq!(Dictionary::new(Vec::new()).content(), []);
        assert_eq!(Dictionary::new(vec![7; 1 << 20]).content().len(), DICTIONARY_BYTES.0);
    }
}
