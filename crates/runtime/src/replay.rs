//! The policy, replayed without a program: for the policy laboratory (`coldpress-bench policy`).
//!
//! The policy, the page table, the ring of limbo and all sizes are those of the service. What the
//! policy decides is done here to the page table alone.
//!
//! 1. The room is the hard limit. The service's reserve and its pool take no room here.
//! 2. Faults come one after another. No reclaim runs ahead of them while no fault waits, and no
//!    page is recompressed or read from a disk.
//! 3. A page of limbo takes room until its chunk is dropped, even if it was taken back.

use alloc::vec::Vec;

use coldpress_sys::PageCount;

use crate::pages::{Origin, PageNumber, PageState, PageTable, RunNumber, Way};
use crate::policy::{self, Drained, Effects, Level, Policy, Relatives, Ring, Window};
use crate::watermarks::band;

/// The place where a policy has a touched page. Afterwards the page is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchOutcome {
    /// In memory.
    Here,
    /// Set aside, but not compressed yet.
    Aside,
    /// Nowhere: the page was evicted, or never touched.
    Away,
}

/// The policy of the service, on pages of no program.
pub struct Replay {
    policy: Policy,
    pages: PageTable,
    ring: Ring,
    /// The pages that wait in limbo, and the number that may.
    limbo_pages: PageCount,
    limbo_target: PageCount,
    /// Whether walks get readahead; else pages are brought in one by one.
    ahead: bool,
    used: PageCount,
    soft: PageCount,
    hard: PageCount,
    faults: u64,
}

impl Replay {
    /// Makes the policy with this room; with `ahead`, walks get readahead.
    pub fn new(room: PageCount, ahead: bool) -> Self {
        let target = policy::target(room);
        Self {
            policy: Policy::default(),
            pages: PageTable::new(room),
            ring: Ring::new(target),
            limbo_pages: PageCount(0),
            limbo_target: target,
            ahead,
            used: PageCount(0),
            soft: room.saturating_sub(band(room)),
            hard: room,
            faults: 1,
        }
    }

    /// Touches the page of that number (its address divided by 4 KiB). Returns where the policy had
    /// it.
    pub fn touch(&mut self, page: usize) -> TouchOutcome {
        let page = PageNumber(page);
        if self.pages.state(page) == PageState::Resident {
            return TouchOutcome::Here;
        }
        self.faults += 1;
        policy::reclaim_along(self);
        let window = match self.pages.state(page) {
            PageState::Limbo | PageState::Stored if self.ahead => {
                self.policy.window(&self.pages, page)
            }
            _ => Window::ONE,
        };
        policy::make_room(self, PageCount(window.count));
        let window = window.at_most(self.hard.saturating_sub(self.used).0);
        // The state is read after room was made: the page may have had to leave limbo for that.
        let found = match self.pages.state(page) {
            PageState::Limbo => TouchOutcome::Aside,
            _ => TouchOutcome::Away,
        };
        self.bring_in(page, window);
        self.policy.tick();
        found
    }

    /// Brings in a page and as much of its window as is away.
    fn bring_in(&mut self, page: PageNumber, window: Window) {
        let way = window.way();
        for index in (1..window.count).rev() {
            let Some(other) = window.page(page, index) else { continue };
            if matches!(self.pages.state(other), PageState::Limbo | PageState::Stored) {
                self.arrive(other, Origin::Readahead, way);
            }
        }
        let origin = match self.pages.state(page) {
            PageState::Limbo => Origin::Limbo,
            PageState::Stored => Origin::Store,
            PageState::None | PageState::Resident => Origin::FirstTouch,
        };
        self.arrive(page, origin, way);
        if self.ahead && origin != Origin::FirstTouch {
            self.policy.advance(page, window);
        }
    }

    fn arrive(&mut self, page: PageNumber, from: Origin, way: Way) {
        let was_in_limbo = self.pages.state(page) == PageState::Limbo;
        self.limbo_pages -= PageCount(usize::from(was_in_limbo));
        self.used += PageCount(1);
        self.policy.arrive(&mut self.pages, page, from, way);
    }
}

impl Effects for Replay {
    fn policy(&mut self) -> (&mut Policy, &mut PageTable) {
        (&mut self.policy, &mut self.pages)
    }

    fn level(&self) -> Level {
        Level { used: self.used, soft: self.soft, hard: self.hard }
    }

    /// Returns a time at which each fault took a second: what was stuck is tried again.
    fn now_ns(&self) -> u64 {
        self.faults * 1_000_000_000
    }

    fn relatives(&self) -> Relatives {
        Relatives::default()
    }

    fn keeps_all(&self) -> bool {
        false
    }

    fn is_worth_taking(&self) -> bool {
        true
    }

    fn limbo_has_room(&mut self) -> bool {
        self.limbo_pages < self.limbo_target && !self.ring.is_full()
    }

    fn is_behind(&self) -> bool {
        false
    }

    fn look_around(&mut self) {}

