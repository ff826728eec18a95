//! The checksum of bytes that leave memory: it finds damage done by a disk or by a bug of ours.
//!
//! XXH3 with 64 bits (xxHash's `doc/xxhash_spec.md`), of which the low 32 are kept: they miss
//! damage with a chance of 2^-32, and are small beside a compressed page. The checksum is no
//! defence against a deliberate change.

use coldpress_sys::Page;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

/// Returns the low 32 bits of XXH3-64 of `data` with seed 0, the same on each machine.
pub fn checksum(data: &[u8]) -> u32 {
    xxh3_64(data) as u32
}

/// Returns XXH3-128 of a page. Pages that differ by chance have equal fingerprints once in 2^128
/// pairs, so a fingerprint may stand for its page. With a random seed, no known method prepares
/// such a pair for all seeds; but XXH3 is no cipher.
pub fn fingerprint(page: &Page, seed: u64) -> u128 {
    xxh3_128_with_seed(page, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that XXH3-64 of nothing is 2D06800538D394C2 (xxHash's `tests/sanity_test_vectors.h`).
    #[test]
    fn known_value() {
        assert_eq!(checksum(&[]), 0x38d3_94c2);
    }

    #[test]
    fn each_bit_of_a_page_matters() {
        let mut page = [0x5a_u8; 4096];
        let clean = checksum(&page);
        let mut fingerprints = std::collections::HashSet::from([fingerprint(&page, 7)]);
        for bit in 0..4096 * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(&page), clean, "bit {bit}");
            assert!(fingerprints.insert(fingerprint(&page, 7)), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
        assert_ne!(checksum(&page[..4095]), clean);
    }
}
