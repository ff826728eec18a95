//! The encoder: a page to tags, data and literals.

use alloc::boxed::Box;

use coldpress_sys::{Bytes, Page};

use super::{
    DATA_MASK, DATA_SHIFT, HALVES, HEAD_BYTES, HIGH, LITERAL, LITERALS_BASE, LITERALS_MAX,
    LITERALS_STEP, LOW_MAX, NEAR, NIBBLES_MASK, NIBBLES_SHIFT, NUMBER, PACKED, RAW, RUN, Recent,
    SAME, SIX, WHOLE, WORDS, is_number,
};
use crate::error::CodecError;
use crate::ffi::Lz4State;
use crate::room::table;

/// log2 of the slots in which words are looked up.
const SLOT_BITS: u32 = 9;
const SLOTS: usize = 1 << SLOT_BITS;
/// The most words of a run.
const RUN_MAX: usize = 256;
/// Room behind the contents of a stream, which is written by whole words.
const SPARE: usize = size_of::<u64>();
/// The most places of a page; and the most nibbles, which are tags and places.
const PLACES_MAX: usize = WORDS + SPARE;
const NIBBLES_MAX: usize = 2 * WORDS + SPARE;
/// The most data of a page: six bytes for each word.
const DATA_MAX: usize = 6 * WORDS + SPARE;
/// Bytes of text below which data and literals are kept as they are: LZ4 would make them 2 %
/// smaller, in a microsecond.
const TEXT_PACKED_MIN: usize = 512;
/// Per cent of data and literals. If LZ4 makes them smaller than this, they are text that repeats,
/// of which LZ4 makes less if it has the whole page.
const REPETITIVE: usize = 60;

const _: () = assert!(2 * WORDS <= NIBBLES_MASK as usize && 6 * WORDS <= DATA_MASK as usize);

/// The encoder's memory; the decoder has none.
pub(crate) struct Wk {
    /// The number of the last word with each hash.
    seen: Box<[u16; SLOTS]>,
    /// One tag to the byte, and one place to the byte.
    tags: Stream<NIBBLES_MAX>,
    places: Stream<PLACES_MAX>,
    /// Data, and at the end the literals behind them.
    data: Stream<{ DATA_MAX + LITERALS_MAX + SPARE }>,
    literals: Stream<{ LITERALS_MAX + 2 * SPARE }>,
    /// Bytes of words that may be text.
    text: usize,
    lz4: Lz4State,
}

/// Bytes that are written one after another.
struct Stream<const N: usize> {
    bytes: Box<[u8; N]>,
    length: usize,
}

impl<const N: usize> Stream<N> {
    fn new() -> Result<Self, CodecError> {
        let bytes = table(N, 0)?.try_into().map_err(|_| CodecError::NoMemory(Bytes(N)))?;
        Ok(Self { bytes, length: 0 })
    }

    /// Appends the low `count` bytes of a word.
    #[inline]
    fn push(&mut self, word: u64, count: usize) {
        let end = self.length + size_of::<u64>();
        self.bytes[self.length..end].copy_from_slice(&word.to_le_bytes());
        self.length += count;
    }

    fn append(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }

    fn written(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The words of a page.
#[derive(Clone, Copy)]
struct PageWords<'p>(&'p [[u8; 8]]);

impl PageWords<'_> {
    #[inline]
    fn get(self, number: usize) -> u64 {
        u64::from_le_bytes(self.0[number])
    }

    /// Returns how many words from `number` on equal those `distance` before them.
    #[inline]
    fn run(self, number: usize, distance: usize) -> usize {
        if number < distance {
            return 0;
        }
        let pairs = self.0[number..].iter().zip(&self.0[number - distance..]);
        pairs.take(RUN_MAX).take_while(|(one, other)| one == other).count()
    }

    /// Returns whether the two words behind `number` also equal those behind `seen`: then a
    /// reference to the distance pays, even if the word itself is small.
    fn begins_run(self, number: usize, seen: usize) -> bool {
        let next = self.0.get(number + 1..number + 3);
        next.is_some() && next == self.0.get(seen + 1..seen + 3)
    }
}

impl Wk {
    /// Makes a codec with some 26 KiB of memory.
    pub(crate) fn new() -> Result<Self, CodecError> {
        let error = CodecError::NoMemory(Bytes(SLOTS * size_of::<u16>()));
        Ok(Self {
            seen: table(SLOTS, 0)?.try_into().map_err(|_| error)?,
            tags: Stream::new()?,
            places: Stream::new()?,
            data: Stream::new()?,
            literals: Stream::new()?,
            text: 0,
            lz4: Lz4State::new()?,
        })
    }

    /// Returns the size of the codec's memory.
    pub(crate) fn work_bytes(&self) -> Bytes {
        let nibbles = self.tags.bytes.len() + self.places.bytes.len();
        let streams = nibbles + self.data.bytes.len() + self.literals.bytes.len();
        self.lz4.bytes() + Bytes(SLOTS * size_of::<u16>() + streams)
    }

