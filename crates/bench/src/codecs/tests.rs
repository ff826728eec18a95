//! The risk: figures of pages that a dictionary has seen, or of pages that came back wrong.

use std::fs;

use coldpress_codec::{Codec, CodecId, DEFAULT_DICTIONARY_LEVEL, DictionaryCodec};
use coldpress_sys::{PAGE_BYTES, Page};

use super::contest::measure;
use super::pages::{Pages, WINDOW_PAGES, read};
use super::subject::{Grouped, Subject};
use super::training::train;
use crate::ticks::Stopwatch;

fn numbered(count: u16) -> Vec<Page> {
    let page = |number: u16| std::array::from_fn(|at| (number >> (at % 2 * 8)) as u8 ^ at as u8);
    (0..count).map(page).collect()
}

#[test]
fn halves_are_windows_in_turn_without_pages_of_one_word() {
    let mut pages = numbered(100);
    pages[3] = [7; PAGE_BYTES];
    pages[20] = [0; PAGE_BYTES];
    let split = Pages::split("x", &pages, 1000);
    assert_eq!((split.train.len(), split.test.len(), split.same_filled), (51, 47, 2));
    assert!(split.train[..3] == pages[..3] && split.train[3] == pages[4]);
    assert!(split.test[..4] == pages[16..20] && split.test[4] == pages[21]);
    assert!(split.is_enough() && !Pages::split("x", &pages[..30], 1000).is_enough());
    let few = Pages::split("x", &pages, 20);
    assert!(few.train.len() == 20 && few.test.len() == 20);
    assert_eq!(Pages::text(WINDOW_PAGES * 2).test.len(), WINDOW_PAGES * 2);
}

#[test]
fn files_are_whole_pages_plain_or_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let pages = numbered(3);
    let plain = folder.path().join("a.pages");
    fs::write(&plain, pages.as_flattened()).unwrap();
    assert!(read(&plain).unwrap() == ("a".to_owned(), pages.clone()));
    let packed = folder.path().join("b.pages.zst");
    fs::write(&packed, zstd::encode_all(pages.as_flattened(), 1).unwrap()).unwrap();
    assert!(read(&packed).unwrap() == ("b".to_owned(), pages.clone()));
    for bytes in [&[][..], &pages.as_flattened()[1..]] {
        fs::write(&plain, bytes).unwrap();
        assert_eq!(read(&plain).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    }
    assert!(read(&folder.path().join("c")).is_err());
}

#[test]
fn each_codec_gives_back_what_it_took() {
    let watch = Stopwatch::learn();
    let pages = Pages::text(64);
    let training = train(&pages.train, DEFAULT_DICTIONARY_LEVEL, &watch).unwrap().unwrap();
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for id in [CodecId::Wk, CodecId::Lz4, CodecId::Lzo, CodecId::Zstd { level: 6 }] {
        subjects.push(Box::new(Codec::new(id).unwrap()));
    }
    let dictionary = training.dictionary.clone();
    subjects.push(Box::new(DictionaryCodec::new(6, dictionary).unwrap()));
    for (group, dictionary) in [(4, None), (4, Some(&training.dictionary)), (16, None)] {
        subjects.push(Box::new(Grouped::new(group, 6, dictionary).unwrap()));
    }
    let bytes: Vec<f64> = subjects
        .iter_mut()
        .map(|subject| measure(&mut **subject, &pages.test, &watch).unwrap().bytes)
        .collect();
    let [wk, lz4, lzo, zstd, with, four, four_with, sixteen] = bytes[..] else { panic!() };
    // WK leaves text to LZ4, behind one byte of its own.
    assert!(wk > lz4 && lz4 > lzo && lzo > zstd && zstd > with, "{bytes:?}");
    assert!(zstd > four && four > four_with && four > sixteen, "{bytes:?}");
    assert!(training.codec.0 > 100_000 && training.trainer.0 > 100_000);
}

#[test]
fn a_page_that_comes_back_wrong_is_no_figure() {
    struct Wrong;
    impl Subject for Wrong {
        fn store(&mut self, _: &[Page], _: &mut [u8]) -> Option<usize> {
            Some(1)
        }
        fn load(&mut self, _: &[u8], _: &mut [Page]) -> bool {
            true
        }
    }
    let watch = Stopwatch::learn();
    assert!(measure(&mut Wrong, &numbered(9)[1..], &watch).is_none());
    let mut codec = Codec::new(CodecId::Lz4).unwrap();
    assert!(measure(&mut codec, &[], &watch).is_none());
    let random: Vec<Page> = Pages::text(16).test;
    assert_eq!(measure(&mut codec, &random, &watch).unwrap().raw, 0);
}
