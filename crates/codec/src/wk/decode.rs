//! The decoder: tags, data and literals to a page.
//!
//! Whatever the bytes are, nothing is read or written outside of them and of the page: the decoder
//! is safe Rust. Reads do not check for a stream's end, and find something behind it. At the end,
//! each stream must have been read exactly to its end.

use coldpress_sys::{PAGE_BYTES, Page};

use super::{
    DATA_MASK, DATA_SHIFT, HALVES, HEAD_BYTES, HIGH, KINDS, LITERAL, LITERALS_MAX, LOW_MAX, NEAR,
    NIBBLES_MASK, NIBBLES_SHIFT, PACKED, RAW, RECENT, RUN, Recent, SAME, SAME_END, WHOLE, WORDS,
    is_number,
};
use crate::ffi::lz4_decompress;

/// The most data and literals of a page: six bytes for each word, or a literal.
const BODY_BYTES: usize = 6 * WORDS + LITERALS_MAX + size_of::<u64>();
/// Masks of the low bytes of a number or of a near word, by tag.
const LOW_BYTES: [u64; 9] =
    [0, 0xff, 0xffff, 0xff_ffff, 0xffff_ffff, 0xff, 0xffff, 0xff_ffff, 0xffff_ffff];

/// Decompresses `data` to the front of `page`. Returns the number of bytes written, or `None` if
/// `data` is malformed or longer than the page.
pub(crate) fn decompress(data: &[u8], page: &mut Page) -> Option<usize> {
    if u32::from(*data.first()?) & KINDS == WHOLE {
        return lz4_decompress(&data[1..], page);
    }
    let (head, rest) = data.split_first_chunk::<HEAD_BYTES>()?;
    let head = u32::from_le_bytes(*head);
    let nibble_count = (head >> NIBBLES_SHIFT & NIBBLES_MASK) as usize;
    let data_bytes = (head >> DATA_SHIFT & DATA_MASK) as usize;
    let (packed, rest) = rest.split_at_checked(nibble_count.div_ceil(2))?;
    let mut unpacked;
    let body = match head & KINDS {
        RAW => rest,
        PACKED => {
            unpacked = [0; BODY_BYTES];
            let length = lz4_decompress(rest, &mut unpacked)?;
            unpacked.get(..length)?
        }
        _ => return None,
    };
    let literals = body.get(data_bytes..)?;
    let mut nibbles = [0; WORDS];
    nibbles.get_mut(..packed.len())?.copy_from_slice(packed);
    let reader = Reader {
        nibbles: &nibbles,
        tag: 0,
        place: nibble_count,
        data: body,
        at: 0,
        literals,
        literal: 0,
        distance: 1,
    };
    let reader = reader.words(page.as_chunks_mut().0.as_mut_array()?)?;
    let is_whole = reader.tag == reader.place
        && reader.at == data_bytes
        && reader.literal == reader.literals.len();
    is_whole.then_some(PAGE_BYTES)
}

/// The read positions in the streams.
struct Reader<'d> {
    nibbles: &'d [u8; WORDS],
    /// The next tag.
    tag: usize,
    /// One more than the next place: places are read backwards.
    place: usize,
    data: &'d [u8],
    at: usize,
    literals: &'d [u8],
    literal: usize,
    /// Words between a run and the words it repeats.
    distance: usize,
}

impl Reader<'_> {
    /// Decodes all words, and returns the positions that the streams have been read to.
    fn words(mut self, words: &mut [[u8; 8]; WORDS]) -> Option<Self> {
        let mut recent = [0_u64; 2 * RECENT];
        let mut number = 0;
        while number < WORDS {
            let tag = self.nibble(self.tag);
            let raw = load(self.data, self.at);
            self.tag += 1;
            let word;
            if usize::from(tag) < LOW_BYTES.len() {
                // Numbers and near words alternate without order, so there is no branch. Numbers
                // are near a zero that stays zero.
                let is_near = usize::from(tag > NEAR);
                let all = is_near.wrapping_neg();
                let last = self.place.wrapping_sub(1);
                let place = RECENT ^ ((usize::from(self.nibble(last)) ^ RECENT) & all);
                let low = LOW_BYTES[usize::from(tag)];
                word = raw & low | recent[place] & !low;
                recent[place] = word & all as u64;
                self.place = self.place.wrapping_sub(is_near);
                self.at += usize::from(tag) - LOW_MAX * is_near;
            } else if tag == RUN {
                let count = (raw & 0xff) as usize + 1;
                self.at += 1;
                if count > WORDS - number || self.distance > number {
                    return None;
                }
                for to in number..number + count {
                    words[to] = words[to - self.distance];
                }
                number += count;
                continue;
            } else {
                word = self.other(tag, raw, &words[..number])?;
                if tag >= LITERAL && !is_number(word) {
                    recent[Recent::place(word)] = word;
                }
            }
            words[number] = word.to_le_bytes();
            number += 1;
        }
        Some(self)
    }

    #[inline]
    fn nibble(&self, number: usize) -> u8 {
        self.nibbles[number / 2 % WORDS] >> (4 * (number % 2)) & 15
    }

    /// Decodes a word that is neither a number nor near, behind the `words`; `raw` is the next
    /// data.
    #[inline]
    fn other(&mut self, tag: u8, raw: u64, words: &[[u8; 8]]) -> Option<u64> {
        let (word, read) = match tag {
            SAME..=SAME_END => {
                let seen = (raw & 0xff) as usize + 256 * usize::from(tag - SAME);
                let word = words.get(seen)?;
                self.distance = words.len() - seen;
                (u64::from_le_bytes(*word), 1)
            }
            LITERAL => {
                let word = load(self.literals, self.literal);
                self.literal += size_of::<u64>();
                (word, 0)
            }
            HALVES => (raw & 0xffff | (raw & 0xffff_0000) << 16, 4),
            HIGH => (raw << 32, 4),
            _ => (raw & 0xffff_ffff_ffff, 6),
        };
        self.at += read;
        Some(word)
    }
}

/// Returns the eight bytes at `at`; behind the last byte there are zeros.
#[inline]
fn load(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(<[u8]>::first_chunk) {
        Some(word) => u64::from_le_bytes(*word),
        None => load_end(bytes, at),
    }
}

#[cold]
fn load_end(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}
