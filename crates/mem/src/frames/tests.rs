//! The risk: a frame is handed out twice, memory of a used frame is given back, bytes are lost on
//! the way to another block, or memory is counted wrong.

mod oracle;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use coldpress_sys::PageCount;
use coldpress_sys::page::BLOCK_BYTES;
use proptest::prelude::*;

use super::*;

const MIB_2: Bytes = Bytes(BLOCK_BYTES);

fn blocks(count: usize) -> Bytes {
    Bytes(count * BLOCK_BYTES)
}

/// Makes an allocator with a core zone of `core` of its `online` blocks; `span` blocks are
/// reserved.
fn zones(core: Option<usize>, online: usize, span: usize) -> FrameAllocator {
    let frames = FrameAllocator::new();
    let (span, core, online) = (blocks(span), core.map(blocks), blocks(online));
    frames
        .init(Config { span, core, online, easy_reclaim_hot_add: true, on_demand: false })
        .unwrap();
    frames
}

/// Writes `value` into both ends of a frame.
fn mark(frames: &FrameAllocator, frame: FrameId, value: u32) {
    let words = frames.address(frame).cast::<u32>().as_ptr();
    // SAFETY: the frame is handed out to the test.
    unsafe {
        words.write(value);
        words.add(PAGE_BYTES / 4 - 1).write(value);
    }
}

fn marks(frames: &FrameAllocator, frame: FrameId) -> [u32; 2] {
    let words = frames.address(frame).cast::<u32>().as_ptr();
    // SAFETY: the frame is handed out to the test.
    unsafe { [words.read(), words.add(PAGE_BYTES / 4 - 1).read()] }
}

fn free(frames: &FrameAllocator, frame: FrameId) {
    // SAFETY: the tests free only what they hold, and hold no references.
    unsafe { frames.free(frame) };
}

/// Returns how many of the pages from `address` on are resident
/// (Documentation/admin-guide/mm/pagemap.rst).
fn resident(address: usize, pages: PageCount) -> PageCount {
    use std::os::unix::fs::FileExt;
    let mut words = vec![0; pages.0 * 8];
    let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    pagemap.read_exact_at(&mut words, (address / PAGE_BYTES) as u64 * 8).unwrap();
    let (words, _) = words.as_chunks();
    PageCount(words.iter().filter(|word| u64::from_ne_bytes(**word) >> 63 == 1).count())
}

/// Owners of one frame each, which know where their frames are.
#[derive(Default)]
struct Owners<'f> {
    frames: Option<&'f FrameAllocator>,
    places: HashMap<u32, FrameId>,
    /// The owners that will not be moved.
    stubborn: Vec<u32>,
    /// The moves asked for: from where, to where, and whether it was done.
    asked: Vec<(FrameId, FrameId, bool)>,
}

impl<'f> Owners<'f> {
    fn new(frames: &'f FrameAllocator) -> Self {
        Self { frames: Some(frames), ..Self::default() }
    }

    /// Returns whether it took a frame for `owner`: not when there is none.
    fn take(&mut self, owner: u32) -> bool {
        let frames = self.frames.unwrap();
        let Some(frame) = frames.alloc(Mobility::EasyReclaim) else { return false };
        mark(frames, frame, owner);
        // SAFETY: the frame belongs to the test, and `migrate` moves it for this owner.
        unsafe { frames.set_owner(frame, owner, owner as u8) };
        self.places.insert(owner, frame);
        true
    }

    fn free(&mut self, owner: u32) {
        self.take_back(owner);
    }

    /// Frees an owner's frame, and returns the frame.
    fn take_back(&mut self, owner: u32) -> FrameId {
        let (frames, frame) = (self.frames.unwrap(), self.places.remove(&owner).unwrap());
        assert_eq!(marks(frames, frame), [owner; 2]);
        free(frames, frame);
        frame
    }

    fn shrink(&mut self, to: Bytes) -> Shrunk {
        let frames = self.frames.unwrap();
        // SAFETY: all owners belong to the test.
        unsafe { frames.shrink_to(to, self) }
    }

    fn verify(&self) {
        for (owner, frame) in &self.places {
            assert_eq!(marks(self.frames.unwrap(), *frame), [*owner; 2]);
        }
    }
}

