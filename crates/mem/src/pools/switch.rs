//! Two pools as one: the one in use, and the one before it while objects are left there.
//!
//! Idea: new objects go to the pool in use. Those of the former pool keep their place and their
//! handle until they are freed. Who wants that pool to become empty allocates its objects anew and
//! frees the old ones: only the user of a handle knows where it is noted. The highest bit of a
//! handle, its *side*, says which pool the object lies in; sides change with each switch.
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

use core::fmt;
use core::mem;
use core::ops::DerefMut;

use coldpress_sys::{Bytes, PageCount};

use super::{AllocError, ClassStats, Compacted, Handle, Pool, PoolStats, UnknownHandle};
use crate::frames::Shrunk;

#[cfg(test)]
mod tests;

/// A pool that can be exchanged for another one of the type that `B` points to, a box for example,
/// while it holds objects. Who switches has it alone; all else is done beside others.
pub struct Switch<B> {
    current: B,
    former: Option<B>,
    side: bool,
}

/// The pool before the one in use still holds objects, so there is no place for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillDraining;

impl fmt::Display for StillDraining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the former pool still holds objects")
    }
}

impl core::error::Error for StillDraining {}

impl<B: DerefMut<Target: Pool>> Switch<B> {
    /// `pool` is in use.
    pub const fn new(pool: B) -> Self {
        Self { current: pool, former: None, side: false }
    }

    /// The pool in use: all new objects go there.
    pub fn current(&self) -> &B::Target {
        &self.current
    }

    /// The pool that was in use before, until [`Switch::finish`] finds it empty.
    pub fn former(&self) -> Option<&B::Target> {
        self.former.as_deref()
    }

    /// Whether the object of a handle lies in the former pool, and so should be allocated anew.
    #[inline]
    pub fn is_former(&self, handle: Handle) -> bool {
        self.former.is_some() && handle.side().0 != self.side
    }

    /// Takes `pool`, which is empty, in use; the one that was is the former pool then, whose frames
    /// stay where they are. Fails, and changes nothing, while the former pool holds objects.
    pub fn switch(&mut self, pool: B) -> Result<(), StillDraining> {
        self.finish();
        if self.former.is_some() {
            return Err(StillDraining);
        }
        // Before the first frame of the other.
        self.current.give_up_moves();
        self.former = Some(mem::replace(&mut self.current, pool));
        self.side = !self.side;
        Ok(())
    }

    /// Drops the former pool if it holds no object any more; whether it did.
    pub fn finish(&mut self) -> bool {
        self.former.take_if(|former| former.stats().objects == 0).is_some()
    }

    /// The pool that an object lies in, if it exists, and what it is called there.
    #[inline]
    fn find(&self, handle: Handle) -> Result<(&B::Target, Handle), UnknownHandle> {
        let (side, inner) = handle.side();
        if side == self.side {
            return Ok((&self.current, inner));
        }
        self.former.as_deref().map(|former| (former, inner)).ok_or(UnknownHandle)
    }

    /// Both pools, the former one first.
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

    /// The classes of the former pool come before those of the one in use.
    fn classes(&self, visit: &mut dyn FnMut(ClassStats)) {
        self.all().for_each(|pool| pool.classes(visit));
    }

    /// While there are two pools, each has half of the budget.
    fn compact(&self, budget: Bytes) -> Compacted {
        let share = Bytes(budget.0.div_ceil(self.all().count()));
        self.all().fold(Compacted::default(), |sum, pool| {
            let Compacted { moved, freed } = pool.compact(share);
            Compacted { moved: sum.moved + moved, freed: sum.freed + freed }
        })
    }

    /// Frames of the former pool stay until its objects are gone.
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
