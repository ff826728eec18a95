//! The pool of a process, and how another one is taken in use while the program runs.
//!
//! A process has one area, so it has one pool, and two while the pool is switched: what is stored
//! from then on goes to the pool that the knob names. The objects of the former pool move over, a
//! few at a time while no fault waits, and without pause while the program rests. When none is
//! left, the memory of the former pool goes back ([`coldpress_mem::pools::Switch`],
//! [`coldpress_zswap::Zswap::drain`]). If the knob is turned meanwhile, the next switch comes when
//! the former pool is empty.

use alloc::boxed::Box;

use coldpress_mem::frames::FrameAllocator;
use coldpress_mem::pools::{AnyPool, Pool, PoolKind, Switch};
use coldpress_sys::{Bytes, PageCount};

use super::Store;
use crate::allowance::Allowance;

/// The pool in use, and the one before it.
pub(crate) type Pools = Switch<Box<AnyPool<'static>>>;

/// Bytes of objects moved at a time. With everything else, moving them costs 7 to 16 us, rarely up
/// to 50.
const DRAINED: Bytes = Bytes::kib(16);

/// Makes an empty pool. Not inlined: a pool is some 35 KiB, and the caller's stack frame never
/// ends.
#[inline(never)]
pub(crate) fn make(kind: PoolKind, frames: &'static FrameAllocator) -> Box<AnyPool<'static>> {
    Box::new(AnyPool::new(kind, frames))
}

impl Store {
    /// Switches to the pool that the knobs ask for, and empties the former pool while no fault
    /// waits.
    pub(crate) fn tend_pools(&mut self, nobody_waits: bool, allowance: &mut Allowance) {
        if nobody_waits {
            self.empty_former_pool(allowance);
        }
        let process = self.ties.process();
        let former = self.zswap.pool().former().map(AnyPool::kind);
        if let Some(former) = former
            && self.zswap.pool_mut().finish()
        {
            self.charge_own_growth(allowance);
            self.ties.tell(format_args!("process {process}: pool {former} is empty and gone"));
        }
        let (wanted, kind) = (allowance.tuning.knobs.pool(), self.zswap.pool().current().kind());
        if wanted == kind || self.zswap.pool().former().is_some() {
            return;
        }
        let pool = make(wanted, self.frames);
        let is_switched = self.zswap.pool_mut().switch(pool);
        assert!(is_switched, "there is no former pool");
        self.charge_own_growth(allowance);
        self.ties.tell(format_args!(
            "process {process}: pool {wanted} from now on; {} MiB in {kind} move over",
            self.zswap.pool_frames().bytes().0 >> 20
        ));
    }

    /// Returns whether any objects moved out of the former pool, if there is one.
    pub(crate) fn empty_former_pool(&mut self, allowance: &mut Allowance) -> bool {
        if self.zswap.pool().former().is_none() {
            return false;
        }
        let moved = self.zswap.drain(DRAINED, Pools::is_former);
        self.charge_own_growth(allowance);
        moved > Bytes(0)
    }

    /// Returns the number of pages that still lie in the former pool.
    pub(crate) fn draining_pages(&self) -> PageCount {
        let former = self.zswap.pool().former();
        PageCount(former.map_or(0, |former| former.stats().objects))
    }
}