impl Migrate for Owners<'_> {
    unsafe fn migrate(&mut self, from: FrameId, to: FrameId, owner: u32, index: u8) -> bool {
        let frames = self.frames.unwrap();
        assert_eq!((self.places[&owner], owner as u8), (from, index));
        let moved = !self.stubborn.contains(&owner);
        self.asked.push((from, to, moved));
        if moved {
            // SAFETY: both frames are handed out, and no other code uses them. `to` is movable for
            // this owner as `from` was, which is no longer used.
            unsafe {
                frames.address(to).copy_from_nonoverlapping(frames.address(from), PAGE_BYTES);
                frames.set_owner(to, owner, index);
                frames.free(from);
            }
            self.places.insert(owner, to);
        }
        moved
    }
}

/// Makes an allocator with one block in each zone, which adds blocks on demand up to `span`.
fn on_demand(span: usize) -> FrameAllocator {
    let frames = FrameAllocator::new();
    let config = Config {
        span: blocks(span),
        core: Some(blocks(1)),
        online: blocks(2),
        easy_reclaim_hot_add: false,
        on_demand: true,
    };
    frames.init(config).unwrap();
    frames
}

#[test]
fn a_request_adds_a_block_for_itself_until_the_span_is_used_up() {
    let frames = on_demand(4);
    let block = || frames.alloc_block(Mobility::Core);
    let taken: Vec<_> = (0..3).map(|_| block().unwrap()).collect();
    assert_eq!(frames.online(), blocks(4));
    // The easy-reclaim block is left, and core must not take it.
    assert!(block().is_none() && frames.alloc(Mobility::Core).is_none());
    let movable: Vec<_> =
        (0..FRAMES_PER_BLOCK).map(|_| frames.alloc(Mobility::EasyReclaim).unwrap()).collect();
    assert!(frames.alloc(Mobility::EasyReclaim).is_none());
    movable.iter().for_each(|frame| free(&frames, *frame));
    frames.check();
    for frame in taken {
        // SAFETY: the frame was taken above as a block, and is unused.
        unsafe { frames.free_order(frame, ORDER_MAX) };
    }
    assert!(frames.alloc(Mobility::Core).is_some());
}

#[test]
fn a_block_is_added_to_the_zone_of_the_request() {
    let frames = on_demand(6);
    let online = || {
        let of = |zone: Mobility| frames.stats().zones[zone as usize].online.bytes();
        (of(Mobility::Core), of(Mobility::EasyReclaim))
    };
    let take = |mobility| (0..3 * FRAMES_PER_BLOCK).all(|_| frames.alloc(mobility).is_some());
    assert!(take(Mobility::EasyReclaim));
    assert_eq!(online(), (blocks(1), blocks(3)));
    // The span has two more blocks, and core's own is used up first.
    assert!(take(Mobility::Core));
    assert_eq!(online(), (blocks(3), blocks(3)));
    assert!(frames.alloc(Mobility::Core).is_none());
    frames.check();
}

#[test]
fn trimmed_frames_come_back_as_zeros_and_kept_ones_as_they_were() {
    let frames = zones(None, 3, 3);
    let held: Vec<_> = (0..100).map(|_| frames.alloc(Mobility::Core).unwrap()).collect();
    held.iter().for_each(|frame| mark(&frames, *frame, frame.0 + 1));
    held[..99].iter().for_each(|frame| free(&frames, *frame));
    assert_eq!(frames.frames_idle(), PageCount(99));
    assert_eq!(frames.trim(PageCount(30)), PageCount(69));
    assert_eq!(frames.frames_idle(), PageCount(30));
    let again: Vec<_> = (0..99).map(|_| frames.alloc(Mobility::Core).unwrap()).collect();
    let kept = |frame: &&FrameId| marks(&frames, **frame) == [frame.0 + 1; 2];
    assert_eq!(again.iter().take(30).filter(kept).count(), 30, "held frames come first");
    assert!(again[30..].iter().all(|frame| marks(&frames, *frame) == [0; 2]));
    assert_eq!(marks(&frames, held[99]), [held[99].0 + 1; 2]);
}

