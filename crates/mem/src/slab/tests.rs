//! Risk guarded: allocations that overlap, are misaligned, or lose memory.

use coldpress_sys::page::BLOCK_BYTES;
use proptest::prelude::*;

use super::*;

fn four_blocks() -> FrameAllocator {
    let frames = FrameAllocator::new();
    frames.init(Bytes(4 * BLOCK_BYTES)).unwrap();
    frames
}

/// An allocation, filled with its own byte.
struct Held {
    object: *mut u8,
    layout: Layout,
    byte: u8,
}

impl Held {
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
        // SAFETY: the allocation is the test's, and has this size.
        unsafe { self.object.write_bytes(self.byte, self.layout.size()) };
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation is the test's, has this size, and was written or came zeroed.
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
        2 => 2033_usize..4200,
        1 => 4097_usize..40_000,
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
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn allocations_keep_their_bytes_and_all_frames_return(
        steps in prop::collection::vec(step(), 1..600),
        limit in 5_usize..400,
    ) {
        let frames = four_blocks();
        frames.set_limit(PageCount(limit));
        let heap = Heap::new(&frames);
        let mut held: Vec<Held> = Vec::new();
        for (index, step) in steps.into_iter().enumerate() {
            match step {
                Step::Alloc { size, align_shift, zeroed } => {
                    let layout = Layout::from_size_align(size, 1 << align_shift).unwrap();
                    held.extend(Held::new(&heap, layout, index as u8, zeroed));
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
            prop_assert_eq!(heap.stats().frames, frames.frames_used());
        }
        let asked: usize = held.iter().map(|held| held.layout.size()).sum();
        prop_assert!(heap.stats().in_use.0 >= asked);
        held.into_iter().for_each(|held| held.free(&heap));
        heap.check();
        prop_assert_eq!(heap.stats().in_use, Bytes(0));
        // One spare frame for each class at most.
        prop_assert!(frames.frames_used().0 <= CLASSES);
        heap.trim();
        prop_assert_eq!(frames.frames_used(), PageCount(0));
    }
}

#[test]
fn a_frame_is_filled_before_the_next_is_taken() {
    let frames = four_blocks();
    let heap = Heap::new(&frames);
    let layout = Layout::from_size_align(64, 8).unwrap();
    let held: Vec<_> = (0..63 * 5).map(|_| Held::new(&heap, layout, 1, false).unwrap()).collect();
    assert_eq!(heap.stats().frames, PageCount(5));
    assert_eq!(heap.stats().in_use, Bytes(64 * 63 * 5));
    held.into_iter().for_each(|held| held.free(&heap));
    assert_eq!(heap.stats().frames, PageCount(1));
}

#[test]
fn large_allocations_have_a_span_of_their_own() {
    let frames = four_blocks();
    let heap = Heap::new(&frames);
    let layout = Layout::from_size_align(1 << 20, 1 << 16).unwrap();
    let held = Held::new(&heap, layout, 9, true).unwrap();
    assert_eq!(heap.large_bytes(), Bytes((1 << 20) + PAGE_BYTES));
    assert_eq!(frames.frames_used(), PageCount(0));
    held.free(&heap);
    assert_eq!(heap.stats(), HeapStats::default());
}

#[test]
fn without_frames_the_answer_is_null() {
    let frames = FrameAllocator::new();
    let heap = Heap::new(&frames);
    for size in [1, 2032, 4096] {
        let layout = Layout::from_size_align(size, 1).unwrap();
        assert!(Held::new(&heap, layout, 0, false).is_none());
    }
}

#[test]
fn dropping_a_heap_returns_the_frames_of_its_objects() {
    let frames = four_blocks();
    let heap = Heap::new(&frames);
    for size in 1..2000 {
        Held::new(&heap, Layout::from_size_align(size, 1).unwrap(), 3, false).unwrap();
    }
    assert!(frames.frames_used() > PageCount(0));
    drop(heap);
    assert_eq!(frames.frames_used(), PageCount(0));
}

/// What the runtime does with it: a `static`, used by several threads, freed by another one.
#[test]
fn a_static_heap_serves_threads() {
    static FRAMES: FrameAllocator = FrameAllocator::new();
    static HEAP: Heap = Heap::new(&FRAMES);
    FRAMES.init(Bytes(8 * BLOCK_BYTES)).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel::<(usize, Layout, u8)>();
    std::thread::scope(|scope| {
        for thread in 0..3_usize {
            let sender = sender.clone();
            scope.spawn(move || {
                for round in 1..3000_usize {
                    let size = (round * 37 + thread * 11) % 3000 + 1;
                    let layout = Layout::from_size_align(size, 8).unwrap();
                    let held = Held::new(&HEAP, layout, round as u8, false).unwrap();
                    let message = (held.object.expose_provenance(), layout, held.byte);
                    if round % 2 == 0 { sender.send(message).unwrap() } else { held.free(&HEAP) }
                }
            });
        }
        drop(sender);
        let mut received = 0;
        for (address, layout, byte) in receiver {
            let object = std::ptr::with_exposed_provenance_mut(address);
            Held { object, layout, byte }.free(&HEAP);
            received += 1;
        }
        assert_eq!(received, 3 * 1499);
    });
    HEAP.check();
    HEAP.trim();
    assert_eq!(FRAMES.frames_used(), PageCount(0));
}
