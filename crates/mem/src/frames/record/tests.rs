//! The risk: a trace that reports other frames than were used, loses one in the middle, or makes
//! recorded programs behave differently. The method: the events are compared with the calls made,
//! or replayed into a simple table of the frames in use.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use coldpress_sys::page::BLOCK_BYTES;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::frames::{Config, FrameId, Migrate, Mobility, ORDER_MAX};

const BLOCKS: usize = 4;
/// Maximum events of a random trace.
const EVENTS_MAX: usize = if cfg!(miri) { 30 } else { 300 };
/// Rounds of each of several threads.
const TURNS: usize = if cfg!(miri) { 3 } else { 200 };

fn recorded(events: usize) -> FrameAllocator {
    let frames = FrameAllocator::new();
    let span = Bytes(BLOCKS * BLOCK_BYTES);
    let core = Some(Bytes(BLOCK_BYTES));
    frames
        .init(Config { span, core, online: span, easy_reclaim_hot_add: true, on_demand: false })
        .unwrap();
    frames.record(events).unwrap();
    frames
}

/// Takes all events that wait, a few at a time.
fn take(frames: &FrameAllocator) -> Vec<Event> {
    let mut bytes = [0; 4 * EVENT_BYTES + 3];
    let mut events = Vec::new();
    loop {
        let count = frames.take_events(&mut bytes);
        if count == 0 {
            return events;
        }
        let (words, rest) = bytes[..count].as_chunks();
        assert!(rest.is_empty());
        let decode = |word: &[u8; 4]| Event::decode(u32::from_le_bytes(*word)).unwrap();
        events.extend(words.iter().map(decode));
    }
}

/// Returns the chunks in use after these events. Panics at an impossible event.
fn chunks_after(events: &[Event]) -> HashMap<u32, u8> {
    let mut chunks = HashMap::new();
    for event in events {
        match *event {
            Event::Alloc { id, order, .. } => assert_eq!(chunks.insert(id, order), None),
            Event::Free { id, order } => assert_eq!(chunks.remove(&id), Some(order)),
        }
    }
    chunks
}

fn free(frames: &FrameAllocator, frame: FrameId, order: u8) {
    // SAFETY: the tests free only what they hold, with its order, and hold no references.
    unsafe {
        match order {
            0 => frames.free(frame),
            _ => frames.free_order(frame, order),
        }
    }
}

proptest! {
    #[test]
    fn events_are_what_was_done(
        steps in prop::collection::vec((any::<Index>(), 0..=ORDER_MAX, 0..4_usize), 0..EVENTS_MAX),
        taken_every in 1..100_usize,
    ) {
        let frames = recorded(1000);
        let (mut held, mut done, mut found) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (which, order, kind)) in steps.into_iter().enumerate() {
            if kind > 1 && !held.is_empty() {
                let (frame, order) = held.swap_remove(which.index(held.len()));
                free(&frames, frame, order);
                done.push(Event::Free { id: frame.index(), order });
            } else {
                let mobility = Mobility::ALL[kind % 2];
                let order = if kind == 0 { 0 } else { order };
                let frame = match order {
                    0 => frames.alloc(mobility),
                    _ => frames.alloc_order(order, mobility),
                };
                if let Some(frame) = frame {
                    held.push((frame, order));
                    done.push(Event::Alloc { id: frame.index(), order, mobility });
                }
            }
            if number % taken_every == 0 {
                found.extend(take(&frames));
            }
        }
        found.extend(take(&frames));
        prop_assert_eq!(found, done);
        frames.check();
    }
}

#[test]
fn what_finds_no_place_ends_the_recording_and_nothing_else() {
    let events = PAGE_BYTES / EVENT_BYTES;
    let frames = recorded(events);
    let alloc = |_| frames.alloc(Mobility::EasyReclaim).unwrap();
    let held: Vec<_> = (0..events + 10).map(alloc).collect();
    assert!(!frames.is_recording());
    let mut found = take(&frames);
    held.into_iter().for_each(|frame| free(&frames, frame, 0));
    found.extend(take(&frames));
    assert_eq!((found.len(), chunks_after(&found).len()), (events, events));
    frames.check();
}

