//! WK: a codec for what programs keep in memory, words of 8 bytes.
//!
//! Most words of a heap are small numbers, words that were there before, and pointers, which share
//! their upper bytes with pointers to the same neighbourhood. The WK family of codecs (Wilson and
//! Kaplan; WKdm in S. F. Kaplan, Compressed Caching and Modern Virtual Memory Simulation, 1999)
//! says of each word which recent one it resembles, and gives the low bytes in which they differ.
//! This one does so for words of 8 bytes instead of 4, takes up runs of earlier words as
//! Lempel-Ziv codecs do, and leaves what is neither number nor pointer, text mostly, to LZ4.
//!
//! Of pages of Python, Perl, Java, node and a compiler it makes 7 to 29 % less bytes than LZ4 in
//! 0.55 to 1 of the time, of pages of Redis and SQLite up to 6 % less in 1.2 (where short texts
//! repeat, 1.8), and takes up to twice as long to decode. `coldpress bench codecs` measures
//! it. No library has such a codec for words of 8 bytes.
//!
//! ```text
//! head 4 bytes | tags and places, 4 bits each | data | literals
//!
//! head: bits 0 and 1 how data and literals are kept, 2 to 12 nibbles, 13 to 25 bytes of data
//! tags are in order from the first nibble on, places from the last one backwards; of two nibbles
//! in a byte the low one is first
//!
//! tag      the word                                            in data
//! 0 to 4   a number of so many bytes                           these bytes
//! 5 to 8   as the recent word in the next place, but for       these bytes
//!          its 1 to 4 low bytes
//! 9, 10    as the word number so many, of the first or second  its low byte
//!          256; a run has the same distance, 1 at first
//! 11       a run: words as those a distance before them        how many, less one
//! 12       a literal
//! 13       two numbers of 2 bytes                              4 bytes
//! 14       4 zeros below                                       4 bytes
//! 15       2 zeros above                                       6 bytes
//! ```
//!
//! Literals are whole words. LZ4 compresses data and literals together where there is much text
//! among them, and the page as a whole, behind one byte of head, where most is literal or the text
//! repeats.
//!
//! Recent words lie in 16 places, zeros at first, by a hash of the upper 5 bytes, in which pointers
//! to the same 16 MiB are equal. A word of tags 5 to 8 goes to the place it names, and one of tags
//! 12 to 15 above 32 bits to its own.
//!
//! Invariants:
//! 1. Encoder and decoder have the same recent words before each word.
//! 2. Of a run and of an earlier word, all that is copied from has been decoded.

mod decode;
mod encode;

use coldpress_sys::PAGE_BYTES;

pub(crate) use decode::decompress;
pub(crate) use encode::Wk;

/// Words of a page.
const WORDS: usize = PAGE_BYTES / size_of::<u64>();
/// Bytes before the tags.
const HEAD_BYTES: usize = size_of::<u32>();
/// With more bytes of literals than these, and these for each word before, the page is LZ4's: what
/// remains of such a page repeats more than its words show, and a page of text is known after a
/// quarter of it.
const LITERALS_BASE: usize = 640;
const LITERALS_STEP: usize = 3;
/// Literals of a page at most.
const LITERALS_MAX: usize = LITERALS_BASE + LITERALS_STEP * WORDS;

/// How data and literals are kept: the low bits of the head.
const RAW: u32 = 0;
const PACKED: u32 = 1;
/// There are none: LZ4 has all of the page.
const WHOLE: u32 = 2;
/// The bits that say so.
const KINDS: u32 = 3;

/// Where the head has the number of nibbles, and the bytes of data.
const NIBBLES_SHIFT: u32 = 2;
const NIBBLES_MASK: u32 = 0x7ff;
const DATA_SHIFT: u32 = 13;
const DATA_MASK: u32 = 0x1fff;

/// A number of 0 bytes; those of 1 to 4 follow.
const NUMBER: u8 = 0;
/// As a recent word but for 0 low bytes, which none has; those of 1 to 4 follow.
const NEAR: u8 = 4;
/// As an earlier word of the first 256; the next tag is for those of the second.
const SAME: u8 = 9;
const SAME_END: u8 = 10;
const RUN: u8 = 11;
const LITERAL: u8 = 12;
const HALVES: u8 = 13;
const HIGH: u8 = 14;
const SIX: u8 = 15;
/// Low bytes of a word that is near, or of a number, at most.
const LOW_MAX: usize = 4;

/// Places of recent words.
const RECENT: usize = 16;

/// Words that were seen lately, each where those like it are.
struct Recent([u64; RECENT]);

impl Recent {
    const NONE: Self = Self([0; RECENT]);

    /// The place of words like this one (Fibonacci hashing, Knuth volume 3 section 6.4).
    #[inline]
    fn place(word: u64) -> usize {
        ((word >> 24).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize
    }

    #[inline]
    fn word(&self, place: usize) -> u64 {
        self.0[place % RECENT]
    }

    /// Notes a word where those like it are, if it is above 32 bits.
    #[inline]
    fn note(&mut self, word: u64) {
        if !is_number(word) {
            self.0[Self::place(word)] = word;
        }
    }
}

/// Whether 4 bytes are enough for it.
#[inline]
fn is_number(word: u64) -> bool {
    word >> 32 == 0
}
