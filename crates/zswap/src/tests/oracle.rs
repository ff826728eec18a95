//! The risk: any sequence of verbs that gives a wrong page. Random verbs run on a store and a map,
//! over both pools, all codecs and all backings, with the knobs changed in between. Proptest prints
//! the failing steps and its seed.

use coldpress_backing::{Fault, FaultyBacking};
use proptest::prelude::*;

use super::*;

/// One random verb. Numbers are reduced to what the verb takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Store {
        key: u64,
        seed: u64,
        noise: usize,
    },
    StoreRecords {
        key: u64,
        seed: u64,
    },
    StoreWord {
        key: u64,
        word: u64,
    },
    Load {
        key: u64,
    },
    /// A load that does not wait for the page.
    AskFor {
        key: u64,
    },
    Reap,
    Invalidate {
        key: u64,
    },
    InvalidateRange {
        key: u64,
        count: usize,
    },
    InvalidateArea {
        area: u16,
    },
    Rename {
        from: u64,
        to: u64,
    },
    Shrink {
        frames: usize,
    },
    StoreAnyhow {
        key: u64,
        seed: u64,
        noise: usize,
    },
    Knobs(Knobs),
    ShrinkToLimit,
    RenewWriteback,
    Trim {
        slots: u32,
    },
    Compact {
        bytes: usize,
    },
    Age {
        calls: usize,
    },
    /// The dictionary is outdated: another is made as soon as there is room for it.
    Outdate,
}

/// Makes random knobs; each is off its default now and then.
fn any_knobs() -> impl Strategy<Value = Knobs> {
    let mut codecs = CODECS.to_vec();
    codecs.push(CodecId::Zstd { level: -3 }.into());
    let often = || prop::bool::weighted(0.8);
    let limits = (0_usize..60, 0_usize..90, 50_u8..=100, 60_u8..=100, 1000_usize..=6000);
    let switches = (often(), often(), often(), often(), often());
    let limit = prop_oneof![
        2 => Just(None),
        1 => (0_usize..300_000).prop_map(|bytes| Some(Bytes(bytes))),
    ];
    (prop::sample::select(codecs), limits, switches, limit).prop_map(
        |(codec, (max, hard, accept, ratio, mean), switches, writeback_limit)| {
            let (enabled, keep_incompressible, same_filled, dense, writeback) = switches;
            Knobs {
                enabled,
                codec,
                max_pool: PageCount(max),
                hard_pool: PageCount(hard),
                accept_threshold_percent: accept,
                max_compression_ratio: ratio,
                keep_incompressible,
                max_mean_zsize: Bytes(mean.min(PAGE_BYTES)),
                same_filled,
                dense,
                writeback,
                writeback_limit,
            }
        },
    )
}

/// Makes random steps, most of which store.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (any::<u64>(), any::<u64>(), 0..PAGE_BYTES - 8)
            .prop_map(|(key, seed, noise)| Step::Store { key, seed, noise }),
        6 => (any::<u64>(), any::<u64>()).prop_map(|(key, seed)| Step::StoreRecords { key, seed }),
        2 => (0_usize..100).prop_map(|calls| Step::Age { calls }),
        2 => (any::<u64>(), 0_u64..3).prop_map(|(key, word)| Step::StoreWord { key, word }),
        4 => any::<u64>().prop_map(|key| Step::Load { key }),
        4 => any::<u64>().prop_map(|key| Step::AskFor { key }),
        1 => Just(Step::Reap),
        2 => any::<u64>().prop_map(|key| Step::Invalidate { key }),
        1 => (any::<u64>(), prop_oneof![0_usize..40, Just(usize::MAX)])
            .prop_map(|(key, count)| Step::InvalidateRange { key, count }),
        2 => (any::<u64>(), any::<u64>()).prop_map(|(from, to)| Step::Rename { from, to }),
        1 => (0_usize..30).prop_map(|frames| Step::Shrink { frames }),
        1 => any_knobs().prop_map(Step::Knobs),
        1 => Just(Step::ShrinkToLimit),
        1 => (any::<u64>(), any::<u64>(), 0..PAGE_BYTES - 8)
            .prop_map(|(key, seed, noise)| Step::StoreAnyhow { key, seed, noise }),
    ];
    let rare = prop_oneof![
        (0_u16..2).prop_map(|area| Step::InvalidateArea { area }),
        Just(Step::RenewWriteback),
        (0_u32..9).prop_map(|slots| Step::Trim { slots }),
        (0_usize..100_000).prop_map(|bytes| Step::Compact { bytes }),
        Just(Step::Outdate),
    ];
    prop::collection::vec(prop_oneof![99 => step, 1 => rare], 0..400)
}

