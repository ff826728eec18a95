//! One class of slabs: the slabs with free objects, and how objects come back.
//!
//! Idea (Linux mm/slub.c): a free pushes the object onto its slab's freelist by exchanging the
//! (freelist, counters) pair, without the lock as long as the slab stays on its list. Allocations
//! take a whole freelist at a time, or one object, under the lock.
//!
//! Invariants:
//! 1. Whenever the lock is free: a slab with all objects out is on `full`, one with some out on
//!    `partial`; one with none out is `spare`, or given back.
//! 2. Hence the pair changes under the lock, except for frees between two partial states.
//! 3. Under the lock the first object of a freelist stays on it until the holder takes it, so its
//!    link may be read.

use core::mem;

use coldpress_sys::sync::SpinLock;

use super::descriptor::{Chain, Object, Slab, SlabRef, State};

/// The memory of slabs and objects, by their names.
pub(super) trait Space {
    /// Returns the descriptor of a slab that exists.
    fn slab(&self, slab: SlabRef) -> &Slab;

    /// Returns the object behind `object` in its chain. `object` must be free, and stay so
    /// meanwhile.
    fn link(&self, object: Object) -> Object;

    /// Chains `next` behind `object`, which must belong to the caller.
    fn set_link(&self, object: Object, next: Object);
}

/// The slabs of one class, on a cache line of its own, because different processors use the
/// classes.
#[repr(align(64))]
pub(super) struct Cache {
    lists: SpinLock<Lists>,
}

struct Lists {
    partial: SlabRef,
    full: SlabRef,
    spare: SlabRef,
}

/// Figures from a walk over all slabs of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    pub(super) slabs: usize,
    /// Objects that are out.
    pub(super) in_use: usize,
}

impl Lists {
    const EMPTY: Self = Self { partial: SlabRef::NONE, full: SlabRef::NONE, spare: SlabRef::NONE };
}

impl Cache {
    /// Makes a class without slabs.
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self { lists: SpinLock::new(Lists::EMPTY) }
    }

    /// Makes a class without slabs.
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self { lists: SpinLock::new(Lists::EMPTY) }
    }

    /// Returns a chain of objects to their slab. If the slab is now empty and on no list, returns
    /// it: the caller gives its memory back.
    pub(super) fn give_back(
        &self,
        space: &impl Space,
        slab: SlabRef,
        chain: Chain,
    ) -> Option<SlabRef> {
        let descriptor = space.slab(slab);
        loop {
            let old = descriptor.state();
            let new = freed(old, chain);
            if old.is_full() || new.is_empty() {
                return self.give_back_locked(space, slab, chain);
            }
            space.set_link(chain.last, old.freelist);
            if descriptor.change(old, new) {
                return None;
            }
        }
    }

    /// Does the same as [`Cache::give_back`], under the lock, where the slab may change its list.
    fn give_back_locked(&self, space: &impl Space, slab: SlabRef, chain: Chain) -> Option<SlabRef> {
        let descriptor = space.slab(slab);
        let mut lists = self.lists.lock();
        let (old, new) = loop {
            let old = descriptor.state();
            let new = freed(old, chain);
            space.set_link(chain.last, old.freelist);
            if descriptor.change(old, new) {
                break (old, new);
            }
        };
        match (old.is_full(), new.is_empty()) {
            (false, false) => {}
            (true, false) => {
                unlink(space, &mut lists.full, slab);
                link(space, &mut lists.partial, slab);
            }
            (was_full, true) => {
                let list = if was_full { &mut lists.full } else { &mut lists.partial };
                unlink(space, list, slab);
                if lists.spare != SlabRef::NONE {
                    return Some(slab);
                }
                lists.spare = slab;
            }
        }
        None
    }

    /// Takes all free objects of a slab, with their number. `None`: no slab has one.
    pub(super) fn take_chain(&self, space: &impl Space) -> Option<(Object, u16)> {
        let mut lists = self.lists.lock();
        let slab = lists.with_free_objects(space)?;
        let descriptor = space.slab(slab);
        let old = loop {
            let old = descriptor.state();
            debug_assert!(!old.is_full(), "a slab on `partial` has a free object");
            if descriptor.change(old, old.then(Object::NONE, old.objects)) {
                break old;
            }
        };
        unlink(space, &mut lists.partial, slab);
        link(space, &mut lists.full, slab);
        Some((old.freelist, old.objects - old.in_use))
    }

    /// Takes one object. `None`: no slab has one.
    pub(super) fn take_one(&self, space: &impl Space) -> Option<Object> {
        let mut lists = self.lists.lock();
        let slab = lists.with_free_objects(space)?;
        let descriptor = space.slab(slab);
        let (object, new) = loop {
            let old = descriptor.state();
            debug_assert!(!old.is_full(), "a slab on `partial` has a free object");
            let new = old.then(space.link(old.freelist), old.in_use + 1);
            if descriptor.change(old, new) {
                break (old.freelist, new);
            }
        };
        if new.is_full() {
            unlink(space, &mut lists.partial, slab);
            link(space, &mut lists.full, slab);
        }
        Some(object)
    }

    /// Lists a new slab, at least one of whose objects is out.
    pub(super) fn adopt(&self, space: &impl Space, slab: SlabRef) {
        let mut lists = self.lists.lock();
        debug_assert!(!space.slab(slab).state().is_empty(), "an object of a new slab is out");
        let list =
            if space.slab(slab).state().is_full() { &mut lists.full } else { &mut lists.partial };
        link(space, list, slab);
    }

    /// Takes the spare slab off the class.
    pub(super) fn take_spare(&self) -> Option<SlabRef> {
        let spare = mem::replace(&mut self.lists.lock().spare, SlabRef::NONE);
        (spare != SlabRef::NONE).then_some(spare)
    }

    /// Takes any slab off the class, whether its objects are out or not.
    ///
    /// A caller of this ends the use of all its objects.
    pub(super) fn take_any(&self, space: &impl Space) -> Option<SlabRef> {
        let mut guard = self.lists.lock();
        let lists = &mut *guard;
        for list in [&mut lists.partial, &mut lists.full] {
            let slab = *list;
            if slab != SlabRef::NONE {
                unlink(space, list, slab);
                return Some(slab);
            }
        }
        let spare = mem::replace(&mut lists.spare, SlabRef::NONE);
        (spare != SlabRef::NONE).then_some(spare)
    }

    /// Counts slabs and objects that are out; calls `visit` for each slab.
    pub(super) fn census(&self, space: &impl Space, mut visit: impl FnMut(SlabRef)) -> Census {
        let lists = self.lists.lock();
        let mut census = Census::default();
        for head in [lists.partial, lists.full, lists.spare] {
            let mut slab = head;
            while slab != SlabRef::NONE {
                let descriptor = space.slab(slab);
                let state = descriptor.state();
                census.slabs += 1;
                census.in_use += usize::from(state.in_use);
                visit(slab);
                slab = descriptor.next();
            }
        }
        census
    }

    /// Walks all lists and freelists, and panics when an invariant is broken. No thread may free
    /// meanwhile.
    pub(super) fn check(&self, space: &impl Space) {
        let lists = self.lists.lock();
        let heads = [lists.partial, lists.full, lists.spare];
        for (list, head) in heads.into_iter().enumerate() {
            let (mut slab, mut prev) = (head, SlabRef::NONE);
            while slab != SlabRef::NONE {
                let descriptor = space.slab(slab);
                let state = descriptor.state();
                assert_eq!(descriptor.prev(), prev, "broken list");
                let expected = if state.is_full() { 1 } else { usize::from(state.is_empty()) * 2 };
                assert_eq!(list, expected, "{state:?} on the wrong list");
                check_freelist(space, descriptor.frame(), state);
                (slab, prev) = (descriptor.next(), slab);
                assert!(list != 2 || slab == SlabRef::NONE, "more than one spare slab");
            }
        }
    }
}

