//! Frames: 4 KiB pieces of one reserved span, handed out alone or as chunks of 2^order, and given
//! back to the system.
//!
//! Idea: two zones (Mel Gorman's easy-reclaim zone; today's ZONE_MOVABLE), each with a buddy
//! allocator. *Core* frames never move. *Easy-reclaim* frames have an owner that can move them, so
//! their blocks of 2 MiB can be emptied and given back at any time. A request falls back downwards
//! only: easy-reclaim may take core frames, never the reverse. `blocks` keeps the tables, `zone`
//! the free chunks, `zones` both zones with their locks, `trim` gives back the memory of free
//! frames, `grow` and `shrink` add and remove blocks while other threads allocate.
//!
//! Invariants:
//! 1. The spans are placed once, before `base` is set, and never replaced.
//! 2. A frame is handed out at most once at a time; its memory is given back only while it is free.
//! 3. A zone's lock is never held over a system call, and no two are held together but in `init`.

mod blocks;
mod check;
mod config;
mod descriptor;
mod grow;
#[cfg(any(test, fuzzing))]
pub(crate) mod hog;
mod record;
mod run;
mod shrink;
mod spans;
mod stats;
#[cfg(test)]
mod tests;
pub mod trace;
mod trim;
mod zone;
mod zones;

use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use coldpress_sys::errno::EBUSY;
use coldpress_sys::page::{BLOCK_BYTES, FRAMES_PER_BLOCK};
use coldpress_sys::{Bytes, PAGE_BYTES, SysResult};

use crate::percpu::CpuLists;
use blocks::BlockState;
use config::error;
pub use config::{Config, Mobility};
pub(crate) use descriptor::Descriptor;
use record::Recorder;
pub(crate) use shrink::MoveClaim;
pub use shrink::{HeldBack, Migrate, Shrunk};
use spans::Spans;
pub use stats::{FrameStats, ZoneStats};
use trace::Event;
use zone::Chunk;
use zones::Zones;

/// The largest span. Other tables name 16-byte places in the span by 32 bits.
pub const SPAN_MAX: Bytes = Bytes(64 << 30);
/// The largest order: a whole block.
pub(crate) const ORDER_MAX: u8 = FRAMES_PER_BLOCK.trailing_zeros() as u8;
/// The number of orders.
pub(crate) const ORDERS: usize = ORDER_MAX as usize + 1;

/// Frames that move between a zone and a per-CPU list at a time.
const BATCH: usize = 32;
/// Maximum frames in a per-CPU list of each zone.
const LIST_FRAMES: u16 = 2 * BATCH as u16;

/// The number of a frame in the span, as a [`FrameAllocator`] hands it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(u32);

impl FrameId {
    /// Returns the number, below [`SPAN_MAX`] / 4 KiB = 2^24.
    pub const fn index(self) -> u32 {
        self.0
    }

    /// Returns the frame numbered `index`, for callers that store the numbers of their frames.
    pub const fn from_index(index: u32) -> Self {
        Self(index)
    }
}

/// An allocator of frames. May be a `static`; does nothing and holds nothing until
/// [`FrameAllocator::init`].
pub struct FrameAllocator {
    zones: Zones,
    lists: CpuLists,
    spans: UnsafeCell<Option<Spans>>,
    base: AtomicPtr<u8>,
    growing: AtomicBool,
    moves_claimed: AtomicBool,
    recorder: Recorder,
}

// SAFETY: `spans` is written once, under the locks and before `base` is set; only threads that have
// seen `base` set read it. Everything else is behind a lock or atomic.
unsafe impl Sync for FrameAllocator {}

impl FrameAllocator {
    /// Makes an allocator without a span: every allocation fails.
    pub const fn new() -> Self {
        Self {
            zones: Zones::new(),
            lists: CpuLists::new(),
            spans: UnsafeCell::new(None),
            base: AtomicPtr::new(ptr::null_mut()),
            growing: AtomicBool::new(false),
            moves_claimed: AtomicBool::new(false),
            recorder: Recorder::new(),
        }
    }

    /// Reserves the span and its tables. At first this takes 72 bytes of memory a block.
    ///
    /// Fails with the kernel's number when there is not enough address space, with `EINVAL` for
    /// sizes that are zero, not whole blocks, or too large, with `EBUSY` when there is a span
    /// already.
    pub fn init(&self, config: Config) -> SysResult<()> {
        let spans = Spans::reserve(config)?;
        // On a second call the new spans are unmapped after the locks are released.
        let rejected = {
            let mut zones = self.zones.lock_both();
            // Relaxed: the locks order this after any other `init`.
            if self.base.load(Ordering::Relaxed).is_null() {
                for block in spans.tables.blocks() {
                    if let BlockState::Fresh(zone) = block.state() {
                        zones[zone as usize].fresh += 1;
                        zones[zone as usize].online += FRAMES_PER_BLOCK;
                    }
                }
                let base = spans.frames.base().as_ptr();
                // SAFETY: `base` is null, so no thread has a reference to `spans`, and the locks
                // keep other callers of `init` out.
                unsafe { *self.spans.get() = Some(spans) };
                // Release pairs with the Acquire in `spans`.
                self.base.store(base, Ordering::Release);
                None
            } else {
                Some(spans)
            }
        };
        match rejected {
            Some(_) => Err(error(EBUSY)),
            None => Ok(()),
        }
    }