/// Returns one of 160 keys: two areas, and offsets across the borders of leaves and roots.
pub(super) fn key(number: u64) -> Key {
    const STRETCHES: [u64; 4] = [0, 1014, (1 << 18) - 10, u64::MAX - 19];
    Key::new((number / 80 % 2) as u16, STRETCHES[(number / 20 % 4) as usize] + number % 20)
}

/// Performs one step on the store and the map.
pub(super) fn step<P: Pool>(world: &mut World<P>, step: Step) {
    match step {
        Step::Store { key: number, seed, noise } => {
            // A refusal is an answer; the map then keeps what it had, and so must the store.
            let result = world.store(key(number), &page(seed, noise));
            assert_allowed(&world.zswap.knobs(), result);
        }
        Step::StoreRecords { key: number, seed } => {
            let _ = world.store(key(number), &record_page(seed));
        }
        Step::Age { calls } => {
            let before = world.zswap.stats();
            let done = (0..calls).take_while(|_| world.zswap.recompress()).count();
            let after = world.zswap.stats();
            let saved =
                after.counters.recompressed_saved_bytes - before.counters.recompressed_saved_bytes;
            assert_eq!(after.pool_bytes + Bytes(saved as usize), before.pool_bytes);
            assert!(
                after.counters.recompressed_pages - before.counters.recompressed_pages
                    <= done as u64
            );
        }
        Step::Outdate => world.zswap.recompression.get_mut().is_outdated = true,
        Step::StoreWord { key: number, word } => {
            let result = world.store(key(number), &word_page(word));
            let knobs = world.zswap.knobs();
            assert_allowed(&knobs, result);
            assert_eq!(result == Ok(Stored::SameFilled), knobs.enabled && knobs.same_filled);
        }
        Step::StoreAnyhow { key: number, seed, noise } => {
            let page = page(seed, noise);
            match world.zswap.store_anyhow(key(number), &page) {
                Ok(_) => drop(world.pages.insert(key(number), page)),
                // Only the pool itself may refuse here.
                Err(error) => assert_eq!(error, StoreError::PoolFull),
            }
        }
        Step::Load { key: number } => {
            world.load(key(number));
        }
        Step::AskFor { key: number } => world.ask_for(key(number)),
        Step::Reap => {
            world.zswap.reap();
        }
        Step::Invalidate { key: number } => world.invalidate(key(number)),
        Step::InvalidateRange { key: number, count } => {
            let Key { area, offset } = key(number);
            let dropped = world.zswap.invalidate_range(area, offset, PageCount(count));
            let end = u128::from(offset.0) + count as u128;
            world.forget(dropped, |key| {
                key.area == area && key.offset >= offset && u128::from(key.offset.0) < end
            });
        }
        Step::InvalidateArea { area } => {
            let dropped = world.zswap.invalidate_area(Area(area));
            world.forget(dropped, |key| key.area == Area(area));
        }
        Step::Rename { from, to } => {
            let (from, to) = (key(from), key(to));
            assert_eq!(world.zswap.rename(from, to), Ok(world.pages.contains_key(&from)));
            if from != to {
                world.pages.remove(&to);
                let page = world.pages.remove(&from);
                page.map(|page| world.pages.insert(to, page));
            }
        }
        Step::Shrink { frames } => {
            let before = world.zswap.pool_frames();
            let freed = world.zswap.shrink(PageCount(frames));
            assert_eq!(world.zswap.pool_frames(), before.saturating_sub(freed));
            let is_done = freed >= PageCount(frames) || world.zswap.pool_frames() == PageCount(0);
            assert!(is_done || !world.zswap.writeback_possible());
        }
        Step::Trim { slots } => {
            assert!(world.zswap.trim_backing(SlotCount(slots)) <= SlotCount(slots));
        }
        Step::Compact { bytes } => {
            let before = world.zswap.pool_frames();
            let freed = world.zswap.compact(Bytes(bytes)).freed;
            // A pool may let go of frames that an earlier call emptied.
            assert!(world.zswap.pool_frames() + freed <= before);
        }
        Step::Knobs(knobs) => {
            world.zswap.set_knobs(knobs).unwrap();
            let hard_pool = knobs.hard_pool.max(knobs.max_pool);
            assert_eq!(world.zswap.knobs(), Knobs { hard_pool, ..knobs });
        }
        Step::ShrinkToLimit => world.zswap.shrink_to_limit(),
        Step::RenewWriteback => world.zswap.renew_writeback(),
    }
}

