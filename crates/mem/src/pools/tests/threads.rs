//! The risk: another thread's work spoils or loses a page, or moves it under its reader; and
//! threads wait for each other for ever.
//!
//! Each thread is the oracle of its own objects: a list of what it wrote. Objects change hands, and
//! some are read by all, while one more thread only moves objects.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use coldpress_sys::page::BLOCK_BYTES;

use super::*;

const THREADS: u32 = 3;
const STEPS: usize = many(1000);

/// An object, and the seed of its contents.
#[derive(Clone, Copy)]
struct Object {
    handle: Handle,
    seed: u32,
    size: Bytes,
}

/// The state that all threads share.
struct World<'w, 'f, K: Kind> {
    pool: &'w K::Pool<'f>,
    frames: &'f FrameAllocator,
    /// Objects without an owner: a thread that takes one owns it.
    given: Mutex<Vec<Object>>,
    /// Objects that all threads read and none frees.
    common: Vec<Object>,
    working: AtomicUsize,
}

/// A generator of pseudo-random numbers (Numerical Recipes, section 7.1).
struct Random(u32);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as usize % end
    }
}

fn store(pool: &impl Pool, random: &mut Random) -> Option<Object> {
    // Most objects are small, so that many share a frame.
    let size = [60, 200, 700, 4096][random.below(4)];
    let size = Bytes(1 + random.below(size));
    let handle = pool.alloc(size).ok()?;
    let object = Object { handle, seed: random.0, size };
    pool.write(handle, &contents(object.seed, size)).unwrap();
    Some(object)
}

fn verify(pool: &impl Pool, object: Object, seed: u32) {
    assert_eq!(pool.size(object.handle), Ok(object.size), "seed {seed}");
    let expected = contents(object.seed, object.size);
    let is_same = pool.read(object.handle, |bytes| bytes == expected);
    assert!(is_same.unwrap(), "seed {seed}: {:?} changed", object.handle);
}

/// Stores, reads, writes, frees, gives away and takes; returns the objects it still has.
fn work<K: Kind>(world: &World<'_, '_, K>, seed: u32) -> Vec<Object> {
    let (mut held, mut random) = (Vec::new(), Random(seed));
    for _ in 0..STEPS {
        if held.is_empty() || random.below(400) > held.len() {
            held.extend(store(world.pool, &mut random));
        }
        let which = random.below(held.len().max(1));
        let Some(object) = held.get_mut(which) else { continue };
        verify(world.pool, *object, seed);
        match random.below(6) {
            0 | 1 => {
                world.pool.free(object.handle).unwrap();
                held.swap_remove(which);
            }
            2 => {
                object.seed = random.0;
                world.pool.write(object.handle, &contents(object.seed, object.size)).unwrap();
            }
            3 => {
                let mut given = world.given.lock().unwrap();
                given.push(held.swap_remove(which));
                let other = random.below(given.len());
                held.push(given.swap_remove(other));
            }
            _ => verify(world.pool, world.common[random.below(world.common.len())], seed),
        }
    }
    // Relaxed: the joining of the threads orders everything.
    world.working.fetch_sub(1, Ordering::Relaxed);
    held
}

/// Moves objects and frames until the others are done.
fn stir<K: Kind>(world: &World<'_, '_, K>, seed: u32) {
    let mut random = Random(seed);
    // Relaxed, as above.
    while world.working.load(Ordering::Relaxed) > 0 {
        match random.below(8) {
            0 => {
                let online = world.frames.online().0.saturating_sub(BLOCK_BYTES);
                world.pool.shrink_frames(Bytes(online));
            }
            1 => drop(world.frames.grow(Bytes(BLOCK_BYTES))),
            2 => {
                let stats = world.pool.stats();
                assert!(stats.objects >= world.common.len(), "seed {seed}: {stats:?}");
            }
            3 => world.pool.classes(&mut |class| {
                assert!(class.obj_used <= class.obj_allocated, "seed {seed}: {class:?}");
            }),
            _ => drop(world.pool.compact(Bytes(random.below(40_000)))),
        }
    }
}

/// Runs several threads in one pool; afterwards every object is there, and all can go.
pub(super) fn several_threads<K: Kind>() {
    let mut migrations = 0;
    for seed in (1..=many(3) as u32).map(|turn| turn * 1000) {
        let frames = room_for::<K>();
        let mut pool = K::make(&frames);
        let mut random = Random(seed);
        let common = (0..many(50)).map(|_| store(&pool, &mut random).unwrap()).collect();
        let working = AtomicUsize::new(THREADS as usize);
        let world =
            World::<K> { pool: &pool, frames: &frames, given: Mutex::default(), common, working };
        let held: Vec<Object> = std::thread::scope(|scope| {
            let workers: Vec<_> = (1..=THREADS)
                .map(|number| {
                    let world = &world;
                    scope.spawn(move || work(world, seed + number))
                })
                .collect();
            stir(&world, seed);
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        let World { given, common, .. } = world;
        let left = [held, given.into_inner().unwrap(), common].concat();
        pool.check();
        frames.check();
        assert_eq!(pool.stats().objects, left.len(), "seed {seed}");
        for object in left {
            verify(&pool, object, seed);
            pool.free(object.handle).unwrap();
        }
        pool.check();
        assert_eq!(frames.frames_used(), PageCount(0), "seed {seed}");
        migrations += frames.stats().zone(Mobility::EasyReclaim).migrations;
    }
    // The number depends on the scheduler; `moving_frames` expects that frames move at all.
    assert!(K::MOVES || migrations == 0);
}

/// Stores, moves and frees objects all around one that is being read.
pub(super) fn reading<K: Kind>() {
    let frames = room_for::<K>();
    let mut pair = with_holes::<K>(&frames, many(1000));
    for which in (0..pair.held.len()).step_by(30) {
        let (handle, _) = pair.held[which];
        let expected = pair.pool.read(handle, <[u8]>::to_vec).unwrap();
        let stir = |bytes: &[u8]| {
            for budget in [1, 3000, usize::MAX] {
                pair.pool.compact(Bytes(budget));
            }
            pair.pool.shrink_frames(Bytes(frames.online().0 - BLOCK_BYTES));
            // New objects overwrite the freed memory.
            let new = (0..).map_while(|size| pair.pool.alloc(Bytes(size * 19 % 4096 + 1)).ok());
            let new: Vec<_> = new.take(if cfg!(miri) { 20 } else { usize::MAX }).collect();
            for handle in &new {
                let size = pair.pool.size(*handle).unwrap().0;
                pair.pool.write(*handle, &vec![0xee; size]).unwrap();
            }
            assert!(bytes == expected, "{handle:?} changed under its reader");
            new.into_iter().for_each(|handle| pair.pool.free(handle).unwrap());
        };
        pair.pool.read(handle, stir).unwrap();
        let _ = frames.grow(Bytes(BLOCK_BYTES));
        pair.check();
    }
    // Objects that were in use can be moved again.
    let limit = 10_000;
    let ended = (0..limit).any(|_| pair.pool.compact(Bytes(usize::MAX)) == Compacted::default());
    assert!(ended, "compaction goes on for ever");
    pair.check();
    pair.finish();
}
