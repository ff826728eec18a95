//! What the store may hold: limits of the pool, of a compressed page, and of trying again.

use coldpress_codec::CodecId;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

/// What a store is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How pages are compressed.
    pub codec: CodecId,
    /// Pool frames at which writeback begins.
    pub max_pool: PageCount,
    /// Pool frames that are never exceeded. The pool grows from `max_pool` to this only when
    /// writeback is impossible; a lower value than `max_pool` means `max_pool`.
    pub hard_pool: PageCount,
    /// A page that compresses to more per cent of its size than this, rounded down, is kept raw.
    /// The reference's `max_compression_ratio` is 80 and refuses such pages; here they stay in the
    /// order of age.
    pub max_compression_percent: u8,
}

/// Attempts at writing back that are skipped after one failed. A full or broken disk would
/// otherwise be asked once for every page stored, with a batch gathered each time.
pub(crate) const ATTEMPTS_SKIPPED: u32 = 1024;

/// The limits in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_pool: PageCount,
    pub(crate) hard_pool: PageCount,
    pub(crate) compressed_max: Bytes,
    /// Attempts still to be skipped.
    pub(crate) skip: u32,
}

impl Limits {
    /// The limits `config` asks for.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            max_pool: config.max_pool,
            hard_pool: config.hard_pool.max(config.max_pool),
            compressed_max: compressed_max(config.max_compression_percent),
            skip: 0,
        }
    }
}

/// The longest compressed form that `percent` allows, and always shorter than a page: the largest
/// `n` with `n * 100 / PAGE_BYTES <= percent` in whole numbers, as the reference computes it.
const fn compressed_max(percent: u8) -> Bytes {
    let longest = ((percent as usize + 1) * PAGE_BYTES - 1) / 100;
    if longest < PAGE_BYTES { Bytes(longest) } else { Bytes(PAGE_BYTES - 1) }
}

// The reference refuses from 3318 bytes on at its default of 80 per cent.
const _: () = assert!(compressed_max(80).0 == 3317 && compressed_max(100).0 == PAGE_BYTES - 1);
