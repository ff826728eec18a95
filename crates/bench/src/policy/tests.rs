//! The risk: a policy that is not what its name says, so that ours looks better or worse beside it
//! than it is. The method: the optimum is compared with all possible choices, LRU with a list that
//! is searched, the others with sequences worked out by hand.

use super::trace::{Touch, Trace};
use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

fn trace(pages: &[u64]) -> Trace {
    let touch = |page: &u64| Touch { page: *page, is_write: false };
    Trace::new(&pages.iter().map(touch).collect::<Vec<_>>()).unwrap()
}

/// Returns the number of faults, first touches included.
fn faults(peer: Peer, pages: &[u64], room: usize) -> u64 {
    let trace = trace(pages);
    let counts = replay(&trace, &mut *peer.policy(&trace, room));
    assert_eq!(counts.first, trace.distinct() as u64, "nothing is there before it is touched");
    assert_eq!(counts.minor, 0);
    counts.first + counts.major
}

/// Returns which touches of ranks fault: `X` for a fault, `.` for none.
pub(super) fn course(policy: &mut dyn Policy, ranks: &[usize]) -> String {
    ranks
        .iter()
        .map(|rank| if policy.touch(*rank) == TouchOutcome::Here { '.' } else { 'X' })
        .collect()
}

/// Returns the fewest faults possible, by trying all choices.
fn fewest(held: &[u64], rest: &[u64], room: usize) -> u64 {
    let Some((page, rest)) = rest.split_first() else { return 0 };
    if held.contains(page) {
        return fewest(held, rest, room);
    }
    let with = |held: &[u64]| 1 + fewest(&[held, &[*page]].concat(), rest, room);
    if held.len() < room {
        return with(held);
    }
    let without = |gone: usize| {
        let mut left = held.to_vec();
        left.remove(gone);
        with(&left)
    };
    (0..held.len()).map(without).min().expect("there is room for a page")
}

/// Returns the faults of a stack of pages, with the last page touched on top.
fn lru(pages: &[u64], room: usize) -> u64 {
    let (mut stack, mut faults) = (Vec::new(), 0);
    for page in pages {
        match stack.iter().position(|other| other == page) {
            Some(at) => drop(stack.remove(at)),
            None => faults += 1,
        }
        stack.push(*page);
        if stack.len() > room {
            stack.remove(0);
        }
    }
    faults
}

proptest! {
    #[test]
    fn the_optimum_is_what_trying_everything_finds(
        pages in prop::collection::vec(0_u64..6, 1..14), room in 1_usize..4,
    ) {
        prop_assert_eq!(faults(Peer::Belady, &pages, room), fewest(&[], &pages, room));
    }

    #[test]
    fn lru_is_a_stack(pages in prop::collection::vec(0_u64..30, 1..400), room in 1_usize..30) {
        prop_assert_eq!(faults(Peer::Lru, &pages, room), lru(&pages, room));
    }

    #[test]
    fn nobody_beats_the_optimum_and_all_have_what_fits(
        pages in prop::collection::vec(prop_oneof![0_u64..10, 0_u64..100], 1..600),
        room in 1_usize..60,
    ) {
        let optimum = faults(Peer::Belady, &pages, room);
        let distinct = pages.iter().collect::<HashSet<_>>().len();
        for peer in Peer::ALL {
            let found = faults(peer, &pages, room);
            prop_assert!(found >= optimum, "{}: {} {}", peer.name(), found, optimum);
            prop_assert_eq!(faults(peer, &pages, distinct), distinct as u64, "{}", peer.name());
        }
    }
}

#[test]
fn clock_gives_up_what_was_not_touched_since_the_hand_came_by() {
    // Page 3 comes when all bits are set: the hand clears them and takes page 0, the first. Page 1
    // is touched, so page 4 takes the place of page 2, and page 1 is still there.
    let mut clock = Clock::new(5, 3);
    assert_eq!(course(&mut clock, &[0, 1, 2, 3, 1, 4, 1, 3, 2]), "XXXX.X..X");
}

#[test]
fn models_touch_every_page_and_are_the_same_in_every_run() {
    for model in generate::Model::ALL {
        let trace = model.trace(1000);
        assert_eq!(trace.distinct(), 1000, "{}", model.name());
        assert!(trace.count() >= 12_900, "{}", model.name());
        assert_eq!(trace, model.trace(1000));
    }
}

#[test]
fn models_differ_by_which_policy_is_good() {
    let major = |model: generate::Model, peer: Peer| {
        let trace = model.trace(1000);
        replay(&trace, &mut *peer.policy(&trace, 500)).major
    };
    // A loop over 600 pages in room for 500: LRU finds none of them, the optimum misses a sixth.
    assert_eq!(major(generate::Model::Loop, Peer::Lru), 12_000);
    assert!(major(generate::Model::Loop, Peer::Belady) < 12_000 / 5);
    for model in [generate::Model::Zipf, generate::Model::Hot] {
        assert!(major(model, Peer::Lru) * 2 < 12_000, "{}", model.name());
        assert!(major(model, Peer::S3Fifo) < major(model, Peer::Clock), "{}", model.name());
    }
}
