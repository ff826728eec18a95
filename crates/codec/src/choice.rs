//! The choice of a codec, as users write it: `wk`, `lz4`, `lzo`, `zstd`, `zstd:LEVEL` or `auto`.
//!
//! Invariants:
//! 1. Parsing accepts what [`CodecChoice`]'s Display prints, `zstd` alone, and other ways to write
//!    the same level (`zstd:+3`).
//! 2. A parsed level is one [`Codec::new`](crate::Codec::new) takes.

use alloc::string::String;
use core::str::FromStr;
use core::{fmt, iter};

use crate::id::{CodecId, DEFAULT_ZSTD_LEVEL, ZSTD_LEVELS};

/// The choice of the codec that a page gets when it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecChoice {
    /// Always this codec.
    Always(CodecId),
    /// WK, and zstd for a page that WK makes too little smaller. Of the pages of an SQLite database
    /// WK brings 41 % to no less than four fifths; zstd brings these to two thirds. A page that
    /// zstd cannot compress either has cost zstd's time, some 16 us.
    Auto,
}

impl CodecChoice {
    /// Returns the codecs that a page is tried with, in this order.
    pub fn codecs(self) -> impl Iterator<Item = CodecId> {
        let (first, second) = match self {
            Self::Always(id) => (id, None),
            Self::Auto => (CodecId::Wk, Some(CodecId::Zstd { level: DEFAULT_ZSTD_LEVEL })),
        };
        iter::once(first).chain(second)
    }
}

impl Default for CodecChoice {
    fn default() -> Self {
        Self::Always(CodecId::default())
    }
}

impl From<CodecId> for CodecChoice {
    fn from(id: CodecId) -> Self {
        Self::Always(id)
    }
}

impl fmt::Display for CodecChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always(id) => id.fmt(f),
            Self::Auto => f.write_str("auto"),
        }
    }
}

/// The error of a text that names no codec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseCodecError {
    text: String,
}

impl ParseCodecError {
    /// Returns the text that was given.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for ParseCodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (ZSTD_LEVELS.start(), ZSTD_LEVELS.end());
        write!(
            f,
            "unknown codec '{}': choose auto, wk, lz4, lzo, zstd, or zstd:LEVEL with LEVEL {low} \
             to {high}",
            self.text
        )
    }
}

impl core::error::Error for ParseCodecError {}

impl FromStr for CodecChoice {
    type Err = ParseCodecError;

    fn from_str(text: &str) -> Result<Self, ParseCodecError> {
        match text {
            "auto" => return Ok(Self::Auto),
            "wk" => return Ok(Self::Always(CodecId::Wk)),
            "lz4" => return Ok(Self::Always(CodecId::Lz4)),
            "lzo" => return Ok(Self::Always(CodecId::Lzo)),
            "zstd" => return Ok(Self::Always(CodecId::Zstd { level: DEFAULT_ZSTD_LEVEL })),
            _ => {}
        }
        text.strip_prefix("zstd:")
            .and_then(|level| level.parse().ok())
            .filter(|level| ZSTD_LEVELS.contains(level))
            .map(|level| Self::Always(CodecId::Zstd { level }))
            .ok_or_else(|| ParseCodecError { text: String::from(text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_parses_to_the_same() {
        let zstd = ZSTD_LEVELS.map(|level| CodecId::Zstd { level });
        let ids = [CodecId::Wk, CodecId::Lz4, CodecId::Lzo].into_iter().chain(zstd);
        for choice in ids.map(CodecChoice::Always).chain([CodecChoice::Auto]) {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
    }

    #[test]
    fn defaults() {
        assert_eq!(CodecChoice::default(), CodecId::Wk.into());
        let zstd = CodecId::Zstd { level: DEFAULT_ZSTD_LEVEL };
        assert_eq!("zstd".parse(), Ok(CodecChoice::Always(zstd)));
        assert!(ZSTD_LEVELS.contains(&DEFAULT_ZSTD_LEVEL));
    }

    #[test]
    fn auto_tries_the_quick_one_first() {
        let zstd = CodecId::Zstd { level: DEFAULT_ZSTD_LEVEL };
        assert!(CodecChoice::Auto.codecs().eq([CodecId::Wk, zstd]));
        assert!(CodecChoice::Always(CodecId::Lzo).codecs().eq([CodecId::Lzo]));
    }

    #[test]
    fn bad_text_is_named_with_the_choices() {
        let bad = [
            "",
            "LZ4",
            "lz4 ",
            "lz4:1",
            "auto:1",
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
            let error = text.parse::<CodecChoice>().expect_err(text);
            assert_eq!(error.text(), text);
            let shown = error.to_string();
            for part in [&format!("'{text}'"), "auto", "wk", "lz4", "lzo", "zstd:LEVEL", "-7 to 19"]
            {
                assert!(shown.contains(part), "{shown:?} lacks {part:?}");
            }
        }
    }
}
