//! The risk: a table of whole blocks that counts frames lost or handed out twice. The method: small
//! replays on an allocator that checks itself, with every frame counted at the end.

use std::collections::HashSet;
use std::sync::Mutex;

use coldpress_mem::frames::trace::ID_MAX;
use proptest::prelude::*;

use super::*;
use crate::frames::Migrate;
use crate::frames::generate::Model;
use crate::frames::naive::NaiveFrames;
use crate::ours;

fn mix() -> Mix {
    let model = Model { phases: 2, ..Model::new(500) };
    let traces: Vec<Trace> = (0..7).map(|seed| model.trace(seed)).collect();
    Mix::new(&traces.iter().collect::<Vec<_>>(), 1)
}

fn course(mix: &Mix, has_core: bool, moving: bool) -> Course {
    let (blocks, core) = mix.blocks();
    let source = ours::zones(blocks, has_core.then_some(core)).unwrap();
    Replay::new(mix, &*source).course(mix, moving)
}

/// An allocator that checks every call to another allocator.
struct Watched {
    inner: NaiveFrames,
    out: Mutex<HashSet<u32>>,
}

impl FrameSource for Watched {
    fn alloc(&self, mobility: Mobility, order: u8) -> Option<u32> {
        let chunk = self.inner.alloc(mobility, order)?;
        let mut out = self.out.lock().unwrap();
        assert!((chunk..chunk + (1 << order)).all(|frame| out.insert(frame)), "handed out twice");
        Some(chunk)
    }

    unsafe fn free(&self, chunk: u32, order: u8) {
        let mut out = self.out.lock().unwrap();
        assert!((chunk..chunk + (1 << order)).all(|frame| out.remove(&frame)), "not handed out");
        // SAFETY: the caller keeps the promise of the trait, which the set has just confirmed.
        unsafe { self.inner.free(chunk, order) };
    }

    unsafe fn set_owner(&self, frame: u32, owner: u32) {
        // SAFETY: the caller keeps the promise of `FrameSource::set_owner`.
        unsafe { self.inner.set_owner(frame, owner) };
    }

    fn drain(&self) {}

    unsafe fn compact(&self, migrate: &mut Migrate<'_>) {
        let mut watched = |from, to, owner| {
            let moved = migrate(from, to, owner);
            let mut out = self.out.lock().unwrap();
            assert!(!moved || (out.remove(&from) && out.insert(to)));
            moved
        };
        // SAFETY: the caller's `migrate` is called for every owner, as the trait promises.
        unsafe { self.inner.compact(&mut watched) };
    }

    fn free_frames(&self) -> usize {
        self.inner.free_frames()
    }

    fn check(&self) {
        self.inner.check();
    }
}

#[test]
fn the_mix_holds_every_event_of_every_trace_in_its_order() {
    let traces: Vec<Trace> = (0..3).map(|seed| Model::new(100).trace(seed)).collect();
    let mix = Mix::new(&traces.iter().collect::<Vec<_>>(), 9);
    let length: usize = traces.iter().map(|trace| trace.events().len()).sum();
    assert_eq!(mix.events().len(), length);
    // The ids differ; the rest is the next event of one of the traces.
    let alone = Mix::new(&[&traces[0]], 1);
    let plain = |event: &Event| match *event {
        Event::Alloc { order, mobility, .. } => (order, Some(mobility)),
        Event::Free { order, .. } => (order, None),
    };
    assert!(alone.events().iter().map(plain).eq(traces[0].events().iter().map(plain)));
    assert!(Trace::new(mix.events().to_vec()).is_ok());
}

#[test]
fn equal_seeds_give_equal_counts() {
    for has_core in [false, true] {
        for moving in [false, true] {
            assert_eq!(course(&mix(), has_core, moving), course(&mix(), has_core, moving));
        }
    }
}

#[test]
fn two_zones_keep_what_one_zone_breaks() {
    let mix = mix();
    let (one, two) = (course(&mix, false, true), course(&mix, true, true));
    assert_eq!((one.refused, two.refused), (0, 0));
    assert!(two.before.blocks > one.before.blocks, "{one:?} {two:?}");
    assert!(two.after.blocks >= one.after.blocks, "{one:?} {two:?}");
    for asked in [one.during, one.before, one.after, two.during, two.before, two.after] {
        assert!(asked.blocks * BLOCK_FRAMES <= asked.free, "{asked:?}");
    }
}

#[test]
fn no_frame_is_lost_or_given_twice() {
    let mix = mix();
    let (blocks, core) = mix.blocks();
    for core in [None, Some(core)] {
        let inner = NaiveFrames::new(blocks, core);
        let watched = Watched { inner, out: Mutex::default() };
        Replay::new(&mix, &watched).course(&mix, true);
        assert!(watched.out.lock().unwrap().is_empty());
    }
}

#[test]
fn what_is_not_to_be_had_is_counted_and_left_out() {
    let mix = mix();
    let source = NaiveFrames::new(3, Some(1));
    let course = Replay::new(&mix, &source).course(&mix, false);
    assert!(course.refused > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_trace_of_any_orders_is_replayed(
        chunks in prop::collection::vec((0..50_u32, 0..=BLOCK_ORDER, any::<bool>()), 0..300),
        moving in any::<bool>(),
    ) {
        let mut orders = HashMap::new();
        let events = chunks.into_iter().map(|(id, order, is_core)| match orders.remove(&id) {
            Some(order) => Event::Free { id, order },
            None => {
                orders.insert(id, order);
                let mobility = if is_core { Mobility::Core } else { Mobility::EasyReclaim };
                Event::Alloc { id: id.min(ID_MAX), order, mobility }
            }
        });
        let trace = Trace::new(events.collect()).unwrap();
        let mix = Mix::new(&[&trace, &trace], 5);
        for has_core in [false, true] {
            course(&mix, has_core, moving);
        }
    }
}
