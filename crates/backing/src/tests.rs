//! The risk: a backing that gives back other bytes than were written, or that lets the fault of one
//! slot reach another. Every backing runs the same random writes, reads and discards beside a map
//! of what each slot must hold; faulty backings may return errors, but only in their faulty range.

use std::collections::HashMap;

use coldpress_sys::errno::EIO;
use coldpress_sys::file::SpillFile;
use coldpress_sys::ring::Ring;
use coldpress_sys::{AsFd, AsRawFd, raw};
use proptest::prelude::*;
use rustix::fs::{Mode, OFlags};

use super::*;

/// Slots of the stores under test.
const SLOTS: u32 = 8;

/// Every kind of fault.
const FAULTS: [Fault; 5] = [Fault::Fail, Fault::Corrupt, Fault::Tear, Fault::Full, Fault::Delay];

/// One step: a verb, a slot, a seed and a length.
type Step = (u8, u32, u8, usize);

/// Makes random steps.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0_u8..8, 0..SLOTS, any::<u8>(), 1..=SLOT_BYTES.0), 1..80)
}

/// Makes bytes that differ from one write to the next.
fn bytes_of(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(seed | 1).wrapping_add((at >> 8) as u8)).collect()
}

/// Makes a request for `buffer`.
fn request(way: Way, slot: u32, offset: usize, buffer: Vec<u8>, token: u32) -> Request {
    let (length, buffer) = (Bytes(buffer.len()), buffer.into_boxed_slice());
    Request { way, slot: SlotId(slot), offset: Bytes(offset), length, buffer, token }
}

/// Makes one transfer with nothing else under way. Returns its buffer and its result.
fn transfer(backing: &mut dyn Backing, request: Request) -> (Vec<u8>, Result<(), BackingError>) {
    let (token, length) = (request.token, request.length);
    backing.begin(request);
    backing.wait();
    let ended = backing.ended().expect("it was waited for");
    assert_eq!((ended.request.token, ended.request.length), (token, length));
    assert!(backing.ended().is_none(), "it ended twice");
    (ended.request.buffer.into_vec(), ended.result)
}

fn write(backing: &mut dyn Backing, slot: u32, bytes: &[u8]) -> Result<(), BackingError> {
    transfer(backing, request(Way::Write, slot, 0, bytes.to_vec(), 0)).1
}

/// Reads at `offset` of `slot` into a buffer of other bytes.
fn read(
    backing: &mut dyn Backing,
    slot: u32,
    offset: usize,
    length: usize,
) -> (Vec<u8>, Result<(), BackingError>) {
    transfer(backing, request(Way::Read, slot, offset, vec![0xEE; length], 0))
}

/// A backing beside a map of what each slot must hold.
struct World<'b, S> {
    backing: &'b mut dyn Backing,
    expected: HashMap<u32, Vec<u8>>,
    /// By token: the way, the slot, and the bytes that the slot must hold or give.
    under_way: HashMap<u32, (Way, u32, Vec<u8>)>,
    operations: u32,
    /// Whether the operation of this number must work.
    is_sound: S,
}

impl<S: Fn(u64) -> bool> World<'_, S> {
    fn begin(&mut self, way: Way, slot: u32, offset: usize, bytes: Vec<u8>) {
        let buffer = if way == Way::Write { bytes.clone() } else { vec![0xEE; bytes.len()] };
        self.backing.begin(request(way, slot, offset, buffer, self.operations));
        self.under_way.insert(self.operations, (way, slot, bytes));
        self.operations += 1;
    }

    /// Takes the transfers that have ended, and compares them.
    fn take(&mut self) {
        while let Some(EndedRequest { request, result }) = self.backing.ended() {
            let (way, slot, bytes) = self.under_way.remove(&request.token).expect("it was begun");
            assert_eq!((request.way, request.slot.0, request.length.0), (way, slot, bytes.len()));
            if (self.is_sound)(u64::from(request.token)) {
                assert_eq!(result, Ok(()));
                match way {
                    Way::Write => drop(self.expected.insert(slot, bytes)),
                    Way::Read => assert!(request.buffer[..] == bytes),
                }
            }
        }
    }

    fn is_busy(&self, slot: u32) -> bool {
        self.under_way.values().any(|&(_, other, _)| other == slot)
    }

    fn step(&mut self, (verb, slot, seed, length): Step) {
        if self.under_way.len() == TRANSFERS_MAX {
            self.finish();
        }
        let is_write = |(way, to, _): &(Way, u32, Vec<u8>)| *way == Way::Write && *to == slot;
        let is_written = self.under_way.values().any(is_write);
        match verb {
            0 | 1 if !self.is_busy(slot) => {
                self.expected.remove(&slot);
                self.begin(Way::Write, slot, 0, bytes_of(seed, length));
            }
            2..=4 if !is_written => {
                let Some(bytes) = self.expected.get(&slot) else { return };
                let offset = seed as usize * bytes.len() / 256;
                let length = length.min(bytes.len() - offset);
                self.begin(Way::Read, slot, offset, bytes[offset..offset + length].to_vec());
            }
            5 if !self.is_busy(slot) => {
                self.backing.discard(SlotId(slot));
                self.expected.remove(&slot);
            }
            6 => assert!(self.backing.trim(SlotCount(slot)) <= SlotCount(slot)),
            _ => self.take(),
        }
    }

    /// Waits until nothing is under way.
    fn finish(&mut self) {
        while !self.under_way.is_empty() {
            self.backing.wait();
            let before = self.under_way.len();
            self.take();
            assert!(self.under_way.len() < before, "waited for nothing");
        }
    }
}