#[test]
fn places_are_used_again_once_all_was_taken() {
    let frames = recorded(PAGE_BYTES / EVENT_BYTES);
    for _ in 0..10 {
        let held: Vec<_> = (0..500).map(|_| frames.alloc(Mobility::Core).unwrap()).collect();
        held.into_iter().for_each(|frame| free(&frames, frame, 0));
        assert_eq!(take(&frames).len(), 1000);
    }
    assert!(frames.is_recording());
}

#[test]
fn a_recording_begins_once_and_before_the_first_frame() {
    assert_eq!(recorded(1).record(1).unwrap_err().errno, EBUSY);
    assert_eq!(FrameAllocator::new().record(0).unwrap_err().errno, EINVAL);
    let frames = recorded(10);
    let frame = frames.alloc(Mobility::Core).unwrap();
    frames.stop_recording();
    assert_eq!((take(&frames), frames.is_recording()), (Vec::new(), false));
    assert_eq!(frames.record(10).unwrap_err().errno, EBUSY);
    free(&frames, frame, 0);
    frames.record(10).unwrap();
    assert!(frames.is_recording());
}

#[cfg(not(miri))]
#[test]
fn no_frame_passes_by_on_the_fast_path() {
    // SAFETY: all threads of the tests are the standard library's.
    if !unsafe { coldpress_sys::rseq::enable() } {
        return eprintln!("skipped: this C library or kernel has no restartable sequences");
    }
    let frames = recorded(1000);
    frames.keep_per_processor().unwrap();
    let held: Vec<_> = (0..100).map(|_| frames.alloc(Mobility::Core).unwrap()).collect();
    held.into_iter().for_each(|frame| free(&frames, frame, 0));
    assert_eq!(take(&frames).len(), 200);
    frames.stop_recording();
    frames.keep_per_processor().unwrap();
    assert_eq!(frames.record(1000).unwrap_err().errno, EBUSY);
}

/// Moves every frame it is asked to move.
struct Willing<'f>(&'f FrameAllocator);

impl Migrate for Willing<'_> {
    unsafe fn migrate(&mut self, from: FrameId, to: FrameId, owner: u32, index: u8) -> bool {
        // SAFETY: no code uses either frame, and this moves the frames of every owner.
        unsafe {
            self.0.set_owner(to, owner, index);
            self.0.free(from);
        }
        true
    }
}

#[test]
fn moved_frames_are_freed_and_allocated() {
    let frames = recorded(10_000);
    let held: Vec<_> = (0..1400).map(|_| frames.alloc(Mobility::EasyReclaim).unwrap()).collect();
    // A few frames are left, some in the upper blocks.
    for (number, frame) in held.iter().enumerate() {
        match number % 10 {
            // SAFETY: the frame belongs to the test, and `Willing` moves all frames.
            0 => unsafe { frames.set_owner(*frame, 1, 0) },
            _ => free(&frames, *frame, 0),
        }
    }
    // SAFETY: no code uses the frames meanwhile.
    let shrunk = unsafe { frames.shrink_to(Bytes(2 * BLOCK_BYTES), &mut Willing(&frames)) };
    assert_eq!(shrunk.online, Bytes(2 * BLOCK_BYTES));
    let chunks = chunks_after(&take(&frames));
    assert_eq!(chunks.len(), 140);
    assert!(chunks.keys().all(|frame| (*frame as usize) < 2 * BLOCK_BYTES / PAGE_BYTES));
}

#[test]
fn events_of_many_threads_are_in_an_order_that_can_be() {
    let frames = recorded(1 << 16);
    let done = AtomicBool::new(false);
    let events = std::thread::scope(|scope| {
        // Relaxed: the flag orders nothing else.
        let taker = scope.spawn(|| {
            let mut events = Vec::new();
            while !done.load(Ordering::Relaxed) {
                events.extend(take(&frames));
            }
            events
        });
        let workers: Vec<_> = (0..3)
            .map(|number| {
                let frames = &frames;
                scope.spawn(move || {
                    for _ in 0..TURNS {
                        let alloc = || frames.alloc(Mobility::ALL[number % 2]).unwrap();
                        let held: [_; 30] = std::array::from_fn(|_| alloc());
                        held.into_iter().for_each(|frame| free(frames, frame, 0));
                    }
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok));
        taker.join().unwrap()
    });
    let events: Vec<_> = events.into_iter().chain(take(&frames)).collect();
    assert!(frames.is_recording());
    assert_eq!(events.len(), 3 * TURNS * 30 * 2);
    assert!(chunks_after(&events).is_empty());
}
