//! The name of a codec, as users write it: `lz4`, `lzo`, `zstd` or `zstd:LEVEL`.
//!
//! Invariants:
//! 1. Parsing accepts exactly what [`CodecId`]'s Display prints, and `zstd` alone.
//! 2. A parsed level is one [`Codec::new`](crate::Codec::new) takes.

use alloc::string::String;
use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

/// The zstd levels offered, each tried by the tests in static memory for one page. Measured on
/// pages of programs: below -3 LZ4 is both denser and quicker, so -7 is low enough; 20 to 22 save
/// less than 0.1 % over 19. Level 0 is zstd's word for its default, 3.
pub const ZSTD_LEVELS: RangeInclusive<i32> = -7..=19;

/// The level of `zstd` without a number. Measured on pages of programs: level 3 is 1 to 3 % denser
/// but takes 6 to 40 % longer.
pub const DEFAULT_ZSTD_LEVEL: i32 = 1;

/// The level for pages that stay, with a dictionary. Measured on pages of programs: level 3 is 2 to
/// 8 % less dense in under half the time; level 9 is up to 2 % denser in twice the time, and 19 4
/// to 8 % in twelve times. To decompress takes as long with each.
pub const DEFAULT_DICTIONARY_LEVEL: i32 = 6;

/// A codec and its level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CodecId {
    /// LZ4 block format, acceleration 1: the fastest both ways.
    #[default]
    Lz4,
    /// LZO1X, as the kernel's `lzo`: between LZ4 and zstd, here for comparison with zram.
    Lzo,
    /// Zstandard: the densest.
    Zstd {
        /// One of [`ZSTD_LEVELS`]: higher is denser and slower.
        level: i32,
    },
}

impl fmt::Display for CodecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lz4 => f.write_str("lz4"),
            Self::Lzo => f.write_str("lzo"),
            Self::Zstd { level } => write!(f, "zstd:{level}"),
        }
    }
}

/// A text that names no codec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseCodecError {
    text: String,
}

impl ParseCodecError {
    /// The text that was given.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for ParseCodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (ZSTD_LEVELS.start(), ZSTD_LEVELS.end());
        write!(
            f,
            "unknown codec '{}': choose lz4, lzo, zstd, or zstd:LEVEL with LEVEL {low} to {high}",
            self.text
        )
    }
}

impl core::error::Error for ParseCodecError {}

impl FromStr for CodecId {
    type Err = ParseCodecError;

    fn from_str(text: &str) -> Result<Self, ParseCodecError> {
        match text {
            "lz4" => return Ok(Self::Lz4),
            "lzo" => return Ok(Self::Lzo),
            "zstd" => return Ok(Self::Zstd { level: DEFAULT_ZSTD_LEVEL }),
            _ => {}
        }
        text.strip_prefix("zstd:")
            .and_then(|level| level.parse().ok())
            .filter(|level| ZSTD_LEVELS.contains(level))
            .map(|level| Self::Zstd { level })
            .ok_or_else(|| ParseCodecError { text: String::from(text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_parses_to_the_same() {
        let zstd = ZSTD_LEVELS.map(|level| CodecId::Zstd { level });
        for id in [CodecId::Lz4, CodecId::Lzo].into_iter().chain(zstd) {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn defaults() {
        assert_eq!(CodecId::default(), CodecId::Lz4);
        assert_eq!("zstd".parse(), Ok(CodecId::Zstd { level: DEFAULT_ZSTD_LEVEL }));
        assert!(ZSTD_LEVELS.contains(&DEFAULT_ZSTD_LEVEL));
    }

    #[test]
    fn bad_text_is_named_with_the_choices() {
        let bad = [
            "",
            "LZ4",
            "lz4 ",
            "lz4:1",
            "zstd:",
            "zstd:20",
            "zstd:-8",
            "zstd:x",
            "zstd3",
            "zstd:1.5",
            "zstd:99999999999",
            "gzip",
        ];
        for text in bad {
            let error = text.parse::<CodecId>().expect_err(text);
            assert_eq!(error.text(), text);
            let shown = error.to_string();
            for part in [&format!("'{text}'"), "lz4", "lzo", "zstd:LEVEL", "-7 to 19"] {
                assert!(shown.contains(part), "{shown:?} lacks {part:?}");
            }
        }
    }
}
