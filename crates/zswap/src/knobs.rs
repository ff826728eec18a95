//! The knobs: the settings that a store is made with, which may change at any time while it is
//! used.
//!
//! A change applies to pages stored from then on. Pages that are stored already stay as they are
//! and stay readable, whatever the knobs say.

use crate::pool::Pool;
use coldpress_codec::{CodecChoice, CodecError};
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

use crate::Zswap;

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
    /// Whether [`Zswap::recompress`] makes old pages denser. Off: pages that are dense stay dense
    /// until they are stored anew.
    pub dense: bool,
    /// Whether pages may be written back.
    pub writeback: bool,
    /// The most bytes sent to the backing store until [`Zswap::renew_writeback`]; `None` for no
    /// limit. Only whole slots are allowed, so a rest of less than a slot allows nothing.
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

impl<P: Pool> Zswap<P> {
    /// Returns the knobs in force.
    pub fn knobs(&self) -> Knobs {
        *self.limits.lock().knobs()
    }

    /// Puts `knobs` in force. A pool that holds more than they allow shrinks as pages are stored,
    /// or at once by [`Zswap::shrink`]. Only a codec that could not be made is an error, and then
    /// nothing has changed.
    pub fn set_knobs(&self, knobs: Knobs) -> Result<(), CodecError> {
        let done = || self.limits.lock().set_knobs(knobs);
        let is_switched = self.objects.contexts.switch(knobs.codec, done).inspect_err(|_| {
            self.shards.counted().reject_codec_fail.add(1);
        })?;
        self.shards.counted().codec_switched.add(u64::from(is_switched));
        Ok(())
    }

    /// Begins to bring a pool that holds more than the knobs allow back to its limit: one batch a
    /// call. Waits for nothing, and does nothing while writeback is not possible.
    pub fn shrink_to_limit(&self) {
        let Some(disk) = &self.disk else { return };
        let is_over = self.objects.frames() > self.knobs().max_pool;
        if is_over && self.writeback_possible() && !disk.transfers.lock().outgoing.is_busy() {
            self.begin_to_shrink();
        }
    }

    /// Begins to write back a batch, and takes in batches that have ended.
    pub(crate) fn begin_to_shrink(&self) {
        self.reap();
        if self.begin_write_back().is_some() {
            // The batch may have ended already.
            self.reap();
        }
    }

    /// Begins another period of [`Knobs::writeback_limit`].
    pub fn renew_writeback(&self) {
        self.limits.lock().renew_writeback();
    }
}
