//! The risk: encoder and decoder of WK are both ours, so they may agree on something other than the
//! description. Or they may disagree on words of programs, of which the suite's pages have few. A
//! decoder that knows nothing but the table in `wk.rs`, and the hash, runs beside ours.

use std::collections::VecDeque;

use super::*;

const WORDS: usize = PAGE_BYTES / 8;

/// Makes a page of these words, and zeros behind them.
fn page_of_words(words: &[u64]) -> Page {
    let words = words.iter().copied().chain(std::iter::repeat(0));
    page_of(words.flat_map(u64::to_le_bytes))
}

/// Some words as programs have them.
#[derive(Clone, Debug)]
enum Words {
    Number(u64),
    Pointer(u8, u32),
    Halves(u16, u16),
    Double(u32),
    Text([u8; 8]),
    Any(u64),
    /// Earlier words again: how far back, and how many.
    Again(usize, usize),
}

/// Makes pages of words.
fn any_words() -> impl Strategy<Value = Box<Page>> {
    let piece = prop_oneof![
        (any::<u64>(), 0..64_u32).prop_map(|(word, bits)| Words::Number(word >> bits)),
        (0..256_u64).prop_map(Words::Number),
        (0..6_u8, any::<u32>()).prop_map(|(base, low)| Words::Pointer(base, low)),
        (0..40_u8, 0..4096_u32).prop_map(|(base, low)| Words::Pointer(base, low)),
        any::<(u16, u16)>().prop_map(|(low, high)| Words::Halves(low, high)),
        any::<u32>().prop_map(Words::Double),
        proptest::array::uniform8(b'a'..b'h').prop_map(Words::Text),
        any::<u64>().prop_map(Words::Any),
        (1..WORDS, 1..300_usize).prop_map(|(back, count)| Words::Again(back, count)),
        (1..8_usize, 1..20_usize).prop_map(|(back, count)| Words::Again(back, count)),
    ];
    vec(piece, 1..300).prop_map(|pieces| {
        let mut words = Vec::new();
        for piece in pieces {
            match piece {
                Words::Number(word) | Words::Any(word) => words.push(word),
                Words::Pointer(base, low) => {
                    words.push(0x5500_0000_0000 + (u64::from(base) << 36) + u64::from(low));
                }
                Words::Halves(low, high) => words.push(u64::from(low) | u64::from(high) << 32),
                Words::Double(high) => words.push(u64::from(high) << 32),
                Words::Text(bytes) => words.push(u64::from_le_bytes(bytes)),
                Words::Again(back, count) => {
                    for _ in 0..count {
                        words.push(words.len().checked_sub(back).map_or(0, |at| words[at]));
                    }
                }
            }
        }
        words.truncate(WORDS);
        Box::new(page_of_words(&words))
    })
}

