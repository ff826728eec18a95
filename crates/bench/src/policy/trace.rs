//! Traces of touched pages as files.
//!
//! ```text
//! head        "cptouchs", version (u32), 0 (u32), touches (u64); little-endian
//! each touch  LEB128 of (zigzag of the distance to the last page) * 2 + (1 for a write)
//! ```
//!
//! The first distance is from page 0. A file may be compressed with zstd as a whole.
//!
//! 1. What [`Trace::read`] accepts has as many touches as its head says, of pages below 2^52.
//! 2. [`Trace::touches`] names each page by its rank by address, so that policies use plain arrays.

use std::fmt;
use std::io::{self, Read, Write};

const NAME: &[u8; 8] = b"cptouchs";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 24;
/// The bound of page numbers: addresses have 64 bits.
const PAGES_END: u64 = 1 << 52;
/// The first bytes of a file that zstd compressed (RFC 8878).
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// One touch: a page number, and whether it was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    /// Address divided by 4096.
    pub page: u64,
    /// Whether the touch changed the page.
    pub is_write: bool,
}

/// The reason why a file is not a trace.
#[derive(Debug)]
pub(crate) enum TraceError {
    /// The file could not be read.
    Io(io::Error),
    /// The file starts with something else, or has another version.
    NoTrace,
    /// The file ends before its last touch.
    CutOff,
    /// The file goes on after its last touch.
    TooLong,
    /// The touch at this place, counted from 0, is of no page.
    Touch(usize),
    /// The trace touches no page, or more than 2^32 pages.
    Extent,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::NoTrace => write!(f, "no trace of touches of version {VERSION}"),
            Self::CutOff => write!(f, "the file ends before its last touch"),
            Self::TooLong => write!(f, "the file goes on after its last touch"),
            Self::Touch(index) => write!(f, "touch {index} is of no page"),
            Self::Extent => write!(f, "no page is touched in it, or too many are"),
        }
    }
}

impl std::error::Error for TraceError {}

impl From<io::Error> for TraceError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A trace: touches in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    /// All pages, in the order of their addresses.
    pages: Vec<u64>,
    /// The rank of the page times 2, plus 1 for a write.
    touches: Vec<u32>,
}

impl Trace {
    /// Makes a trace of these touches.
    pub(crate) fn new(touches: &[Touch]) -> Result<Self, TraceError> {
        if let Some(index) = touches.iter().position(|touch| touch.page >= PAGES_END) {
            return Err(TraceError::Touch(index));
        }
        let mut pages: Vec<u64> = touches.iter().map(|touch| touch.page).collect();
        pages.sort_unstable();
        pages.dedup();
        if pages.is_empty() || pages.len() > (u32::MAX / 2) as usize {
            return Err(TraceError::Extent);
        }
        let rank = |touch: &Touch| {
            let rank = pages.binary_search(&touch.page).expect("all of them are there");
            (rank as u32) << 1 | u32::from(touch.is_write)
        };
        Ok(Self { touches: touches.iter().map(rank).collect(), pages })
    }

    /// Returns how many pages are touched: ranks are below that number.
    pub(crate) fn distinct(&self) -> usize {
        self.pages.len()
    }

    /// Returns the number of touches.
    pub(crate) fn count(&self) -> usize {
        self.touches.len()
    }

    /// Returns the ranks in the order of touch, each with whether the touch was a write.
    pub(crate) fn touches(
        &self,
    ) -> impl DoubleEndedIterator<Item = (usize, bool)> + ExactSizeIterator {
        self.touches.iter().map(|touch| ((touch >> 1) as usize, touch & 1 != 0))
    }

    /// Returns the number of a page.
    pub(crate) fn page(&self, rank: usize) -> u64 {
        self.pages[rank]
    }

    /// Writes the trace as a file.
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + 2 * self.count());
        bytes.extend_from_slice(NAME);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(self.count() as u64).to_le_bytes());
        let mut last = 0;
        for (rank, is_write) in self.touches() {
            let page = self.page(rank);
            put(&mut bytes, zigzag(page.wrapping_sub(last)) << 1 | u64::from(is_write));
            last = page;
        }
        to.write_all(&bytes)
    }

    /// Reads a trace from a file, to its end.
    pub(crate) fn read(from: &mut impl Read) -> Result<Self, TraceError> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes)?;
        if bytes.starts_with(&ZSTD) {
            bytes = zstd::decode_all(&bytes[..])?;
        }
        let (head, mut rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(TraceError::NoTrace)?;
        let known = [&NAME[..], &VERSION.to_le_bytes(), &[0; 4]].concat();
        let count = head.strip_prefix(&known[..]).ok_or(TraceError::NoTrace)?;
        let count = u64::from_le_bytes(count.try_into().map_err(|_| TraceError::NoTrace)?);
        if count > rest.len() as u64 {
            return Err(TraceError::CutOff);
        }
        let mut touches = Vec::with_capacity(count as usize);
        let mut last = 0_u64;
        for index in 0..count as usize {
            let word = take(&mut rest).map_err(|cut| match cut {
                Bad::Cut => TraceError::CutOff,
                Bad::Long => TraceError::Touch(index),
            })?;
            last = last.wrapping_add(unzigzag(word >> 1));
            if last >= PAGES_END {
                return Err(TraceError::Touch(index));
            }
            touches.push(Touch { page: last, is_write: word & 1 != 0 });
        }
        if !rest.is_empty() {
            return Err(TraceError::TooLong);
        }
        Self::new(&touches)
    }
}

