//! The risk: a failure at one place that loses a page. The backing fails at operation N, or memory
//! for tables runs out at request N, for all N of a fixed sequence of verbs.

use coldpress_backing::{Fault, FaultyBacking};

use super::oracle::{Step, key, step};
use super::*;
use crate::error::Warning;
use crate::room::failing;

/// Takes the next warning for the user.
fn warning(world: &World<Naive>) -> Option<Warning> {
    world.zswap.base.warnings.lock().take()
}

/// Returns a fixed sequence that stores, loads, renames and drops, and writes much of it back.
fn sequence() -> Vec<Step> {
    let mut next = random(1);
    let mut steps = Vec::new();
    for _ in 0..150 {
        let (key, other) = (next(), next());
        let noise = other as usize % (PAGE_BYTES - 8);
        steps.push(match next() % 16 {
            0..10 => Step::Store { key, seed: other, noise },
            10..12 => Step::Load { key },
            12 => Step::AskFor { key },
            13 => Step::Invalidate { key },
            14 => Step::Rename { from: key, to: other },
            _ => Step::Shrink { frames: 3 },
        });
    }
    steps
}

/// Runs the sequence over `backing`, then loads the remaining pages twice and finishes the store.
/// Returns the operations of the backing, and the numbers of pages that could not be loaded the
/// first and the second time.
fn run(backing: Box<dyn Backing>, allowed: Allowed) -> (u64, usize, usize) {
    let knobs = knobs(CodecId::Lz4, 16, 40);
    let mut world = World::new(knobs, Naive::new(64), Some(backing), allowed);
    sequence().into_iter().for_each(|one| step(&mut world, one));
    let failed = (world.load_all(), world.load_all());
    let stats = world.zswap.stats();
    let counters = stats.counters;
    let written = counters.slots_discarded + u64::from(stats.slots_used);
    let read = counters.loaded_from_backing + counters.load_backing_fail + counters.load_corrupt;
    world.finish();
    (written + read, failed.0, failed.1)
}

#[test]
fn the_backing_fails_at_each_operation() {
    let (operations, failed, _) = run(Box::new(in_memory(8)), Allowed::None);
    assert!(operations > 40 && failed == 0, "the sequence must exercise the backing: {operations}");
    let mut seen_corrupt = 0;
    for n in 0..operations {
        for faulty in [n..n + 1, n..u64::MAX] {
            let with = |fault, allowed| {
                run(Box::new(FaultyBacking::new(in_memory(8), fault, faulty.clone())), allowed)
            };
            let (_, first, second) = with(Fault::Fail, Allowed::Backing);
            // A fault costs at most the one load it hit: no page is lost, and once the fault is
            // over no load fails.
            assert!((first + second) as u64 <= faulty.end - faulty.start);
            for fault in [Fault::Corrupt, Fault::Tear] {
                seen_corrupt += with(fault, Allowed::Corrupt).2;
            }
            // A full or a slow disk loses nothing, ever.
            assert_eq!(with(Fault::Full, Allowed::None).1, 0);
            assert_eq!(with(Fault::Delay, Allowed::None).1, 0);
        }
    }
    assert!(seen_corrupt > 0, "silent damage must be found");
}

#[test]
fn memory_fails_at_each_request() {
    // A first page, a page in another leaf, and one in another root.
    let keys = [Key::new(0, 0), Key::new(0, 5000), Key::new(1, 0)];
    for left in 0..20 {
        let mut world =
            World::new(knobs(CodecId::Lz4, 90, 90), Naive::new(90), None, Allowed::None);
        let mut refused = 0;
        failing::after(Some(left));
        for (number, key) in keys.into_iter().enumerate() {
            match world.store(key, &page(number as u64, 100)) {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error, StoreError::NoMemory);
                    refused += 1;
                    world.zswap.check();
                    // The object that was made for the page must be gone.
                    assert_eq!(world.zswap.pool().stats().objects, world.pages.len());
                }
            }
        }
        let renamed = world.zswap.rename(keys[0], Key::new(2, 7));
        match renamed {
            Ok(found) => {
                assert_eq!(found, world.pages.contains_key(&keys[0]));
                let page = world.pages.remove(&keys[0]);
                page.map(|page| world.pages.insert(Key::new(2, 7), page));
            }
            Err(error) => {
                assert_eq!(error, StoreError::NoMemory);
                refused += 1;
            }
        }
        failing::after(None);
        assert_eq!(world.zswap.counters().reject_kmemcache_fail, refused);
        assert!(refused > 0 || left > 8);
        world.finish();
    }
}

