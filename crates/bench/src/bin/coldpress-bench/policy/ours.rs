//! The runtime's policy, replayed without a program.
//!
//! The page table, the reclaim queue, the ring of limbo, the readahead windows of walks and all
//! sizes are the runtime's own. This file repeats what the runtime's `reclaim`, `fault` and `away`
//! do with them.
//!
//! 1. The room is the runtime's hard limit. The runtime's reserve and its pool take no room here.
//! 2. Faults come one after another. No reclaim runs ahead of them while no fault waits, and no
//!    page is recompressed or read from a disk.
//! 3. A page of limbo takes room until its chunk is dropped, even if it was taken back.

use coldpress_bench::policy::trace::Trace;
use coldpress_bench::policy::{Found, Policy};
use coldpress_runtime::budget::{PAGES_TOGETHER, band};
use coldpress_runtime::limbo::{Ring, target};
use coldpress_runtime::pages::{Origin, PageNumber, PageState, PageTable, RunNumber, Way};
use coldpress_runtime::queue::{Evicted, RunQueue};
use coldpress_runtime::walks::{LOADS, Walks, Window};
use coldpress_sys::PageCount;

/// The runtime's policy, on the pages of one trace.
pub(super) struct Ours<'a> {
    trace: &'a Trace,
    pages: PageTable,
    queue: RunQueue,
    ring: Ring,
    /// The pages that wait in limbo, and the number that may.
    limbo_pages: usize,
    limbo_target: usize,
    /// The walks; `None` where pages are brought in one by one.
    walks: Option<Walks>,
    used: usize,
    soft: usize,
    hard: usize,
    clock: u32,
    /// The pages that came in since the last reclaim along with faults.
    arrivals: usize,
}

impl<'a> Ours<'a> {
    /// Makes the policy with room for `room` pages; with `ahead`, walks get readahead.
    pub(super) fn new(trace: &'a Trace, room: usize, ahead: bool) -> Self {
        let budget = PageCount(room);
        Self {
            trace,
            pages: PageTable::new(budget),
            queue: RunQueue::default(),
            ring: Ring::new(target(budget)),
            limbo_pages: 0,
            limbo_target: target(budget).0,
            walks: ahead.then(|| Walks::new(LOADS)),
            used: 0,
            soft: room - band(budget).0,
            hard: room,
            clock: 0,
            arrivals: 0,
        }
    }

    /// Does what `Manager::reclaim_along` does. The pool does not grow, so that part is left out.
    fn reclaim_along(&mut self) {
        if self.used <= self.soft {
            self.arrivals = 0;
            return;
        }
        // In the upper half of the band, reclaim takes twice as many steps.
        let twice = self.used - self.soft > self.hard.saturating_sub(self.used);
        let steps = if twice { 2 * self.arrivals } else { self.arrivals };
        if steps < PAGES_TOGETHER {
            return;
        }
        self.arrivals = 0;
        for _ in 0..steps {
            if !self.reclaim_step() {
                return;
            }
        }
    }

    /// Does what `Manager::make_room` does.
    fn make_room(&mut self, need: usize) {
        while self.used + need > self.hard && self.reclaim_step() {}
    }

    /// Returns whether a step of reclaim could be taken. Does what `Manager::reclaim_step` does.
    fn reclaim_step(&mut self) -> bool {
        let limbo_has_room = self.limbo_pages < self.limbo_target && !self.ring.is_full();
        let evicted = if limbo_has_room { self.evict_run() } else { Evicted::Nothing };
        evicted == Evicted::Run || self.drain_step() || evicted == Evicted::NothingYet
    }

    /// Does what `Manager::evict_run` does.
    fn evict_run(&mut self) -> Evicted {
        for _ in 0..self.queue.step() {
            let next = self.queue.next_if_cold(&mut self.pages, self.clock);
            let Some(number) = next else { continue };
            let moved = self.move_run(number);
            if self.pages.run_has(number, PageState::Resident) {
                self.queue.enqueue(&mut self.pages, number, self.clock);
            }
            if moved > 0 {
                return self.queue.note_moved();
            }
        }
        self.queue.note_nothing_moved()
    }

