//! The codecs and their levels.

use core::fmt;
use core::ops::RangeInclusive;

/// The zstd levels offered, each of which the tests try in static memory for one page. Measured on
/// pages of programs: below -3 LZ4 is both denser and faster, so -7 is low enough; 20 to 22 save
/// less than 0.1 % over 19. Level 0 is zstd's name for its default, 3.
pub const ZSTD_LEVELS: RangeInclusive<i32> = -7..=19;

/// The level of `zstd` without a number. Measured on pages of programs: level 3 is 1 to 3 % denser
/// but takes 6 to 40 % longer.
pub(crate) const DEFAULT_ZSTD_LEVEL: i32 = 1;

/// The level for pages that stay, with a dictionary. Measured on pages of programs: level 3 is 2 to
/// 8 % less dense in under half the time; level 9 is up to 2 % denser in twice the time, and level
/// 19 is 4 to 8 % denser in twelve times the time. Decompression takes equally long with each.
pub const DEFAULT_DICTIONARY_LEVEL: i32 = 6;

/// A codec and its level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CodecId {
    /// Words encoded by what they share with recent ones, and LZ4 for the rest: usually denser than
    /// LZ4 and LZO, and the fastest to compress.
    #[default]
    Wk,
    /// LZ4 block format, acceleration 1: the fastest to decompress, and often chosen for zram.
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
            Self::Wk => f.write_str("wk"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Lzo => f.write_str("lzo"),
            Self::Zstd { level } => write!(f, "zstd:{level}"),
        }
    }
}
