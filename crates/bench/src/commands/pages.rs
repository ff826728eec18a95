//! The pages that workloads fill memory with, and how they tell a fault on one.
//!
//! A page's first word follows from its number, so a wrong page cannot pass for a fast one.

use crate::random::Random;
use coldpress_sys::{Bytes, PAGE_BYTES, Page};

/// The nanoseconds above which an access counts as a fault. For a fault from the pool the kernel's
/// part alone takes this long; an access to a resident page takes some 0.1 us even when neither
/// cache nor TLB knows the page.
pub(super) const FAULT_NS_MIN: u32 = 2000;

/// The number of random bytes in a page. The text behind them compresses to some 90 bytes: 4096 /
/// 1640 = 2.5.
const RANDOM_BYTES: usize = 1552;
const TEXT: &[u8; 64] = b"The program gets each page back, unchanged, when it touches it. ";

/// Returns the random numbers of page `number`; the first of them is the page's first word.
pub(super) fn page_random(number: usize) -> Random {
    Random::new((number as u64) << 32)
}

/// Makes page `number`: unlike any other, and compressible about 2.5 to 1.
pub(super) fn make_page(page: &mut Page, number: usize) {
    let (noise, text) = page.split_at_mut(RANDOM_BYTES);
    let mut random = page_random(number);
    for word in noise.as_chunks_mut::<8>().0 {
        *word = random.next().to_le_bytes();
    }
    for (byte, letter) in text.iter_mut().zip(TEXT.iter().cycle()) {
        *byte = *letter;
    }
}

/// Returns the whole pages in fresh memory that holds `data` and one page more.
pub(super) fn pages_of(memory: &mut [u8], data: Bytes) -> &mut [Page] {
    let start = memory.as_ptr().align_offset(PAGE_BYTES);
    memory[start..start + data.pages_down().bytes().0].as_chunks_mut().0
}

/// Allocates fresh memory for [`pages_of`]; the kernel gives no page before it is touched.
pub(super) fn fresh(data: Bytes) -> Vec<u8> {
    vec![0; data.0 + PAGE_BYTES]
}

#[cfg(test)]
mod tests {
    use super::*;
    use coldpress_codec::{Codec, CodecId};

    #[test]
    fn pages_compress_as_said_and_are_neither_empty_nor_noise() {
        let mut codec = Codec::new(CodecId::Lz4).unwrap();
        let (mut page, mut out) = ([0; PAGE_BYTES], [0; 2 * PAGE_BYTES]);
        let mut compressed = 0;
        for number in 0..100 {
            make_page(&mut page, number);
            compressed += codec.compress(&page, &mut out).unwrap().len();
        }
        let ratio = (100 * PAGE_BYTES) as f64 / compressed as f64;
        assert!((2.4..2.6).contains(&ratio), "{ratio}");
    }

    #[test]
    fn pages_differ_and_tell_their_number() {
        let mut seen = std::collections::HashSet::new();
        let mut page = [0; PAGE_BYTES];
        for number in 0..1000 {
            make_page(&mut page, number);
            assert_eq!(page[..8], page_random(number).next().to_le_bytes());
            assert!(seen.insert(page), "{number}");
        }
    }

    #[test]
    fn pages_begin_where_the_processors_do() {
        let data = Bytes(5 * PAGE_BYTES + 1);
        let mut memory = fresh(data);
        let pages = pages_of(&mut memory, data);
        assert_eq!(pages.len(), 5);
        assert_eq!(pages.as_ptr().addr() % PAGE_BYTES, 0);
    }
}
