//! The risk: a backing that gives back other bytes than were written, or that lets the fault of one
//! slot reach another. Every backing runs the same random writes, reads and discards beside a map
//! of what each slot must hold; faulty ones may answer with errors, but only in their faulty range.

use std::collections::HashMap;

use coldpress_sys::file::SpillFile;
use proptest::prelude::*;
use rustix::fs::{Mode, OFlags};

use super::*;

/// Slots of the stores under test.
const SLOTS: u32 = 8;

/// One step: a verb, a slot, a seed and a length.
type Step = (u8, u32, u8, usize);

/// Random steps.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0_u8..6, 0..SLOTS, any::<u8>(), 1..=SLOT_BYTES.0), 1..60)
}

/// Bytes that differ from one write to the next.
fn bytes_of(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(seed | 1).wrapping_add((at >> 8) as u8)).collect()
}

/// Runs `steps`. `is_sound(operation)` says whether the operation of that number must work.
fn agrees(backing: &mut dyn Backing, steps: &[Step], is_sound: impl Fn(u64) -> bool) {
    let mut expected = HashMap::<u32, Vec<u8>>::new();
    let mut operation = 0;
    for &(verb, slot, seed, length) in steps {
        let id = SlotId(slot);
        match verb {
            0 | 1 => {
                let bytes = bytes_of(seed, length);
                let result = backing.write(id, &bytes);
                expected.remove(&slot);
                if is_sound(operation) {
                    assert_eq!(result, Ok(()));
                    expected.insert(slot, bytes);
                }
                operation += 1;
            }
            2 | 3 => {
                let Some(bytes) = expected.get(&slot) else { continue };
                let offset = seed as usize * bytes.len() / 256;
                let length = length.min(bytes.len() - offset);
                let mut out = vec![0xEE; length];
                let result = backing.read(id, Bytes(offset), &mut out);
                if is_sound(operation) {
                    assert_eq!(result, Ok(()));
                    assert_eq!(out, bytes[offset..offset + length]);
                }
                operation += 1;
            }
            4 => {
                backing.discard(id);
                expected.remove(&slot);
            }
            _ => assert!(backing.trim(SlotCount(slot)) <= SlotCount(slot)),
        }
    }
    assert_eq!(backing.slots_max(), SlotCount(SLOTS));
}

/// Ranges outside the store are refused before anything is done.
fn refuses_what_is_outside(backing: &mut dyn Backing) {
    let outside = Err(BackingError::OutOfRange);
    assert_eq!(backing.write(SlotId(SLOTS), b"x"), outside);
    assert_eq!(backing.write(SlotId(0), &vec![0; SLOT_BYTES.0 + 1]), outside);
    assert_eq!(backing.write(SlotId(SLOTS - 1), &vec![7; SLOT_BYTES.0]), Ok(()));
    let mut out = [0; 2];
    assert_eq!(backing.read(SlotId(SLOTS - 1), Bytes(SLOT_BYTES.0 - 1), &mut out), outside);
    assert_eq!(backing.read(SlotId(SLOTS - 1), Bytes(usize::MAX), &mut out), outside);
    assert_eq!(backing.read(SlotId(SLOTS), Bytes(0), &mut out), outside);
    backing.discard(SlotId(SLOTS));
    assert_eq!(backing.read(SlotId(SLOTS - 1), Bytes(SLOT_BYTES.0 - 2), &mut out), Ok(()));
    assert_eq!(out, [7, 7]);
}

/// A store in memory.
fn in_memory() -> MemoryBacking {
    MemoryBacking::new(SlotCount(SLOTS))
}

/// A store in an unnamed file. Its limit is not a whole number of slots.
fn in_file() -> FileBacking {
    let limit = Bytes(SLOTS as usize * SLOT_BYTES.0 + 1);
    FileBacking::new(SpillFile::unnamed_in(c"/var/tmp").unwrap(), limit)
}

