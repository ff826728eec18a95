//! How the span is laid out, and what a request is told when it cannot be served.

use core::fmt;

use coldpress_sys::map::Span;
use coldpress_sys::page::BLOCK_BYTES;
use coldpress_sys::{Bytes, PageCount, SysError, SysResult};

use super::SPAN_MAX;
use super::blocks::{BlockState, Tables};

pub(super) const ENOMEM: i32 = 12;
pub(super) const EBUSY: i32 = 16;
pub(super) const EINVAL: i32 = 22;

/// An error of our own.
pub(super) const fn error(errno: i32) -> SysError {
    SysError { call: "frames", errno }
}

/// What a frame is wanted for; also the name of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mobility {
    /// It stays where it is until it is freed.
    Core = 0,
    /// Its owner can move it: see [`super::FrameAllocator::set_owner`].
    EasyReclaim = 1,
}

impl Mobility {
    /// The zones, lowest first.
    pub const ALL: [Self; 2] = [Self::Core, Self::EasyReclaim];
}

/// How a span is laid out. All sizes are whole blocks of 2 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Address space to reserve, at most [`SPAN_MAX`].
    pub span: Bytes,
    /// Online memory that goes to the core zone, the lowest first; the rest is easy-reclaim. The
    /// reference's `kernelcore=`. `None`: one zone for everything.
    pub core: Option<Bytes>,
    /// Memory that is online at first.
    pub online: Bytes,
    /// Whether [`super::FrameAllocator::grow`] adds to the easy-reclaim zone, if there is one, and
    /// not to core. `false` is the reference's `noeasyrclm`.
    pub easy_reclaim_hot_add: bool,
    /// Whether a request that finds nothing adds a block to its own zone, as long as the span has
    /// one; it takes from no other zone then.
    pub on_demand: bool,
}

impl Config {
    /// One zone of `span` bytes, all online.
    pub const fn one_zone(span: Bytes) -> Self {
        Self { span, core: None, online: span, easy_reclaim_hot_add: true, on_demand: false }
    }
}

/// No free chunk of that order was left in any zone the request may take from. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfFrames {
    /// What was asked for.
    pub mobility: Mobility,
    /// log2 of the number of frames asked for; above [`super::ORDER_MAX`] there are no chunks.
    pub order: u8,
    /// Free frames of the zones in question, in smaller chunks.
    pub free: PageCount,
    /// All frames of these zones.
    pub online: PageCount,
}

impl fmt::Display for OutOfFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mobility, order, free, online } = self;
        let kind = match mobility {
            Mobility::Core => "core",
            Mobility::EasyReclaim => "easy-reclaim",
        };
        write!(f, "no {kind} chunk of order {order}: {} of {} frames free", free.0, online.0)
    }
}

impl core::error::Error for OutOfFrames {}

/// What [`FrameAllocator::init`] places.
pub(super) struct Spans {
    pub(super) frames: Span,
    pub(super) tables: Tables,
    two_zones: bool,
    /// Where added blocks go.
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

    /// The zones a request may take from, best first.
    #[inline]
    pub(super) fn zones(&self, mobility: Mobility) -> &'static [Mobility] {
        match mobility {
            Mobility::EasyReclaim if self.two_zones => &[Mobility::EasyReclaim, Mobility::Core],
            _ => &[Mobility::Core],
        }
    }
}
