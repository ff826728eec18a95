//! The sizes of objects: a trace of compressed sizes, or a model where there is none.
//!
//! A trace is one little-endian 16-bit number a page, in the order of addresses: 0 for a page of
//! zeros, 1 for one word repeated, 0xffff for a page to be left out, else the bytes a codec made of
//! the page. Its file is named `CORPUS.CODEC.u16`, with `.zst` behind it when zstd has compressed
//! it.
//!
//! 1. Sizes are 1 to 4096: a page that a codec made longer counts as it is.
//! 2. Pages of zeros and of one word are not objects: no pool ever sees them.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use coldpress_sys::PAGE_BYTES;

use crate::random::Random;

const ZERO: u16 = 0;
const SAME_FILLED: u16 = 1;
const LEFT_OUT: u16 = u16::MAX;
/// The most bytes that a codec makes of a page. It is LZO's bound: the page, a sixteenth of it, and
/// 64 and 3 bytes more.
const BOUND: u16 = (PAGE_BYTES + PAGE_BYTES / 16 + 67) as u16;
/// The ending of a file's name.
const ENDING: &str = ".u16";
const ZSTD_ENDING: &str = ".zst";
/// The most bytes of a file: a longer one is not a trace, because it would be of 8 TiB of pages.
const FILE_MAX: u64 = 4 << 30;

/// The reason why a file is not a trace.
#[derive(Debug)]
pub(crate) enum SizesError {
    /// The file could not be read or decompressed.
    Io(io::Error),
    /// The file's name is not `CORPUS.CODEC.u16` or `CORPUS.CODEC.u16.zst`.
    Name,
    /// The file ends within a number.
    CutOff,
    /// The number at this place, counted from 0, makes no sense.
    Number {
        /// The place of the number.
        index: usize,
        /// The number found there.
        number: u16,
    },
    /// The trace has no object.
    Empty,
}

impl fmt::Display for SizesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Name => write!(f, "a trace is named CORPUS.CODEC{ENDING}[{ZSTD_ENDING}]"),
            Self::CutOff => write!(f, "the file ends within a number"),
            Self::Number { index, number } => {
                write!(f, "number {index} ({number}) is above {BOUND}: no codec makes that")
            }
            Self::Empty => write!(f, "no page of the trace becomes an object"),
        }
    }
}

impl std::error::Error for SizesError {}

impl From<io::Error> for SizesError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The sizes of objects, in the order they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The name of what the pages are of.
    pub corpus: String,
    /// The codec that compressed the pages.
    pub codec: String,
    /// The bytes of each object, 1 to 4096; at least one object.
    pub sizes: Vec<u16>,
}

impl Sizes {
    /// Reads a file. Fails when the file is not a trace.
    pub(crate) fn read(path: &Path) -> Result<Self, SizesError> {
        let (corpus, codec, is_zstd) = names(path).ok_or(SizesError::Name)?;
        if fs::metadata(path)?.len() > FILE_MAX {
            return Err(SizesError::Io(io::Error::from(io::ErrorKind::FileTooLarge)));
        }
        let file = fs::read(path)?;
        let numbers = if is_zstd { zstd::decode_all(&file[..])? } else { file };
        Ok(Self { corpus: corpus.to_owned(), codec: codec.to_owned(), sizes: parse(&numbers)? })
    }

    /// Returns the codec in the name of a trace's file; `None` when the file is not a trace.
    pub(crate) fn codec_of(path: &Path) -> Option<&str> {
        names(path).map(|(_, codec, _)| codec)
    }

    /// Makes objects of a program's heap, by a model: small structures that compress well, records
    /// and strings that do not, and a few pages that do not shrink.
    pub(crate) fn heap(objects: usize) -> Self {
        let mut random = Random::new(11);
        // The sum of three random numbers is near enough a bell curve.
        let bell = |random: &mut Random, low: usize, high: usize| {
            low + (0..3).map(|_| random.below(high - low)).sum::<usize>() / 3
        };
        let mut size = || match random.below(1000) {
            0..50 => bell(&mut random, 40, 300),
            50..620 => bell(&mut random, 500, 1700),
            620..990 => bell(&mut random, 1900, 3300),
            _ => PAGE_BYTES,
        };
        let sizes = (0..objects.max(1)).map(|_| size() as u16).collect();
        Self { corpus: "heap".to_owned(), codec: "model".to_owned(), sizes }
    }

