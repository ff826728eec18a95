//! What a page was compressed to, and pages that were compressed outside of a store: by a
//! [`HelperCodec`], for a caller that stores the page (see [`crate::desk`]).

use coldpress_codec::{CodecChoice, checksum, same_filled};
use coldpress_sys::{Bytes, Page};

use crate::codecs::{Coding, Pressed, Work};
use crate::error::NewError;
use crate::limits::compressed_max;

/// Outcome of compressing a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelperResult {
    /// The page's bytes lie elsewhere.
    Compressed(Pressed),
    /// The page takes more bytes than are allowed.
    Incompressible {
        /// The most bytes allowed.
        longest: Bytes,
        /// The kinds of the codecs that were tried, one bit each.
        kinds: u8,
    },
}

/// Bit of a word that marks an incompressible page, with its `longest` and `kinds`.
const INCOMPRESSIBLE: u64 = 1 << 31;

impl HelperResult {
    /// Returns the length of the page's bytes; 0 for an incompressible page.
    pub(crate) fn length(&self) -> Bytes {
        match self {
            Self::Compressed(pressed) => pressed.length,
            Self::Incompressible { .. } => Bytes(0),
        }
    }

    /// Packs the outcome into a word, which is not zero.
    pub(crate) fn to_word(self) -> u64 {
        match self {
            Self::Compressed(Pressed { length, coding, checksum }) => {
                let kind = coding.kind().unwrap_or(usize::from(u8::MAX));
                length.0 as u64 | (kind as u64) << 16 | u64::from(checksum) << 32
            }
            Self::Incompressible { longest, kinds } => {
                longest.0 as u64 | u64::from(kinds) << 16 | INCOMPRESSIBLE
            }
        }
    }

    /// Unpacks a word; `None` when it says nothing.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let length = Bytes(usize::from(word as u16));
        if word & INCOMPRESSIBLE != 0 {
            return Some(Self::Incompressible { longest: length, kinds: (word >> 16) as u8 });
        }
        let coding = *Coding::FAST.get((word >> 16 & 0xffff) as usize)?;
        let checksum = (word >> 32) as u32;
        (length > Bytes(0)).then_some(Self::Compressed(Pressed { length, coding, checksum }))
    }
}

/// What a helper has made of a page. The bytes are as many as the result says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HelperAnswer<'b> {
    pub(crate) result: HelperResult,
    pub(crate) bytes: &'b [u8],
}

/// A compressor of pages, which does as a store with the same knobs would (see
/// [`crate::desk::Desk::serve`]).
pub struct HelperCodec {
    work: Work,
    longest: Bytes,
}

impl HelperCodec {
    /// Makes a maker with these of the store's knobs, see [`crate::Knobs`]. Takes the memory it
    /// will need.
    pub fn new(codec: CodecChoice, max_compression_ratio: u8) -> Result<Self, NewError> {
        let longest = compressed_max(max_compression_ratio);
        Ok(Self { work: Work::new(codec)?, longest })
    }

    /// Compresses `page`. `None` for one repeated word, which a store finds faster than an answer
    /// here.
    pub(crate) fn make(&mut self, page: &Page) -> Option<HelperAnswer<'_>> {
        if same_filled(page).is_some() {
            return None;
        }
        let (longest, kinds) = (self.longest, self.work.kinds());
        let pressed = self.work.compress(page, longest);
        let result = pressed
            .map_or(HelperResult::Incompressible { longest, kinds }, HelperResult::Compressed);
        Some(HelperAnswer { result, bytes: &self.work.compressed[..result.length().0] })
    }
}

impl Work {
    /// Takes over what was made elsewhere of the page to be stored, if this context could have made
    /// the same. `copy` puts the bytes into the buffer.
    pub(crate) fn take_over(
        &mut self,
        made: HelperResult,
        longest: Bytes,
        copy: impl FnOnce(&mut [u8]),
    ) -> Option<Option<Pressed>> {
        let pressed = match made {
            HelperResult::Compressed(pressed) => pressed,
            made => {
                let ours = HelperResult::Incompressible { longest, kinds: self.kinds() };
                return (made == ours).then_some(None);
            }
        };
        if pressed.length > longest || !pressed.coding.is_of(self.choice()) {
            return None;
        }
        let bytes = &mut self.compressed[..pressed.length.0];
        copy(bytes);
        (checksum(bytes) == pressed.checksum).then_some(Some(pressed))
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    //! The risk: bytes of one page, or of one coding, taken for those of another.

    use super::*;
    use coldpress_codec::CodecId;
    use coldpress_sys::PAGE_BYTES;

    fn page(step: usize) -> Page {
        core::array::from_fn(|at| (at / 64 * step) as u8)
    }

    #[test]
    fn what_was_made_survives_as_a_word() {
        for coding in Coding::FAST {
            let pressed = Pressed { length: Bytes(4095), coding, checksum: 0xffff_fffe };
            let made = HelperResult::Compressed(pressed);
            assert_eq!(HelperResult::from_word(made.to_word()), Some(made));
        }
        let made = HelperResult::Incompressible { longest: Bytes(4095), kinds: 9 };
        assert_eq!(HelperResult::from_word(made.to_word()), Some(made));
        for nothing in [0, 4 << 16 | 100, 1 << 16, 0xff << 16 | 100] {
            assert_eq!(HelperResult::from_word(nothing), None, "{nothing:#x}");
        }
    }

    #[test]
    fn only_what_could_have_been_made_here_is_taken_over() {
        let mut maker = HelperCodec::new(CodecId::Lz4.into(), 80).unwrap();
        let HelperAnswer { result: made, bytes } = maker.make(&page(3)).unwrap();
        let bytes = bytes.to_vec();
        let HelperResult::Compressed(pressed) = made else { panic!() };
        let longest = compressed_max(80);
        let mut work = Work::new(CodecId::Lz4.into()).unwrap();
        let copy = |buffer: &mut [u8]| buffer.copy_from_slice(&bytes);
        assert_eq!(work.take_over(made, longest, copy), Some(Some(pressed)));
        assert_eq!(work.compress(&page(3), longest), Some(pressed), "as it makes itself");
        assert_eq!(work.take_over(made, pressed.length - Bytes(1), copy), None, "too long");
        let torn = |buffer: &mut [u8]| {
            buffer.copy_from_slice(&bytes);
            buffer[7] ^= 1;
        };
        assert_eq!(work.take_over(made, longest, torn), None);
        let noise = |kinds| HelperResult::Incompressible { longest, kinds };
        assert_eq!(work.take_over(noise(work.kinds()), longest, copy), Some(None));
        assert_eq!(work.take_over(noise(work.kinds()), Bytes(100), copy), None);
        assert_eq!(work.take_over(noise(0), longest, copy), None);
        work.switch(CodecChoice::Auto).unwrap();
        assert_eq!(work.take_over(made, longest, copy), None, "of another codec");
    }

    #[test]
    fn one_word_is_not_made_and_noise_is_incompressible() {
        let mut maker = HelperCodec::new(CodecChoice::default(), 80).unwrap();
        assert!(maker.make(&[7; PAGE_BYTES]).is_none());
        let mut state = 1_u64;
        let noise = core::array::from_fn(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        });
        let is_incompressible = |maker: &mut HelperCodec, page| {
            let answer = maker.make(page).unwrap();
            answer.bytes.is_empty() && matches!(answer.result, HelperResult::Incompressible { .. })
        };
        assert!(is_incompressible(&mut maker, &noise));
        maker = HelperCodec::new(CodecChoice::default(), 1).unwrap();
        assert!(is_incompressible(&mut maker, &page(3)));
    }
}
