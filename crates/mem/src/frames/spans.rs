//! The spans of an allocator: its frames, and the tables of their blocks.

use coldpress_sys::errno::EINVAL;
use coldpress_sys::map::Span;
use coldpress_sys::page::BLOCK_BYTES;
use coldpress_sys::{Bytes, SysResult};

use super::SPAN_MAX;
use super::blocks::{BlockState, Tables};
use super::config::{Config, Mobility, error};

/// The spans and settings that [`super::FrameAllocator::init`] places.
pub(super) struct Spans {
    pub(super) frames: Span,
    pub(super) tables: Tables,
    two_zones: bool,
    /// The zone that added blocks join.
    pub(super) hot_zone: Mobility,
    pub(super) on_demand: bool,
}

impl Spans {
    /// Reserves both spans, and makes the first blocks Fresh.
    pub(super) fn reserve(config: Config) -> SysResult<Self> {
        let Config { span, core, online, easy_reclaim_hot_add, on_demand } = config;
        let sizes = [span, online, core.unwrap_or(span)];
        let whole = |size: Bytes| size.0 > 0 && size.0.is_multiple_of(BLOCK_BYTES);
        if !sizes.into_iter().all(whole) || online > span || span > SPAN_MAX {
            return Err(error(EINVAL));
        }
        let spans = Self {
            frames: Span::reserve_inaccessible(span, Bytes(BLOCK_BYTES))?,
            tables: Tables::reserve(span.0 / BLOCK_BYTES)?,
            two_zones: core.is_some(),
            hot_zone: match core {
                Some(_) if easy_reclaim_hot_add => Mobility::EasyReclaim,
                _ => Mobility::Core,
            },
            on_demand,
        };
        spans.frames.forbid_huge_pages();
        spans.frames.commit(Bytes(0), online)?;
        let core = core.unwrap_or(span).0 / BLOCK_BYTES;
        let blocks = spans.tables.blocks()[..online.0 / BLOCK_BYTES].iter();
        for (index, block) in blocks.enumerate() {
            let zone = if index < core { Mobility::Core } else { Mobility::EasyReclaim };
            block.set_state(BlockState::Fresh(zone));
        }
        Ok(spans)
    }

    /// Returns the zones that a request may take from, best first.
    #[inline]
    pub(super) fn zones(&self, mobility: Mobility) -> &'static [Mobility] {
        match mobility {
            Mobility::EasyReclaim if self.two_zones => &[Mobility::EasyReclaim, Mobility::Core],
            _ => &[Mobility::Core],
        }
    }
}