    /// Returns the name of the trace in tables.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.corpus, self.codec)
    }

    /// Returns the first `count` objects of the trace repeated forever.
    pub(crate) fn repeated(&self, count: usize) -> Vec<u16> {
        self.sizes.iter().copied().cycle().take(count).collect()
    }
}

/// Returns corpus and codec in the name of a file, and whether zstd has compressed it.
fn names(path: &Path) -> Option<(&str, &str, bool)> {
    let name = path.file_name()?.to_str()?;
    let (name, is_zstd) = match name.strip_suffix(ZSTD_ENDING) {
        Some(name) => (name, true),
        None => (name, false),
    };
    let (corpus, codec) = name.strip_suffix(ENDING)?.split_once('.')?;
    (!corpus.is_empty() && !codec.is_empty()).then_some((corpus, codec, is_zstd))
}

fn parse(bytes: &[u8]) -> Result<Vec<u16>, SizesError> {
    let (numbers, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(SizesError::CutOff);
    }
    let mut sizes = Vec::new();
    for (index, number) in numbers.iter().map(|bytes| u16::from_le_bytes(*bytes)).enumerate() {
        match number {
            ZERO | SAME_FILLED | LEFT_OUT => {}
            _ if number > BOUND => return Err(SizesError::Number { index, number }),
            size => sizes.push(size.min(PAGE_BYTES as u16)),
        }
    }
    if sizes.is_empty() { Err(SizesError::Empty) } else { Ok(sizes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(numbers: &[u16]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn only_objects_are_kept_and_none_is_longer_than_a_page() {
        let found = parse(&bytes(&[0, 1, 2, 4096, 4116, 0xffff, 700])).unwrap();
        assert_eq!(found, [2, 4096, 4096, 700]);
        let error = |bytes: &[u8]| parse(bytes).unwrap_err();
        assert!(matches!(error(&bytes(&[0, 1])), SizesError::Empty));
        assert!(matches!(error(&bytes(&[5])[..1]), SizesError::CutOff));
        let wrong = error(&bytes(&[7, 4420]));
        assert!(matches!(wrong, SizesError::Number { index: 1, number: 4420 }), "{wrong}");
    }

    #[test]
    fn names_of_files_say_what_they_hold() {
        let named = |name| names(Path::new(name));
        assert_eq!(named("a/b.lz4.u16.zst"), Some(("b", "lz4", true)));
        assert_eq!(named("b.zstd1.u16"), Some(("b", "zstd1", false)));
        for name in ["b.u16", "b..u16", ".lz4.u16", "b.lz4.zst", "b.lz4", ""] {
            assert_eq!(named(name), None, "{name}");
        }
        assert_eq!(Sizes::codec_of(Path::new("b.lzo1x.u16")), Some("lzo1x"));
    }

    #[test]
    fn files_are_read_plain_and_compressed() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = Sizes { corpus: "c".into(), codec: "d".into(), sizes: vec![9, 300] };
        let plain = folder.path().join("c.d.u16");
        fs::write(&plain, bytes(&[9, 0, 300])).unwrap();
        assert_eq!(Sizes::read(&plain).unwrap(), wanted);
        // `zstd -c` of the same bytes: magic, a raw block of six bytes.
        let packed = folder.path().join("c.d.u16.zst");
        let frame = [&b"\x28\xb5\x2f\xfd\x20\x06\x31\0\0"[..], &bytes(&[9, 0, 300])].concat();
        fs::write(&packed, &frame).unwrap();
        assert_eq!(Sizes::read(&packed).unwrap(), wanted);
        fs::write(&packed, &frame[..10]).unwrap();
        assert!(matches!(Sizes::read(&packed).unwrap_err(), SizesError::Io(_)));
        let gone = folder.path().join("e.d.u16");
        assert!(matches!(Sizes::read(&gone).unwrap_err(), SizesError::Io(_)));
    }

    #[test]
    fn the_model_has_two_humps_and_is_the_same_in_every_run() {
        let heap = Sizes::heap(10_000);
        assert_eq!(heap, Sizes::heap(10_000));
        let share = |range: std::ops::Range<u16>| {
            heap.sizes.iter().filter(|size| range.contains(size)).count()
        };
        assert!(share(1..4097) == 10_000 && share(0..500) < 700);
        assert!(share(500..1700) > 5000 && share(1700..1900) < 100 && share(1900..3300) > 3000);
        assert_eq!(heap.repeated(10_002)[10_000..], heap.sizes[..2]);
    }
}
