//! The risk: a page that comes back changed, or a codec that writes outside of its buffers. Both
//! destroy the memory of a program that trusts us.
//!
//! One macro stamps the same suite on each codec; the tests behind it concern a single codec.
//! proptest prints its failing input, and the other random pages come from the fixed seeds in this
//! file.

use std::path::PathBuf;

use coldpress_sys::{PAGE_BYTES, Page};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Room for any page with any codec: LZ4 needs at most 4128 bytes, WK one more, LZO1X 4116, and
/// zstd 4174 bytes.
const ROOM_BYTES: usize = 4200;

/// Room that a library may need beyond the result to write it: zstd flushes its bits by words.
const SLACK_BYTES: usize = 16;

/// A buffer between two guards, which show bytes written outside.
#[repr(C)]
struct Guarded<const N: usize> {
    before: [u8; 64],
    bytes: [u8; N],
    after: [u8; 64],
}

impl<const N: usize> Guarded<N> {
    const fn new() -> Self {
        Self { before: [0xa5; 64], bytes: [0xa5; N], after: [0xa5; 64] }
    }

    fn assert_guards(&self) {
        assert!(self.before == [0xa5; 64] && self.after == [0xa5; 64], "a guard is overwritten");
    }
}

/// Returns Marsaglia's xorshift64: random enough for test data.
fn random_words(seed: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(seed), |last| {
        let mut word = *last;
        word ^= word << 13;
        word ^= word >> 7;
        Some(word ^ word << 17)
    })
    .skip(8)
}

/// Makes a page of the first bytes of `content`.
fn page_of(content: impl IntoIterator<Item = u8>) -> Page {
    let bytes: Vec<u8> = content.into_iter().take(PAGE_BYTES).collect();
    bytes.try_into().expect("the content has a page")
}

fn text_page() -> Page {
    let words = ["a ", "page ", "of ", "memory ", "that ", "nobody ", "touches ", "is ", "cold.\n"];
    page_of(random_words(7).flat_map(|word| words[(word >> 32) as usize % words.len()].bytes()))
}

fn random_page(seed: u64) -> Page {
    page_of(random_words(seed).flat_map(u64::to_le_bytes))
}

fn counter_page() -> Page {
    page_of((0_u32..).flat_map(u32::to_le_bytes))
}

/// Makes pages of each kind that a program holds, by name.
fn pages() -> Vec<(String, Page)> {
    let mut pages = vec![
        ("zero".to_owned(), [0; PAGE_BYTES]),
        ("ones".to_owned(), [0xff; PAGE_BYTES]),
        ("text".to_owned(), text_page()),
        ("counter".to_owned(), counter_page()),
        ("pointers".to_owned(), {
            page_of(random_words(3).flat_map(|word| (0x7f12_3456_0000 | word >> 48).to_le_bytes()))
        }),
    ];
    for seed in 1..=4 {
        pages.push((format!("random {seed}"), random_page(seed)));
    }
    for period in [1_usize, 2, 3, 4, 5, 7, 8, 9, 15, 16, 37, 255, 1000, 2047, 2048, 2049, 4000] {
        let page = random_page(9);
        let pattern = page[..period].iter().copied().cycle();
        pages.push((format!("period {period}"), page_of(pattern)));
    }
    for bit in (0..PAGE_BYTES * 8).step_by(331).chain([PAGE_BYTES * 8 - 1]) {
        let mut page = [0; PAGE_BYTES];
        page[bit / 8] = 1 << (bit % 8);
        pages.push((format!("bit {bit}"), page));
    }
    // Literals of each length before and after a match, where length encodings change.
    for literals in (0..32).chain(210..280).chain([528, 2000, 4080]) {
        let mut page = [7; PAGE_BYTES];
        page[..literals].copy_from_slice(&random_page(5)[..literals]);
        pages.push((format!("{literals} literals first"), page));
        page.reverse();
        pages.push((format!("{literals} literals last"), page));
    }
    pages
}

