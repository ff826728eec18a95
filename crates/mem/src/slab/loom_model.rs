//! The risk: objects are lost or handed out twice, or a slab is on the wrong list, when frees
//! without the lock meet frees and allocations with it, in some order of their steps.
//!
//! The code under test is the heap's; only the memory is modelled: slabs and links are arrays.

#[path = "cache.rs"]
#[expect(dead_code, reason = "the models use a part")]
mod cache;
#[path = "descriptor.rs"]
#[expect(dead_code, reason = "the models use a part")]
mod descriptor;
#[path = "size_class.rs"]
mod size_class;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use cache::{Cache, Space};
use descriptor::{Chain, Object, Slab, SlabRef, State};
use size_class::FRAME_GRANULES;

/// Objects in each of two slabs, in frames 1 and 2.
const OBJECTS: u32 = 3;

struct Model {
    cache: Cache,
    slabs: [Slab; 2],
    /// The first bytes of each object. The checker notices when two threads reach them at once.
    links: [[UnsafeCell<u32>; OBJECTS as usize]; 2],
}

// SAFETY: the cells are the only part that is not `Sync` by itself, and the checker guards them.
unsafe impl Sync for Model {}

fn object(frame: u32, index: u32) -> Object {
    Object(frame * FRAME_GRANULES as u32 + index)
}

impl Space for Model {
    fn slab(&self, slab: SlabRef) -> &Slab {
        &self.slabs[slab.0 as usize - 1]
    }

    fn link(&self, object: Object) -> Object {
        // SAFETY: the checker fails the test when this is not the only access.
        self.place(object).with(|link| Object(unsafe { *link }))
    }

    fn set_link(&self, object: Object, next: Object) {
        // SAFETY: as in `link`: the checker watches the access.
        self.place(object).with_mut(|link| unsafe { *link = next.0 });
    }
}

impl Model {
    /// Makes two slabs with all objects out, except for the first `free` of the first slab.
    fn new(free: u32) -> Arc<Self> {
        let links = || core::array::from_fn(|_| UnsafeCell::new(0));
        let head = if free == 0 { Object::NONE } else { object(1, 0) };
        let state = State::new(head, (OBJECTS - free) as u16, OBJECTS as u16);
        let full = State::new(Object::NONE, OBJECTS as u16, OBJECTS as u16);
        let model = Self {
            cache: Cache::new(),
            slabs: [Slab::new(1, 0, state), Slab::new(2, 0, full)],
            links: [links(), links()],
        };
        for index in 1..free {
            model.set_link(object(1, index - 1), object(1, index));
        }
        model.cache.adopt(&model, SlabRef(1));
        model.cache.adopt(&model, SlabRef(2));
        Arc::new(model)
    }

    fn place(&self, object: Object) -> &UnsafeCell<u32> {
        &self.links[object.frame() as usize - 1][object.0 as usize % FRAME_GRANULES]
    }

    fn free(&self, object: Object) -> Option<SlabRef> {
        let chain = Chain { first: object, last: object, count: 1 };
        self.cache.give_back(self, SlabRef(object.frame()), chain)
    }

    /// Takes what a refill takes, in order of names.
    fn take(&self) -> Vec<u32> {
        let mut taken = Vec::new();
        if let Some((mut object, count)) = self.cache.take_chain(self) {
            for _ in 0..count {
                taken.push(object.0);
                object = self.link(object);
            }
        }
        taken
    }

    /// Checks the lists, takes all free objects, and compares them with the expected ones.
    fn expect_free(&self, taken: impl IntoIterator<Item = u32>, mut expected: Vec<u32>) {
        self.cache.check(self);
        let mut free: Vec<_> = taken.into_iter().collect();
        loop {
            let more = self.take();
            if more.is_empty() {
                break;
            }
            free.extend(more);
        }
        self.cache.check(self);
        free.sort_unstable();
        expected.sort_unstable();
        assert_eq!(free, expected, "lost or doubled");
    }
}

fn check(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(scenario);
}

#[test]
fn two_slow_frees_meet_a_refill() {
    for free in 0..2 {
        check(move || {
            let model = Model::new(free);
            let free_one = |index| {
                let model = Arc::clone(&model);
                thread::spawn(move || assert!(model.free(object(1, index)).is_none()))
            };
            // With one object free from the start, the slab may become empty and then be the spare
            // one.
            let threads = [free_one(1), free_one(2)];
            let taken = model.take();
            for thread in threads {
                thread.join().unwrap();
            }
            let free = (0..free).chain([1, 2]).map(|index| object(1, index).0).collect();
            model.expect_free(taken, free);
        });
    }
}

#[test]
fn two_slow_frees_meet_a_single_allocation() {
    check(|| {
        let model = Model::new(1);
        let free_one = |index| {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                let _ = model.free(object(1, index));
            })
        };
        let threads = [free_one(1), free_one(2)];
        let taken = model.cache.take_one(&*model).map(|object| object.0);
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(taken.is_some(), "the slab had a free object all the time");
        let all = (0..OBJECTS).map(|index| object(1, index).0).collect();
        model.expect_free(taken, all);
    });
}

#[test]
fn the_last_frees_of_two_slabs_leave_one_spare_and_one_to_discard() {
    check(|| {
        let model = Model::new(2);
        // The second slab gets two of its objects back as one chain.
        let (first, last) = (object(2, 0), object(2, 1));
        model.set_link(first, last);
        let threads = [
            {
                let model = Arc::clone(&model);
                thread::spawn(move || model.free(object(1, 2)))
            },
            {
                let model = Arc::clone(&model);
                thread::spawn(move || {
                    let chain = Chain { first, last, count: 2 };
                    model.cache.give_back(&*model, SlabRef(2), chain)
                })
            },
        ];
        let last = model.free(object(2, 2));
        let discarded: Vec<_> =
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).chain(last).collect();
        assert_eq!(discarded.len(), 1, "one of two empty slabs is kept");
        let kept = 3 - discarded[0].0;
        model.expect_free([], (0..OBJECTS).map(|index| object(kept, index).0).collect());
    });
}
