//! Risk guarded: a frame handed out twice, memory of a used frame given back, or memory counted
//! wrong.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;

/// One span of three blocks and a bit, which is rounded down.
fn three_blocks() -> FrameAllocator {
    let frames = FrameAllocator::new();
    frames.init(Bytes(3 * BLOCK_BYTES + PAGE_BYTES)).unwrap();
    frames
}

/// The oracle: sets of frame numbers, the lowest first.
struct Naive {
    used: BTreeSet<u32>,
    touched: BTreeSet<u32>,
    fresh: BTreeSet<u32>,
    limit: usize,
    reached: bool,
}

impl Naive {
    fn new() -> Self {
        let fresh = (0..3 * FRAMES_PER_BLOCK as u32).collect();
        let (used, touched) = (BTreeSet::new(), BTreeSet::new());
        Self { used, touched, fresh, limit: usize::MAX, reached: false }
    }

    fn alloc(&mut self) -> Option<u32> {
        if self.used.len() >= self.limit {
            return None;
        }
        let frame = self.touched.pop_first().or_else(|| self.fresh.pop_first())?;
        self.used.insert(frame);
        self.reached = true;
        Some(frame)
    }

    fn trim(&mut self, keep: usize) -> usize {
        let before = self.touched.len();
        while self.touched.len() > keep {
            self.fresh.extend(self.touched.pop_last());
        }
        before - self.touched.len()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(usize),
    Free(usize, usize),
    Trim(usize),
    Limit(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_usize..900).prop_map(Step::Alloc),
        4 => (any::<usize>(), 1_usize..700).prop_map(|(seed, count)| Step::Free(seed, count)),
        2 => (0_usize..800).prop_map(Step::Trim),
        1 => prop_oneof![Just(usize::MAX), 0_usize..1600].prop_map(Step::Limit),
    ]
}

/// Writes a frame's own number into both ends of it.
fn mark(frames: &FrameAllocator, frame: FrameId) {
    let words = frames.address(frame).cast::<u32>().as_ptr();
    // SAFETY: the frame is handed out to the test.
    unsafe {
        words.write(frame.0);
        words.add(PAGE_BYTES / 4 - 1).write(frame.0);
    }
}

fn marks(frames: &FrameAllocator, frame: FrameId) -> [u32; 2] {
    let words = frames.address(frame).cast::<u32>().as_ptr();
    // SAFETY: the frame is handed out to the test.
    unsafe { [words.read(), words.add(PAGE_BYTES / 4 - 1).read()] }
}

fn free(frames: &FrameAllocator, frame: u32) {
    // SAFETY: the tests free only what they hold, and hold no references.
    unsafe { frames.free(FrameId(frame)) };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn agrees_with_sets_of_numbers(steps in prop::collection::vec(step(), 1..40)) {
        let frames = three_blocks();
        let mut naive = Naive::new();
        for step in steps {
            match step {
                Step::Alloc(count) => for _ in 0..count {
                    let frame = frames.alloc();
                    prop_assert_eq!(frame.map(FrameId::index), naive.alloc());
                    let Some(frame) = frame else { break };
                    mark(&frames, frame);
                },
                Step::Free(seed, count) => for turn in 0..count.min(naive.used.len()) {
                    let used = naive.used.len();
                    let frame = *naive.used.iter().nth(seed.wrapping_add(turn * 7) % used).unwrap();
                    free(&frames, frame);
                    naive.used.remove(&frame);
                    naive.touched.insert(frame);
                },
                Step::Trim(keep) => {
                    prop_assert_eq!(frames.trim(PageCount(keep)).0, naive.trim(keep));
                }
                Step::Limit(limit) => {
                    naive.limit = limit;
                    frames.set_limit(PageCount(limit));
                }
            }
            frames.check();
            prop_assert_eq!(frames.frames_used().0, naive.used.len());
            // Three blocks take one page of summaries and one of blocks.
            let tables = if naive.reached { 2 } else { 0 };
            let held = naive.used.len() + naive.touched.len() + tables;
            prop_assert_eq!(frames.frames_held().0, held);
        }
        for frame in naive.used {
            prop_assert_eq!(marks(&frames, FrameId(frame)), [frame; 2]);
        }
    }
}