/// Stamps the oracle on a backing, bare and with each fault around it.
macro_rules! oracle {
    ($name:ident, $make:expr) => {
        mod $name {
            use super::*;

            proptest! {
                #[test]
                fn agrees_with_the_map(steps in steps()) {
                    agrees(&mut $make(), &steps, |_| true);
                }

                #[test]
                fn faults_stay_where_they_are(
                    steps in steps(), at in 0_u64..40, count in 1_u64..5,
                ) {
                    for fault in [Fault::Fail, Fault::Corrupt, Fault::Tear, Fault::Full] {
                        let faulty = at..at + count;
                        let mut backing = FaultyBacking::new($make(), fault, faulty.clone());
                        agrees(&mut backing, &steps, |operation| !faulty.contains(&operation));
                    }
                }
            }

            #[test]
            fn refuses_outside() {
                refuses_what_is_outside(&mut $make());
            }
        }
    };
}

oracle!(memory_backing, in_memory);
oracle!(file_backing, in_file);

#[test]
fn each_fault_shows() {
    let bytes = bytes_of(3, 1000);
    let eio = |call| Err(BackingError::Sys(SysError { call, errno: 5 }));
    let expected = [
        (Fault::Fail, eio("pwrite"), eio("pread")),
        (Fault::Corrupt, Ok(()), Ok(())),
        (Fault::Tear, Ok(()), Ok(())),
        (Fault::Full, Err(BackingError::Full), Ok(())),
    ];
    for (fault, written, read) in expected {
        let mut on_write = FaultyBacking::new(in_memory(), fault, 0..1);
        assert_eq!(on_write.write(SlotId(0), &bytes), written);
        let mut out = vec![0; 1000];
        let result = on_write.read(SlotId(0), Bytes(0), &mut out);
        assert!(result.is_err() || out != bytes, "{fault:?} left the write whole");

        let mut on_read = FaultyBacking::new(in_memory(), fault, 1..2);
        assert_eq!(on_read.write(SlotId(0), &bytes), Ok(()));
        assert_eq!(on_read.read(SlotId(0), Bytes(0), &mut out), read);
        assert_eq!(out == bytes, fault == Fault::Full);
        assert_eq!(on_read.read(SlotId(0), Bytes(0), &mut out), Ok(()));
        assert_eq!(out, bytes, "the fault of a read must not reach the store");
    }
}

#[test]
fn a_file_that_may_not_grow_is_full_and_a_read_only_one_is_an_error() {
    // /dev/full answers every write with ENOSPC.
    let open = |flags: OFlags| {
        let fd = rustix::fs::open("/dev/full", flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
        FileBacking::new(SpillFile::from_fd(fd), SLOT_BYTES)
    };
    assert_eq!(open(OFlags::RDWR).write(SlotId(0), b"x"), Err(BackingError::Full));
    let error = open(OFlags::RDONLY).write(SlotId(0), b"x").unwrap_err();
    assert_eq!(error.to_string(), "pwrite: EBADF");
}

#[test]
fn trimming_gives_the_disk_blocks_of_discarded_slots_back() {
    let fd = SpillFile::unnamed_in(c"/var/tmp").unwrap().into_fd();
    let watched = rustix::io::fcntl_dupfd_cloexec(&fd, 0).unwrap();
    let blocks = || {
        // Blocks are counted for certain once they have been allocated on the disk.
        rustix::fs::fsync(&watched).unwrap();
        rustix::fs::fstat(&watched).unwrap().st_blocks
    };
    let mut backing = FileBacking::new(SpillFile::from_fd(fd), Bytes::mib(64));
    let slots = [3, 4, 70, 200, 201].map(SlotId);
    for slot in slots {
        backing.write(slot, &vec![9; SLOT_BYTES.0]).unwrap();
    }
    // A slot has 128 blocks of 512 bytes; the file system may add some of its own.
    let before = blocks();
    assert!(before >= 5 * 128);
    slots.into_iter().for_each(|slot| backing.discard(slot));
    backing.write(SlotId(70), &vec![8; SLOT_BYTES.0]).unwrap();
    assert_eq!(backing.trim(SlotCount(3)), SlotCount(3));
    assert_eq!(backing.trim(SlotCount(9)), SlotCount(1));
    assert_eq!(backing.trim(SlotCount(9)), SlotCount(0));
    assert!(blocks() <= before - 4 * 128);
    let mut out = [0; 1];
    assert_eq!(backing.read(SlotId(70), Bytes(SLOT_BYTES.0 - 1), &mut out), Ok(()));
    assert_eq!(out, [8]);
}
