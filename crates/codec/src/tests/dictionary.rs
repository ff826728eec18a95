//! The risk beyond that of any codec: a page decompressed with another dictionary than the one it
//! was compressed with, which zstd does without an error.

use super::*;

impl Tested for DictionaryCodec {
    fn compress<'o>(&mut self, page: &Page, out: &'o mut [u8]) -> Option<&'o [u8]> {
        self.compress(page, out)
    }

    fn decompress(&mut self, data: &[u8], page: &mut Page) -> Result<(), DecodeError> {
        self.decompress(self.newest(), data, page)
    }
}

/// Trains a dictionary of pages with the records of `number`.
fn trained(number: u64) -> Dictionary {
    let mut trainer = Trainer::new().expect("there is memory");
    for page in 0..64 {
        trainer.offer(&record_page(number, page));
    }
    while trainer.step() {}
    trainer.finish().expect("records are common to all pages")
}

/// Makes a page of records; pages with equal `number` have similar ones.
fn record_page(number: u64, page: u64) -> Page {
    let names: Vec<u64> = random_words(number).take(40).collect();
    let record = |random: u64| {
        let name = names[(random >> 32) as usize % names.len()];
        format!("<name id={:04x}>{name:016x}</name>\n", random as u16).into_bytes()
    };
    page_of(random_words(page + 100).flat_map(record))
}

fn dictionary_codec(level: i32) -> DictionaryCodec {
    DictionaryCodec::new(level, trained(1)).expect("a codec of a valid level")
}

codec_suite!(of_zstd, dictionary_codec(DEFAULT_DICTIONARY_LEVEL), [14, 778, 1951]);

/// Checks each level as for a codec without a dictionary; and a page that the dictionary knows must
/// be smaller with it.
#[test]
fn each_level_works_in_static_memory() {
    for level in ZSTD_LEVELS {
        let mut with = dictionary_codec(level);
        let page = record_page(1, 9999);
        let size = compressed(&mut with, &page).len();
        for _ in 0..140 {
            assert_eq!(compressed(&mut with, &page).len(), size, "level {level}");
        }
        for (page, name) in [(text_page(), "text"), (random_page(1), "random"), (page, "records")] {
            assert_round_trip(&mut with, &page, name);
        }
        let without = compressed(&mut codec(CodecId::Zstd { level }), &page).len();
        assert!(size < without * 9 / 10, "level {level}: {size} of {without}");
        let bytes = with.work_bytes();
        assert!(bytes < Bytes::kib(640), "level {level}: {bytes:?}");
    }
}

#[test]
fn what_the_dictionary_has_takes_few_bytes() {
    let mut codec = dictionary_codec(DEFAULT_DICTIONARY_LEVEL);
    let page = page_of(trained(1).content().iter().copied().skip(5000));
    assert!(compressed(&mut codec, &page).len() < 40);
    assert_round_trip(&mut codec, &page, "of the dictionary");
}

#[test]
fn work_memory_is_known() {
    let codec = dictionary_codec(DEFAULT_DICTIONARY_LEVEL);
    assert!(codec.work_bytes() <= Bytes::kib(360), "{:?}", codec.work_bytes());
}

/// Checks that pages of each present generation come back, whatever was adopted since; and that
/// none comes back as another page once its dictionary is gone.
#[test]
fn pages_come_back_with_their_own_dictionary_or_not_at_all() {
    let mut codec = dictionary_codec(DEFAULT_DICTIONARY_LEVEL);
    let mut kept: Vec<(Generation, Vec<u8>, Page)> = Vec::new();
    let dictionaries = [trained(1), trained(2), trained(3)];
    // More rounds than there are marks, so that marks come again.
    for round in 0..300_u64 {
        let dictionary = &dictionaries[round as usize % 3];
        let page = record_page(1 + round % 3, round);
        let data = compressed(&mut codec, &page);
        kept.push((codec.newest(), data, page));
        if kept.len() == GENERATIONS {
            let (oldest, data, _) = kept.remove(0);
            assert_eq!(codec.adopt(dictionary.clone()), Err(CodecError::Generations(GENERATIONS)));
            assert!(codec.retire(oldest) && !codec.retire(oldest));
            assert_eq!(
                codec.decompress(oldest, &data, &mut [0; PAGE_BYTES]),
                Err(DecodeError::Dictionary)
            );
            // The number is used again: the data are still distinguished from those of the new one.
            assert_eq!(codec.adopt(dictionary.clone()), Ok(oldest));
            assert_eq!(
                codec.decompress(oldest, &data, &mut [0; PAGE_BYTES]),
                Err(DecodeError::Dictionary)
            );
        } else {
            codec.adopt(dictionary.clone()).expect("there is room");
        }
        for (generation, data, page) in &kept {
            let mut back = [0; PAGE_BYTES];
            assert_eq!(codec.decompress(*generation, data, &mut back), Ok(()));
            assert!(back == *page, "round {round}, {generation:?}");
            for other in Generation::ALL.into_iter().filter(|it| it != generation) {
                let found = codec.decompress(other, data, &mut back);
                assert_eq!(found, Err(DecodeError::Dictionary), "round {round}, {other:?}");
            }
        }
    }
}