/// Expects an outcome that `knobs` allow.
fn assert_allowed(knobs: &Knobs, result: Result<Stored, StoreError>) {
    let allowed = match result {
        Err(StoreError::Disabled) => !knobs.enabled,
        _ if !knobs.enabled => false,
        Err(StoreError::Incompressible) => !knobs.keep_incompressible,
        Ok(Stored::Raw) => knobs.keep_incompressible,
        Err(StoreError::AboveMean) => knobs.max_mean_zsize < Bytes(PAGE_BYTES),
        Ok(Stored::SameFilled) => knobs.same_filled,
        Ok(Stored::Compressed(Bytes(length))) => {
            length * 100 / PAGE_BYTES <= knobs.max_compression_ratio.into()
        }
        Err(StoreError::PoolFull) => true,
        Err(StoreError::NoMemory) => false,
    };
    assert!(allowed, "{result:?} in spite of {knobs:?}");
}

/// Runs all steps and expects nothing to be left.
fn run<P: Pool>(mut world: World<P>, steps: &[Step]) {
    for (number, &one) in steps.iter().enumerate() {
        step(&mut world, one);
        if number % 16 == 0 {
            world.zswap.check();
        }
    }
    world.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn naive_pool_and_no_backing(steps in steps(), max in 0_usize..90, codec in 0..CODECS.len()) {
        let knobs = knobs(CODECS[codec], max, 90);
        run(World::new(knobs, Naive::new(80), None, Allowed::None), &steps);
    }

    #[test]
    fn naive_pool_and_memory(
        steps in steps(), max in 0_usize..60, slots in 0_u32..8, codec in 0..CODECS.len(),
    ) {
        let backing = Some(Box::new(in_memory(slots)) as Box<dyn Backing>);
        let knobs = knobs(CODECS[codec], max, 60);
        run(World::new(knobs, Naive::new(70), backing, Allowed::None), &steps);
    }

    #[test]
    fn zsmalloc_and_file(
        steps in steps(), max in 0_usize..120, frames in 20_usize..200, codec in 0..CODECS.len(),
    ) {
        with_zsmalloc(frames, |pool| {
            let backing = Some(Box::new(in_file(6)) as Box<dyn Backing>);
            let knobs = knobs(CODECS[codec], max, 120);
            run(World::new(knobs, pool, backing, Allowed::None), &steps);
        });
    }

    #[test]
    fn zsmalloc_and_faults_of_all_kinds(
        steps in steps(), at in 0_u64..40, count in 1_u64..20, codec in 0..CODECS.len(),
    ) {
        let kinds = [
            (Fault::Fail, Allowed::Backing),
            (Fault::Corrupt, Allowed::Corrupt),
            (Fault::Tear, Allowed::Corrupt),
            (Fault::Full, Allowed::None),
            (Fault::Delay, Allowed::None),
        ];
        for (fault, allowed) in kinds {
            with_zsmalloc(100, |pool| {
                let backing = FaultyBacking::new(in_memory(6), fault, at..at + count);
                let knobs = knobs(CODECS[codec], 20, 60);
                run(World::new(knobs, pool, Some(Box::new(backing)), allowed), &steps);
            });
        }
    }
}
