//! Errors of making a codec and of decoding. Compression cannot fail; its result may only not fit.

use core::fmt;

use coldpress_sys::{Bytes, PAGE_BYTES};

use crate::id::ZSTD_LEVELS;

/// The reason why a codec could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecError {
    /// A zstd level outside of [`ZSTD_LEVELS`].
    Level(i32),
    /// The allocator did not have this much work memory.
    NoMemory(Bytes),
    /// Each of this many dictionaries is in use.
    Generations(usize),
    /// The library refused its work memory or a parameter; the text names the call.
    Library(&'static str),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => {
                let (low, high) = (ZSTD_LEVELS.start(), ZSTD_LEVELS.end());
                write!(f, "zstd level {level} is not in {low} to {high}")
            }
            Self::NoMemory(bytes) => write!(f, "no memory for a codec: {} bytes", bytes.0),
            Self::Generations(most) => write!(f, "all {most} dictionaries are in use"),
            Self::Library(call) => write!(f, "the codec library failed in {call}"),
        }
    }
}

impl core::error::Error for CodecError {}

/// The reason why bytes are not a compressed page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes are malformed, incomplete, or of more than a page.
    Corrupt,
    /// The bytes were compressed with another dictionary, or with one that is gone.
    Dictionary,
    /// The bytes are well formed but yield only this much.
    Short(Bytes),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt => write!(f, "compressed page is corrupt"),
            Self::Dictionary => write!(f, "the dictionary of the compressed page is not there"),
            Self::Short(bytes) => {
                write!(f, "compressed page holds {} of {PAGE_BYTES} bytes", bytes.0)
            }
        }
    }
}

impl core::error::Error for DecodeError {}