#[test]
#[cfg_attr(miri, ignore = "miri has mappings of its own")]
fn what_the_system_holds_is_what_is_counted() {
    let frames = zones(Some(1), 3, 4);
    let spans = frames.spans().unwrap();
    // Compares the counted frames with the system's answer: the frames alone, and all with the
    // tables.
    let expect = |used: usize, idle: usize, tables: usize| {
        let held = PageCount(used + idle);
        let in_frames = resident(spans.frames.address(), blocks(4).pages_down());
        let in_tables = resident(spans.tables.address(), PageCount(1 + 4));
        assert_eq!((in_frames, in_tables), (held, PageCount(tables)));
        assert_eq!(
            (frames.frames_used(), frames.frames_idle()),
            (PageCount(used), PageCount(idle))
        );
        assert_eq!(frames.frames_held(), held + in_tables);
        assert_eq!(frames.stats().tables, in_tables);
    };
    let mut owners = Owners::new(&frames);
    // The blocks take one page, and so do the descriptors of each block in use.
    expect(0, 0, 1);
    assert!((0..1000).all(|owner| owners.take(owner)));
    expect(1000, 0, 3);
    (0..1000).filter(|owner| owner % 3 > 0).for_each(|owner| owners.free(owner));
    expect(334, 666, 3);
    frames.trim(PageCount(100));
    expect(334, 100, 3);
    let two = Shrunk { online: blocks(2), held_back_by: None };
    assert_eq!(owners.shrink(blocks(2)), two);
    assert_eq!(frames.stats().huge_blocks_available(), 1);
    frames.trim(PageCount(0));
    expect(334, 0, 2);
    assert_eq!(frames.grow(blocks(2)).unwrap(), blocks(4));
    expect(334, 0, 2);
    owners.verify();
    (0..1000).step_by(3).for_each(|owner| owners.free(owner));
    frames.trim(PageCount(0));
    expect(0, 0, 1);
}

#[test]
fn a_block_that_is_free_goes_back_whole() {
    let frames = zones(None, 2, 2);
    let chunks: Vec<_> = (0..2).map(|_| frames.alloc_block(Mobility::Core).unwrap()).collect();
    assert_eq!(frames.stats().huge_blocks_available(), 0);
    for chunk in &chunks {
        // SAFETY: the chunk belongs to the test, and is unused.
        unsafe { frames.free_order(*chunk, ORDER_MAX) };
    }
    assert_eq!(frames.trim(PageCount(512)), PageCount(512));
    assert_eq!(frames.stats().zone(Mobility::Core).blocks_returned, 1);
    assert_eq!(frames.trim(PageCount(0)), PageCount(512));
    assert_eq!(frames.stats().zone(Mobility::Core).blocks_returned, 2);
    assert_eq!(frames.stats().huge_blocks_available(), 2);
    assert_eq!(frames.frames_held(), PageCount(1));
    frames.check();
}

#[test]
fn without_a_span_nothing_is_handed_out_and_nothing_breaks() {
    let frames = FrameAllocator::new();
    for mobility in Mobility::ALL {
        assert_eq!(frames.alloc(mobility), None);
    }
    assert_eq!(frames.alloc_order(3, Mobility::Core), None);
    assert_eq!(frames.trim(PageCount(0)), PageCount(0));
    assert_eq!(frames.grow(MIB_2).unwrap_err().errno, 22);
    assert_eq!((frames.frames_used(), frames.frames_held()), (PageCount(0), PageCount(0)));
    assert_eq!(frames.stats(), FrameStats::default());
    frames.check();
}

#[test]
fn bad_sizes_and_a_second_span_are_refused() {
    let frames = FrameAllocator::new();
    let good = Config::one_zone(blocks(2));
    let bad = [
        Config::one_zone(Bytes(0)),
        Config::one_zone(Bytes(BLOCK_BYTES - 1)),
        Config::one_zone(Bytes(BLOCK_BYTES + PAGE_BYTES)),
        Config::one_zone(SPAN_MAX + MIB_2),
        Config { online: Bytes(0), ..good },
        Config { online: Bytes(PAGE_BYTES), ..good },
        Config { online: blocks(3), ..good },
        Config { core: Some(Bytes(0)), ..good },
        Config { core: Some(Bytes(PAGE_BYTES)), ..good },
    ];
    for config in bad {
        assert_eq!(frames.init(config).unwrap_err().errno, 22, "{config:?}");
    }
    frames.init(good).unwrap();
    let address = frames.address(frames.alloc(Mobility::Core).unwrap());
    assert_eq!(frames.init(good).unwrap_err().errno, 16);
    assert_eq!(frames.address(FrameId(0)), address);
    for size in [Bytes(0), Bytes(1), Bytes(BLOCK_BYTES + PAGE_BYTES)] {
        assert_eq!(frames.grow(size).unwrap_err().errno, 22);
    }
    for order in [ORDER_MAX + 1, u8::MAX] {
        assert_eq!(frames.alloc_order(order, Mobility::Core), None);
    }
    assert_eq!(frames.frames_used(), PageCount(1));
}