/// Runs `steps`. `is_sound(operation)` says whether the operation of that number must work.
fn agrees(backing: &mut dyn Backing, steps: &[Step], is_sound: impl Fn(u64) -> bool) {
    let (expected, under_way) = (HashMap::new(), HashMap::new());
    let mut world = World { backing, expected, under_way, operations: 0, is_sound };
    steps.iter().for_each(|&step| world.step(step));
    world.finish();
    assert_eq!(world.backing.slots_max(), SlotCount(SLOTS));
}

/// Checks that ranges outside the store are refused before anything is done.
fn refuses_what_is_outside(backing: &mut dyn Backing) {
    let outside = Err(BackingError::OutOfRange);
    assert_eq!(write(backing, SLOTS, b"x"), outside);
    assert_eq!(write(backing, 0, &vec![0; SLOT_BYTES.0 + 1]), outside);
    assert_eq!(write(backing, SLOTS - 1, &vec![7; SLOT_BYTES.0]), Ok(()));
    assert_eq!(read(backing, SLOTS - 1, SLOT_BYTES.0 - 1, 2).1, outside);
    assert_eq!(read(backing, SLOTS - 1, usize::MAX, 2).1, outside);
    assert_eq!(read(backing, SLOTS, 0, 2).1, outside);
    let mut short = request(Way::Read, 0, 0, vec![0], 0);
    short.length = Bytes(2);
    assert_eq!(transfer(backing, short).1, outside);
    backing.discard(SlotId(SLOTS));
    assert_eq!(read(backing, SLOTS - 1, SLOT_BYTES.0 - 2, 2), (vec![7, 7], Ok(())));
}

/// Makes a store in memory.
fn in_memory() -> MemoryBacking {
    MemoryBacking::new(SlotCount(SLOTS))
}

/// Makes a store in an unnamed file. Its limit is not a whole number of slots.
fn in_file() -> FileBacking {
    let limit = Bytes(SLOTS as usize * SLOT_BYTES.0 + 1);
    FileBacking::new(SpillFile::unnamed_in(c"/var/tmp").unwrap(), limit, Ring::new().ok())
}

/// Makes a store in an unnamed file, with blocking calls.
fn in_file_plainly() -> FileBacking {
    let limit = Bytes(SLOTS as usize * SLOT_BYTES.0 + 1);
    FileBacking::by_plain_calls(SpillFile::unnamed_in(c"/var/tmp").unwrap(), limit)
}

