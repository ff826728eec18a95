//! WK: a codec for what programs keep in memory, words of 8 bytes.
//!
//! Most words of a heap are small numbers, words that occurred before, or pointers, which share
//! their upper bytes with pointers to the same neighbourhood. The WK family of codecs (Wilson and
//! Kaplan; WKdm in S. F. Kaplan, Compressed Caching and Modern Virtual Memory Simulation, 1999)
//! encodes for each word which recent one it resembles, and the low bytes in which they differ.
//! This codec does so for words of 8 bytes instead of 4, and encodes runs of earlier words as
//! Lempel-Ziv codecs do. Words that are neither number nor pointer, usually text, are left to LZ4.
//!
//! On pages of Python, Perl, Java, node and a compiler it makes 7 to 29 % fewer bytes than LZ4, in
//! 0.55 to 1 of its time. On pages of Redis and SQLite it makes up to 6 % fewer, in 1.2 of the time
//! (where short texts repeat, 1.8). Decoding takes up to twice as long. `coldpress-bench codecs`
//! measures this. No library has such a codec for words of 8 bytes.
//!
//! ```text
//! head 4 bytes | tags and places, 4 bits each | data | literals
//!
//! head: bits 0 and 1 how data and literals are kept, 2 to 12 nibbles, 13 to 25 bytes of data
//! tags are in order from the first nibble on, places from the last one backwards; of two nibbles
//! in a byte the low one is first
//!
//! tag      the word                                            in data
//! 0 to 4   a number of 0 to 4 bytes                            these bytes
//! 5 to 8   the recent word in the next place, except for       these bytes
//!          its 1 to 4 low bytes
//! 9, 10    an earlier word, by its number in the first or      the number's low byte
//!          second 256; a run has the same distance, 1 at first
//! 11       a run: words as those a distance before them        their count, less one
//! 12       a literal
//! 13       two numbers of 2 bytes                              4 bytes
//! 14       4 zeros below                                       4 bytes
//! 15       2 zeros above                                       6 bytes
//! ```
//!
//! Literals are whole words. Where there is much text among them, LZ4 compresses data and literals
//! together. Where most of the page is literal or the text repeats, LZ4 compresses the page as a
//! whole, behind one byte of head.
//!
//! Recent words lie in 16 places, zeros at first. The place is a hash of the upper 5 bytes, in
//! which pointers to the same 16 MiB are equal. A word of tags 5 to 8 goes to the place it names,
//! and a word of tags 12 to 15 above 32 bits goes to its own.
//!
//! Invariants:
//! 1. Encoder and decoder have the same recent words before each word.
//! 2. Runs and earlier words are copied only from words that have been decoded.

mod decode;
mod encode;

use coldpress_sys::PAGE_BYTES;

pub(crate) use decode::decompress;
pub(crate) use encode::Wk;

/// Words of a page.
const WORDS: usize = PAGE_BYTES / size_of::<u64>();
/// Bytes before the tags.
const HEAD_BYTES: usize = size_of::<u32>();
/// Limit of the bytes of literals: the base, and the step for each word before. A page with more
/// goes to LZ4 whole: the rest of such a page repeats more than its words show. A page of text is
/// recognised after a quarter of it.
const LITERALS_BASE: usize = 640;
const LITERALS_STEP: usize = 3;
/// The most bytes of literals in a page.
const LITERALS_MAX: usize = LITERALS_BASE + LITERALS_STEP * WORDS;

/// The ways to keep data and literals: the low bits of the head.
const RAW: u32 = 0;
const PACKED: u32 = 1;
/// There are no data and literals: LZ4 has all of the page.
const WHOLE: u32 = 2;
/// Mask of these bits.
const KINDS: u32 = 3;

/// Positions and masks, in the head, of the number of nibbles and of the bytes of data.
const NIBBLES_SHIFT: u32 = 2;
const NIBBLES_MASK: u32 = 0x7ff;
const DATA_SHIFT: u32 = 13;
const DATA_MASK: u32 = 0x1fff;

/// Tag of a number of 0 bytes; the tags of 1 to 4 bytes follow.
const NUMBER: u8 = 0;
/// Base of the tags, which follow, of words that equal a recent word but for 1 to 4 low bytes.
const NEAR: u8 = 4;
/// Tag of an earlier word in the first 256; the next tag is for the second 256.
const SAME: u8 = 9;
const SAME_END: u8 = 10;
const RUN: u8 = 11;
const LITERAL: u8 = 12;
const HALVES: u8 = 13;
const HIGH: u8 = 14;
const SIX: u8 = 15;
/// The most low bytes of a number, or of a word near a recent one.
const LOW_MAX: usize = 4;

/// Places for recent words.
const RECENT: usize = 16;

/// Recent words, each in the place of words like it.
struct Recent([u64; RECENT]);

impl Recent {
    const NONE: Self = Self([0; RECENT]);

    /// Returns the place of words like this one (Fibonacci hashing, Knuth volume 3 section 6.4).
    #[inline]
    fn place(word: u64) -> usize {
        ((word >> 24).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize
    }

    #[inline]
    fn word(&self, place: usize) -> u64 {
        self.0[place % RECENT]
    }

    /// Notes a word in its place, if it is above 32 bits.
    #[inline]
    fn note(&mut self, word: u64) {
        if !is_number(word) {
            self.0[Self::place(word)] = word;
        }
    }
}

/// Returns whether 4 bytes are enough for the word.
#[inline]
fn is_number(word: u64) -> bool {
    word >> 32 == 0
}
