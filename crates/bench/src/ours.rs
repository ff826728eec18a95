//! The parts of coldpress that are measured; the pools among them are in the module `pools`.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;
use std::sync::OnceLock;

use coldpress_mem::frames::{Config, FrameAllocator, FrameId, Migrate, SPAN_MAX};
use coldpress_mem::slab::Heap;
use coldpress_sys::{Bytes, PAGE_BYTES, SysResult, rseq};

use crate::frames::{BLOCK_FRAMES, BLOCK_ORDER, FrameSource, Mobility};

/// The address space for the heap; memory is used only as objects are.
const HEAP_SPAN: Bytes = Bytes(8 << 30);

/// Reserves the span, with lists for each processor where the system allows them.
fn init(frames: &FrameAllocator, config: Config) -> SysResult<()> {
    // SAFETY: the C library made all threads of this process.
    unsafe { rseq::enable() };
    frames.init(config)?;
    frames.keep_per_processor()
}

static HEAP_FRAMES: FrameAllocator = FrameAllocator::new();
static HEAP: Heap<'static> = Heap::new(&HEAP_FRAMES);

/// Returns the slab's heap as the runtime has it: a static on a static frame allocator.
///
/// Fails when the address space is not available.
pub fn heap() -> SysResult<&'static (dyn GlobalAlloc + Sync)> {
    static READY: OnceLock<SysResult<()>> = OnceLock::new();
    (*READY.get_or_init(|| {
        init(&HEAP_FRAMES, Config::one_zone(HEAP_SPAN))?;
        HEAP.keep_per_processor()
    }))?;
    Ok(&HEAP)
}

/// Order-0 frames as an allocator of pages that must not be touched: its addresses are the numbers
/// of the frames, counted from 1, in pages. So only the frame allocator's own work is measured.
pub struct Frames(FrameAllocator);

/// Makes order-0 frames of a span of `memory`, for core use.
///
/// Fails when the address space is not available.
pub fn order_0_frames(memory: Bytes) -> SysResult<Frames> {
    let frames = FrameAllocator::new();
    init(&frames, Config::one_zone(memory))?;
    Ok(Frames(frames))
}

// SAFETY: a frame is handed out once at a time, so no two live addresses are the same. No code uses
// the bytes of a frame, as the type says, and no work writes to frames.
unsafe impl GlobalAlloc for Frames {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        match self.0.alloc(Mobility::Core) {
            Some(frame) => ptr::without_provenance_mut((frame.index() as usize + 1) * PAGE_BYTES),
            None => ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, page: *mut u8, _: Layout) {
        let index = page.addr() / PAGE_BYTES - 1;
        // SAFETY: `alloc` made the address of this frame's number, and the caller frees it once.
        unsafe { self.0.free(FrameId::from_index(index as u32)) };
    }
}

/// Makes frames for a pool of up to `objects` objects of up to a page: address space for four
/// frames an object, as far as one span may be that long. There are no lists for each processor,
/// because the runtime's thread has none either.
///
/// Fails when the address space is not available.
pub(crate) fn pool_frames(objects: usize) -> SysResult<FrameAllocator> {
    let frames = objects.saturating_mul(4).saturating_add(8 * BLOCK_FRAMES);
    let frames = frames.next_multiple_of(BLOCK_FRAMES).min(SPAN_MAX.0 / PAGE_BYTES);
    let allocator = FrameAllocator::new();
    allocator.init(Config::one_zone(Bytes(frames * PAGE_BYTES)))?;
    Ok(allocator)
}

/// Makes frames for a replay: `blocks` blocks of 2 MiB, of which `core` are for frames that cannot
/// move; `None` for one zone.
///
/// Fails when the address space is not available.
pub(crate) fn zones(blocks: usize, core: Option<usize>) -> SysResult<Box<dyn FrameSource>> {
    let bytes = |blocks| Bytes(blocks * BLOCK_FRAMES * PAGE_BYTES);
    let frames = FrameAllocator::new();
    init(&frames, Config { core: core.map(bytes), ..Config::one_zone(bytes(blocks)) })?;
    Ok(Box::new(Zones { frames, blocks, core: core.unwrap_or(0) }))
}

/// A frame allocator of one zone or two.
struct Zones {
    frames: FrameAllocator,
    blocks: usize,
    core: usize,
}

impl FrameSource for Zones {
    fn alloc(&self, mobility: Mobility, order: u8) -> Option<u32> {
        let frame = match order {
            0 => self.frames.alloc(mobility),
            BLOCK_ORDER => self.frames.alloc_block(mobility),
            _ => self.frames.alloc_order(order, mobility),
        };
        frame.map(FrameId::index)
    }

    unsafe fn free(&self, chunk: u32, order: u8) {
        let chunk = FrameId::from_index(chunk);
        // SAFETY: the caller keeps the allocator's promise: the chunk is handed out with this
        // order.
        unsafe {
            match order {
                0 => self.frames.free(chunk),
                _ => self.frames.free_order(chunk, order),
            }
        }
    }

    unsafe fn set_owner(&self, frame: u32, owner: u32) {
        // SAFETY: the caller has the frame, and `compact` moves it for this owner.
        unsafe { self.frames.set_owner(FrameId::from_index(frame), owner, 0) };
    }

    fn drain(&self) {
        self.frames.drain_all();
    }

    unsafe fn compact(&self, migrate: &mut crate::frames::Migrate<'_>) {
        let stats = self.frames.stats();
        let easy = stats.zone(Mobility::EasyReclaim);
        let in_use = match self.core {
            0 => self.blocks * BLOCK_FRAMES - self.free_frames(),
            _ => easy.online.0 - easy.free.0,
        };
        let kept = self.core + in_use.div_ceil(BLOCK_FRAMES);
        let online = self.frames.online();
        // SAFETY: the caller's `migrate` knows every owner, and no thread uses the frames
        // meanwhile.
        let shrunk = unsafe {
            self.frames.shrink_to(
                Bytes(kept * BLOCK_FRAMES * PAGE_BYTES),
                &mut Mover(&self.frames, migrate),
            )
        };
        let gone = online - shrunk.online;
        if gone > Bytes(0) {
            self.frames.grow(gone).expect("what was online a moment ago comes back");
        }
    }

    fn free_frames(&self) -> usize {
        self.frames.stats().zones.iter().map(|zone| zone.free.0).sum()
    }

    fn check(&self) {
        self.frames.check();
    }
}

/// A mover of frames that no code has written to.
struct Mover<'a, 'm>(&'a FrameAllocator, &'a mut crate::frames::Migrate<'m>);

impl Migrate for Mover<'_, '_> {
    unsafe fn migrate(&mut self, from: FrameId, to: FrameId, owner: u32, index: u8) -> bool {
        let moved = (self.1)(from.index(), to.index(), owner);
        if moved {
            // SAFETY: after the move the owner uses only frame `to`, and frame `from` no more.
            unsafe {
                self.0.set_owner(to, owner, index);
                self.0.free(from);
            }
        }
        moved
    }
}