/// Makes small numbers of small distances, up or down. Distances between pages fit in 54 bits.
const fn zigzag(distance: u64) -> u64 {
    distance << 1 ^ (distance.cast_signed() >> 63).cast_unsigned()
}

const fn unzigzag(word: u64) -> u64 {
    word >> 1 ^ (word & 1).wrapping_neg()
}

fn put(bytes: &mut Vec<u8>, mut word: u64) {
    while word >= 1 << 7 {
        bytes.push(word as u8 | 1 << 7);
        word >>= 7;
    }
    bytes.push(word as u8);
}

enum Bad {
    Cut,
    Long,
}

fn take(bytes: &mut &[u8]) -> Result<u64, Bad> {
    let mut word = 0;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Bad::Cut)?;
        *bytes = rest;
        word |= u64::from(byte & 0x7f) << shift;
        if byte & 1 << 7 == 0 {
            return Ok(word);
        }
    }
    Err(Bad::Long)
}

#[cfg(test)]
mod tests {
    //! The risk: a trace is read as another one, or a file that is no trace causes a panic.

    use super::*;
    use proptest::prelude::*;

    fn touch(page: u64, is_write: bool) -> Touch {
        Touch { page, is_write }
    }

    fn bytes_of(trace: &Trace) -> Vec<u8> {
        let mut bytes = Vec::new();
        trace.write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_bytes_are_those_of_the_drawing() {
        let trace = Trace::new(&[touch(3, false), touch(2, true), touch(34, false)]).unwrap();
        let wanted = b"cptouchs\x01\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x0c\x03\x80\x01";
        assert_eq!(bytes_of(&trace), wanted);
        assert_eq!(trace.touches().collect::<Vec<_>>(), [(1, false), (0, true), (2, false)]);
        assert_eq!([0, 1, 2].map(|rank| trace.page(rank)), [2, 3, 34]);
    }

    #[test]
    fn files_that_are_none_are_refused() {
        let read = |bytes: &[u8]| Trace::read(&mut &bytes[..]).unwrap_err();
        let good = bytes_of(&Trace::new(&[touch(1, false), touch(9, true)]).unwrap());
        assert!(matches!(read(b""), TraceError::NoTrace));
        assert!(matches!(read(&good[..23]), TraceError::NoTrace));
        assert!(matches!(read(&good[..good.len() - 1]), TraceError::CutOff));
        assert!(matches!(read(&[&good[..], &[0]].concat()), TraceError::TooLong));
        assert!(matches!(read(&[&good[..16], &[0; 8]].concat()), TraceError::Extent));
        for place in [0, 8, 12] {
            let mut other = good.clone();
            other[place] += 1;
            assert!(matches!(read(&other), TraceError::NoTrace));
        }
        let mut many = good.clone();
        many[23] = 1;
        assert!(matches!(read(&many), TraceError::CutOff));
        // One page below page 0, and a number that does not end.
        for bad in [&[2][..], &[0xff; 12]] {
            let mut head = good[..24].to_vec();
            head[16] = 1;
            assert!(matches!(read(&[&head[..], bad].concat()), TraceError::Touch(0)));
        }
        assert!(matches!(Trace::new(&[touch(1 << 52, false)]), Err(TraceError::Touch(0))));
    }

    fn touches() -> impl Strategy<Value = Vec<Touch>> {
        let page = prop_oneof![0_u64..100, 0..PAGES_END];
        let touch = (page, any::<bool>()).prop_map(|(page, is_write)| touch(page, is_write));
        prop::collection::vec(touch, 1..200)
    }

    proptest! {
        #[test]
        fn a_trace_comes_back_as_it_was(touches in touches(), is_compressed in any::<bool>()) {
            let trace = Trace::new(&touches).unwrap();
            let mut bytes = bytes_of(&trace);
            if is_compressed {
                bytes = zstd::encode_all(&bytes[..], 3).unwrap();
            }
            let back = Trace::read(&mut &bytes[..]).unwrap();
            prop_assert_eq!(&back, &trace);
            let seen = back.touches().map(|(rank, is_write)| touch(back.page(rank), is_write));
            prop_assert_eq!(seen.collect::<Vec<_>>(), touches);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Trace::read(&mut &bytes[..]);
            let head = &bytes_of(&Trace::new(&[touch(0, false)]).unwrap())[..HEAD_BYTES - 8];
            let count = (bytes.len() as u64 / 2).to_le_bytes();
            let _ = Trace::read(&mut &[head, &count[..], &bytes].concat()[..]);
            let _ = Trace::read(&mut &[&ZSTD[..], &bytes].concat()[..]);
        }
    }
}