    /// Keeps up to 64 free frames of each zone ready for each processor, where the process has
    /// enabled restartable sections ([`coldpress_sys::rseq::enable`]). Without them, during a
    /// recording, or when the address space is refused, nothing changes.
    pub fn keep_per_processor(&self) -> SysResult<()> {
        if self.is_recording() {
            return Ok(());
        }
        self.lists.init(&[LIST_FRAMES; 2])
    }

    /// Takes a frame with undefined contents. Returns `None` when no zone that may serve it has a
    /// frame left, and before `init`.
    #[inline]
    #[must_use = "a frame that nobody names is lost"]
    pub fn alloc(&self, mobility: Mobility) -> Option<FrameId> {
        let spans = self.spans()?;
        let first = spans.zones(mobility)[0];
        let frame = match self.lists.pop(first as usize) {
            Some(frame) => frame,
            None => self.refill(spans, mobility)?,
        };
        debug_assert_eq!(spans.tables.get(frame), Descriptor::Cached, "frame {frame} is in use");
        spans.tables.set(frame, Descriptor::Core);
        Some(FrameId(frame))
    }

    /// Takes a frame as [`FrameAllocator::alloc`] does, filled with zeros.
    #[must_use = "a frame that nobody names is lost"]
    pub fn alloc_zeroed(&self, mobility: Mobility) -> Option<FrameId> {
        let frame = self.alloc(mobility)?;
        // SAFETY: the frame was just handed to us, and this is its size.
        unsafe { self.address(frame).write_bytes(0, PAGE_BYTES) };
        Some(frame)
    }

    /// Takes the 512 frames of one block, as [`FrameAllocator::alloc_order`] does.
    #[must_use = "a frame that nobody names is lost"]
    pub fn alloc_block(&self, mobility: Mobility) -> Option<FrameId> {
        self.alloc_order(ORDER_MAX, mobility)
    }

    /// Takes 2^`order` frames side by side, aligned to their length, with undefined contents; the
    /// first one names them all. Returns `None` as [`FrameAllocator::alloc`] does, and for an order
    /// above that of a block.
    #[must_use = "a frame that nobody names is lost"]
    pub fn alloc_order(&self, order: u8, mobility: Mobility) -> Option<FrameId> {
        let spans = self.spans().filter(|_| order <= ORDER_MAX)?;
        let take = |zone| self.zones.lock(spans, zone).take(order);
        let chunk = self.find(spans, mobility, take)?;
        debug_assert!(chunk.order == order, "{chunk:?} is not of order {order}");
        spans.hand_out(chunk);
        self.recorder.note(|| Event::Alloc { id: chunk.head, order, mobility });
        Some(FrameId(chunk.head))
    }

    /// Frees a frame. Its memory is kept for the next allocation or for [`FrameAllocator::trim`].
    ///
    /// # Safety
    /// This allocator handed the frame out, alone or in a chunk, it was not freed since, and no
    /// code uses its bytes any more.
    #[inline]
    pub unsafe fn free(&self, frame: FrameId) {
        let spans = self.placed();
        assert!(spans.tables.get(frame.0).is_handed_out(), "frame {} freed twice", frame.0);
        spans.tables.set(frame.0, Descriptor::Cached);
        match spans.tables.block_of(frame.0).state() {
            BlockState::Live(zone) if self.lists.push_in_use(zone as usize, frame.0) => {}
            state => self.spill(spans, state, frame.0),
        }
    }

    /// Frees all frames of a chunk.
    ///
    /// # Safety
    /// As for [`FrameAllocator::free`], for each frame of a chunk that
    /// [`FrameAllocator::alloc_order`] returned for this order.
    pub unsafe fn free_order(&self, frame: FrameId, order: u8) {
        let spans = self.placed();
        let chunk = Chunk { head: frame.0, order };
        for frame in chunk.frames() {
            assert!(spans.tables.get(frame).is_handed_out(), "frame {frame} freed twice");
        }
        self.recorder.note(|| Event::Free { id: chunk.head, order });
        self.zones.lock_of(spans, frame.0).put(chunk);
    }

    /// Returns the first byte of a frame. The caller may read and write it as long as it owns the
    /// frame; the pointer is valid for the whole span.
    #[inline]
    pub fn address(&self, frame: FrameId) -> NonNull<u8> {
        self.address_at(Bytes(frame.0 as usize * PAGE_BYTES))
    }

    /// Returns the byte `offset` bytes behind the first frame.
    #[inline]
    pub(crate) fn address_at(&self, offset: Bytes) -> NonNull<u8> {
        // Acquire pairs with the Release in `init`.
        let base = self.base.load(Ordering::Acquire);
        NonNull::new(base.wrapping_add(offset.0)).expect("there is a span, not at address zero")
    }

