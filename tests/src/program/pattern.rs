//! The contents of a page, derived from its last writer: nothing is remembered but a 16-byte tag.
//!
//! 1. `Tag::expected` is a pure function of (seed, tag): the check needs no copy of the page.
//! 2. Kinds cover what a compressor treats differently: text-like, sparse, noise, one repeated
//!    word, zeros.
//! 3. A patch replaces one word. The n-th patch of a tag is derived too, so that a page that is
//!    almost clean differs from the copy that a memory manager may have kept.

use super::PAGE;
use super::random::mix;

/// 64-bit words of a page.
pub const WORDS: usize = PAGE / 8;
/// First word of a page whose next words name its last writer.
const MAGIC: u64 = 0x6c64_7072_6573_7370;
/// Patches a tag can carry before the page must be written anew.
pub const PATCHES_MAX: u8 = 12;

/// The kind of bytes in a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// All zeros: never written, or written with zeros.
    #[default]
    Zero,
    /// Words of a dictionary of sixteen: compresses about threefold.
    Text,
    /// Small numbers: compresses well.
    Sparse,
    /// No structure: does not compress.
    Noise,
    /// One word all over: same-filled.
    Same,
}

impl Kind {
    /// Returns a kind chosen by `lot`: usually compressible, as real memory is.
    #[must_use]
    pub const fn by_lot(lot: u64) -> Self {
        match lot % 100 {
            0..=44 => Self::Text,
            45..=69 => Self::Sparse,
            70..=81 => Self::Noise,
            82..=94 => Self::Same,
            _ => Self::Zero,
        }
    }
}

/// The last writer of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tag {
    /// Region that wrote the page.
    pub owner: u32,
    /// Number of the page within that region when it was written.
    pub index: u32,
    /// Version counter of the region when it was written.
    pub version: u32,
    /// Kind of the bytes.
    pub kind: Kind,
    /// Words replaced since then.
    pub patches: u8,
}

/// One page of bytes, aligned for words.
#[derive(Clone, PartialEq, Eq)]
#[repr(C, align(4096))]
pub struct PageImage(pub [u64; WORDS]);

impl PageImage {
    /// Returns a page of zeros.
    #[must_use]
    pub const fn zero() -> Self {
        Self([0; WORDS])
    }

    /// Returns the bytes of the page.
    #[must_use]
    pub fn bytes(&self) -> &[u8; PAGE] {
        // SAFETY: an array of u64 has no padding and any byte is a valid u8; the sizes are equal.
        unsafe { &*self.0.as_ptr().cast::<[u8; PAGE]>() }
    }
}

impl Tag {
    /// Returns the hash from which all bytes of the page come. Patches do not enter: they are laid
    /// on top.
    #[must_use]
    const fn hash(&self, seed: u64) -> u64 {
        let place = ((self.owner as u64) << 32) | self.index as u64;
        mix(mix(seed ^ place) ^ ((self.version as u64) << 8) ^ self.kind as u64)
    }

    /// Writes what the page must hold into `page`.
    pub fn expected(&self, seed: u64, page: &mut PageImage) {
        let hash = self.hash(seed);
        match self.kind {
            Kind::Zero => page.0.fill(0),
            Kind::Same => page.0.fill(hash),
            Kind::Noise => {
                for (index, word) in page.0.iter_mut().enumerate() {
                    *word = mix(hash ^ index as u64);
                }
            }
            Kind::Sparse => {
                for (index, word) in page.0.iter_mut().enumerate() {
                    *word = (hash.rotate_left(index as u32) ^ index as u64) & 0x3ff;
                }
            }
            Kind::Text => fill_text(hash, page),
        }
        if matches!(self.kind, Kind::Text | Kind::Sparse | Kind::Noise) {
            page.0[0] = MAGIC;
            page.0[1] = (u64::from(self.owner) << 32) | u64::from(self.index);
            page.0[2] = u64::from(self.version);
        }
        for patch in 1..=self.patches {
            let (index, word) = self.patch(seed, patch);
            page.0[index] = word;
        }
    }

    /// Returns the place of the word that the given patch (from 1) sets, and its new value.
    #[must_use]
    pub const fn patch(&self, seed: u64, patch: u8) -> (usize, u64) {
        let hash = mix(self.hash(seed) ^ ((patch as u64) << 40));
        ((hash >> 17) as usize % WORDS, mix(hash))
    }
}

fn fill_text(hash: u64, page: &mut PageImage) {
    let mut words = [0; 16];
    for (index, word) in words.iter_mut().enumerate() {
        *word = mix(hash ^ (index as u64) << 32);
    }
    for (index, line) in page.0.chunks_exact_mut(16).enumerate() {
        let mut choice = mix(hash ^ index as u64);
        for word in line {
            *word = words[(choice & 15) as usize];
            choice >>= 4;
        }
    }
}

/// Describes in words what a page seems to hold, for the report of a mismatch.
#[must_use]
pub fn describe(page: &PageImage) -> String {
    if page.0.iter().all(|word| *word == 0) {
        return "all zeros".to_owned();
    }
    if page.0.iter().all(|word| *word == page.0[0]) {
        return format!("one word all over: {:#018x}", page.0[0]);
    }
    if page.0[0] == MAGIC {
        let (owner, index) = (page.0[1] >> 32, page.0[1] & 0xffff_ffff);
        return format!("a page of region {owner}, page {index}, version {}", page.0[2]);
    }
    format!("no known header: {:#018x} {:#018x} {:#018x}", page.0[0], page.0[1], page.0[2])
}
