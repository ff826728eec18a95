//! Bytes that claim to be a compressed page, for every decoder; and pages there and back.
//!
//! A decoder says no, or makes a page: it reads and writes nowhere else, as the address sanitizer
//! of `make sanitize` sees too. What it makes is compressed again by every codec, and comes back.
#![no_main]

use std::cell::RefCell;

use coldpress_codec::{
    Codec, CodecId, Dictionary, DictionaryCodec, decompress_lz4, decompress_lzo, decompress_wk,
};
use coldpress_sys::{PAGE_BYTES, Page};

/// Room for a page that grew.
const ROOM: usize = 2 * PAGE_BYTES;

thread_local! {
    static CODECS: RefCell<Vec<Codec>> = {
        let ids = [CodecId::Wk, CodecId::Lz4, CodecId::Lzo, CodecId::Zstd { level: 1 }];
        RefCell::new(ids.map(|id| Codec::new(id).expect("there is memory")).into())
    };
    static DENSE: RefCell<DictionaryCodec> = {
        let words: Vec<u8> = (0..1024_u32).flat_map(u32::to_le_bytes).collect();
        let codec = DictionaryCodec::new(1, Dictionary::new(words));
        RefCell::new(codec.expect("there is memory"))
    };
}

/// Compresses a page by every codec, and asserts that it comes back.
fn there_and_back(page: &Page) {
    let mut room = [0; ROOM];
    let mut back = [0; PAGE_BYTES];
    CODECS.with_borrow_mut(|codecs| {
        for codec in codecs {
            let Some(bytes) = codec.compress(page, &mut room) else { continue };
            codec.decompress(bytes, &mut back).expect("the codec has just made it");
            assert!(*page == back, "{codec:?} gave another page back");
        }
    });
    DENSE.with_borrow_mut(|dense| {
        if let Some(bytes) = dense.compress(page, &mut room) {
            let newest = dense.newest();
            dense.decompress(newest, bytes, &mut back).expect("the codec has just made it");
            assert!(*page == back, "the dictionary gave another page back");
        }
    });
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, data)) = bytes.split_first() else { return };
    let mut page = [0; PAGE_BYTES];
    let made = match kind % 6 {
        0 => decompress_wk(data, &mut page),
        1 => decompress_lz4(data, &mut page),
        2 => decompress_lzo(data, &mut page),
        3 => CODECS.with_borrow_mut(|codecs| codecs[3].decompress(data, &mut page)),
        4 => DENSE.with_borrow_mut(|dense| {
            let newest = dense.newest();
            dense.decompress(newest, data, &mut page)
        }),
        _ => {
            let bytes = data.iter().copied().cycle().take(if data.is_empty() { 0 } else { 4096 });
            page.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
            Ok(())
        }
    };
    if made.is_ok() {
        there_and_back(&page);
    }
});
