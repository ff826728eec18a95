//! Two pools as one: the pool in use, and the former one while it still holds objects.
//!
//! Idea: new objects go to the pool in use. Objects of the former pool keep their place and their
//! handle until they are freed. To empty that pool, the user allocates its objects anew and frees
//! the old ones: only the user of a handle knows where it is noted. The highest bit of a handle,
//! its *side*, says which pool the object lies in; sides change with each switch.
//!
//! ```text
//! before        switch, drain             finish          the next switch
//! side 0: A     side 0: A, former         side 1: B       side 0: C
//!               side 1: B                                 side 1: B, former
//! ```
//!
//! Invariants:
//! 1. An object of `current` has a handle of side `side`, one of `former` a handle of the other.
//! 2. There is no third pool: `former` is empty before it is dropped, and dropped before another
//!    pool takes its side.

#![forbid(unsafe_code)]

use core::mem;
use core::ops::DerefMut;

use coldpress_sys::{Bytes, PageCount};

use super::{AllocError, ClassStats, Compacted, Handle, Pool, PoolStats, UnknownHandle};
use crate::frames::Shrunk;

#[cfg(test)]
mod tests;

/// A pool that can be exchanged, while it holds objects, for another one of the type that `B`
/// points to, a box for example. Switching needs the pool alone; all else works beside other
/// threads.
pub struct Switch<B> {
    current: B,
    former: Option<B>,
    side: bool,
}

impl<B: DerefMut<Target: Pool>> Switch<B> {
    /// Makes a switch with `pool` in use.
    pub const fn new(pool: B) -> Self {
        Self { current: pool, former: None, side: false }
    }

    /// Returns the pool in use: all new objects go there.
    pub fn current(&self) -> &B::Target {
        &self.current
    }

    /// Returns the pool that was in use before, until [`Switch::finish`] finds it empty.
    pub fn former(&self) -> Option<&B::Target> {
        self.former.as_deref()
    }

    /// Returns whether the object of a handle lies in the former pool, and so should be allocated
    /// anew.
    #[inline]
    pub fn is_former(&self, handle: Handle) -> bool {
        self.former.is_some() && handle.side().0 != self.side
    }

    /// Returns whether `pool`, which must be empty, was put into use: not while the former pool
    /// holds objects, as there is no place for a third pool. The pool in use before becomes the
    /// former one, whose frames stay where they are.
    #[must_use]
    pub fn switch(&mut self, pool: B) -> bool {
        assert_eq!(pool.stats().objects, 0, "the objects of the new pool have no side");
        self.finish();
        if self.former.is_some() {
            return false;
        }
        // This must precede the first frame of the other pool.
        self.current.give_up_moves();
        self.former = Some(mem::replace(&mut self.current, pool));
        self.side = !self.side;
        true
    }

    /// Returns whether it dropped the former pool: only if that holds no object any more.
    pub fn finish(&mut self) -> bool {
        self.former.take_if(|former| former.stats().objects == 0).is_some()
    }

    /// Returns the pool that an object lies in, if it exists, and the handle of the object there.
    #[inline]
    fn find(&self, handle: Handle) -> Result<(&B::Target, Handle), UnknownHandle> {
        let (side, inner) = handle.side();
        if side == self.side {
            return Ok((&self.current, inner));
        }
        self.former.as_deref().map(|former| (former, inner)).ok_or(UnknownHandle)
    }

    /// Returns both pools, the former one first.
    fn all(&self) -> impl Iterator<Item = &B::Target> {
        self.former.as_deref().into_iter().chain([&*self.current])
    }
}

impl<B: DerefMut<Target: Pool> + Sync> Pool for Switch<B> {
    #[inline]
    fn alloc(&self, size: Bytes) -> Result<Handle, AllocError> {
        self.current.alloc(size).map(|handle| handle.on_side(self.side))
    }

    #[inline]
    fn free(&self, handle: Handle) -> Result<(), UnknownHandle> {
        let (pool, handle) = self.find(handle)?;
        pool.free(handle)
    }

    fn size(&self, handle: Handle) -> Result<Bytes, UnknownHandle> {
        let (pool, handle) = self.find(handle)?;
        pool.size(handle)
    }

    #[inline]
    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), UnknownHandle> {
        let (pool, handle) = self.find(handle)?;
        pool.write(handle, bytes)
    }

    #[inline]
    fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> Result<R, UnknownHandle> {
        let (pool, handle) = self.find(handle)?;
        pool.read(handle, f)
    }

    fn stats(&self) -> PoolStats {
        let own = PoolStats { metadata: Bytes(size_of::<Self>()), ..PoolStats::default() };
        self.all().fold(own, |sum, pool| {
            let PoolStats { objects, bytes_stored, frames, metadata } = pool.stats();
            PoolStats {
                objects: sum.objects + objects,
                bytes_stored: sum.bytes_stored + bytes_stored,
                frames: sum.frames + frames,
                metadata: sum.metadata + metadata,
            }
        })
    }

    #[inline]
    fn frames(&self) -> PageCount {
        self.all().fold(PageCount(0), |sum, pool| sum + pool.frames())
    }

    /// Visits the classes of the former pool before those of the pool in use.
    fn classes(&self, visit: &mut dyn FnMut(ClassStats)) {
        self.all().for_each(|pool| pool.classes(visit));
    }

    /// Compacts each pool with half of the budget while there are two.
    fn compact(&self, budget: Bytes) -> Compacted {
        let share = Bytes(budget.0.div_ceil(self.all().count()));
        self.all().fold(Compacted::default(), |sum, pool| {
            let Compacted { moved, freed } = pool.compact(share);
            Compacted { moved: sum.moved + moved, freed: sum.freed + freed }
        })
    }

    /// Moves frames of the pool in use only: those of the former pool stay until its objects are
    /// gone.
    fn shrink_frames(&self, online: Bytes) -> Shrunk {
        self.current.shrink_frames(online)
    }

    fn give_up_moves(&mut self) {
        self.current.give_up_moves();
    }

    fn check(&mut self) {
        if let Some(former) = &mut self.former {
            former.check();
        }
        self.current.check();
    }
}
