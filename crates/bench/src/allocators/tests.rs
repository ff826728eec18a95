//! The risk: allocators that do not get the same calls, or objects that leak, so that the next
//! measurement starts from another state. The method: allocators that count and remember.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::sync::Mutex;

use super::*;

/// The system's allocator, with a record of every live object.
#[derive(Default)]
struct Noted {
    out: Mutex<HashMap<usize, Layout>>,
    calls: Mutex<Vec<(usize, usize)>>,
}

// SAFETY: every call is passed on to `System` unchanged.
unsafe impl GlobalAlloc for Noted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout is the caller's, passed on unchanged.
        let object = unsafe { System.alloc(layout) };
        assert!(self.out.lock().unwrap().insert(object.addr(), layout).is_none());
        self.calls.lock().unwrap().push((layout.size(), layout.align()));
        object
    }

    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        assert_eq!(self.out.lock().unwrap().remove(&object.addr()), Some(layout));
        // SAFETY: `out` held the object with this layout, so `System` allocated it.
        unsafe { System.dealloc(object, layout) };
    }
}

fn works() -> Vec<Work> {
    object_works(Scale::SMALL).into_iter().chain(frame_works(Scale::SMALL)).collect()
}

#[test]
fn every_work_frees_all_and_makes_the_same_calls_again() {
    for work in works() {
        let calls = || {
            let noted = Noted::default();
            let ns = work.run(&noted);
            assert!(ns.is_finite() && ns >= 0.0, "{}", work.name());
            assert!(noted.out.lock().unwrap().is_empty(), "{}", work.name());
            noted.calls.into_inner().unwrap()
        };
        let first = calls();
        assert_eq!(first.len(), work.objects(), "{}", work.name());
        assert_eq!(first, calls(), "{}", work.name());
    }
}

#[test]
fn sizes_reach_from_16_bytes_to_1_kib() {
    let noted = Noted::default();
    let works = object_works(Scale::SMALL);
    let mixed = works.iter().find(|work| work.name() == "pairs of 16 B to 1 KiB").unwrap();
    mixed.run(&noted);
    let sizes: Vec<usize> = noted.calls.lock().unwrap().iter().map(|call| call.0).collect();
    assert!(sizes.iter().all(|size| (16..=1024).contains(size)));
    assert!(sizes.iter().any(|size| *size > 900) && sizes.iter().any(|size| *size < 24));
}

#[test]
fn a_contest_has_a_row_for_each_work_and_a_sample_for_each_allocator() {
    let (works, noted) = (works(), Noted::default());
    let contestants = [
        Contestant { name: "noted", allocator: &noted, is_peer: true },
        Contestant { name: "system", allocator: &System, is_peer: true },
        Contestant { name: "nothing", allocator: &Nothing, is_peer: false },
    ];
    let outcome = contest(&works, &contestants, 1, "noted");
    assert_eq!(outcome.samples.len(), works.len());
    assert!(outcome.samples.iter().all(|row| row.len() == contestants.len()));
    assert_eq!(outcome.goals.len(), 3);
    assert_eq!(outcome.numbers["works"].as_array().unwrap().len(), works.len());
    // Without a peer to compare with, or without the contestant to judge, there is no goal.
    assert!(contest(&works[..1], &contestants[1..], 1, "system").goals.is_empty());
    assert!(contest(&works[..1], &contestants, 1, "other").goals.is_empty());
}

#[test]
fn our_allocators_do_every_work() {
    let heap = crate::ours::heap().unwrap();
    object_works(Scale::SMALL).iter().for_each(|work| assert!(work.run(heap) >= 0.0));
    let frames = crate::ours::order_0_frames(coldpress_sys::Bytes::mib(64)).unwrap();
    frame_works(Scale::SMALL).iter().for_each(|work| assert!(work.run(&frames) >= 0.0));
}