    /// Does what `Manager::move_run` does where the kernel refuses nothing.
    fn move_run(&mut self, number: RunNumber) -> usize {
        let wanted: Vec<PageNumber> =
            number.pages().filter(|page| self.pages.sweep(*page)).collect();
        if !wanted.is_empty() {
            let slot = self.ring.take_slot(number, 0);
            self.ring.note_moved(slot, PageCount(wanted.len()));
            self.pages.run_mut(number).slot = Some(slot);
            wanted.iter().for_each(|page| self.pages.set_state(*page, PageState::Limbo));
            self.limbo_pages += wanted.len();
        }
        wanted.len()
    }

    /// Returns whether a step of draining limbo could be taken. Does what `Manager::drain_step`
    /// does.
    fn drain_step(&mut self) -> bool {
        while let Some((_, number, next)) = self.ring.oldest() {
            let Some(index) = next else {
                self.pages.run_mut(number).slot = None;
                self.used -= self.ring.finish_oldest().map_or(0, |(_, freed)| freed[0].0);
                return true;
            };
            self.ring.advance_oldest();
            let page = number.first().plus(index);
            if self.pages.state(page) == PageState::Limbo {
                self.pages.note_stored(page);
                self.limbo_pages -= 1;
                return true;
            }
        }
        false
    }

    /// Does what `Manager::place_away` does.
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
        if let Some(walks) = self.walks.as_mut().filter(|_| origin != Origin::FirstTouch) {
            walks.advance(page, window);
        }
    }

    /// Does what `Manager::note_back` and `note_arrival` do.
    fn arrive(&mut self, page: PageNumber, from: Origin, way: Way) {
        self.limbo_pages -= usize::from(self.pages.state(page) == PageState::Limbo);
        self.used += 1;
        self.arrivals += 1;
        self.queue.arrive(&mut self.pages, page, from, way, self.clock);
    }
}

impl Policy for Ours<'_> {
    /// Does what `Manager::serve_pending` does.
    fn touch(&mut self, rank: usize) -> Found {
        let page = PageNumber(self.trace.page(rank) as usize);
        if self.pages.state(page) == PageState::Resident {
            return Found::Here;
        }
        self.reclaim_along();
        let is_there = |page| self.pages.state(page) == PageState::Resident;
        let window = match (&self.walks, self.pages.state(page)) {
            (Some(walks), PageState::Limbo | PageState::Stored) => walks.window(page, is_there),
            _ => Window::ONE,
        };
        self.make_room(window.count);
        let window = window.at_most(self.hard.saturating_sub(self.used));
        // The state is read after room was made: the page may have had to leave limbo for that.
        let found = match self.pages.state(page) {
            PageState::Limbo => Found::Aside,
            _ => Found::Away,
        };
        self.bring_in(page, window);
        self.clock = self.clock.wrapping_add(1);
        found
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a model that holds more than its room, or that beats the optimum because it does.

    use super::*;
    use coldpress_bench::policy::trace::Touch;
    use coldpress_bench::policy::{Peer, replay};
    use coldpress_runtime::pages::RUN_PAGES;
    use coldpress_runtime::walks::AWAY_MAX;
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
            assert!(ours.used <= room, "{} of {room}", ours.used);
            let all = 0..trace.distinct();
            let is = |rank: &usize, state| {
                ours.pages.state(PageNumber(trace.page(*rank) as usize)) == state
            };
            let resident = all.clone().filter(|rank| is(rank, PageState::Resident)).count();
            let in_limbo = all.filter(|rank| is(rank, PageState::Limbo)).count();
            assert_eq!(in_limbo, ours.limbo_pages);
            // A page that was taken back or compressed takes room until its chunk is dropped.
            assert!(resident + in_limbo <= ours.used, "{resident} and {in_limbo}");
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
