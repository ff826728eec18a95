//! The risk: allocations that overlap, are misaligned, or lose memory, by one thread or by several
//! that free what others allocated, with per-processor stacks and without; and misuse that debug
//! builds do not notice.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use coldpress_sys::page::BLOCK_BYTES;
use proptest::prelude::*;

use super::objects::objects_of;
use super::size_class::{CLASSES, RED_ZONE, object_bytes};
use super::*;
use crate::frames::Config;
use crate::frames::hog::Hog;

/// Fewer rounds where an interpreter runs them.
const TURNS: usize = if cfg!(miri) { 40 } else { 3000 };

fn four_blocks() -> FrameAllocator {
    let frames = FrameAllocator::new();
    frames.init(Config::one_zone(Bytes(4 * BLOCK_BYTES))).unwrap();
    frames
}

/// Makes a heap, with per-processor stacks where the machine has restartable sequences.
fn heap(frames: &FrameAllocator, per_processor: bool) -> Heap<'_> {
    let heap = Heap::new(frames);
    // SAFETY: all threads of the tests are the standard library's.
    if per_processor && unsafe { coldpress_sys::rseq::enable() } {
        heap.keep_per_processor().unwrap();
    }
    heap
}

/// An allocation, filled with its own byte.
struct Allocation {
    object: *mut u8,
    layout: Layout,
    byte: u8,
}

// SAFETY: an allocation is memory of its own, which any thread may use.
unsafe impl Send for Allocation {}

impl Allocation {
    fn new(heap: &Heap, layout: Layout, byte: u8, zeroed: bool) -> Option<Self> {
        // SAFETY: the layouts of the tests are not empty.
        let object = unsafe { if zeroed { heap.alloc_zeroed(layout) } else { heap.alloc(layout) } };
        if object.is_null() {
            return None;
        }
        assert!(object.addr().is_multiple_of(layout.align()), "{layout:?} is misaligned");
        let held = Self { object, layout, byte };
        assert!(!zeroed || held.bytes().iter().all(|byte| *byte == 0), "{layout:?} is not zero");
        held.fill();
        Some(held)
    }

    fn fill(&self) {
        // SAFETY: the allocation belongs to the test, and has this size.
        unsafe { self.object.write_bytes(self.byte, self.layout.size()) };
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation belongs to the test, has this size, and was written or came
        // zeroed.
        unsafe { core::slice::from_raw_parts(self.object, self.layout.size()) }
    }

    fn verify(&self, length: usize) {
        assert!(self.bytes()[..length].iter().all(|byte| *byte == self.byte), "{:?}", self.layout);
    }

    fn free(self, heap: &Heap) {
        self.verify(self.layout.size());
        // SAFETY: the allocation was made with this layout and is not used again.
        unsafe { heap.dealloc(self.object, self.layout) };
    }