    fn move_run(&mut self, number: RunNumber) -> PageCount {
        let wanted = self.pages.sweep_run(number);
        let wanted: Vec<PageNumber> = number
            .pages()
            .zip(wanted)
            .filter_map(|(page, is_wanted)| is_wanted.then_some(page))
            .collect();
        let moved = PageCount(wanted.len());
        if moved > PageCount(0) {
            let slot = self.ring.take_slot(number, 0);
            self.ring.note_moved(slot, moved);
            self.pages.run_mut(number).slot = Some(slot);
            wanted.iter().for_each(|page| self.pages.set_state(*page, PageState::Limbo));
            self.limbo_pages += moved;
        }
        moved
    }

    fn drain(&mut self) -> Drained {
        while let Some((_, number, next)) = self.ring.oldest() {
            let Some(index) = next else {
                self.pages.run_mut(number).slot = None;
                self.used -= self.ring.finish_oldest().map_or(PageCount(0), |(_, freed)| freed[0]);
                return Drained::Slot;
            };
            self.ring.advance_oldest();
            let page = number.first().plus(index);
            if self.pages.state(page) == PageState::Limbo {
                self.pages.note_stored(page);
                self.limbo_pages -= PageCount(1);
                return Drained::Stored;
            }
        }
        Drained::Nothing
    }

    fn drop_copies(&mut self) -> bool {
        false
    }

    fn wait_for_others(&mut self) {}
}

#[cfg(test)]
mod tests {
    //! The risk: a model that holds more than its room, or a policy that takes what is in use.

    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::pages::RUN_PAGES;
    use crate::policy::AWAY_MAX;

    /// The counts of faults: on pages never touched before, on stored pages, and on pages in limbo.
    #[derive(Debug, Default)]
    struct Counts {
        first: usize,
        major: usize,
        minor: usize,
    }

    /// Touches the pages, and counts.
    fn replay(pages: impl IntoIterator<Item = usize>, room: usize, ahead: bool) -> Counts {
        let mut replay = Replay::new(PageCount(room), ahead);
        let (mut counts, mut known) = (Counts::default(), BTreeSet::new());
        for page in pages {
            let is_first = known.insert(page);
            match replay.touch(page) {
                TouchOutcome::Here => {}
                TouchOutcome::Aside => counts.minor += 1,
                TouchOutcome::Away if is_first => counts.first += 1,
                TouchOutcome::Away => counts.major += 1,
            }
        }
        counts
    }

    /// Touches the pages, and checks the sums at every step.
    fn check(pages: &[usize], room: usize, ahead: bool) {
        let mut replay = Replay::new(PageCount(room), ahead);
        let known: BTreeSet<_> = pages.iter().copied().map(PageNumber).collect();
        for page in pages {
            replay.touch(*page);
            assert!(replay.used.0 <= room, "{:?} of {room}", replay.used);
            let count =
                |state| known.iter().filter(|page| replay.pages.state(**page) == state).count();
            let (resident, in_limbo) = (count(PageState::Resident), count(PageState::Limbo));
            assert_eq!(in_limbo, replay.limbo_pages.0);
            // A page that was taken back or compressed takes room until its chunk is dropped.
            assert!(resident + in_limbo <= replay.used.0, "{resident} and {in_limbo}");
        }
    }

    /// Makes runs of some pages: runs that are close to each other, and runs that are not.
    fn touches() -> impl Strategy<Value = Vec<usize>> {
        let start = prop_oneof![0_usize..64, 0_usize..2000];
        prop::collection::vec((start, 1_usize..24), 1..120).prop_map(|walks| {
            walks.into_iter().flat_map(|(start, length)| start..start + length).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn it_never_has_more_than_its_room(
            pages in touches(), room in 400_usize..900, ahead in any::<bool>(),
        ) {
            check(&pages, room, ahead);
        }
    }

    #[test]
    fn what_is_used_while_it_waits_in_limbo_comes_back_without_a_major_fault() {
        // Far more pages than fit pass by, and one of them is in use all the time.
        let pages = (1..20_000).flat_map(|page| [RUN_PAGES * page, 7]);
        let counts = replay(pages, 2000, false);
        assert_eq!(counts.major, 0, "{counts:?}");
        assert!((1..1000).contains(&counts.minor), "{counts:?}");
        assert_eq!(counts.first, 20_000);
    }

    #[test]
    fn a_loop_finds_a_part_in_place_where_it_has_no_room_and_all_where_it_has() {
        let (room, passes) = (4000, 20);
        // The share of the faults that there would be if no page were resident.
        let share = |pages: usize| {
            // The first pages are never touched again.
            let once = 0..5000;
            let all = once.chain((0..passes).flat_map(|_| 10_000..10_000 + pages));
            let counts = replay(all, room, true);
            let widest = (2 * AWAY_MAX - 1) as f64 / 2.0;
            counts.major as f64 * widest / (passes * pages) as f64
        };
        for (pages, most) in [(2000, 0.1), (3000, 0.1), (6000, 0.85), (20_000, 0.92)] {
            assert!(share(pages) < most, "{pages}: {}", share(pages));
        }
    }

    #[test]
    fn walks_save_faults() {
        let [alone, ahead] =
            [false, true].map(|ahead| replay((0..4).flat_map(|_| 0..5000), 2000, ahead));
        assert!(ahead.major * 10 < alone.major, "{ahead:?} {alone:?}");
    }
}