#[test]
fn trimmed_frames_come_back_as_zeros_and_kept_ones_as_they_were() {
    let frames = three_blocks();
    let held: Vec<_> = (0..100).map(|_| frames.alloc().unwrap()).collect();
    held.iter().for_each(|frame| mark(&frames, *frame));
    held[..99].iter().for_each(|frame| free(&frames, frame.0));
    assert_eq!(frames.trim(PageCount(30)), PageCount(69));
    let again: Vec<_> = (0..99).map(|_| frames.alloc().unwrap()).collect();
    for frame in again {
        let expected = if frame.0 < 30 { frame.0 } else { 0 };
        assert_eq!(marks(&frames, frame), [expected; 2]);
    }
    assert_eq!(marks(&frames, held[99]), [99; 2]);
}

#[test]
fn without_a_span_nothing_is_handed_out_and_nothing_breaks() {
    let frames = FrameAllocator::new();
    assert_eq!(frames.alloc(), None);
    assert_eq!(frames.trim(PageCount(0)), PageCount(0));
    assert_eq!((frames.frames_used(), frames.frames_held()), (PageCount(0), PageCount(0)));
    frames.check();
}

#[test]
fn a_bad_span_and_a_second_span_are_refused() {
    let frames = FrameAllocator::new();
    assert_eq!(frames.init(Bytes(BLOCK_BYTES - 1)).unwrap_err().errno, INVALID);
    assert_eq!(frames.init(SPAN_MAX + Bytes(1)).unwrap_err().errno, INVALID);
    frames.init(Bytes(BLOCK_BYTES)).unwrap();
    let first = frames.alloc().unwrap();
    let address = frames.address(first);
    assert_eq!(frames.init(Bytes(BLOCK_BYTES)).unwrap_err().errno, BUSY);
    assert_eq!(frames.address(first), address);
}

/// Runs itself once more in a process whose address space is limited, as no limit can be lifted
/// again.
#[test]
fn a_span_the_system_refuses_is_an_error() {
    const LIMITED: &str = "COLDPRESS_TEST_LIMITED";
    if std::env::var_os(LIMITED).is_some() {
        let frames = FrameAllocator::new();
        assert_eq!(frames.init(Bytes(8 << 30)).unwrap_err().errno, 12);
        assert_eq!(frames.alloc(), None);
        frames.init(Bytes(BLOCK_BYTES)).unwrap();
        assert!(frames.alloc().is_some());
        return;
    }
    let itself = std::env::current_exe().unwrap();
    let name = "frames::tests::a_span_the_system_refuses_is_an_error";
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 4000000 && exec \"$0\" --exact \"$1\""])
        .args([itself.as_os_str(), name.as_ref()])
        .env(LIMITED, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn the_largest_span_takes_no_memory_until_used() {
    let frames = FrameAllocator::new();
    frames.init(SPAN_MAX).unwrap();
    assert_eq!(frames.frames_held(), PageCount(0));
    // Blocks enough for a second summary word.
    let count = (BLOCKS_PER_SUMMARY + 1) * FRAMES_PER_BLOCK;
    for expected in 0..count {
        assert_eq!(frames.alloc().map(FrameId::index), Some(expected as u32));
    }
    // 65 blocks: two summary words in one page, 65 x 128 bytes in three.
    assert_eq!(frames.frames_held(), PageCount(count + 1 + 3));
    frames.check();
}

#[test]
#[should_panic(expected = "freed twice")]
fn a_frame_freed_twice_is_noticed() {
    let frames = three_blocks();
    let frame = frames.alloc().unwrap();
    free(&frames, frame.0);
    free(&frames, frame.0);
}

#[test]
fn frames_in_use_keep_their_bytes_while_others_trim() {
    let frames = three_blocks();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..300 {
                        let held: Vec<_> = (0..40).map_while(|_| frames.alloc()).collect();
                        held.iter().for_each(|frame| mark(&frames, *frame));
                        std::thread::yield_now();
                        for frame in held {
                            assert_eq!(marks(&frames, frame), [frame.0; 2]);
                            free(&frames, frame.0);
                        }
                    }
                })
            })
            .collect();
        // Relaxed: the flag carries nothing but itself.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                frames.trim(PageCount(3));
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok));
    });
    frames.check();
    assert_eq!(frames.frames_used(), PageCount(0));
    frames.trim(PageCount(0));
    assert_eq!(frames.frames_held(), PageCount(2));
}