    fn resize(&mut self, heap: &Heap, size: usize) {
        let old = self.layout.size();
        self.verify(old);
        // SAFETY: as in `free`; the sizes are not zero.
        let object = unsafe { heap.realloc(self.object, self.layout, size) };
        if object.is_null() {
            return;
        }
        self.object = object;
        self.layout = Layout::from_size_align(size, self.layout.align()).unwrap();
        self.verify(old.min(size));
        self.fill();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Alloc { size: usize, align_shift: u32, zeroed: bool },
    Free(usize),
    Resize(usize, usize),
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        8 => 1_usize..300,
        4 => 300_usize..2100,
        2 => 2000_usize..4200,
        1 => 4097_usize..if cfg!(miri) { 5000 } else { 40_000 },
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let align_shift = prop_oneof![6 => 0_u32..5, 1 => 5_u32..14];
    prop_oneof![
        5 => (size(), align_shift, any::<bool>())
            .prop_map(|(size, align_shift, zeroed)| Step::Alloc { size, align_shift, zeroed }),
        4 => any::<usize>().prop_map(Step::Free),
        2 => (any::<usize>(), size()).prop_map(|(which, size)| Step::Resize(which, size)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    #[test]
    fn allocations_keep_their_bytes_and_all_frames_return(
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 40 } else { 600 }),
        limit in 5_usize..400,
        per_processor in any::<bool>(),
    ) {
        let frames = four_blocks();
        let mut hog = Hog::new(&frames);
        if !cfg!(miri) {
            hog.leave(limit);
        }
        let heap = heap(&frames, per_processor);
        let mut held: Vec<Allocation> = Vec::new();
        for (index, step) in steps.into_iter().enumerate() {
            match step {
                Step::Alloc { size, align_shift, zeroed } => {
                    let layout = Layout::from_size_align(size, 1 << align_shift).unwrap();
                    held.extend(Allocation::new(&heap, layout, index as u8, zeroed));
                }
                Step::Free(which) if !held.is_empty() => {
                    held.swap_remove(which % held.len()).free(&heap);
                }
                Step::Resize(which, size) if !held.is_empty() => {
                    let count = held.len();
                    held[which % count].resize(&heap, size);
                }
                Step::Free(_) | Step::Resize(..) => {}
            }
            if index % 64 == 0 {
                heap.check();
            }
            prop_assert_eq!(heap.frames_held() + hog.held(), frames.frames_used());
        }
        // Returns the memory of an allocation, from its layout alone.
        let taken = |held: &Allocation| match AllocationKind::of(held.layout) {
            AllocationKind::Class(class) => object_bytes(class),
            AllocationKind::Frame => PAGE_BYTES,
            AllocationKind::Span => 0,
        };
        let stats = heap.stats();
        prop_assert_eq!((stats.in_use - stats.large).0, held.iter().map(taken).sum::<usize>());
        held.into_iter().for_each(|held| held.free(&heap));
        heap.check();
        prop_assert_eq!(heap.stats().in_use, Bytes(0));
        drop(hog);
        if !heap.objects.lists.is_ready() {
            // At most one spare slab is left for each class, and one for the class of descriptors.
            prop_assert!(frames.frames_used().0 <= CLASSES + 1);
        }
        heap.trim();
        heap.check();
        prop_assert_eq!(heap.stats().cached, Bytes(0));
        prop_assert_eq!(frames.frames_used(), PageCount(0));
    }
}

#[test]
fn a_frame_is_filled_before_the_next_is_taken() {
    let frames = four_blocks();
    let heap = heap(&frames, false);
    let layout = Layout::from_size_align(64 - RED_ZONE, 8).unwrap();
    // The start of the first frame stays free.
    let count = 64 * 5 - 1;
    let held: Vec<_> =
        (0..count).map(|_| Allocation::new(&heap, layout, 1, false).unwrap()).collect();
    // One more frame holds descriptors.
    assert_eq!(heap.frames_held(), PageCount(5 + 1));
    assert_eq!(heap.stats().in_use, Bytes(64 * count));
    held.into_iter().for_each(|held| held.free(&heap));
    assert_eq!(heap.frames_held(), PageCount(1 + 1));
    heap.trim();
    assert_eq!(heap.frames_held(), PageCount(0));
}

#[test]
fn no_object_lies_at_the_start_of_the_span() {
    for size in [16, 32, 64, 1024] {
        let frames = four_blocks();
        let heap = heap(&frames, size == 32);
        let layout = Layout::from_size_align(size, 16).unwrap();
        let start = frames.address_at(Bytes(0)).as_ptr();
        for _ in 0..TURNS.min(300) {
            assert_ne!(Allocation::new(&heap, layout, 0, false).unwrap().object, start);
        }
    }
}

#[test]
fn no_object_has_the_number_that_stands_for_none() {
    for frame in [0, 1, u32::MAX / 256 - 1, u32::MAX / 256].map(FrameId::from_index) {
        for class in 0..CLASSES {
            let objects: Vec<u32> = objects_of(class, frame).map(|object| object.0).collect();
            assert!(!objects.contains(&0) && !objects.contains(&u32::MAX), "{frame:?}, {class}");
            let left_out = PAGE_BYTES / object_bytes(class) - objects.len();
            let is_border = frame.index() == 0 || frame.index() == u32::MAX / 256 && class == 0;
            assert_eq!(left_out, usize::from(is_border), "{frame:?}, {class}");
        }
    }
}

#[test]
fn large_allocations_have_a_span_of_their_own() {
    let frames = four_blocks();
    let heap = Heap::new(&frames);
    let size = if cfg!(miri) { 1 << 13 } else { 1 << 20 };
    let layout = Layout::from_size_align(size, 1 << 16).unwrap();
    let held = Allocation::new(&heap, layout, 9, true).unwrap();
    assert_eq!(heap.large_bytes(), Bytes(size + PAGE_BYTES));
    assert_eq!(frames.frames_used(), PageCount(0));
    held.free(&heap);
    assert_eq!(heap.stats(), HeapStats::default());
}

#[test]
fn without_frames_the_answer_is_null() {
    let frames = FrameAllocator::new();
    for per_processor in [false, true] {
        let heap = heap(&frames, per_processor);
        for size in [1, 2032, 4096] {
            let layout = Layout::from_size_align(size, 1).unwrap();
            assert!(Allocation::new(&heap, layout, 0, false).is_none());
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "miri has no restartable sequences")]
fn what_processors_keep_is_used_before_an_allocation_fails() {
    let frames = four_blocks();
    let heap = heap(&frames, true);
    let layout = |size| Layout::from_size_align(size, 8).unwrap();
    let held: Vec<_> =
        (0..TURNS).map(|_| Allocation::new(&heap, layout(48), 1, false).unwrap()).collect();
    let mut hog = Hog::new(&frames);
    hog.leave(0);
    held.into_iter().for_each(|held| held.free(&heap));
    assert!(Allocation::new(&heap, layout(1000), 2, false).is_some());
}

#[test]
fn dropping_a_heap_returns_the_frames_of_its_objects() {
    for per_processor in [false, true] {
        let frames = four_blocks();
        let heap = heap(&frames, per_processor);
        for size in (1..2000).step_by(2000 / TURNS.min(2000)) {
            Allocation::new(&heap, Layout::from_size_align(size, 1).unwrap(), 3, false).unwrap();
        }
        assert!(frames.frames_used() > PageCount(0));
        drop(heap);
        assert_eq!(frames.frames_used(), PageCount(0));
    }
}

/// Uses a heap as the runtime does: a `static`, used by several threads, freed by another one.
#[test]
fn a_static_heap_serves_threads() {
    static FRAMES: FrameAllocator = FrameAllocator::new();
    static HEAP: Heap = Heap::new(&FRAMES);
    FRAMES.init(Config::one_zone(Bytes(8 * BLOCK_BYTES))).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel::<Allocation>();
    std::thread::scope(|scope| {
        for thread in 0..3_usize {
            let sender = sender.clone();
            scope.spawn(move || {
                for round in 1..TURNS {
                    let size = (round * 37 + thread * 11) % 3000 + 1;
                    let layout = Layout::from_size_align(size, 8).unwrap();
                    let held = Allocation::new(&HEAP, layout, round as u8, false).unwrap();
                    if round % 2 == 0 { sender.send(held).unwrap() } else { held.free(&HEAP) }
                }
            });
        }
        drop(sender);
        let received = receiver.into_iter().map(|held| held.free(&HEAP)).count();
        assert_eq!(received, 3 * ((TURNS - 1) / 2));
    });
    HEAP.check();
    HEAP.trim();
    assert_eq!(FRAMES.frames_used(), PageCount(0));
}

/// Objects each thread of [`pass_round`] allocates at a time.
const ROUND: usize = if cfg!(miri) { 20 } else { 400 };

/// Runs one thread's part of [`pass_round`]: frees a quarter of its allocations, in a shuffled
/// order, and passes the rest on, unless the next thread lags behind.
fn allocate_and_pass(
    (heap, sizes): (&Heap, &[usize]),
    (thread, turns): (usize, usize),
    next: &SyncSender<Vec<Allocation>>,
    received: &Receiver<Vec<Allocation>>,
) {
    let mut random = thread as u32 + 1;
    for turn in 0..turns {
        let mut held: Vec<_> = (0..ROUND)
            .map(|index| {
                let layout = Layout::from_size_align(sizes[(index + turn) % sizes.len()], 8);
                let byte = (index * 3 + thread) as u8;
                Allocation::new(heap, layout.unwrap(), byte, false).expect("frames for all threads")
            })
            .collect();
        for last in (1..held.len()).rev() {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            held.swap(last, (random >> 8) as usize % (last + 1));
        }
        held.drain(..ROUND / 4).for_each(|held| held.free(heap));
        if let Err(TrySendError::Full(held)) = next.try_send(held) {
            held.into_iter().for_each(|held| held.free(heap));
        }
        received.try_iter().flatten().for_each(|held| held.free(heap));
    }
}

/// Runs threads that pass their allocations to each other, while one thread trims.
fn pass_round(per_processor: bool, sizes: &[usize], turns: usize) {
    const THREADS: usize = 4;
    let frames = FrameAllocator::new();
    frames.init(Config::one_zone(Bytes(32 * BLOCK_BYTES))).unwrap();
    let heap = heap(&frames, per_processor);
    let done = AtomicBool::new(false);
    let (mut senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| sync_channel(4)).unzip();
    std::thread::scope(|scope| {
        let (heap, done) = (&heap, &done);
        let mut workers = Vec::new();
        for (thread, received) in receivers.into_iter().enumerate() {
            senders.rotate_left(1);
            let next = senders[0].clone();
            workers.push(scope.spawn(move || {
                allocate_and_pass((heap, sizes), (thread, turns), &next, &received);
                drop(next);
                received.into_iter().flatten().for_each(|held| held.free(heap));
            }));
        }
        drop(senders);
        // Relaxed: the flag orders nothing else.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                heap.trim();
                std::thread::sleep(std::time::Duration::from_micros(20));
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    heap.check();
    assert_eq!(heap.stats().in_use, Bytes(0));
    heap.trim();
    assert_eq!(frames.frames_used(), PageCount(0));
}

#[test]
fn remote_frees_in_any_order_lose_nothing() {
    pass_round(false, &[24], TURNS / 20);
    if !cfg!(miri) {
        pass_round(true, &[24], TURNS / 20);
        for per_processor in [false, true] {
            pass_round(per_processor, &[1000, 40, 300, 2000, 3000], TURNS / 20);
        }
    }
}

/// Objects of one class that fill the stack and the depot, and are spilled.
#[test]
#[cfg_attr(miri, ignore = "miri has no restartable sequences, hence no depot")]
fn a_full_depot_goes_back_to_its_slabs() {
    let frames = FrameAllocator::new();
    frames.init(Config::one_zone(Bytes(16 * BLOCK_BYTES))).unwrap();
    let heap = heap(&frames, true);
    let layout = Layout::from_size_align(256 - RED_ZONE, 8).unwrap();
    let count = size_class::depot_capacity(7) * 4;
    assert_eq!(AllocationKind::of(layout), AllocationKind::Class(7));
    for round in 0..3 {
        let mut held: Vec<_> = (0..count)
            .map(|index| Allocation::new(&heap, layout, (index ^ round) as u8, false).unwrap())
            .collect();
        let used = frames.frames_used();
        // Every seventh object first, so that slabs come back in pieces.
        for step in 0..7 {
            for index in (step..count).step_by(7) {
                held[index].verify(layout.size());
            }
        }
        held.sort_by_key(|held| held.object.addr() % 7919);
        held.into_iter().for_each(|held| held.free(&heap));
        heap.check();
        assert_eq!(heap.stats().in_use, Bytes(0));
        if heap.objects.lists.is_ready() {
            assert!(heap.stats().cached > Bytes(0));
            assert!(frames.frames_used().0 < used.0, "nothing was spilled");
        }
    }
    heap.trim();
    assert_eq!(frames.frames_used(), PageCount(0));
}

#[cfg(debug_assertions)]
mod misuse {
    use super::*;

    fn with_object(size: usize, f: impl FnOnce(&Heap, *mut u8, Layout)) {
        let frames = four_blocks();
        let heap = heap(&frames, size.is_multiple_of(2));
        let layout = Layout::from_size_align(size, 1).unwrap();
        // SAFETY: the layout is not empty.
        let object = unsafe { heap.alloc(layout) };
        f(&heap, object, layout);
    }

    /// Frees an object. Each of these frees is undefined by the letter, and defined in debug
    /// builds: all the memory concerned belongs to the heap.
    fn free(heap: &Heap, object: *mut u8, layout: Layout) {
        // SAFETY: debug builds check the pointer before they touch memory behind it.
        unsafe { heap.dealloc(object, layout) };
    }

    fn write(place: *mut u8) {
        // SAFETY: the byte is memory of the heap's frames, which no other code uses.
        unsafe { place.write(1) };
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn an_object_freed_twice_is_noticed() {
        with_object(100, |heap, object, layout| {
            free(heap, object, layout);
            free(heap, object, layout);
        });
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn an_object_freed_twice_is_noticed_without_stacks() {
        with_object(99, |heap, object, layout| {
            // A second object keeps the slab.
            // SAFETY: the layout is not empty.
            let _other = unsafe { heap.alloc(layout) };
            free(heap, object, layout);
            free(heap, object, layout);
        });
    }

    #[test]
    #[should_panic(expected = "not from this heap")]
    fn a_pointer_from_elsewhere_is_noticed() {
        let mut elsewhere = [0_u8; 64];
        with_object(64, |heap, _, layout| free(heap, elsewhere.as_mut_ptr(), layout));
    }

    #[test]
    #[should_panic(expected = "not from this heap")]
    fn a_pointer_into_an_object_is_noticed() {
        with_object(64, |heap, object, layout| free(heap, object.wrapping_add(16), layout));
    }

    #[test]
    #[should_panic(expected = "not from this heap")]
    fn an_object_freed_as_another_class_is_noticed() {
        with_object(64, |heap, object, _| {
            free(heap, object, Layout::from_size_align(300, 1).unwrap());
        });
    }

    #[test]
    #[should_panic(expected = "written beyond its end")]
    fn a_byte_behind_the_end_is_noticed() {
        with_object(61, |heap, object, layout| {
            write(object.wrapping_add(61));
            free(heap, object, layout);
        });
    }

    #[test]
    #[should_panic(expected = "written after it was freed")]
    fn a_write_after_the_free_is_noticed() {
        with_object(60, |heap, object, layout| {
            free(heap, object, layout);
            write(object.wrapping_add(20));
            // SAFETY: the layout is not empty.
            unsafe { heap.alloc(layout) };
        });
    }
}