#[test]
fn requests_fall_back_downwards_only() {
    let frames = zones(Some(1), 2, 3);
    let easy: Vec<_> = (0..512).map(|_| frames.alloc(Mobility::EasyReclaim).unwrap()).collect();
    assert!(easy.iter().all(|frame| frame.0 >= 512));
    assert!(frames.alloc(Mobility::EasyReclaim).unwrap().0 < 512);
    (1..512).for_each(|_| assert!(frames.alloc(Mobility::Core).unwrap().0 < 512));
    assert_eq!(frames.alloc(Mobility::EasyReclaim), None);
    free(&frames, easy[7]);
    free(&frames, easy[9]);
    assert_eq!(frames.alloc(Mobility::Core), None);
    assert_eq!(frames.alloc_order(1, Mobility::EasyReclaim), None);
    assert!(frames.alloc(Mobility::EasyReclaim).is_some());
    frames.check();
}

#[test]
fn added_memory_goes_where_the_config_says() {
    for (easy_reclaim_hot_add, zone) in [(true, Mobility::EasyReclaim), (false, Mobility::Core)] {
        let frames = FrameAllocator::new();
        let (span, one) = (blocks(4), blocks(1));
        let config = Config {
            span,
            core: Some(one),
            online: blocks(2),
            easy_reclaim_hot_add,
            on_demand: false,
        };
        frames.init(config).unwrap();
        assert_eq!(frames.grow(one).unwrap(), blocks(3));
        assert_eq!(frames.stats().zone(zone).online, PageCount(1024));
        assert_eq!(frames.grow(blocks(2)).unwrap_err().errno, 12);
        assert_eq!(frames.grow(one).unwrap(), span);
        assert_eq!(frames.stats().zone(zone).online, PageCount(1536));
        frames.check();
    }
}

#[test]
fn zeroed_frames_are_zero() {
    let frames = zones(None, 1, 1);
    let frame = frames.alloc(Mobility::Core).unwrap();
    mark(&frames, frame, 7);
    free(&frames, frame);
    let frame = frames.alloc_zeroed(Mobility::Core).unwrap();
    assert_eq!(marks(&frames, frame), [0; 2]);
}

