//! Pages that are one 8-byte word repeated: zero pages above all. They need no storage.
//!
//! The first word is compared with the last one first, as the kernel does (`page_same_filled` in
//! zram): most other pages differ there. Then whole cache lines are compared, which the compiler
//! turns into vector code.

use coldpress_sys::Page;

/// Bytes compared between two branches: two cache lines.
const STRIDE_BYTES: usize = 128;

/// Returns the word `page` consists of, in the byte order of the machine, or `None`.
pub fn same_filled(page: &Page) -> Option<u64> {
    let (words, _) = page.as_chunks::<8>();
    let word = u64::from_ne_bytes(*words.first()?);
    if u64::from_ne_bytes(*words.last()?) != word {
        return None;
    }
    let (strides, _) = page.as_chunks::<STRIDE_BYTES>();
    strides.iter().all(|stride| difference(stride, word) == 0).then_some(word)
}

/// Returns zero when `stride` is `word` repeated.
fn difference(stride: &[u8; STRIDE_BYTES], word: u64) -> u64 {
    let (words, _) = stride.as_chunks::<8>();
    words.iter().fold(0, |all, bytes| all | (u64::from_ne_bytes(*bytes) ^ word))
}

/// Fills `page` with `word` repeated, the reverse of [`same_filled`].
pub fn fill(page: &mut Page, word: u64) {
    let (words, _) = page.as_chunks_mut::<8>();
    words.fill(word.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    //! The risk: a page wrongly taken for a filled one, whose content would be lost.
    use super::*;
    use coldpress_sys::PAGE_BYTES;
    use proptest::prelude::*;

    /// Applies the definition, without any speed.
    fn oracle(page: &Page) -> Option<u64> {
        let word: [u8; 8] = page[..8].try_into().expect("eight bytes");
        page.chunks(8).all(|chunk| chunk == word).then(|| u64::from_ne_bytes(word))
    }

    #[test]
    fn one_flipped_bit_is_always_seen() {
        for word in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
            let mut page = [0xff; PAGE_BYTES];
            fill(&mut page, word);
            assert_eq!(same_filled(&page), Some(word));
            for bit in 0..PAGE_BYTES * 8 {
                page[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(same_filled(&page), None, "word {word:x} bit {bit}");
                page[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn a_period_of_other_than_eight_bytes_is_not_filled() {
        for period in [3, 5, 7, 9, 16, 64, 128, 256, 2048] {
            let page = core::array::from_fn(|at| u8::from(at % period == 0));
            assert_eq!(same_filled(&page), None, "period {period}");
        }
        for period in [1, 2, 4, 8] {
            let page = core::array::from_fn(|at| u8::from(at % period == 0));
            assert!(same_filled(&page).is_some(), "period {period}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_oracle_at_any_alignment(
            word: u64, at in 0..PAGE_BYTES, byte: u8, shift in 0..8_usize,
        ) {
            let mut room = vec![0; PAGE_BYTES + 8];
            let bytes = &mut room[shift..shift + PAGE_BYTES];
            let page: &mut Page = bytes.try_into().expect("a page");
            fill(page, word);
            prop_assert_eq!(same_filled(page), Some(word));
            page[at] = byte;
            prop_assert_eq!(same_filled(page), oracle(page));
        }
    }
}
