//! The plans: which objects are allocated and freed, and in which order.

use super::layout::Layout;
use super::model::{FRAMES, Slabs};
use crate::random::Random;

/// The number of pairs of alloc(32) and free in SLUB's double-word compare-and-swap mail: 16.8
/// million.
pub(crate) const PAIRS_OF_REFERENCE: usize = 1 << 24;
/// The sizes of the sweep, in bytes.
pub(crate) const SIZES: [usize; 7] = [16, 32, 64, 128, 256, 512, 1024];

/// The number of pairs of one size in a pass of a tight loop.
const TIGHT: usize = 1 << 16;
/// The number of frames that a cold pass fills with objects of one size.
const COLD_FRAMES: usize = 1024;
/// The number of caches in the plan with many caches.
const CACHES: usize = 512;
/// The number of live objects in each of these caches.
const ALIVE_IN_CACHE: usize = 16;
/// The bytes of the objects that spread over all frames.
const SPREAD_BYTES: usize = 256;

/// The order of allocations and frees.
#[derive(Clone, Debug)]
enum How {
    /// Each object is freed before the next one is allocated, `TIGHT` times for each cache.
    Tight,
    /// For each cache, objects fill `COLD_FRAMES` frames; then all are freed in the same order.
    Cold,
    /// Objects of all caches are alive and replaced in a random order.
    Replace(Vec<u32>),
    /// Objects fill all frames; then all are freed in the given order.
    Spread(Vec<u32>),
}

/// A plan: a row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    name: String,
    /// The object size of each cache.
    caches: Vec<usize>,
    how: How,
}

impl Plan {
    /// The plans whose misses are counted, by name.
    pub(crate) const NAMES: [&'static str; 6] =
        ["pair", "warm", "cold", "many-caches", "many-frames", "shuffled"];
    /// The plans that spread descriptors over more cache lines than the loop soon touches again.
    pub(crate) const SPREAD: [&'static str; 4] = ["cold", "many-caches", "many-frames", "shuffled"];

    /// Returns the plan of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all_objects = (FRAMES * objects_per_frame(SPREAD_BYTES)) as u32;
        let (caches, how) = match name {
            "pair" => (vec![32], How::Tight),
            "warm" => (SIZES.to_vec(), How::Tight),
            "cold" => (SIZES.to_vec(), How::Cold),
            "many-caches" => {
                let sizes = SIZES.iter().copied().cycle().take(CACHES).collect();
                let mut order: Vec<u32> = (0..(CACHES * ALIVE_IN_CACHE) as u32).collect();
                Random::new(1).shuffle(&mut order);
                (sizes, How::Replace(order))
            }
            "many-frames" => {
                // One object of each frame, frame by frame, then the next object of each frame.
                let step = objects_per_frame(SPREAD_BYTES);
                let order =
                    (0..step as u32).flat_map(|first| (first..all_objects).step_by(step)).collect();
                (vec![SPREAD_BYTES], How::Spread(order))
            }
            "shuffled" => {
                let mut order: Vec<u32> = (0..all_objects).collect();
                Random::new(2).shuffle(&mut order);
                (vec![SPREAD_BYTES], How::Spread(order))
            }
            _ => return None,
        };
        Some(Self { name: name.to_owned(), caches, how })
    }

    /// Returns the tight loop, or the cold pass, with one size of the sweep.
    pub(crate) fn sweep(bytes: usize, is_cold: bool) -> Self {
        let (name, how) = if is_cold { ("cold", How::Cold) } else { ("warm", How::Tight) };
        Self { name: format!("{name} {bytes} B"), caches: vec![bytes], how }
    }

    /// Returns the name of the plan.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of pairs of an allocation and a free in a pass.
    pub(crate) fn pairs(&self) -> usize {
        match &self.how {
            How::Tight => TIGHT * self.caches.len(),
            How::Cold => {
                self.caches.iter().map(|bytes| COLD_FRAMES * objects_per_frame(*bytes)).sum()
            }
            How::Replace(order) => 2 * order.len(),
            How::Spread(order) => order.len(),
        }
    }

    pub(super) fn caches(&self) -> &[usize] {
        &self.caches
    }

    #[inline(never)]
    pub(super) fn pass<L: Layout>(&self, slabs: &mut Slabs<L>) {
        match &self.how {
            How::Tight => {
                for cache in 0..self.caches.len() {
                    for _ in 0..TIGHT {
                        let object = slabs.alloc(cache);
                        slabs.free(object);
                    }
                }
            }
            How::Cold => {
                for (cache, bytes) in self.caches.iter().enumerate() {
                    let count = COLD_FRAMES * objects_per_frame(*bytes);
                    let objects: Vec<u32> = (0..count).map(|_| slabs.alloc(cache)).collect();
                    objects.into_iter().for_each(|object| slabs.free(object));
                }
            }
            How::Replace(order) => {
                let caches = self.caches.len();
                let mut objects: Vec<u32> =
                    (0..order.len()).map(|index| slabs.alloc(index % caches)).collect();
                for index in order {
                    let index = *index as usize;
                    slabs.free(objects[index]);
                    objects[index] = slabs.alloc(index % caches);
                }
                order.iter().for_each(|index| slabs.free(objects[*index as usize]));
            }
            How::Spread(order) => {
                let objects: Vec<u32> = order.iter().map(|_| slabs.alloc(0)).collect();
                order.iter().for_each(|index| slabs.free(objects[*index as usize]));
            }
        }
    }
}

const fn objects_per_frame(bytes: usize) -> usize {
    coldpress_sys::PAGE_BYTES / bytes
}