/// Makes pages as programs of literals, runs, and copies from anywhere before.
fn any_page() -> impl Strategy<Value = Box<Page>> {
    let piece = prop_oneof![
        vec(any::<u8>(), 1..80).prop_map(Piece::Literals),
        vec(0..4_u8, 1..400).prop_map(Piece::Literals),
        (any::<u8>(), 1..700_usize).prop_map(|(byte, length)| Piece::Run(byte, length)),
        (1..PAGE_BYTES, 1..300_usize).prop_map(|(back, length)| Piece::Copy(back, length)),
        (1..20_usize, 1..300_usize).prop_map(|(back, length)| Piece::Copy(back, length)),
    ];
    vec(piece, 1..80).prop_map(|pieces| {
        let mut bytes = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Literals(literals) => bytes.extend(literals),
                Piece::Run(byte, length) => bytes.resize(bytes.len() + length, byte),
                Piece::Copy(back, length) => {
                    for _ in 0..length {
                        bytes.push(bytes.len().checked_sub(back).map_or(0, |at| bytes[at]));
                    }
                }
            }
        }
        bytes.resize(PAGE_BYTES, 0);
        Box::new(bytes.try_into().expect("resized to a page"))
    })
}

/// A part of a page of [`any_page`].
#[derive(Clone, Debug)]
enum Piece {
    Literals(Vec<u8>),
    Run(u8, usize),
    Copy(usize, usize),
}

fn codec(id: CodecId) -> Codec {
    Codec::new(id).expect("a codec of a valid level")
}

/// The methods that the suite needs of a codec.
trait Tested: fmt::Debug {
    fn compress<'o>(&mut self, page: &Page, out: &'o mut [u8]) -> Option<&'o [u8]>;
    fn decompress(&mut self, data: &[u8], page: &mut Page) -> Result<(), DecodeError>;
}

impl Tested for Codec {
    fn compress<'o>(&mut self, page: &Page, out: &'o mut [u8]) -> Option<&'o [u8]> {
        self.compress(page, out)
    }

    fn decompress(&mut self, data: &[u8], page: &mut Page) -> Result<(), DecodeError> {
        self.decompress(data, page)
    }
}

fn compressed(codec: &mut impl Tested, page: &Page) -> Vec<u8> {
    let mut out = Guarded::<ROOM_BYTES>::new();
    let data = codec.compress(page, &mut out.bytes).expect("there is room").to_vec();
    out.assert_guards();
    data
}

fn assert_round_trip(codec: &mut impl Tested, page: &Page, name: &str) {
    let data = compressed(codec, page);
    assert_decodes(codec, &data, page, name);
}

fn assert_decodes(codec: &mut impl Tested, data: &[u8], page: &Page, name: &str) {
    let mut back = Guarded::<PAGE_BYTES>::new();
    let decoded = codec.decompress(data, &mut back.bytes);
    back.assert_guards();
    assert_eq!(decoded, Ok(()), "{codec:?} page {name}");
    assert!(back.bytes == *page, "{codec:?} changes page {name}");
}

/// Decodes any bytes, to an error or a page, and expects nothing else to be touched.
fn decode_any(codec: &mut impl Tested, data: &[u8]) -> Option<Page> {
    let mut back = Guarded::<PAGE_BYTES>::new();
    let decoded = codec.decompress(data, &mut back.bytes);
    back.assert_guards();
    decoded.ok().map(|()| back.bytes)
}

/// Tries each limit from none to more than a page: the result is inside it, or there is none; and
/// there is one as soon as the whole result fits with some slack.
fn assert_limits(codec: &mut impl Tested, page: &Page, name: &str) {
    let whole = compressed(codec, page).len();
    for limit in 0..=4100 {
        let mut out = Guarded::<4100>::new();
        let data = codec.compress(page, &mut out.bytes[..limit]).map(<[u8]>::to_vec);
        out.assert_guards();
        let beyond = &out.bytes[limit..];
        assert!(beyond.iter().all(|byte| *byte == 0xa5), "{name} limit {limit}: written beyond");
        match data {
            Some(data) => {
                assert!(data.len() <= limit, "{name} limit {limit}");
                if data.len() != whole || limit <= whole + SLACK_BYTES {
                    assert_decodes(codec, &data, page, name);
                }
            }
            None => assert!(limit < whole + SLACK_BYTES, "{name} limit {limit} whole {whole}"),
        }
    }
}

/// Returns the files of real pages, if this machine has them: see the message below.
fn corpora() -> Vec<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpora");
    let root = std::env::var_os("COLDPRESS_CORPORA").map_or_else(|| beside.into(), PathBuf::from);
    let Ok(entries) = std::fs::read_dir(root.join("pages")) else {
        eprintln!(
            "skipped: no page corpora, set COLDPRESS_CORPORA to a directory with pages/*.zst"
        );
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.expect("a readable directory").path());
    paths.filter(|path| path.to_string_lossy().ends_with(".pages.zst")).collect()
}