/// Returns the place, in a table of 16, for words like this one.
fn place_of(word: u64) -> usize {
    ((word >> 24).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize
}

/// Takes the first `count` bytes of a stream, as a number.
fn take(stream: &mut Vec<u8>, count: usize) -> Option<u64> {
    if count > stream.len() {
        return None;
    }
    let bytes: Vec<u8> = stream.drain(..count).collect();
    Some(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

/// Decodes `data` by the description alone; `None` if that gives no page.
fn decode_plainly(data: &[u8]) -> Option<Page> {
    let mut data = data.to_vec();
    let mut page = [0; PAGE_BYTES];
    if data.first()? & 3 == 2 {
        return decompress_lz4(&data[1..], &mut page).is_ok().then_some(page);
    }
    let head = take(&mut data, 4)?;
    let (kind, count, bytes) = (head & 3, head >> 2 & 0x7ff, head >> 13 & 0x1fff);
    let mut nibbles = VecDeque::new();
    for _ in 0..count.div_ceil(2) {
        let two = take(&mut data, 1)?;
        nibbles.extend([two & 15, two >> 4]);
    }
    nibbles.truncate(count as usize);
    if kind == 1 {
        let mut unpacked = [0; 6 * WORDS + 2184];
        let length = crate::ffi::lz4_decompress(&data, &mut unpacked)?;
        data = unpacked[..length].to_vec();
    } else if kind == 3 {
        return None;
    }
    if data.len() < bytes as usize {
        return None;
    }
    let mut literals = data.split_off(bytes as usize);
    let (mut words, mut recent, mut distance) = (Vec::<u64>::new(), [0_u64; 16], 1);
    while words.len() < WORDS {
        let tag = nibbles.pop_front()?;
        let (mut is_new, mut is_noted) = (true, true);
        let word = match tag {
            0..=4 => take(&mut data, tag as usize)?,
            5..=8 => {
                let (place, count) = (nibbles.pop_back()? as usize, tag as usize - 4);
                let low = take(&mut data, count)?;
                recent[place] = recent[place] >> (8 * count) << (8 * count) | low;
                is_noted = false;
                recent[place]
            }
            9 | 10 => {
                let seen = take(&mut data, 1)? as usize + if tag == 10 { 256 } else { 0 };
                is_noted = false;
                distance = words.len().checked_sub(seen).filter(|distance| *distance > 0)?;
                words[seen]
            }
            11 => {
                is_new = false;
                for _ in 0..=take(&mut data, 1)? {
                    words.push(words[words.len().checked_sub(distance)?]);
                }
                0
            }
            12 => take(&mut literals, 8)?,
            13 => take(&mut data, 2)? | take(&mut data, 2)? << 32,
            14 => take(&mut data, 4)? << 32,
            _ => take(&mut data, 6)?,
        };
        if is_new {
            words.push(word);
            if is_noted && word >> 32 != 0 {
                recent[place_of(word)] = word;
            }
        }
    }
    let is_whole = words.len() == WORDS && nibbles.is_empty();
    (is_whole && data.is_empty() && literals.is_empty()).then(|| page_of_words(&words))
}

#[test]
fn words_are_as_described() {
    let pointer = 0x5566_1234_5678;
    let words = [
        0x11,                  // a number of one byte
        pointer,               // a word of six bytes
        pointer + 0x100,       // near: two bytes differ
        0xabcd_0000_1234,      // two numbers
        0x4046_8000_0000_0000, // zeros below
        u64::from_le_bytes(*b"literal!"),
        pointer,         // the word number 1
        pointer + 0x100, // and a run of four from there
        0xabcd_0000_1234,
        0x4046_8000_0000_0000,
        u64::from_le_bytes(*b"literal!"),
        0x0102_0304, // a number of four bytes
    ];
    let place = place_of(pointer) as u8;
    let nibbles = [1, 15, 6, 13, 14, 12, 9, 11, 4, 0, 9, 11, 11, place];
    let data: &[&[u8]] = &[
        &[0x11],
        &[0x78, 0x56, 0x34, 0x12, 0x66, 0x55],
        &[0x78, 0x57],
        &[0x34, 0x12, 0xcd, 0xab],
        &[0, 0x80, 0x46, 0x40],
        &[1],
        &[3],
        &[4, 3, 2, 1],
        // Zeros: word 12; word 13 equal to it, because more follow; and 498 in runs of the word
        // before.
        &[12],
        &[255],
        &[241],
    ];
    let data = data.concat();
    let head = (nibbles.len() as u32) << 2 | (data.len() as u32) << 13;
    let packed: Vec<u8> = nibbles.chunks(2).map(|two| two[0] | two[1] << 4).collect();
    let expected = [&head.to_le_bytes()[..], &packed, &data, b"literal!"].concat();
    let page = page_of_words(&words);
    assert_eq!(compressed(&mut codec(CodecId::Wk), &page), expected);
    assert_decodes(&mut codec(CodecId::Wk), &expected, &page, "by hand");
}

/// Checks that data and literals are raw without much text, otherwise packed; and that LZ4 has the
/// page if most of it is literal, or if the text repeats.
#[test]
fn text_is_kept_in_three_ways() {
    let kind = |page: &Page| {
        let data = compressed(&mut codec(CodecId::Wk), page);
        assert!(decode_plainly(&data) == Some(*page));
        data[0] & 3
    };
    let with_text = |bytes: usize, pages: [Page; 2]| {
        let [text, rest] = pages;
        page_of(text[..bytes].iter().copied().chain(rest))
    };
    let letter = |word: u64| b'a' + (word >> 40) as u8 % 16;
    let letters = page_of(random_words(8).map(letter));
    // Of 16 bytes 7 repeat, but no word does.
    let some = page_of(
        random_words(8)
            .enumerate()
            .map(|(at, word)| *b"memory,".get(at % 16).unwrap_or(&letter(word))),
    );
    assert_eq!(kind(&with_text(400, [letters, counter_page()])), 0);
    assert_eq!(kind(&with_text(1200, [some, [0; PAGE_BYTES]])), 1);
    assert_eq!(kind(&with_text(1600, [text_page(), [0; PAGE_BYTES]])), 2);
    assert_eq!(kind(&letters), 2);
}

#[test]
fn each_limit_is_respected_with_literals() {
    let mixed = page_of(text_page()[..1900].iter().copied().chain(counter_page()));
    assert_limits(&mut codec(CodecId::Wk), &mixed, "mixed");
    assert_limits(&mut codec(CodecId::Wk), &counter_page(), "counter");
    for text in [800, 1600, 2000] {
        let repetitive = page_of(text_page()[..text].iter().copied().chain([0; PAGE_BYTES]));
        assert_limits(&mut codec(CodecId::Wk), &repetitive, "repetitive");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn words_come_back_and_mean_what_is_described(page in any_words()) {
        let mut codec = codec(CodecId::Wk);
        let data = compressed(&mut codec, &page);
        assert_decodes(&mut codec, &data, &page, "of words");
        prop_assert!(decode_plainly(&data) == Some(*page));
    }

    #[test]
    fn damaged_words_mean_the_same_to_both(
        page in any_words(),
        hits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..9),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut codec = codec(CodecId::Wk);
        let mut data = compressed(&mut codec, &page);
        for (at, byte) in hits {
            let at = at.index(data.len());
            data[at] = byte;
        }
        prop_assert!(decode_any(&mut codec, &data) == decode_plainly(&data));
        data.truncate(cut.index(data.len() + 1));
        prop_assert!(decode_any(&mut codec, &data) == decode_plainly(&data));
    }

    #[test]
    fn any_bytes_mean_the_same_to_both(data in vec(any::<u8>(), 0..3000)) {
        prop_assert!(decode_any(&mut codec(CodecId::Wk), &data) == decode_plainly(&data));
    }
}
