//! What lies on disk: sealed objects that somebody may have changed, and the table of slots.
//!
//! A seal opens where it was made, with every byte as it was; anything else is found, and the bytes
//! stay as they are. The table of slots is compared with a map.
#![no_main]

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::num::NonZeroU16;

use coldpress_backing::{SlotCount, SlotId, Slots};
use coldpress_zswap::seal::{Sealer, TAG_BYTES};

/// Slots enough to fill a part of a table, and few enough to be all taken.
const SLOTS: u32 = 64;

thread_local! {
    static SEALER: OnceCell<Sealer> = const { OnceCell::new() };
}

/// Seals the bytes, changes one bit, or the place, and opens.
fn seal(place: [u8; 4], object: &[u8]) {
    let [batch, offset, what, by] = place;
    SEALER.with(|sealer| {
        let sealer = sealer.get_or_init(|| Sealer::random().expect("the kernel has keys"));
        let (own, offset) = (sealer.next_batch(), u16::from(offset));
        let mut sealed = vec![0; object.len() + TAG_BYTES];
        sealer.seal(own, offset, object, &mut sealed);
        let mut changed = sealed.clone();
        let at = usize::from(what) % changed.len();
        changed[at] ^= by;
        let (asked_batch, asked_offset) = match batch % 4 {
            0 => (own + 1, offset),
            1 => (own, offset ^ 1),
            _ => (own, offset),
        };
        let is_same = by == 0 && (asked_batch, asked_offset) == (own, offset);
        let before = changed.clone();
        let opened = sealer.open(asked_batch, asked_offset, &mut changed).map(<[u8]>::to_vec);
        match opened {
            Ok(opened) => assert!(is_same && opened == object, "a seal opened that is another"),
            Err(_) => assert!(!is_same && changed == before, "a seal did not open, or spoilt"),
        }
    });
    // What nobody sealed.
    let mut bytes = object.to_vec();
    SEALER.with(|sealer| {
        assert!(sealer.get().is_none_or(|sealer| sealer.open(1, 0, &mut bytes).is_err()));
    });
}

/// Takes slots and leaves them.
fn slots(steps: &[u8]) {
    let mut table = Slots::new(SlotCount(SLOTS));
    let mut users: BTreeMap<u32, (u16, u64)> = BTreeMap::new();
    for (stamp, step) in steps.iter().enumerate() {
        let stamp = stamp as u64;
        if step & 1 == 0 {
            let count = NonZeroU16::new(u16::from(step >> 1) % 3 + 1).expect("one at least");
            let free = (0..SLOTS).find(|slot| !users.contains_key(slot));
            assert_eq!(table.take(count, stamp), free.map(SlotId));
            if let Some(slot) = free {
                users.insert(slot, (count.get(), stamp));
            }
        } else {
            let slot = u32::from(step >> 1) % SLOTS;
            let Some((count, _)) = users.get_mut(&slot) else { continue };
            *count -= 1;
            let is_free = *count == 0;
            assert_eq!(table.leave(SlotId(slot)), is_free);
            if is_free {
                users.remove(&slot);
            }
        }
        assert_eq!(table.used(), SlotCount(users.len() as u32));
        assert_eq!(table.is_full(), users.len() as u32 == SLOTS);
        for slot in 0..SLOTS {
            let (count, stamp) = users.get(&slot).copied().unwrap_or_default();
            assert_eq!(table.users(SlotId(slot)), count);
            assert!(count == 0 || table.stamp(SlotId(slot)) == stamp);
        }
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match bytes.split_first_chunk() {
        Some((place, object)) if place[0] & 128 == 0 => seal(*place, object),
        _ => slots(bytes),
    }
});