    /// Returns how far `address`, a byte of a frame, lies behind the first frame.
    #[inline]
    pub(crate) fn offset_of(&self, address: NonNull<u8>) -> Bytes {
        // Acquire pairs with the Release in `init`.
        let base = self.base.load(Ordering::Acquire);
        Bytes(address.as_ptr().addr() - base.addr())
    }

    /// Returns the frame that holds an address, which need not lie in the span.
    pub(crate) fn frame_at(&self, address: NonNull<u8>) -> Option<FrameId> {
        let span = &self.spans()?.frames;
        let offset = address.as_ptr().addr().wrapping_sub(span.address());
        (offset < span.length().0).then_some(FrameId((offset / PAGE_BYTES) as u32))
    }

    /// Sets the owner that can move a frame: [`Migrate::migrate`] will receive this `owner` and
    /// `index`.
    ///
    /// # Safety
    /// The caller owns the frame, and until the frame is freed, every mover passed to
    /// [`FrameAllocator::shrink_to`] can move it for this owner and index.
    pub unsafe fn set_owner(&self, frame: FrameId, owner: u32, index: u8) {
        let tables = &self.placed().tables;
        debug_assert!(tables.get(frame.0).is_handed_out(), "{frame:?} is free");
        tables.set(frame.0, Descriptor::Movable { owner, index });
    }

    /// Notes the slab descriptor of a frame: how far it lies behind the first frame, in units of 16
    /// bytes.
    ///
    /// # Safety
    /// The caller owns the frame, and a slab descriptor lies there for as long as it does.
    pub(crate) unsafe fn set_slab(&self, frame: FrameId, descriptor: u32) {
        let tables = &self.placed().tables;
        debug_assert!(tables.get(frame.0).is_handed_out(), "{frame:?} is free");
        tables.set(frame.0, Descriptor::Slab { descriptor });
    }

    /// Returns the use of the frame, which may be out of date: only its owner can rely on it.
    #[inline]
    pub(crate) fn descriptor(&self, frame: FrameId) -> Descriptor {
        self.placed().tables.get(frame.0)
    }

    /// Empties the per-CPU lists of all CPUs, so that their frames merge and can be given back.
    pub fn drain_all(&self) {
        if let Some(spans) = self.spans() {
            let put = &mut |_, frame| self.zones.lock_of(spans, frame).put(Chunk::frame(frame));
            self.lists.drain_all(put);
        }
    }

    /// Takes a frame when this CPU's list of the first zone is empty, and refills the list on the
    /// way.
    #[cold]
    fn refill(&self, spans: &Spans, mobility: Mobility) -> Option<u32> {
        let take = |zone| {
            self.lists.pop(zone as usize).or_else(|| self.zones.refill(&self.lists, spans, zone))
        };
        let frame = self.find(spans, mobility, take)?;
        self.recorder.note(|| Event::Alloc { id: frame, order: 0, mobility });
        Some(frame)
    }

    /// Returns what `take` finds in the zones that a request may take from, best first. Where
    /// blocks are added on demand, the request's own zone gets one and no other zone is asked: core
    /// is reserved for requests that cannot do without.
    fn find<T>(
        &self,
        spans: &Spans,
        mobility: Mobility,
        take: impl Fn(Mobility) -> Option<T>,
    ) -> Option<T> {
        let zones = spans.zones(mobility);
        let asked = if spans.on_demand { &zones[..1] } else { zones };
        let take = || asked.iter().find_map(|zone| take(*zone));
        let found = take().or_else(|| {
            // The last frames may be in the lists of other CPUs, and keep their buddies from
            // merging.
            self.drain_all();
            take()
        });
        let add = || {
            self.grow_zone(spans, zones[0], Bytes(BLOCK_BYTES)).ok()?;
            take()
        };
        found.or_else(|| spans.on_demand.then(add).flatten())
    }

    /// Frees a frame that this CPU's list may have no place for, and drains others from the list
    /// with it.
    #[cold]
    #[inline(never)]
    fn spill(&self, spans: &Spans, state: BlockState, frame: u32) {
        if let BlockState::Live(zone) = state
            && self.lists.push(zone as usize, frame)
        {
            return;
        }
        self.recorder.note(|| Event::Free { id: frame, order: 0 });
        self.zones.spill(&self.lists, spans, frame);
    }

    #[inline]
    fn spans(&self) -> Option<&Spans> {
        // Acquire pairs with the Release in `init`.
        if self.base.load(Ordering::Acquire).is_null() {
            return None;
        }
        // SAFETY: `base` is set, so `spans` was written before and is never written again.
        unsafe { (*self.spans.get()).as_ref() }
    }

    /// Returns the spans, for the owner of a frame.
    #[inline]
    fn placed(&self) -> &Spans {
        self.spans().expect("a frame was handed out, so there is a span")
    }
}

impl Default for FrameAllocator {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(SPAN_MAX.0 / PAGE_BYTES <= 1 << 24 && ORDER_MAX == 9);