#[test]
fn memory_for_slots_and_buffers_may_be_missing() {
    failing::after(Some(0));
    assert_eq!(
        Zswap::new(knobs(CodecId::Lz4, 1, 1), Naive::new(1), None).err(),
        Some(NewError::NoMemory)
    );
    failing::after(None);
    let bad = knobs(CodecId::Zstd { level: 99 }, 1, 1);
    let error = Zswap::new(bad, Naive::new(1), None).err().unwrap();
    assert!(matches!(error, NewError::Codec(_)), "{error}");
}

#[test]
fn a_replaced_page_stays_when_its_successor_is_refused() {
    let mut world = World::new(knobs(CodecId::Lz4, 1, 1), Naive::new(1), None, Allowed::None);
    let old = page(1, 100);
    world.store(key(0), &old).unwrap();
    assert_eq!(world.store(key(0), &page(2, 4000)), Err(StoreError::PoolFull));
    assert_eq!(world.pages[&key(0)], old);
    assert_eq!(warning(&world), Some(Warning::PoolFull));
    world.finish();
}

#[test]
fn a_full_backing_is_tried_again_when_a_slot_is_given_back() {
    let backing = Some(Box::new(in_memory(1)) as Box<dyn Backing>);
    let mut world = World::new(knobs(CodecId::Lz4, 16, 64), Naive::new(64), backing, Allowed::None);
    // Raw pages: 16 fill the pool to its limit, and 15 fill the only slot.
    for number in 0..40 {
        assert_eq!(world.store(Key::new(0, number), &page(number, 4000)), Ok(Stored::Raw));
    }
    assert_eq!(warning(&world), Some(Warning::BackingFull));
    assert_eq!(warning(&world), None);
    assert!(!world.zswap.writeback_possible());
    assert_eq!(world.zswap.pool_frames(), PageCount(40 - RAW_IN_SLOT));
    // The oldest are the ones written back.
    for number in 0..RAW_IN_SLOT as u64 {
        let mut loaded = [0; PAGE_BYTES];
        let source = load(&world.zswap, Key::new(0, number), &mut loaded);
        assert_eq!(source, Ok(Loaded::FromBacking));
        world.invalidate(Key::new(0, number));
    }
    assert!(world.zswap.writeback_possible());
    assert_eq!(world.zswap.shrink(PageCount(1)), PageCount(RAW_IN_SLOT));
    world.finish();
}

#[test]
fn a_broken_backing_is_left_alone_for_a_while() {
    let broken = FaultyBacking::new(in_memory(8), Fault::Fail, 0..1);
    let knobs = knobs(CodecId::Lz4, 4, 64);
    let mut world = World::new(knobs, Naive::new(64), Some(Box::new(broken)), Allowed::None);
    for number in 0..20 {
        world.store(Key::new(0, number), &page(number, 4000)).unwrap();
    }
    let counters = world.zswap.counters();
    assert_eq!((counters.reject_flush_fail, counters.flushed_pages), (1, 0));
    let Some(Warning::BackingError(error)) = warning(&world) else { panic!("no warning") };
    assert_eq!(error.to_string(), "pwrite: EIO");
    assert!(!world.zswap.writeback_possible());
    while !world.zswap.writeback_possible() {
        world.zswap.shrink(PageCount(1));
    }
    assert_eq!(world.zswap.shrink(PageCount(1)), PageCount(RAW_IN_SLOT));
    assert_eq!(warning(&world), None);
    world.finish();
}

#[test]
fn damage_in_the_pool_is_found() {
    let mut world = World::new(knobs(CodecId::Lz4, 9, 9), Naive::new(9), None, Allowed::Corrupt);
    world.store(key(0), &page(1, 500)).unwrap();
    world.store(key(1), &page(2, 4000)).unwrap();
    assert_eq!(world.load_all(), 0);
    for object in world.zswap.pool().held().objects.values_mut() {
        object[7] ^= 1;
    }
    assert_eq!(world.load_all(), 2);
    world.finish();
}

#[test]
fn a_disk_without_room_is_tried_again_when_room_is_given_back() {
    let full = FaultyBacking::new(in_memory(8), Fault::Full, 1..2);
    let knobs = knobs(CodecId::Lz4, 64, 64);
    let mut world = World::new(knobs, Naive::new(64), Some(Box::new(full)), Allowed::None);
    for number in 0..40 {
        world.store(Key::new(0, number), &page(number, 4000)).unwrap();
    }
    assert_eq!(world.zswap.shrink(PageCount(32)), PageCount(RAW_IN_SLOT));
    assert_eq!(warning(&world), Some(Warning::BackingFull));
    assert!(!world.zswap.writeback_possible());
    for number in 0..RAW_IN_SLOT as u64 {
        world.invalidate(Key::new(0, number));
    }
    assert!(world.zswap.writeback_possible());
    assert_eq!(world.zswap.shrink(PageCount(1)), PageCount(RAW_IN_SLOT));
    world.finish();
}
