//! The risk: after `fork`, a child that reads what its parent has given up, or a parent or child
//! that overwrites what the other still reads.

use coldpress_backing::{Fault, FaultyBacking, Layer};
use coldpress_sys::file::SpillFile;
use coldpress_sys::ring::Ring;
use coldpress_sys::{AsFd, AsRawFd, raw};

use super::*;

/// Makes a store with a file of 32 slots and with pages, most of them in the file. Also returns the
/// file as a child has it.
fn lender(pool: Zsmalloc<'_>) -> (World<Zsmalloc<'_>>, SpillFile) {
    let file = SpillFile::unnamed_in(c"/var/tmp").unwrap();
    let lent = SpillFile::lent_by(raw::thread_id(), file.as_fd().as_raw_fd()).unwrap();
    let backing = FileBacking::new(file, Bytes(32 * SLOT_BYTES.0), Ring::new().ok());
    let mut world =
        World::new(knobs(CodecId::Lz4, 400, 800), pool, Some(Box::new(backing)), Allowed::None);
    fill(&mut world, 0);
    (world, lent)
}

/// Stores a hundred more pages, named from `first` on, and writes back what it can.
fn fill<P: Pool>(world: &mut World<P>, first: u64) {
    for offset in first..first + 100 {
        world.store(key(offset), &page(offset, 2000 + offset as usize % 1000)).unwrap();
    }
    world.zswap.shrink(PageCount(40));
    assert!(world.zswap.stats().slots_used > 0);
}

fn key(offset: u64) -> Key {
    Key { area: Area(0), offset: Offset(offset) }
}

/// Returns the bytes of the slots below `slots`.
fn contents(file: &SpillFile, slots: SlotId) -> Vec<u8> {
    let mut bytes = vec![0; slots.0 as usize * SLOT_BYTES.0];
    for (index, page) in bytes.chunks_mut(PAGE_BYTES).enumerate() {
        // The last slot may end early.
        let _ = file.read_exact_at(page, Bytes(index * PAGE_BYTES));
    }
    bytes
}

#[test]
fn an_heir_has_all_pages_and_leaves_its_parents_file_alone() {
    with_zsmalloc(4096, |pool| {
        let (mut world, lent) = lender(pool);
        let again = SpillFile::from_fd(lent.as_fd().try_clone_to_owned().unwrap());
        let first = world.zswap.lend();
        assert!(first > SlotId(0));
        let before = contents(&again, first);
        let ancestors = vec![Layer { file: lent, first: SlotId(0) }];
        let own = SpillFile::unnamed_in(c"/var/tmp").unwrap();
        let own = Some((own, Bytes(32 * SLOT_BYTES.0)));
        let backing = FileBacking::of_heir(ancestors, first, own, Ring::new().ok());
        let sealer = Sealer::new(&[4; KEY_BYTES]).unwrap();
        world.zswap.become_own(Some(Box::new(backing)), Some(sealer)).unwrap();
        assert_eq!(world.zswap.counters(), Counters::default());
        world.load_all();
        // Some of the parent's pages go, and slots of the child's own come.
        for offset in (0..100).step_by(3) {
            world.invalidate(key(offset));
        }
        fill(&mut world, 1000);
        assert!(world.zswap.counters().flushed_pages > 0);
        world.load_all();
        assert!(contents(&again, first) == before);
        world.finish();
    });
}

#[test]
fn an_heir_without_a_file_still_reads_its_parents() {
    with_zsmalloc(4096, |pool| {
        let (mut world, lent) = lender(pool);
        let first = world.zswap.lend();
        let ancestors = vec![Layer { file: lent, first: SlotId(0) }];
        let backing = FileBacking::of_heir(ancestors, first, None, None);
        world.zswap.become_own(Some(Box::new(backing)), None).unwrap();
        world.load_all();
        assert!(!world.zswap.writeback_possible());
        assert_eq!(world.zswap.shrink(PageCount(10)), PageCount(0));
        world.finish();
    });
}

#[test]
fn a_failed_write_of_an_heir_is_not_taken_for_one_of_its_parents() {
    with_zsmalloc(4096, |pool| {
        let (mut world, lent) = lender(pool);
        let first = world.zswap.lend();
        let ancestors = vec![Layer { file: lent, first: SlotId(0) }];
        let own = SpillFile::unnamed_in(c"/var/tmp").unwrap();
        let own = Some((own, Bytes(32 * SLOT_BYTES.0)));
        let backing = FileBacking::of_heir(ancestors, first, own, None);
        let backing = FaultyBacking::new(backing, Fault::Fail, 0..1);
        let sealer = Sealer::new(&[4; KEY_BYTES]).unwrap();
        world.zswap.become_own(Some(Box::new(backing)), Some(sealer)).unwrap();
        assert!(!Writeback::of(&world.zswap.base).unwrap().write_batch());
        assert_eq!(world.zswap.counters().reject_flush_fail, 1);
        world.load_all();
        world.finish();
    });
}

#[test]
fn a_parent_keeps_what_it_has_lent_until_nobody_reads_it() {
    with_zsmalloc(4096, |pool| {
        let (mut world, lent) = lender(pool);
        let first = world.zswap.lend();
        let before = contents(&lent, first);
        for offset in 0..100 {
            world.invalidate(key(offset));
        }
        fill(&mut world, 1000);
        world.zswap.take_back_lent();
        world.zswap.trim_backing(SlotCount(32));
        assert!(contents(&lent, first) == before);
        world.load_all();
        drop(lent);
        world.zswap.take_back_lent();
        // The slots are given out again.
        let used = world.zswap.stats().slots_used;
        fill(&mut world, 2000);
        assert!(world.zswap.lend().0 <= used + first.0 + 4);
        world.load_all();
        world.zswap.take_back_lent();
        world.finish();
    });
}
