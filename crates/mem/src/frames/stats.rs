//! Figures of the zones.

use coldpress_sys::PageCount;
use coldpress_sys::page::FRAMES_PER_BLOCK;

use super::zone::{EMPTY, HELD, Locked, Zone};
use super::{FrameAllocator, Mobility, ORDER_MAX, ORDERS};

/// The figures of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneStats {
    /// All frames of the zone.
    pub online: PageCount,
    /// Frames that can be handed out.
    pub free: PageCount,
    /// Frames handed out or in per-CPU lists.
    pub used: PageCount,
    /// Frames whose memory may be resident, free ones included.
    pub held: PageCount,
    /// Free chunks of each order.
    pub chunks: [usize; ORDERS],
    /// Blocks whose memory went back to the system as a whole.
    pub blocks_returned: u64,
    /// Frames moved out of blocks that were to go offline.
    pub migrations: u64,
}

impl ZoneStats {
    /// Returns the whole blocks that could be handed out, or given back, at once.
    pub fn huge_blocks_available(&self) -> usize {
        self.chunks[usize::from(ORDER_MAX)]
    }

    /// Returns why a chunk of `order` is not available, in thousandths, by the kernel's formula
    /// (`__fragmentation_index` in mm/vmstat.c): near 0 for lack of memory, near 1000 for
    /// fragmentation; -1000 when there is one, 0 when nothing is free.
    #[cfg(test)]
    pub(super) fn fragmentation_index(&self, order: u8) -> i32 {
        let chunks: usize = self.chunks.iter().sum();
        if chunks == 0 {
            return 0;
        }
        if self.chunks.iter().skip(order.into()).any(|chunks| *chunks > 0) {
            return -1000;
        }
        1000 - ((1000 + ((self.free.0 * 1000) >> order)) / chunks) as i32
    }
}

/// The figures of the allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameStats {
    /// The zones, indexed by [`Mobility`] as a number.
    pub zones: [ZoneStats; 2],
    /// Memory of the tables and the per-CPU lists, in frames.
    pub tables: PageCount,
}

impl FrameStats {
    /// Returns a zone's figures.
    pub fn zone(&self, zone: Mobility) -> &ZoneStats {
        &self.zones[zone as usize]
    }

    /// Returns the whole free blocks of both zones.
    pub fn huge_blocks_available(&self) -> usize {
        self.zones.iter().map(ZoneStats::huge_blocks_available).sum()
    }

    /// Returns the blocks of both zones whose memory went back to the system as a whole.
    pub fn blocks_returned(&self) -> u64 {
        self.zones.iter().map(|zone| zone.blocks_returned).sum()
    }
}

impl FrameAllocator {
    /// Returns the figures of both zones.
    pub fn stats(&self) -> FrameStats {
        let mut stats = FrameStats::default();
        let Some(spans) = self.spans() else { return stats };
        stats.tables = spans.tables.blocks_held() + self.lists.memory().pages_up();
        for name in Mobility::ALL {
            let zone = self.zones.lock(spans, name);
            stats.zones[name as usize] = zone.stats();
            stats.tables += PageCount(zone.zone.live);
        }
        stats
    }

    /// Returns the frames handed out. Frames in per-CPU lists count until
    /// [`FrameAllocator::drain_all`].
    pub fn frames_used(&self) -> PageCount {
        self.zones.sum(Zone::used)
    }

    /// Returns the frames that use memory: handed out, free but not yet given back, in per-CPU
    /// lists, and the tables.
    pub fn frames_held(&self) -> PageCount {
        let Some(spans) = self.spans() else { return PageCount(0) };
        let tables = spans.tables.blocks_held() + self.lists.memory().pages_up();
        // The descriptors of a block take one page.
        tables + self.zones.sum(|zone| zone.held + zone.live)
    }

    /// Returns the free frames whose memory may be resident: those that [`FrameAllocator::trim`]
    /// could give back at once.
    pub fn frames_idle(&self) -> PageCount {
        self.zones.sum(|zone| zone.idle)
    }
}

impl Locked<'_> {
    fn stats(&self) -> ZoneStats {
        let zone = &*self.zone;
        let mut chunks = [0; ORDERS];
        for (order, count) in chunks.iter_mut().enumerate() {
            *count = zone.lists[HELD][order].chunks + zone.lists[EMPTY][order].chunks;
        }
        chunks[usize::from(ORDER_MAX)] += zone.fresh;
        ZoneStats {
            online: PageCount(zone.online),
            free: PageCount(zone.free()),
            used: PageCount(zone.used()),
            held: PageCount(zone.held),
            chunks,
            blocks_returned: zone.blocks_returned,
            migrations: zone.migrations,
        }
    }
}

const _: () = assert!(FRAMES_PER_BLOCK == 1 << ORDER_MAX);