/// The actions of a caller, in any order.
#[derive(Clone, Debug)]
enum Verb {
    Adopt(u64),
    Retire(u8),
    Store(u64),
}

fn any_verbs() -> impl Strategy<Value = Vec<Verb>> {
    let verb = prop_oneof![
        (1..4_u64).prop_map(Verb::Adopt),
        (0..GENERATIONS as u8).prop_map(Verb::Retire),
        (0..50_u64).prop_map(Verb::Store),
    ];
    vec(verb, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Compares with a list of the dictionaries present, each with the time it was adopted.
    #[test]
    fn any_sequence_does_what_a_list_does(verbs in any_verbs()) {
        let dictionaries = [trained(1), trained(2), trained(3)];
        let mut codec = dictionary_codec(DEFAULT_DICTIONARY_LEVEL);
        let mut there = [Some(0), None, None, None];
        let (mut newest, mut stored) = (0, Vec::new());
        for (time, verb) in verbs.iter().enumerate() {
            match *verb {
                Verb::Adopt(number) => {
                    let found = codec.adopt(dictionaries[number as usize - 1].clone());
                    let free = there.iter().position(Option::is_none);
                    prop_assert_eq!(found.ok().map(Generation::number), free);
                    if let Some(free) = free {
                        newest = free;
                        there[free] = Some(time + 1);
                    }
                }
                Verb::Retire(number) => {
                    let index = usize::from(number);
                    let generation = Generation::ALL[index];
                    let expected = index != newest && there[index].take().is_some();
                    prop_assert_eq!(codec.retire(generation), expected);
                }
                Verb::Store(number) => {
                    let page = record_page(1 + number % 3, number);
                    let data = compressed(&mut codec, &page);
                    stored.push((codec.newest(), there[newest], data, page));
                }
            }
            prop_assert_eq!(codec.newest().number(), newest);
            for (generation, adopted, data, page) in &stored {
                let mut back = [0; PAGE_BYTES];
                let found = codec.decompress(*generation, data, &mut back);
                if there[generation.number()] == *adopted {
                    prop_assert!(found == Ok(()) && back == *page);
                } else {
                    prop_assert_eq!(found, Err(DecodeError::Dictionary));
                }
            }
        }
    }
}

#[test]
fn the_newest_dictionary_and_none_at_all_cannot_be_retired() {
    let mut codec = dictionary_codec(DEFAULT_DICTIONARY_LEVEL);
    assert!(!Generation::ALL.into_iter().any(|generation| codec.retire(generation)));
    assert_round_trip(&mut codec, &record_page(1, 5), "records");
}

#[test]
fn a_level_out_of_range_is_an_error() {
    let level = ZSTD_LEVELS.end() + 1;
    let error = DictionaryCodec::new(level, trained(1)).expect_err("no such level");
    assert_eq!(error, CodecError::Level(level));
}

/// Tries a dictionary that zstd would take for one in its own format, if it guessed the format, and
/// the shortest ones.
#[test]
fn any_content_is_a_dictionary() {
    let magic = [&[0x37, 0xa4, 0x30, 0xec, 9, 0, 0, 0][..], &[0x5a; 400]].concat();
    for content in [magic, Vec::new(), vec![1], vec![1; 7], vec![1; 8], random_page(1).to_vec()] {
        let mut codec = dictionary_codec(DEFAULT_DICTIONARY_LEVEL);
        codec.adopt(Dictionary::new(content)).expect("there is room");
        for (name, page) in pages() {
            assert_round_trip(&mut codec, &page, &name);
        }
    }
}

/// Checks that the codec saves something on real pages; otherwise it is of no use.
#[test]
fn real_pages_shrink() {
    for path in corpora() {
        let file = std::fs::read(&path).expect("a readable corpus");
        let pages = ffi::unzstd(&file, 64 << 20).expect("a zstd file");
        let (pages, _) = pages.as_chunks::<PAGE_BYTES>();
        let is_first = |number: &usize| (number / 16).is_multiple_of(2);
        let mut trainer = Trainer::new().expect("there is memory");
        for (_, page) in pages.iter().enumerate().filter(|(n, _)| is_first(n)).step_by(4) {
            trainer.offer(page);
        }
        while trainer.step() {}
        let dictionary = trainer.finish().expect("something is common");
        let mut with = DictionaryCodec::new(DEFAULT_DICTIONARY_LEVEL, dictionary).expect("memory");
        let mut without = codec(CodecId::Zstd { level: DEFAULT_DICTIONARY_LEVEL });
        let (mut with_bytes, mut without_bytes) = (0, 0);
        for (_, page) in pages.iter().enumerate().filter(|(n, _)| !is_first(n)) {
            with_bytes += compressed(&mut with, page).len();
            without_bytes += compressed(&mut without, page).len();
        }
        eprintln!("{}: {with_bytes} of {without_bytes}", path.display());
        assert!(with_bytes * 100 < without_bytes * 98, "{}", path.display());
    }
}
