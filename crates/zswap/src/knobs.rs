//! The knobs: the settings that a store is made with, which may change at any time while it is
//! used.
//!
//! How a page is coded holds for pages stored from then on; limits, writeback and recompression act
//! on what is stored already, too. It stays readable, whatever the knobs say.

use coldpress_codec::CodecChoice;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

/// The default of [`Knobs::max_compression_ratio`], that of zswap v4 (the mail), in per cent.
pub(crate) const MAX_COMPRESSION_RATIO: u8 = 80;

/// Everything a user may decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// Whether pages are taken at all. Off: every store is refused; loads and the other verbs go
    /// on.
    pub enabled: bool,
    /// How pages are compressed.
    pub codec: CodecChoice,
    /// Pool frames at which writeback begins.
    pub max_pool: PageCount,
    /// Pool frames that are never exceeded. The pool grows from `max_pool` to this only when
    /// writeback is impossible; a lower value than `max_pool` means `max_pool`.
    pub hard_pool: PageCount,
    /// Hysteresis, in per cent of a limit. A pool that met `max_pool` is written back, a batch with
    /// each store, until it is no larger than this share of `max_pool`. A pool that had to refuse a
    /// page takes none until it is no larger than this share of `hard_pool`. 100: no hysteresis.
    pub accept_threshold_percent: u8,
    /// Limit of the compression ratio: a page that compresses to more than this percentage of its
    /// size, rounded down, is incompressible.
    pub max_compression_ratio: u8,
    /// Whether incompressible pages are kept as they are, so that LRU order holds (as Linux 6.18
    /// does); otherwise they are refused (as zswap v4 does).
    pub keep_incompressible: bool,
    /// The running-mean limit (`zv_max_mean_zsize` of zcache): a page that takes more than this is
    /// refused while the pages in the pool take more on average. The size of a page: no limit.
    pub max_mean_zsize: Bytes,
    /// Whether a page of one repeated word is kept as that word; otherwise it is compressed like
    /// any other page.
    pub same_filled: bool,
    /// Whether [`crate::Zswap::recompress`] makes old pages denser. Off: pages that are dense stay
    /// dense until they are stored anew.
    pub dense: bool,
    /// Whether pages may be written back.
    pub writeback: bool,
    /// The most bytes sent to the backing store until [`crate::Zswap::renew_writeback`]; `None` for
    /// no limit. Only whole slots are allowed, so a rest of less than a slot allows nothing.
    pub writeback_limit: Option<Bytes>,
}

impl Knobs {
    /// Returns the defaults of zswap v4 (the mail) where it has the knob, and no limit where it has
    /// not: pages compressed by `codec` in a pool of `max_pool` frames.
    pub fn new(codec: impl Into<CodecChoice>, max_pool: PageCount) -> Self {
        Self {
            enabled: true,
            codec: codec.into(),
            max_pool,
            hard_pool: max_pool,
            accept_threshold_percent: 100,
            max_compression_ratio: MAX_COMPRESSION_RATIO,
            keep_incompressible: true,
            max_mean_zsize: Bytes(PAGE_BYTES),
            same_filled: true,
            dense: true,
            writeback: true,
            writeback_limit: None,
        }
    }
}
