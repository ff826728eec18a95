//! LZO1X: an encoder of our own and the decoder of the `lzo` crate.
//!
//! No permissive library has a fast encoder, so this one is written from the description of the
//! format in the kernel's `Documentation/staging/lzo.rst` (version 0, without runs of zeros). It is
//! the greedy parse with a hash of four bytes that all fast Lempel-Ziv encoders share. It looks up
//! the bytes at hand, takes the last place they were seen if they are equal there, and searches in
//! larger steps the longer it finds nothing.
//!
//! Invariants:
//! 1. Everything before `literals_from` is encoded; from there to `at` no match was found.
//! 2. A distance is below 4096, so the copy instructions M2 and M3 are enough.
//! 3. Nothing is written behind the end of the output: each write is checked.

use alloc::boxed::Box;

use coldpress_sys::{Bytes, PAGE_BYTES, Page};

use crate::error::CodecError;
use crate::room::table;

/// log2 of the slots of the hash table: 8 KiB, half of a small first-level cache.
const HASH_BITS: u32 = 12;
/// Slots of the hash table.
const SLOTS: usize = 1 << HASH_BITS;
/// The least bytes of a match: those that are hashed.
const MATCH_MIN: usize = 4;
/// Positions without a match after which the step grows by one.
const PATIENCE: usize = 32;

/// The last position of each hash of four bytes, in the page at hand.
type Table = [u16; SLOTS];

/// The encoder's table; the decoder has no state.
pub(crate) struct Lzo {
    table: Box<Table>,
}

impl Lzo {
    /// Makes a codec with a table of 8 KiB.
    pub(crate) fn new() -> Result<Self, CodecError> {
        let error = CodecError::NoMemory(Bytes(size_of::<Table>()));
        Ok(Self { table: table(SLOTS, 0)?.try_into().map_err(|_| error)? })
    }

    /// Returns the size of the table.
    pub(crate) fn work_bytes(&self) -> Bytes {
        Bytes(size_of::<Table>())
    }

    /// Compresses `page` to the front of `out`. Returns the number of bytes written, or `None` if
    /// they do not fit.
    pub(crate) fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        // An empty slot names position 0, which is harmless, because matches are verified.
        self.table.fill(0);
        let mut writer = Writer { out, at: 0 };
        let mut literals_from = 0;
        let mut at = 1;
        while let Some(word) = load(page, at) {
            let slot = &mut self.table[hash(word)];
            let seen = usize::from(core::mem::replace(slot, position(at)));
            if load(page, seen) != Some(word) {
                at += 1 + (at - literals_from) / PATIENCE;
                continue;
            }
            let before = common_suffix(&page[..seen], &page[literals_from..at]);
            let length = before + MATCH_MIN + common_prefix(page, seen + MATCH_MIN, at + MATCH_MIN);
            let start = at - before;
            writer.literals(&page[literals_from..start])?;
            writer.copy(at - seen, length)?;
            at = start + length;
            literals_from = at;
        }
        writer.literals(&page[literals_from..])?;
        writer.end()?;
        Some(writer.at)
    }

    /// Decompresses `data` to the front of `page`. Returns the number of bytes written, or `None`
    /// if `data` is malformed or longer than the page.
    pub(crate) fn decompress(data: &[u8], page: &mut Page) -> Option<usize> {
        lzo::decompress_into(data, page).ok()
    }
}

/// Returns the four bytes at `at`, or `None` near the end of the page.
fn load(page: &Page, at: usize) -> Option<u32> {
    page.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

/// Spreads four bytes over the slots (Fibonacci hashing, Knuth volume 3 section 6.4).
fn hash(word: u32) -> usize {
    (word.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS)) as usize
}

/// Returns a position in a page as the table keeps it.
fn position(at: usize) -> u16 {
    const { assert!(PAGE_BYTES <= 1 << u16::BITS) };
    at as u16
}

/// Returns how many bytes from `seen` on equal those from the later `at` on.
fn common_prefix(page: &Page, seen: usize, at: usize) -> usize {
    let (behind, ahead) = (&page[seen..], &page[at..]);
    let mut length = 0;
    while let (Some(one), Some(other)) =
        (behind[length..].first_chunk(), ahead[length..].first_chunk())
    {
        let difference = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
        if difference != 0 {
            return length + (difference.trailing_zeros() / u8::BITS) as usize;
        }
        length += size_of::<u64>();
    }
    let rest = behind[length..].iter().zip(&ahead[length..]);
    length + rest.take_while(|(one, other)| one == other).count()
}

/// Returns how many bytes are equal at the ends of both slices.
fn common_suffix(one: &[u8], other: &[u8]) -> usize {
    one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
}

/// A writer of instructions into a slice. Each method returns `None` when the slice is full.
struct Writer<'o> {
    out: &'o mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn byte(&mut self, byte: usize) -> Option<()> {
        *self.out.get_mut(self.at)? = byte as u8;
        self.at += 1;
        Some(())
    }

    /// Writes what a length exceeds its instruction by, at least 1: zeros count 255 each.
    fn extension(&mut self, excess: usize) -> Option<()> {
        let zeros = (excess - 1) / 255;
        self.out.get_mut(self.at..self.at + zeros)?.fill(0);
        self.at += zeros;
        self.byte(excess - 255 * zeros)
    }

    /// Writes bytes as they are.
    fn literals(&mut self, bytes: &[u8]) -> Option<()> {
        let count = bytes.len();
        match count {
            // The first byte of the stream has an encoding of its own.
            1..=238 if self.at == 0 => self.byte(17 + count)?,
            0 => {}
            // In the low bits of the last copy: both kinds have these in the byte before the last.
            1..=3 => self.out[self.at - 2] |= count as u8,
            4..=18 => self.byte(count - 3)?,
            _ => {
                self.byte(0)?;
                self.extension(count - 18)?;
            }
        }
        self.out.get_mut(self.at..self.at + count)?.copy_from_slice(bytes);
        self.at += count;
        Some(())
    }

    /// Writes a copy of `length` bytes (at least 3) from `distance` (1 to 16384) bytes ago.
    fn copy(&mut self, distance: usize, length: usize) -> Option<()> {
        let back = distance - 1;
        if length <= 8 && back < 2048 {
            // M2: LLLDDDSS HHHHHHHH, length LLL + 1.
            self.byte((length - 1) << 5 | (back & 7) << 2)?;
            return self.byte(back >> 3);
        }
        // M3: 001LLLLL, then the distance in 14 bits above SS.
        if length <= 33 {
            self.byte(0x20 | (length - 2))?;
        } else {
            self.byte(0x20)?;
            self.extension(length - 33)?;
        }
        self.byte(back << 2 & 0xff)?;
        self.byte(back >> 6)
    }

    /// Writes the end of the stream: M4 with distance 0.
    fn end(&mut self) -> Option<()> {
        self.byte(0x11)?;
        self.byte(0)?;
        self.byte(0)
    }
}
