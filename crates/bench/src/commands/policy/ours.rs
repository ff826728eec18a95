//! The runtime's policy, replayed without a program.
//!
//! The policy, the page table, the ring of limbo and all sizes are the runtime's own. What the
//! policy decides is done here to the page table alone.
//!
//! 1. The room is the runtime's hard limit. The runtime's reserve and its pool take no room here.
//! 2. Faults come one after another. No reclaim runs ahead of them while no fault waits, and no
//!    page is recompressed or read from a disk.
//! 3. A page of limbo takes room until its chunk is dropped, even if it was taken back.

use crate::policy::trace::Trace;
use crate::policy::{Policy as Replayed, TouchOutcome};
use coldpress_runtime::pages::{Origin, PageNumber, PageState, PageTable, RunNumber, Way};
use coldpress_runtime::policy::{self, Drained, Effects, Level, Policy, Relatives, Ring, Window};
use coldpress_runtime::watermarks::band;
use coldpress_sys::PageCount;

/// The runtime's policy, on the pages of one trace.
pub(super) struct Ours<'a> {
    trace: &'a Trace,
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

impl<'a> Ours<'a> {
    /// Makes the policy with room for `room` pages; with `ahead`, walks get readahead.
    pub(super) fn new(trace: &'a Trace, room: usize, ahead: bool) -> Self {
        let room = PageCount(room);
        let target = policy::target(room);
        Self {
            trace,
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

impl Effects for Ours<'_> {
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

impl Replayed for Ours<'_> {
    fn touch(&mut self, rank: usize) -> TouchOutcome {
        let page = PageNumber(self.trace.page(rank) as usize);
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
}

#[cfg(test)]
mod tests {
    //! The risk: a model that holds more than its room, or that beats the optimum because it does.

    use super::*;
    use crate::policy::trace::Touch;
    use crate::policy::{Peer, replay};
    use coldpress_runtime::pages::RUN_PAGES;
    use coldpress_runtime::policy::AWAY_MAX;
    use proptest::prelude::*;

    fn trace(pages: impl IntoIterator<Item = u64>) -> Trace {
        let touch = |page| Touch { page, is_write: false };
        Trace::new(&pages.into_iter().map(touch).collect::<Vec<_>>()).unwrap()
    }

    /// Replays a trace and checks the sums at every step.
    fn check(trace: &Trace, room: usize, ahead: bool) {
        let mut ours = Ours::new(trace, room, ahead);
        for (rank, _) in trace.touches() {
            ours.touch(rank);
            assert!(ours.used.0 <= room, "{:?} of {room}", ours.used);
            let all = 0..trace.distinct();
            let is = |rank: &usize, state| {
                ours.pages.state(PageNumber(trace.page(*rank) as usize)) == state
            };
            let resident = all.clone().filter(|rank| is(rank, PageState::Resident)).count();
            let in_limbo = all.filter(|rank| is(rank, PageState::Limbo)).count();
            assert_eq!(in_limbo, ours.limbo_pages.0);
            // A page that was taken back or compressed takes room until its chunk is dropped.
            assert!(resident + in_limbo <= ours.used.0, "{resident} and {in_limbo}");
        }
    }

    /// Makes runs of some pages: runs that are close to each other, and runs that are not.
    fn touches() -> impl Strategy<Value = Vec<u64>> {
        let start = prop_oneof![0_u64..64, 0_u64..2000];
        prop::collection::vec((start, 1_u64..24), 1..120).prop_map(|walks| {
            walks.into_iter().flat_map(|(start, length)| start..start + length).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn it_never_has_more_than_its_room(
            pages in touches(), room in 400_usize..900, ahead in any::<bool>(),
        ) {
            check(&trace(pages), room, ahead);
        }

        #[test]
        fn it_never_beats_the_optimum_and_has_what_fits(
            pages in touches(), room in 400_usize..900,
        ) {
            let trace = trace(pages);
            let optimum = replay(&trace, &mut *Peer::Belady.policy(&trace, room));
            let ours = replay(&trace, &mut Ours::new(&trace, room, false));
            prop_assert!(ours.major >= optimum.major, "{ours:?} {optimum:?}");
            prop_assert_eq!(ours.first, trace.distinct() as u64);
            let all = replay(&trace, &mut Ours::new(&trace, 2 * trace.distinct(), false));
            prop_assert_eq!((all.major, all.minor), (0, 0));
        }
    }

    #[test]
    fn what_is_used_while_it_waits_in_limbo_comes_back_without_a_major_fault() {
        // Far more pages than fit pass by, and one of them is in use all the time.
        let pages = (1..20_000_u64).flat_map(|page| [RUN_PAGES as u64 * page, 7]);
        let trace = trace(pages);
        let counts = replay(&trace, &mut Ours::new(&trace, 2000, false));
        assert_eq!(counts.major, 0, "{counts:?}");
        assert!((1..1000).contains(&counts.minor), "{counts:?}");
        assert_eq!(counts.first, 20_000);
    }

    #[test]
    fn a_loop_finds_a_part_in_place_where_it_has_no_room_and_all_where_it_has() {
        let (room, passes) = (4000, 20);
        // The share of the faults that there would be if no page were resident.
        let share = |pages: u64| {
            // The first pages are never touched again.
            let once = 0..5000;
            let trace = trace(once.chain((0..passes).flat_map(|_| 10_000..10_000 + pages)));
            let counts = replay(&trace, &mut Ours::new(&trace, room, true));
            let widest = (2 * AWAY_MAX - 1) as f64 / 2.0;
            counts.major as f64 * widest / (passes * pages) as f64
        };
        for (pages, most) in [(2000, 0.1), (3000, 0.1), (6000, 0.85), (20_000, 0.92)] {
            assert!(share(pages) < most, "{pages}: {}", share(pages));
        }
    }

    #[test]
    fn walks_save_faults() {
        let trace = trace((0..4).flat_map(|_| 0..5000));
        let [alone, ahead] =
            [false, true].map(|ahead| replay(&trace, &mut Ours::new(&trace, 2000, ahead)));
        assert!(ahead.major * 10 < alone.major, "{ahead:?} {alone:?}");
    }
}