impl Lists {
    /// Returns a slab on `partial`; if there is none, the spare slab goes there first.
    fn with_free_objects(&mut self, space: &impl Space) -> Option<SlabRef> {
        if self.partial == SlabRef::NONE && self.spare != SlabRef::NONE {
            let spare = mem::replace(&mut self.spare, SlabRef::NONE);
            link(space, &mut self.partial, spare);
        }
        Some(self.partial).filter(|slab| *slab != SlabRef::NONE)
    }
}

/// Returns the state with a chain put before the freelist.
fn freed(old: State, chain: Chain) -> State {
    assert!(chain.count <= old.in_use, "more objects freed than are out");
    old.then(chain.first, old.in_use - chain.count)
}

/// Follows a freelist: it must stay inside the frame and have each object once, none missing.
fn check_freelist(space: &impl Space, frame: u32, state: State) {
    let mut seen = [false; super::size_class::FRAME_GRANULES];
    let (mut object, mut count) = (state.freelist, 0);
    while object != Object::NONE {
        assert_eq!(object.frame(), frame, "the freelist leaves the slab");
        let granule = object.0 as usize % seen.len();
        assert!(!mem::replace(&mut seen[granule], true), "the freelist is a ring");
        count += 1;
        object = space.link(object);
    }
    assert_eq!(count, state.objects - state.in_use, "objects lost");
}

/// Puts a slab, which is on no list, at the head of `list`.
fn link(space: &impl Space, list: &mut SlabRef, slab: SlabRef) {
    debug_assert!(slab != SlabRef::NONE && *list != slab, "{slab:?} is on the list");
    if *list != SlabRef::NONE {
        space.slab(*list).set_prev(slab);
    }
    space.slab(slab).set_next(*list);
    space.slab(slab).set_prev(SlabRef::NONE);
    *list = slab;
}

/// Takes a slab off the list it is on.
fn unlink(space: &impl Space, list: &mut SlabRef, slab: SlabRef) {
    let (next, prev) = (space.slab(slab).next(), space.slab(slab).prev());
    debug_assert!(
        slab == if prev == SlabRef::NONE { *list } else { space.slab(prev).next() },
        "{slab:?} is not on the list"
    );
    if next != SlabRef::NONE {
        space.slab(next).set_prev(prev);
    }
    if prev == SlabRef::NONE {
        *list = next;
    } else {
        space.slab(prev).set_next(next);
    }
    space.slab(slab).set_next(SlabRef::NONE);
    space.slab(slab).set_prev(SlabRef::NONE);
}
