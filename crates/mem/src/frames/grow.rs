//! Grow: blocks that are offline come online, all asked for or none.
//!
//! One thread at a time makes blocks Adding, so those it finds are its own.

use core::ops::Range;
use core::sync::atomic::Ordering;

use coldpress_sys::page::{BLOCK_BYTES, FRAMES_PER_BLOCK};
use coldpress_sys::{Bytes, SysResult};

use super::blocks::BlockState;
use super::config::{EBUSY, EINVAL, ENOMEM, Spans, error};
use super::{FrameAllocator, Mobility};

impl FrameAllocator {
    /// Adds `bytes`, whole blocks, to the zone that [`super::Config::easy_reclaim_hot_add`] names.
    /// Returns what is online now.
    ///
    /// Fails with the kernel's number when the system refuses, with `ENOMEM` when the span has no
    /// more blocks, with `EINVAL` for a size that is zero or not whole blocks and before `init`,
    /// with `EBUSY` while another thread grows. Everything is as before then.
    pub fn grow(&self, bytes: Bytes) -> SysResult<Bytes> {
        let spans = self.spans().ok_or(error(EINVAL))?;
        self.grow_zone(spans, spans.hot_zone, bytes).map(|()| self.online())
    }

    /// As [`FrameAllocator::grow`], in this zone.
    pub(super) fn grow_zone(&self, spans: &Spans, zone: Mobility, bytes: Bytes) -> SysResult<()> {
        if bytes.0 == 0 || !bytes.0.is_multiple_of(BLOCK_BYTES) {
            return Err(error(EINVAL));
        }
        // Acquire pairs with the Release below: the states the last grower left are seen.
        if self.growing.swap(true, Ordering::Acquire) {
            return Err(error(EBUSY));
        }
        let result = self.add(spans, zone, bytes.0 / BLOCK_BYTES);
        // Release pairs with the Acquire above.
        self.growing.store(false, Ordering::Release);
        result
    }

    fn add(&self, spans: &Spans, zone: Mobility, wanted: usize) -> SysResult<()> {
        let blocks = spans.tables.blocks();
        let offline = || blocks.iter().filter(|block| block.state() == BlockState::Offline);
        // Others only make more blocks Offline.
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
        let mut zone = self.zone(spans, zone);
        for (index, block) in blocks.iter().enumerate() {
            if block.state() == BlockState::Adding {
                zone.make_fresh(index);
                zone.zone.online += FRAMES_PER_BLOCK;
            }
        }
        Ok(())
    }
}

/// The next blocks side by side that are Adding.
fn next_run(spans: &Spans, from: usize) -> Option<Range<usize>> {
    let adding = |index: &usize| spans.tables.blocks()[*index].state() == BlockState::Adding;
    let blocks = spans.tables.blocks().len();
    let start = (from..blocks).find(adding)?;
    Some(start..(start..blocks).find(|index| !adding(index)).unwrap_or(blocks))
}

/// Makes all Adding blocks Offline again; those below `committed` may be accessible.
fn give_up(spans: &Spans, committed: usize) {
    let mut from = 0;
    while let Some(run) = next_run(spans, from) {
        if run.start < committed {
            let (offset, length) = place(&run);
            // Should the system refuse this too, they stay accessible, and nobody uses them.
            let _ = spans.frames.guard(offset, length);
        }
        spans.tables.blocks()[run.clone()]
            .iter()
            .for_each(|block| block.set_state(BlockState::Offline));
        from = run.end;
    }
}

/// Where blocks lie in the span.
fn place(run: &Range<usize>) -> (Bytes, Bytes) {
    (Bytes(run.start * BLOCK_BYTES), Bytes(run.len() * BLOCK_BYTES))
}