/// Stamps the suite on the codec that `$codec` makes. `$sizes` are the compressed bytes of the
/// zero, text and counter pages.
macro_rules! codec_suite {
    ($name:ident, $codec:expr, $sizes:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn round_trips_each_kind_of_page() {
                let mut codec = $codec;
                for (name, page) in pages() {
                    assert_round_trip(&mut codec, &page, &name);
                }
            }

            #[test]
            fn sizes_are_known() {
                let mut codec = $codec;
                let pages = [[0; PAGE_BYTES], text_page(), counter_page()];
                assert_eq!(pages.map(|page| compressed(&mut codec, &page).len()), $sizes);
            }

            #[test]
            fn each_limit_is_respected() {
                let mut codec = $codec;
                assert_limits(&mut codec, &[0; PAGE_BYTES], "zero");
                assert_limits(&mut codec, &text_page(), "text");
                assert_limits(&mut codec, &random_page(1), "random");
            }

            #[test]
            fn no_prefix_yields_the_page() {
                let mut codec = $codec;
                for page in [[0; PAGE_BYTES], text_page(), counter_page(), random_page(2)] {
                    let data = compressed(&mut codec, &page);
                    for length in 0..data.len() {
                        assert!(decode_any(&mut codec, &data[..length]) != Some(page), "{length}");
                    }
                }
            }

            #[test]
            fn output_does_not_depend_on_the_past() {
                let (mut used, mut fresh) = ($codec, $codec);
                let page = text_page();
                let expected = compressed(&mut fresh, &page);
                for (name, other) in pages() {
                    compressed(&mut used, &other);
                    assert!(used.compress(&other, &mut [0; 3]).is_none());
                    let _ = decode_any(&mut used, &other);
                    assert!(compressed(&mut used, &page) == expected, "after {name}");
                }
                assert_decodes(&mut used, &expected, &page, "text");
            }

            #[test]
            fn real_pages_round_trip() {
                let mut codec = $codec;
                for path in corpora() {
                    let file = std::fs::read(&path).expect("a readable corpus");
                    let pages = ffi::unzstd(&file, 64 << 20).expect("a zstd file");
                    let (pages, rest) = pages.as_chunks::<PAGE_BYTES>();
                    let name = path.display();
                    assert!(!pages.is_empty() && rest.is_empty(), "{name} is not of pages");
                    for (number, page) in pages.iter().enumerate() {
                        assert_round_trip(&mut codec, page, &format!("{name}:{number}"));
                    }
                }
            }

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(128))]

                #[test]
                fn any_page_round_trips(page in any_page()) {
                    assert_round_trip(&mut $codec, &page, "of proptest");
                }

                #[test]
                fn garbage_is_an_error_or_a_page(data in vec(any::<u8>(), 0..6000)) {
                    decode_any(&mut $codec, &data);
                }

                /// Checks damaged data, which get further into a decoder than garbage does.
                #[test]
                fn damage_is_an_error_or_a_page(
                    page in any_page(),
                    hits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..9),
                ) {
                    let mut codec = $codec;
                    let mut data = compressed(&mut codec, &page);
                    for (at, byte) in hits {
                        let at = at.index(data.len());
                        data[at] = byte;
                    }
                    decode_any(&mut codec, &data);
                    assert_round_trip(&mut codec, &page, "after damage");
                }
            }
        }
    };
}

// Behind the macro, which the tests of dictionaries use, too.
mod dictionary;
mod wk;

// Sizes of LZ4 and zstd are those of liblz4 1.9.4 and the zstd command, without frame overhead.
codec_suite!(wk_suite, codec(CodecId::Wk), [8, 1690, 2308]);
codec_suite!(lz4, codec(CodecId::Lz4), [26, 1689, 4105]);
codec_suite!(lzo, codec(CodecId::Lzo), [24, 1288, 4112]);
codec_suite!(zstd_fastest, codec(CodecId::Zstd { level: -7 }), [20, 1081, 4101]);
codec_suite!(zstd_default, codec(CodecId::Zstd { level: id::DEFAULT_ZSTD_LEVEL }), [14, 895, 1943]);
codec_suite!(zstd_three, codec(CodecId::Zstd { level: 3 }), [14, 820, 1950]);