/// Stamps the oracle on a backing, bare and with each fault around it.
macro_rules! oracle {
    ($name:ident, $make:expr) => {
        mod $name {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(64))]

                #[test]
                fn agrees_with_the_map(steps in steps()) {
                    agrees(&mut $make(), &steps, |_| true);
                }

                #[test]
                fn faults_stay_where_they_are(
                    steps in steps(), at in 0_u64..40, count in 1_u64..5,
                ) {
                    for fault in FAULTS {
                        let faulty = at..at + count;
                        let mut backing = FaultyBacking::new($make(), fault, faulty.clone());
                        agrees(&mut backing, &steps, |operation| {
                            fault == Fault::Delay || !faulty.contains(&operation)
                        });
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
oracle!(plain_file_backing, in_file_plainly);

#[test]
fn each_fault_shows() {
    let bytes = bytes_of(3, 1000);
    let eio = |call| Err(BackingError::Sys(SysError { call, errno: EIO }));
    let expected = [
        (Fault::Fail, eio("pwrite"), eio("pread")),
        (Fault::Corrupt, Ok(()), Ok(())),
        (Fault::Tear, Ok(()), Ok(())),
        (Fault::Full, Err(BackingError::Full), Ok(())),
    ];
    for (fault, written, read_result) in expected {
        let mut on_write = FaultyBacking::new(in_memory(), fault, 0..1);
        assert_eq!(write(&mut on_write, 0, &bytes), written);
        let (out, result) = read(&mut on_write, 0, 0, 1000);
        assert!(result.is_err() || out != bytes, "{fault:?} left the write whole");

        let mut on_read = FaultyBacking::new(in_memory(), fault, 1..2);
        assert_eq!(write(&mut on_read, 0, &bytes), Ok(()));
        let (out, result) = read(&mut on_read, 0, 0, 1000);
        assert_eq!((result, out == bytes), (read_result, fault == Fault::Full));
        let again = (bytes.clone(), Ok(()));
        assert_eq!(read(&mut on_read, 0, 0, 1000), again, "a read's fault reached the store");
    }
}

#[test]
fn delayed_ones_end_last_and_backwards() {
    let mut backing = FaultyBacking::new(in_memory(), Fault::Delay, 0..2);
    for token in 0..3 {
        backing.begin(request(Way::Write, token, 0, vec![1], token));
    }
    let mut order = Vec::new();
    while order.len() < 3 {
        backing.wait();
        order.extend(backing.ended().map(|ended| ended.request.token));
    }
    assert_eq!(order, [2, 1, 0]);
}

#[test]
fn a_file_that_may_not_grow_is_full_and_a_read_only_one_is_an_error() {
    // /dev/full answers every write with ENOSPC.
    let open = |flags: OFlags| {
        let fd = rustix::fs::open("/dev/full", flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
        FileBacking::new(SpillFile::from_fd(fd), SLOT_BYTES, Ring::new().ok())
    };
    assert_eq!(write(&mut open(OFlags::RDWR), 0, b"x"), Err(BackingError::Full));
    let error = write(&mut open(OFlags::RDONLY), 0, b"x").unwrap_err();
    assert_eq!(error.to_string(), "pwrite: EBADF");
}

#[test]
fn trimming_gives_the_disk_blocks_of_discarded_slots_back() {
    let fd = SpillFile::unnamed_in(c"/var/tmp").unwrap().into_fd();
    let watched = rustix::io::fcntl_dupfd_cloexec(&fd, 0).unwrap();
    let blocks = || {
        // Blocks are counted reliably once they have been allocated on the disk.
        rustix::fs::fsync(&watched).unwrap();
        rustix::fs::fstat(&watched).unwrap().st_blocks
    };
    let mut backing = FileBacking::new(SpillFile::from_fd(fd), Bytes::mib(64), Ring::new().ok());
    let slots = [3, 4, 70, 200, 201];
    for slot in slots {
        write(&mut backing, slot, &vec![9; SLOT_BYTES.0]).unwrap();
    }
    // A slot has 128 blocks of 512 bytes; the file system may add some of its own.
    let before = blocks();
    assert!(before >= 5 * 128);
    slots.into_iter().for_each(|slot| backing.discard(SlotId(slot)));
    write(&mut backing, 70, &vec![8; SLOT_BYTES.0]).unwrap();
    assert_eq!(backing.trim(SlotCount(3)), SlotCount(3));
    assert_eq!(backing.trim(SlotCount(9)), SlotCount(1));
    assert_eq!(backing.trim(SlotCount(9)), SlotCount(0));
    assert!(blocks() <= before - 4 * 128);
    assert_eq!(read(&mut backing, 70, SLOT_BYTES.0 - 1, 1), (vec![8], Ok(())));
}

#[test]
fn an_heir_reads_its_ancestors_slots_and_writes_to_its_own_file() {
    let file = || SpillFile::unnamed_in(c"/var/tmp").unwrap();
    let fill = |backing: &mut dyn Backing, slot, byte| {
        assert_eq!(write(backing, slot, &[byte; 100]), Ok(()));
    };
    let read = |backing: &mut dyn Backing, slot| {
        let (bytes, result) = read(backing, slot, 50, 50);
        result.map(|()| bytes[0])
    };
    let first = file();
    let descriptor = first.as_fd().as_raw_fd();
    let lent = SpillFile::lent_by(raw::thread_id(), descriptor).unwrap();
    let mut parent = FileBacking::new(first, Bytes(4 * SLOT_BYTES.0), Ring::new().ok());
    assert!(parent.is_lent());
    fill(&mut parent, 0, 1);
    fill(&mut parent, 2, 3);
    let ancestors = vec![Layer { file: lent, first: SlotId(0) }];
    let own = Some((file(), Bytes(2 * SLOT_BYTES.0)));
    let mut heir = FileBacking::of_heir(ancestors, SlotId(3), own, Ring::new().ok());
    assert_eq!(heir.slots_max(), SlotCount(5));
    fill(&mut heir, 3, 4);
    fill(&mut parent, 3, 9);
    assert_eq!((read(&mut heir, 0), read(&mut heir, 2)), (Ok(1), Ok(3)));
    assert_eq!((read(&mut heir, 3), read(&mut parent, 3)), (Ok(4), Ok(9)));
    heir.discard(SlotId(2));
    heir.discard(SlotId(3));
    assert_eq!((heir.trim(SlotCount(9)), heir.is_lent()), (SlotCount(1), false));
    assert_eq!(read(&mut parent, 2), Ok(3));
    drop(heir);
    assert!(!parent.is_lent());
}
