//! The risk: layouts compared by different work, or a model that loses objects. The method: every
//! plan on every layout, counted; and the words of each layout written and read back.

use proptest::prelude::*;

use super::layout::{Aside, Inline, Layout, NONE, Wide};
use super::*;
use crate::random::Random;

#[test]
fn every_plan_frees_what_it_allocates_on_every_layout() {
    for name in Plan::NAMES {
        let plan = Plan::named(name).unwrap();
        for descriptor in Descriptor::ALL {
            let mut passes = descriptor.prepare(&plan);
            passes.pass();
            passes.check();
        }
    }
}

#[test]
fn names_and_sizes_are_found_again() {
    assert!(Plan::named("none").is_none());
    assert!(Plan::SPREAD.iter().all(|name| Plan::NAMES.contains(name)));
    for descriptor in Descriptor::ALL {
        assert_eq!(Descriptor::of_bytes(descriptor.bytes()), Some(descriptor));
    }
    assert_eq!(Descriptor::of_bytes(7), None);
    assert_eq!(PAIRS_OF_REFERENCE % Plan::named("pair").unwrap().pairs(), 0);
}

/// Allocates and frees objects of a few sizes at random, against a list of the live objects.
fn objects_do_not_overlap<L: Layout>(seed: u64) {
    let sizes = [32, 256, 1024];
    let mut slabs = Slabs::<L>::new(&sizes);
    let mut random = Random::new(seed);
    let mut out: Vec<(u32, u32)> = Vec::new();
    for _ in 0..2000 {
        if random.below(5) < 3 {
            let cache = random.below(sizes.len());
            let start = slabs.alloc(cache);
            let end = start + (sizes[cache] / 16) as u32;
            assert!(out.iter().all(|other| end <= other.0 || other.1 <= start), "seed {seed}");
            out.push((start, end));
        } else if !out.is_empty() {
            let (start, _) = out.swap_remove(random.below(out.len()));
            slabs.free(start);
        }
    }
    out.into_iter().for_each(|(start, _)| slabs.free(start));
    slabs.check();
}

fn fields_are_apart<L: Layout>() {
    let mut layout = L::new(64);
    let records: Vec<u32> = (0..64).map(|frame| layout.open(frame, 1000 + frame)).collect();
    for (frame, record) in (0_u32..).zip(&records) {
        layout.set_next(*record, 2000 + frame);
        layout.set_prev(*record, NONE - frame);
        layout.set_pair(*record, (3000 + u64::from(frame), u64::MAX - u64::from(frame)));
    }
    for (frame, record) in (0_u32..).zip(&records) {
        assert_eq!(layout.find(frame), (*record, 1000 + frame));
        assert_eq!(layout.frame(*record), frame);
        assert_eq!((layout.next(*record), layout.prev(*record)), (2000 + frame, NONE - frame));
        let pair = (3000 + u64::from(frame), u64::MAX - u64::from(frame));
        assert_eq!(layout.pair(*record), pair);
    }
    layout.close(records[3]);
    assert_eq!(layout.find(4).0, records[4]);
}

#[test]
fn fields_do_not_share_words() {
    fields_are_apart::<Wide<8>>();
    fields_are_apart::<Wide<7>>();
    fields_are_apart::<Inline>();
    fields_are_apart::<Aside>();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn the_model_never_gives_an_object_twice(seed in any::<u64>()) {
        objects_do_not_overlap::<Wide<8>>(seed);
        objects_do_not_overlap::<Wide<7>>(seed);
        objects_do_not_overlap::<Inline>(seed);
        objects_do_not_overlap::<Aside>(seed);
    }
}