/// Gives each level more than the 128 pages over which zstd judges a workspace.
#[test]
fn each_zstd_level_works_in_static_memory() {
    let [text, random] = [text_page(), random_page(1)];
    for level in ZSTD_LEVELS {
        let mut codec = codec(CodecId::Zstd { level });
        let size = compressed(&mut codec, &text).len();
        for _ in 0..140 {
            assert_eq!(compressed(&mut codec, &text).len(), size, "level {level}");
        }
        for (page, name) in [(&text, "text"), (&random, "random"), (&[0; PAGE_BYTES], "zero")] {
            assert_round_trip(&mut codec, page, name);
        }
        assert!(codec.work_bytes() < Bytes::kib(512), "level {level}: {:?}", codec.work_bytes());
    }
}

#[test]
fn a_level_out_of_range_is_an_error() {
    for level in [ZSTD_LEVELS.start() - 1, ZSTD_LEVELS.end() + 1, i32::MIN, i32::MAX] {
        let error = Codec::new(CodecId::Zstd { level }).expect_err("no such level");
        assert_eq!(error, CodecError::Level(level));
        assert!(error.to_string().contains(&format!("{level} is not in -7 to 19")));
    }
}

#[test]
fn a_codec_moves_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Codec>();
    let mut moved = codec(CodecId::Zstd { level: 1 });
    let data = compressed(&mut moved, &text_page());
    let mut boxed = Box::new(moved);
    let thread =
        std::thread::spawn(move || assert_decodes(&mut *boxed, &data, &text_page(), "text"));
    thread.join().expect("no panic");
}

/// Checks that work memory is what the design counts with: a state and two contexts, not more.
#[test]
fn work_memory_is_known() {
    let bytes = |id| codec(id).work_bytes();
    assert!(bytes(CodecId::Wk) <= Bytes::kib(27));
    assert_eq!(bytes(CodecId::Lz4), Bytes(16_416));
    assert_eq!(bytes(CodecId::Lzo), Bytes::kib(8));
    assert!(bytes(CodecId::Zstd { level: 1 }) <= Bytes::kib(176));
}

/// Checks each instruction of our own encoder against bytes put together by hand from the
/// description of the format.
#[test]
fn lzo_instructions_are_as_described() {
    // First literal 18 0; M3 with 33 + 15 * 255 + 237 = 4095 bytes from distance 1; the end.
    let zero = [&[18, 0, 0x20][..], &[0; 15], &[237, 0, 0, 0x11, 0, 0]].concat();
    assert_eq!(compressed(&mut codec(CodecId::Lzo), &[0; PAGE_BYTES]), zero);

    // A run of literals: 18 + 15 * 255 + 253 = 4096, and the end.
    let random = random_page(1);
    let data = compressed(&mut codec(CodecId::Lzo), &random);
    let expected = [&[0; 16][..], &[253], &random, &[0x11, 0, 0]].concat();
    assert_eq!(data, expected);

    // 10 literals, M2 with 5 bytes from distance 10 and 2 literals, then M3 to the end.
    let page = page_of(b"0123456789012345xyzzzz".iter().copied().chain(std::iter::repeat(b'z')));
    let data = compressed(&mut codec(CodecId::Lzo), &page);
    assert_eq!(data[..11], *b"\x1b0123456789");
    assert_eq!(data[11..16], [0b1010_0111, 1, b'x', b'y', b'z']);
    assert_decodes(&mut codec(CodecId::Lzo), &data, &page, "by hand");
}

/// Checks that a well-formed stream of less than a page is distinguished from a damaged one.
#[test]
fn a_short_page_is_an_error() {
    let hello = b"\x16hello\x11\0\0";
    let mut page = [0; PAGE_BYTES];
    let short = Err(DecodeError::Short(Bytes(5)));
    assert_eq!(codec(CodecId::Lzo).decompress(hello, &mut page), short);
    assert_eq!(codec(CodecId::Lz4).decompress(b"\x50hello", &mut page), short);
    for id in [CodecId::Wk, CodecId::Lz4, CodecId::Lzo, CodecId::Zstd { level: 1 }] {
        assert!(codec(id).decompress(&[], &mut page).is_err(), "{id}");
    }
}
