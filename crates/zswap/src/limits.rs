//! The limits in force: the knobs, and the state that the store keeps to stay within them.
//!
//! Nothing here changes a page; [`crate::store`] and [`crate::writeback`] ask, and act.

use coldpress_backing::SLOT_BYTES;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

use crate::knobs::{Knobs, MAX_COMPRESSION_RATIO};

/// Attempts at writeback that are skipped after one failed. Otherwise a full or broken disk would
/// be tried once for every page stored, with a batch gathered each time.
pub(crate) const ATTEMPTS_SKIPPED: u32 = 1024;
/// Frames that a pool may take beyond its hard limit for dense objects, or for those of another
/// pool. The new objects do not fit where the replaced ones lie, so they may need frames before any
/// frame is empty.
pub(crate) const FRAMES_BEYOND: PageCount = PageCount(64);

/// The knobs, and the state that goes with them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    knobs: Knobs,
    /// Whether the pool met its limit and has not been below the threshold since.
    reached: bool,
    /// Whether a page was refused for want of room, and the pool has not been below the threshold
    /// since.
    refused: bool,
    /// Bytes that may still be written back in this period, if there is a limit.
    writeback_left: Bytes,
}

/// The knobs and limits that apply to a page that is to be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    pub(crate) knobs: Knobs,
    /// Whether the pool, which had to refuse a page, must refuse this one too.
    pub(crate) refuses: bool,
    /// Whether the pool is at the limit where writeback begins.
    pub(crate) is_at_max: bool,
    /// Whether the pool is to shrink.
    pub(crate) must_shrink: bool,
}

impl Limits {
    /// Returns the limits that `knobs` ask for.
    pub(crate) fn of(knobs: Knobs) -> Self {
        let writeback_left = knobs.writeback_limit.unwrap_or(Bytes(0));
        Self { knobs: sane(knobs), reached: false, refused: false, writeback_left }
    }

    /// Returns the knobs in force.
    pub(crate) fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Changes the knobs. What was written back in this period counts against a new limit.
    pub(crate) fn set_knobs(&mut self, knobs: Knobs) {
        debug_assert!(self.writeback_left <= self.period(), "more is left than there was");
        let spent = self.period() - self.writeback_left;
        self.knobs = sane(knobs);
        self.renew_writeback();
        self.spend_writeback(spent);
        debug_assert!(self.knobs.hard_pool >= self.knobs.max_pool, "the limits contradict");
    }

    /// Returns what applies to a page while the pool has `frames` frames.
    pub(crate) fn admit(&mut self, frames: PageCount) -> Admission {
        Admission {
            knobs: self.knobs,
            refuses: self.still_refuses(frames),
            is_at_max: self.is_at_max(frames),
            must_shrink: self.must_shrink(frames),
        }
    }

    /// Returns whether a pool of `frames` is at the limit where writeback begins.
    fn is_at_max(&self, frames: PageCount) -> bool {
        frames >= self.knobs.max_pool
    }

    /// Returns whether a pool of `frames` is to shrink: from the limit down to the threshold.
    fn must_shrink(&mut self, frames: PageCount) -> bool {
        let threshold = self.threshold_of(self.knobs.max_pool);
        self.reached = self.is_at_max(frames) || self.reached && frames > threshold;
        self.reached
    }

    /// Notes that a page was refused for want of room.
    pub(crate) fn note_refused(&mut self) {
        self.refused = true;
    }

    /// Returns whether a pool of `frames` that refused a page still has to refuse others.
    fn still_refuses(&mut self, frames: PageCount) -> bool {
        self.refused = self.refused && frames > self.threshold_of(self.knobs.hard_pool);
        self.refused
    }

    /// Returns whether another batch fits into what may be written back in this period.
    pub(crate) fn may_spend_writeback(&self) -> bool {
        self.knobs.writeback_limit.is_none() || self.writeback_left >= SLOT_BYTES
    }

    /// Takes `bytes`, which are being written back, from what is left of this period.
    pub(crate) fn spend_writeback(&mut self, bytes: Bytes) {
        self.writeback_left = Bytes(self.writeback_left.0.saturating_sub(bytes.0));
        debug_assert!(self.writeback_left <= self.period(), "more is left than there was");
    }

    /// Gives back `bytes` that were spent but not written.
    pub(crate) fn refund_writeback(&mut self, bytes: Bytes) {
        debug_assert!(bytes <= SLOT_BYTES, "a batch spends a slot's worth");
        self.writeback_left = (self.writeback_left + bytes).min(self.period());
    }

    /// Begins another period.
    pub(crate) fn renew_writeback(&mut self) {
        self.writeback_left = self.period();
    }

    /// Returns what may be written back in a period; 0 without a limit.
    fn period(&self) -> Bytes {
        self.knobs.writeback_limit.unwrap_or(Bytes(0))
    }

    /// Returns the accept threshold of a limit, rounded down; the limit itself at 100 per cent.
    fn threshold_of(&self, limit: PageCount) -> PageCount {
        let percent = u128::from(self.knobs.accept_threshold_percent.min(100));
        // At most `limit`.
        PageCount((limit.0 as u128 * percent / 100) as usize)
    }
}

/// Returns knobs that do not contradict each other.
fn sane(knobs: Knobs) -> Knobs {
    Knobs { hard_pool: knobs.hard_pool.max(knobs.max_pool), ..knobs }
}

/// Returns the longest compressed form that `percent` allows: the largest `n` with
/// `n * 100 / PAGE_BYTES <= percent` in whole numbers, as zswap v4 (the mail) computes it.
pub(crate) const fn compressed_max(percent: u8) -> Bytes {
    let longest = ((percent as usize + 1) * PAGE_BYTES - 1) / 100;
    if longest < PAGE_BYTES { Bytes(longest) } else { Bytes(PAGE_BYTES - 1) }
}

// zswap v4 refuses from 3318 bytes on at its default.
const _: () = assert!(compressed_max(MAX_COMPRESSION_RATIO).0 == 3317);
const _: () = assert!(compressed_max(100).0 == PAGE_BYTES - 1);