/// Returns whether this process has the limit already. If not, runs the test `name` once more, in a
/// process with the limit, because a limit cannot be lifted again.
fn run_limited(limit: &str, name: &str) -> bool {
    const LIMITED: &str = "COLDPRESS_TEST_LIMITED";
    if std::env::var_os(LIMITED).is_some() {
        return true;
    }
    let itself = std::env::current_exe().unwrap();
    let script = format!("ulimit {limit} && exec \"$0\" --exact frames::tests::{name}");
    let output = std::process::Command::new("sh")
        .args(["-c".as_ref(), script.as_ref(), itself.as_os_str()])
        .env(LIMITED, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

#[test]
#[cfg_attr(miri, ignore = "miri starts no programs")]
fn a_span_the_system_refuses_is_an_error() {
    if run_limited("-v 4000000", "a_span_the_system_refuses_is_an_error") {
        let frames = FrameAllocator::new();
        assert_eq!(frames.init(Config::one_zone(Bytes(8 << 30))).unwrap_err().errno, 12);
        assert!(frames.alloc(Mobility::Core).is_none());
        frames.init(Config::one_zone(MIB_2)).unwrap();
        assert!(frames.alloc(Mobility::Core).is_some());
    }
}

#[test]
#[cfg_attr(miri, ignore = "miri starts no programs")]
fn memory_the_system_refuses_to_add_leaves_everything_as_it_was() {
    if run_limited("-d 800000", "memory_the_system_refuses_to_add_leaves_everything_as_it_was") {
        let frames = zones(Some(1), 4, 2048);
        let mut owners = Owners::new(&frames);
        // One block in the middle stays. Of two runs of offline blocks the first can be committed,
        // the second cannot.
        assert_eq!(frames.grow(blocks(8)).unwrap(), blocks(12));
        assert!((0..5000).all(|owner| owners.take(owner)));
        (0..5000).filter(|owner| owner % 512 > 0).for_each(|owner| owners.free(owner));
        owners.stubborn = vec![2048];
        assert_eq!(owners.shrink(blocks(2)), Shrunk { online: blocks(2), held_back_by: None });
        let stays = owners.places[&2048].0 as usize / FRAMES_PER_BLOCK;
        assert!(stays > 1, "block {stays}");
        let before = (frames.stats(), frames.frames_held());
        assert_eq!(frames.grow(blocks(1500)).unwrap_err().errno, 12);
        assert_eq!((frames.stats(), frames.frames_held()), before);
        frames.check();
        owners.verify();
        assert_eq!(frames.grow(blocks(100)).unwrap(), blocks(102));
        assert!((5000..40_000).all(|owner| owners.take(owner)));
        owners.verify();
    }
}

#[test]
fn the_largest_span_takes_no_memory_until_used() {
    let frames = FrameAllocator::new();
    let core = Some(SPAN_MAX);
    frames.init(Config { core, ..Config::one_zone(SPAN_MAX) }).unwrap();
    // 32768 blocks of 72 bytes each.
    let tables = PageCount(576);
    assert_eq!(frames.frames_held(), tables);
    assert_eq!(frames.stats().huge_blocks_available(), 32_768);
    for _ in 0..3 * FRAMES_PER_BLOCK {
        frames.alloc(Mobility::Core).unwrap();
    }
    assert_eq!(frames.frames_held(), tables + PageCount(3 * FRAMES_PER_BLOCK + 3));
    frames.check();
}

#[test]
#[cfg_attr(miri, ignore = "miri has mappings of its own")]
fn a_dropped_allocator_leaves_no_mapping() {
    let frames = zones(Some(1), 2, 4);
    let address = frames.address(frames.alloc(Mobility::Core).unwrap()).addr().get();
    let is_mapped = || {
        let mut found = false;
        coldpress_sys::map::for_each_span(|from, to| found |= (from..to).contains(&address));
        found
    };
    assert!(is_mapped());
    drop(frames);
    assert!(!is_mapped());
}

#[test]
#[should_panic(expected = "freed twice")]
fn a_frame_freed_twice_is_noticed() {
    let frames = zones(None, 1, 1);
    let frame = frames.alloc(Mobility::Core).unwrap();
    free(&frames, frame);
    free(&frames, frame);
}

#[test]
fn shrinking_says_what_holds_the_rest() {
    let frames = zones(Some(2), 8, 8);
    let mut owners = Owners::new(&frames);
    assert!((0..6 * 512).all(|owner| owners.take(owner)));
    // The second to sixth easy-reclaim blocks keep one frame each, of several kinds.
    (0..6 * 512).filter(|owner| owner % 512 != 0).for_each(|owner| owners.free(owner));
    let slab = frames.alloc(Mobility::EasyReclaim).unwrap();
    // SAFETY: the frame belongs to the test; no code looks for a descriptor.
    unsafe { frames.set_slab(slab, 99) };
    assert_eq!(frames.descriptor(slab), Descriptor::Slab { descriptor: 99 });
    let core = frames.alloc(Mobility::Core).unwrap();
    owners.stubborn = vec![1024];
    let Shrunk { online, held_back_by } = owners.shrink(Bytes(0));
    let one = PageCount(1);
    let left = held_back_by.unwrap();
    assert_eq!((left.core, left.slab, left.refused), (one, one, PageCount(0)));
    assert!(left.movable >= one);
    // The blocks left are those of the slab, of the stubborn owner and of the core frame. Moved
    // frames went into one of them, or into the other core block when they were asked last.
    assert!(online >= blocks(3) && online <= blocks(4), "{online:?}");
    frames.check();
    owners.verify();
    free(&frames, slab);
    free(&frames, core);
    owners.stubborn.clear();
    assert_eq!(owners.shrink(MIB_2), Shrunk { online: MIB_2, held_back_by: None });
    frames.check();
    owners.verify();
    (0..6).for_each(|owner| owners.free(owner * 512));
    assert_eq!(owners.shrink(Bytes(0)), Shrunk { online: Bytes(0), held_back_by: None });
    assert!(frames.alloc(Mobility::Core).is_none());
    assert_eq!(frames.frames_held(), PageCount(1));
    assert_eq!(frames.grow(blocks(8)).unwrap(), blocks(8));
    assert!(owners.take(1));
    frames.check();
}

#[test]
fn shrinking_stops_where_there_is_no_room() {
    let frames = zones(None, 4, 4);
    let mut owners = Owners::new(&frames);
    assert!((0..1500).all(|owner| owners.take(owner)));
    let shrunk = owners.shrink(blocks(2));
    assert_eq!(shrunk.online, blocks(3));
    assert!(shrunk.held_back_by.unwrap().movable > PageCount(0));
    frames.check();
    owners.verify();
}

#[test]
fn a_frame_freed_into_an_isolated_block_is_not_handed_out() {
    let frames = zones(None, 1, 1);
    let spans = frames.spans().unwrap();
    let mut owners = Owners::new(&frames);
    assert!((0..300).all(|owner| owners.take(owner)));
    (0..300).step_by(7).for_each(|owner| owners.free(owner));
    frames.zones.lock(spans, Mobility::Core).isolate(0).unwrap();
    frames.check();
    (1..300).step_by(7).for_each(|owner| owners.free(owner));
    frames.check();
    assert!(frames.alloc(Mobility::Core).is_none());
    assert_eq!(frames.frames_used().0, owners.places.len());
    frames.zones.lock(spans, Mobility::Core).reuse(0);
    frames.check();
    assert!((1000..1290).all(|owner| owners.take(owner)));
    owners.verify();
    frames.check();
}

#[test]
fn the_fragmentation_index_is_the_kernels() {
    let mut stats = ZoneStats::default();
    assert_eq!(stats.fragmentation_index(9), 0);
    (stats.free, stats.chunks[0]) = (PageCount(512), 512);
    // 1000 - (1000 + 512000 / 512) / 512.
    assert_eq!(stats.fragmentation_index(9), 997);
    assert_eq!(stats.fragmentation_index(0), -1000);
    (stats.free, stats.chunks[0]) = (PageCount(1), 1);
    assert_eq!(stats.fragmentation_index(9), -1);
    stats.chunks[9] = 1;
    assert_eq!(stats.fragmentation_index(9), -1000);
}

#[test]
fn one_claim_on_moving_at_a_time() {
    let frames = zones(None, 1, 1);
    let claim = frames.claim_moves();
    assert!(claim.is_some() && frames.claim_moves().is_none());
    assert!(frames.claim_moves().is_none(), "a refused claim has released another's");
    drop(claim);
    assert!(frames.claim_moves().is_some());
}

#[test]
fn frames_stay_when_their_claim_is_given_up() {
    let frames = zones(None, 2, 2);
    let mut owners = Owners::new(&frames);
    let claim = frames.claim_moves().unwrap();
    assert!((0..600).all(|owner| owners.take(owner)));
    (0..600).filter(|owner| *owner != 599).for_each(|owner| owners.free(owner));
    // SAFETY: only this thread uses the frames.
    unsafe { claim.disown() };
    assert!(frames.claim_moves().is_some());
    let Shrunk { held_back_by, .. } = owners.shrink(Bytes(0));
    let held = held_back_by.unwrap();
    assert_eq!((held.core, held.movable), (PageCount(1), PageCount(0)));
    owners.free(599);
    frames.check();
    assert_eq!(owners.shrink(Bytes(0)).online, Bytes(0));
}

#[test]
fn frames_in_use_keep_their_bytes_while_others_trim_and_shrink() {
    let (turns, owned) = if cfg!(miri) { (3, 10) } else { (300, 200) };
    let frames = zones(Some(1), 6, 6);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|number| {
                let frames = &frames;
                scope.spawn(move || {
                    for _ in 0..turns {
                        let held: Vec<_> =
                            (0..40).map_while(|_| frames.alloc(Mobility::ALL[number])).collect();
                        held.iter().for_each(|frame| mark(frames, *frame, frame.0));
                        std::thread::yield_now();
                        for frame in held {
                            assert_eq!(marks(frames, frame), [frame.0; 2]);
                            free(frames, frame);
                        }
                    }
                })
            })
            .collect();
        // Relaxed: the flag orders nothing else.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                frames.trim(PageCount(3));
            }
        });
        scope.spawn(|| {
            let mut owners = Owners::new(&frames);
            let mut next = 0;
            while !done.load(Ordering::Relaxed) {
                let _ = (next..next + owned).all(|owner| owners.take(owner));
                owners.shrink(blocks(3));
                owners.verify();
                let _ = frames.grow(Bytes(blocks(6).0 - frames.online().0));
                let gone: Vec<_> = owners.places.keys().copied().collect();
                gone.into_iter().for_each(|owner| owners.free(owner));
                next += owned;
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok));
    });
    frames.check();
    assert_eq!(frames.frames_used(), PageCount(0));
    frames.trim(PageCount(0));
    assert_eq!(frames.frames_idle(), PageCount(0));
}
