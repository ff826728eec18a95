//! The risk: a backing store that sees bytes of a page in the clear, or the same bytes twice, or
//! whose changed or swapped bytes are accepted.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use coldpress_backing::{BackingError, EndedRequest, Request, Way};

use super::*;

/// The slots of a store, which a test may read and change behind the store's back.
type Slots = Arc<Mutex<BTreeMap<SlotId, Vec<u8>>>>;

/// All bytes that were ever passed to be written.
type Seen = Arc<Mutex<Vec<Vec<u8>>>>;

/// A backing of eight slots on an open table; each write whose number is in `refused` fails.
struct Open {
    slots: Slots,
    ended: Vec<EndedRequest>,
    writes: u64,
    refused: Range<u64>,
    seen: Seen,
}

impl Backing for Open {
    fn slots_max(&self) -> SlotCount {
        SlotCount(8)
    }

    fn begin(&mut self, mut request: Request) {
        let bytes = &mut request.buffer[..request.length.0];
        let mut slots = self.slots.lock().unwrap();
        let mut result = Ok(());
        match request.way {
            Way::Write => {
                self.seen.lock().unwrap().push(bytes.to_vec());
                slots.insert(request.slot, bytes.to_vec());
                if self.refused.contains(&self.writes) {
                    result = Err(BackingError::Full);
                }
                self.writes += 1;
            }
            Way::Read => {
                let wanted = request.offset.0..request.offset.0 + bytes.len();
                bytes.copy_from_slice(&slots[&request.slot][wanted]);
            }
        }
        drop(slots);
        self.ended.push(EndedRequest { request, result });
    }

    fn ended(&mut self) -> Option<EndedRequest> {
        self.ended.pop()
    }

    fn wait(&mut self) {}

    fn discard(&mut self, _: SlotId) {}
}

/// Makes a store of 64 frames over an open table. Returns also the table, and what was written.
fn open_world(refused: Range<u64>, allowed: Allowed) -> (World<Naive>, Slots, Seen) {
    let (slots, seen) = (Slots::default(), Seen::default());
    let backing = Open {
        slots: slots.clone(),
        ended: Vec::new(),
        writes: 0,
        refused,
        seen: Arc::clone(&seen),
    };
    let knobs = knobs(CodecId::Lz4, 64, 64);
    let world = World::new(knobs, Naive::new(64), Some(Box::new(backing)), allowed);
    (world, slots, seen)
}

fn key(number: u64) -> Key {
    Key::new(0, number)
}

/// Returns some bytes of each object of the pool: from its beginning, its middle and its end.
fn samples(pool: &Naive) -> HashSet<Vec<u8>> {
    let of = |object: &Vec<u8>| {
        let last = object.len() - 16;
        [0, last / 2, last].map(|at| object[at..at + 16].to_vec())
    };
    pool.held().objects.values().flat_map(of).collect()
}

#[test]
fn nothing_of_a_page_can_be_read_behind_the_store() {
    let (mut world, _, seen) = open_world(0..0, Allowed::None);
    for number in 0..20 {
        // Half of the pages are compressible.
        world.store(key(number), &page(number, 1000 + 3000 * (number as usize % 2))).unwrap();
    }
    let plain = samples(world.zswap.pool());
    assert!(plain.len() >= 40);
    let found = |bytes: &[u8]| bytes.windows(16).filter(|&piece| plain.contains(piece)).count();
    // The bytes that would be written if they were not sealed.
    let objects: Vec<u8> = world.zswap.pool().held().objects.values().flatten().copied().collect();
    assert!(found(&objects) >= plain.len(), "the search finds nothing");
    world.zswap.shrink(PageCount(64));
    assert_eq!(world.zswap.counters().flushed_pages, 20);
    for batch in &*seen.lock().unwrap() {
        assert_eq!(found(batch), 0, "a page as it was");
    }
    world.finish();
}

/// Seals the same page again and again, in one batch or many, also where a write failed: the bytes
/// differ each time, and a nonce used twice would give the same bytes.
#[test]
fn no_write_is_like_another() {
    let (mut world, _, seen) = open_world(0..2, Allowed::None);
    let same = page(1, 4000);
    world.store(key(0), &same).unwrap();
    for _ in 0..4 {
        world.zswap.base.disk.as_mut().unwrap().transfers.get_mut().skip = 0;
        world.zswap.shrink(PageCount(1));
    }
    for _ in 0..4 {
        world.store(key(0), &same).unwrap();
        world.zswap.shrink(PageCount(1));
    }
    for number in 1..4 {
        world.store(key(number), &same).unwrap();
    }
    world.zswap.shrink(PageCount(3));
    let seen = seen.lock().unwrap();
    // Two writes that failed, one that went well, four of a new page, one of three pages.
    assert_eq!(seen.len(), 8);
    let mut blocks = HashSet::new();
    for written in &*seen {
        assert_eq!(written.len() % sealed_length(PAGE_BYTES as u16).0, 0);
        assert!(written.chunks(16).all(|block| blocks.insert(block)), "a nonce was used twice");
    }
    assert_eq!(blocks.len(), 10 * 257);
    drop(seen);
    world.finish();
}

/// Checks that every byte of a slot matters, the tag's too, and so do slot, offset and time.
#[test]
fn whatever_is_changed_on_the_disk_is_found() {
    let (mut world, slots, seen) = open_world(0..0, Allowed::Corrupt);
    for number in 0..2 {
        world.store(key(number), &page(number, 300)).unwrap();
        world.zswap.shrink(PageCount(1));
    }
    assert_eq!(world.load_all(), 0);
    let intact = slots.lock().unwrap().clone();
    let [one, two] = [SlotId(0), SlotId(1)].map(|slot| intact[&slot].clone());
    for bit in 0..one.len() * 8 {
        slots.lock().unwrap().get_mut(&SlotId(0)).unwrap()[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(world.load(key(0)), Some(LoadError::Corrupt), "bit {bit}");
        *slots.lock().unwrap() = intact.clone();
    }
    let put = |slot, bytes: &[u8]| slots.lock().unwrap().insert(SlotId(slot), bytes.to_vec());
    let length = one.len().min(two.len());
    put(0, &[&two[..length], &one[length..]].concat());
    assert_eq!(world.load(key(0)), Some(LoadError::Corrupt), "another slot's bytes");
    put(0, &one);
    assert_eq!(world.load_all(), 0);
    // The page is stored again and written to the same slot: the bytes there before are void.
    world.invalidate(key(0));
    world.store(key(0), &page(0, 300)).unwrap();
    world.zswap.shrink(PageCount(1));
    assert_eq!(world.load_all(), 0);
    let now = slots.lock().unwrap()[&SlotId(0)].clone();
    assert!(now.len() == one.len() && now != one && seen.lock().unwrap().len() == 3);
    put(0, &one);
    assert_eq!(world.load(key(0)), Some(LoadError::Corrupt), "what lay there before");
    put(0, &now);
    world.finish();
}
