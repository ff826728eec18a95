//! Pools: stores of compressed pages, with one trait over all of them.
//!
//! A pool names an object by a handle that stays the same wherever the object lies, and lends its
//! bytes by closure, so that it may move objects at any other time.

mod any;
mod bitmap;
mod bounce;
mod descriptor_ref;
mod handle;
mod handles;
#[cfg(any(test, fuzzing))]
mod naive;
#[cfg(any(test, fuzzing))]
pub mod operations;
#[cfg(any(test, fuzzing))]
mod pair;
mod pin;
mod segment;
mod switch;
#[cfg(test)]
mod tests;
mod xcfmalloc;
mod xvmalloc;
mod zsmalloc;

use core::fmt;

use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

use crate::frames::{FrameId, Migrate, Shrunk};
pub use any::{AnyPool, PoolKind, UnknownPool};
pub use handle::{CHECKS_HANDLES, Handle, UnknownHandle};
pub use segment::Segments;
pub use switch::Switch;
pub use xcfmalloc::Xcfmalloc;
pub use xvmalloc::Xvmalloc;
pub use zsmalloc::Zsmalloc;

/// The largest object: an incompressible page.
pub(crate) const OBJECT_MAX: Bytes = Bytes(PAGE_BYTES);

/// The reason why an object was not allocated. The pool is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocError {
    /// There is no frame left for the object or for the bookkeeping.
    NoFrame,
    /// The size is zero, or more than a page.
    BadSize {
        /// The requested size.
        size: Bytes,
    },
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFrame => write!(f, "no frame left for the pool"),
            Self::BadSize { size } => {
                write!(f, "object of {} bytes; 1 to {} are possible", size.0, OBJECT_MAX.0)
            }
        }
    }
}

impl core::error::Error for AllocError {}

/// The figures of a pool. Its cost is `frames` plus `metadata`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Objects stored.
    pub objects: usize,
    /// The sum of their sizes.
    pub bytes_stored: Bytes,
    /// Frames that hold objects.
    pub frames: PageCount,
    /// Everything else that the pool uses: whole frames of its tables, and the pool's own
    /// structure.
    pub metadata: Bytes,
}

/// The cost of moving an object besides its bytes, in bytes that could be copied meanwhile: 60 to
/// 200 ns, measured with objects of 20 bytes.
const MOVE_COST: Bytes = Bytes(256);

/// Work done at a time while other threads wait for a lock of the pool, in bytes of moved objects,
/// with [`MOVE_COST`] added for each.
const STEP: Bytes = Bytes(16 << 10);

/// The result of one call of [`Pool::compact`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes of objects that were moved.
    pub moved: Bytes,
    /// Frames that the pool gave back.
    pub freed: PageCount,
}

/// Occupancy of a class of a pool: the columns of the kernel's `zsmalloc/POOL/classes` file at the
/// time of its fullness groups "almost full" and "almost empty" (mm/zsmalloc.c before Linux 6.2).
/// Pools without zspages count each frame as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// The number of the class.
    pub class: usize,
    /// The size of the largest object in the class.
    pub size: Bytes,
    /// Zspages that are more than a quarter full, and not full.
    pub almost_full: usize,
    /// Zspages that are at most a quarter full.
    pub almost_empty: usize,
    /// Objects that the zspages of the class have room for.
    pub obj_allocated: usize,
    /// Objects stored.
    pub obj_used: usize,
    /// Frames of the zspages of the class.
    pub pages_used: PageCount,
    /// Frames of one zspage.
    pub pages_per_zspage: usize,
    /// Frames that compaction would give back.
    pub freeable: PageCount,
}

/// A store of objects of 1 to 4096 bytes, for any number of threads at once.
///
/// A handle that is not one of the pool's objects is a bug of the caller. Methods that take one
/// fail with [`UnknownHandle`] and have done nothing; its documentation says what each build
/// notices.
///
/// A thread that reads, writes or frees an object waits for the thread that already uses or moves
/// the object, for as long as copying a page takes. Compaction and the moving of frames leave
/// objects in use alone.
pub trait Pool: Sync {
    /// Allocates room for an object of exactly `size` bytes, with undefined contents.
    fn alloc(&self, size: Bytes) -> Result<Handle, AllocError>;

    /// Frees an object.
    fn free(&self, handle: Handle) -> Result<(), UnknownHandle>;

    /// Returns the size that the object was allocated with.
    fn size(&self, handle: Handle) -> Result<Bytes, UnknownHandle>;

    /// Fills the object with `bytes`. Panics unless their number is its size.
    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), UnknownHandle>;

    /// Lends the object's bytes, in one piece. `f` must not use an object of this pool, nor wait
    /// for a thread that does: that object may be this one.
    fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> Result<R, UnknownHandle>;

    /// Returns the current figures of the pool; takes constant time.
    fn stats(&self) -> PoolStats;

    /// Returns the frames that hold objects, as in the figures; for callers that ask at every
    /// object.
    fn frames(&self) -> PageCount {
        self.stats().frames
    }

    /// Calls `visit` for each class that has frames, the largest size first. Other threads may have
    /// to wait meanwhile.
    fn classes(&self, visit: &mut dyn FnMut(ClassStats));

    /// Moves objects closer together until `budget` bytes were moved, or nothing more can be
    /// gained. The last object may exceed the budget; each object counts 256 bytes more, for the
    /// work. Handles stay. Without frames for new places, the pool does what it can. Other threads
    /// may have to wait for the work of 16 KiB.
    fn compact(&self, budget: Bytes) -> Compacted;

    /// Takes frames offline until at most `online` bytes are, by moving the pool's frames out of
    /// their blocks: [`crate::frames::FrameAllocator::shrink_to`]. Of several pools on one
    /// allocator only the first moves frames; a pool that cannot move its frames takes them from
    /// core. A frame with an object in use stays.
    fn shrink_frames(&self, online: Bytes) -> Shrunk;

    /// Leaves its frames where they are from now on, so that another pool on the allocator can move
    /// its own. For a pool that moves frames.
    fn give_up_moves(&mut self) {}

    /// Walks all structures, which no other thread may use, and panics when an invariant is broken.
    /// For tests.
    fn check(&mut self);
}

/// Refuses a size that no pool takes.
fn check_size(size: Bytes) -> Result<(), AllocError> {
    if size.0 == 0 || size > OBJECT_MAX {
        return Err(AllocError::BadSize { size });
    }
    Ok(())
}

/// A mover that moves nothing, for a pool whose frames cannot be moved.
struct Nobody;

impl Migrate for Nobody {
    unsafe fn migrate(&mut self, _: FrameId, _: FrameId, _: u32, _: u8) -> bool {
        false
    }
}
