//! Grow: blocks that are offline come online, all requested blocks or none.
//!
//! Only one thread at a time makes blocks Adding, so all Adding blocks it finds are its own.

use core::ops::Range;
use core::sync::atomic::Ordering;

use coldpress_sys::errno::{EBUSY, EINVAL, ENOMEM};
use coldpress_sys::page::BLOCK_BYTES;
use coldpress_sys::{Bytes, SysResult};

use super::blocks::BlockState;
use super::config::error;
use super::spans::Spans;
use super::{FrameAllocator, Mobility};

impl FrameAllocator {
    /// Adds `bytes`, whole blocks, to the zone that [`super::Config::easy_reclaim_hot_add`] names.
    /// Returns the memory that is online now.
    ///
    /// Fails with the kernel's number when the system refuses, with `ENOMEM` when the span has no
    /// more blocks, with `EINVAL` for a size that is zero or not whole blocks and before `init`,
    /// with `EBUSY` while another thread grows. A failure leaves everything as it was.
    pub fn grow(&self, bytes: Bytes) -> SysResult<Bytes> {
        let spans = self.spans().ok_or(error(EINVAL))?;
        self.grow_zone(spans, spans.hot_zone, bytes).map(|()| self.online())
    }

    /// Adds `bytes` to `zone`, as [`FrameAllocator::grow`] does.
    pub(super) fn grow_zone(&self, spans: &Spans, zone: Mobility, bytes: Bytes) -> SysResult<()> {
        if bytes.0 == 0 || !bytes.0.is_multiple_of(BLOCK_BYTES) {
            return Err(error(EINVAL));
        }
        // Acquire pairs with the Release below: this thread sees the states that the last grower
        // left.
        if self.growing.swap(true, Ordering::Acquire) {
            return Err(error(EBUSY));
        }
        let result = make_usable(spans, bytes.0 / BLOCK_BYTES);
        if result.is_ok() {
            self.zones.add(spans, zone);
        }
        // Release pairs with the Acquire above.
        self.growing.store(false, Ordering::Release);
        result
    }
}

/// Makes the memory of the first `wanted` Offline blocks usable, and the blocks Adding.
fn make_usable(spans: &Spans, wanted: usize) -> SysResult<()> {
    let blocks = spans.tables.blocks();
    assert!(next_run(spans, 0).is_none(), "another thread adds blocks");
    let offline = || blocks.iter().filter(|block| block.state() == BlockState::Offline);
    // Other threads only add to the Offline blocks.
    if offline().count() < wanted {
        return Err(error(ENOMEM));
    }
    offline().take(wanted).for_each(|block| block.set_state(BlockState::Adding));
    let mut from = 0;
    while let Some(run) = next_run(spans, from) {
        let (offset, length) = place(&run);
        if let Err(error) = spans.frames.commit(offset, length) {
            give_up(spans, run.end);
            return Err(error);
        }
        from = run.end;
    }
    Ok(())
}

/// Returns the next Adding blocks that lie side by side.
fn next_run(spans: &Spans, from: usize) -> Option<Range<usize>> {
    let adding = |index: &usize| spans.tables.blocks()[*index].state() == BlockState::Adding;
    let blocks = spans.tables.blocks().len();
    let start = (from..blocks).find(adding)?;
    Some(start..(start..blocks).find(|index| !adding(index)).unwrap_or(blocks))
}

/// Makes all Adding blocks Offline again; the blocks below `committed` may be accessible.
fn give_up(spans: &Spans, committed: usize) {
    let mut from = 0;
    while let Some(run) = next_run(spans, from) {
        if run.start < committed {
            let (offset, length) = place(&run);
            // If the system refuses this too, the blocks stay accessible, and nothing uses them.
            let _ = spans.frames.guard(offset, length);
        }
        spans.tables.blocks()[run.clone()]
            .iter()
            .for_each(|block| block.set_state(BlockState::Offline));
        from = run.end;
    }
}

/// Returns the offset and length of blocks in the span.
fn place(run: &Range<usize>) -> (Bytes, Bytes) {
    (Bytes(run.start * BLOCK_BYTES), Bytes(run.len() * BLOCK_BYTES))
}