    /// Compresses `page` to the front of `out`. Returns the number of bytes written, or `None` if
    /// they do not fit.
    pub(crate) fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        if !self.encode(PageWords(page.as_chunks().0)) {
            let (head, rest) = out.split_first_mut()?;
            *head = WHOLE as u8;
            return Some(1 + self.lz4.compress(page, rest)?);
        }
        let (length, is_repetitive) = match self.write(out) {
            Some((length, packed)) => (length, packed < self.data.length * REPETITIVE / 100),
            // A result that fits is shorter, whatever it is.
            None => (out.len() + 1, self.text >= TEXT_PACKED_MIN),
        };
        if is_repetitive {
            // The data written there are not needed any more.
            let most = length.checked_sub(2)?.min(self.data.bytes.len());
            let shorter = &mut self.data.bytes[..most];
            if let Some(whole) = self.lz4.compress(page, shorter) {
                out[0] = WHOLE as u8;
                out[1..=whole].copy_from_slice(&shorter[..whole]);
                return Some(1 + whole);
            }
        }
        (length <= out.len()).then_some(length)
    }

    /// Returns whether literals are few enough, after filling the streams with the page's words.
    fn encode(&mut self, words: PageWords<'_>) -> bool {
        // An empty slot names word 0, which is harmless, because words are compared.
        self.seen.fill(0);
        (self.tags.length, self.places.length) = (0, 0);
        (self.data.length, self.literals.length, self.text) = (0, 0, 0);
        let mut recent = Recent::NONE;
        let (mut number, mut distance) = (0, 1);
        while number < WORDS {
            let word = words.get(number);
            let is_large = word > u64::from(u8::MAX);
            let run = words.run(number, distance);
            if run > usize::from(!is_large) {
                self.tags.push(u64::from(RUN), 1);
                self.data.push(run as u64 - 1, 1);
                number += run;
                continue;
            }
            let slot = &mut self.seen[slot_of(word)];
            let seen = usize::from(core::mem::replace(slot, number as u16));
            if seen < number
                && words.get(seen) == word
                && (is_large || words.begins_run(number, seen))
            {
                self.tags.push(u64::from(SAME) + (seen as u64 >> 8), 1);
                self.data.push(seen as u64, 1);
                distance = number - seen;
            } else {
                self.single(word, &mut recent);
                if self.literals.length > LITERALS_BASE + LITERALS_STEP * number {
                    return false;
                }
            }
            number += 1;
        }
        true
    }

    /// Encodes one word by itself.
    #[inline]
    fn single(&mut self, word: u64, recent: &mut Recent) {
        if is_number(word) {
            let count = bytes_of(word);
            self.tags.push(u64::from(NUMBER) + count as u64, 1);
            self.data.push(word, count);
            return;
        }
        let place = Recent::place(word);
        // One low byte at least, because there is no tag for none.
        let count = bytes_of(word ^ recent.word(place) | 1);
        recent.note(word);
        if count <= LOW_MAX {
            self.tags.push(u64::from(NEAR) + count as u64, 1);
            self.places.push(place as u64, 1);
            self.data.push(word, count);
        } else if word & 0xffff_0000_ffff_0000 == 0 {
            self.tags.push(u64::from(HALVES), 1);
            self.data.push(word & 0xffff | word >> 16, 4);
        } else if word & 0xffff_ffff == 0 {
            self.tags.push(u64::from(HIGH), 1);
            self.data.push(word >> 32, 4);
        } else if word >> 48 == 0 {
            self.tags.push(u64::from(SIX), 1);
            self.data.push(word, 6);
            self.text += 6;
        } else {
            self.tags.push(u64::from(LITERAL), 1);
            self.literals.push(word, size_of::<u64>());
            self.text += size_of::<u64>();
        }
    }

    /// Writes the streams to the front of `out`. Returns the number of bytes in all, and how many
    /// of them are data and literals; `None` if they do not fit.
    fn write(&mut self, out: &mut [u8]) -> Option<(usize, usize)> {
        for place in self.places.written().iter().rev() {
            self.tags.push(u64::from(*place), 1);
        }
        // An odd last nibble has a zero beside it, because streams are written by words.
        let (nibbles, data) = (self.tags.length, self.data.length);
        self.data.append(self.literals.written());
        let (head, rest) = out.split_first_chunk_mut::<HEAD_BYTES>()?;
        let (packed, rest) = rest.split_at_mut_checked(nibbles.div_ceil(2))?;
        for (packed, pair) in packed.iter_mut().zip(self.tags.bytes.as_chunks().0) {
            let [low, high]: [u8; 2] = *pair;
            *packed = low | high << 4;
        }
        let (kind, length) = self.write_body(rest)?;
        let counts = (nibbles as u32) << NIBBLES_SHIFT | (data as u32) << DATA_SHIFT;
        *head = (kind | counts).to_le_bytes();
        Some((HEAD_BYTES + packed.len() + length, length))
    }

    /// Writes data and literals to the front of `out`, packed if there is text in them and packing
    /// makes them shorter. Returns the way they are kept and the number of bytes; `None` if they do
    /// not fit.
    fn write_body(&mut self, out: &mut [u8]) -> Option<(u32, usize)> {
        let body = self.data.written();
        if self.text >= TEXT_PACKED_MIN {
            let shorter = (body.len() - body.len() / 16).min(out.len());
            if let Some(length) = self.lz4.compress(body, &mut out[..shorter]) {
                return Some((PACKED, length));
            }
        }
        out.get_mut(..body.len())?.copy_from_slice(body);
        Some((RAW, body.len()))
    }
}

/// Returns the slot of a word (Fibonacci hashing).
#[inline]
fn slot_of(word: u64) -> usize {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOT_BITS)) as usize
}

/// Returns how many low bytes a number has.
#[inline]
fn bytes_of(word: u64) -> usize {
    (u64::BITS - word.leading_zeros()).div_ceil(u8::BITS) as usize
}
