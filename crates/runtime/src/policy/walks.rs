//! Walks (sequential streams): a program that touched some pages in a row will soon touch the next,
//! which should be there by then (readahead).
//!
//! ```text
//! faults:   7   8   9       11             15                                  23
//! brought:  7   8   9  10   11 12 13 14    15 .. 22                            23 ..
//! window:   1   1   2       4              8                                   the widest
//! ```
//!
//! A walk goes on where its last window ended. That it does is all that is known of a window having
//! been right, because no accessed bit exists for us. Walks go in steps: forward, backward, or over
//! some pages. A walk that left its way begins anew. A program that jumps by just a window faults
//! where a walk would, and touches one page of each window; so the widest windows are one page
//! narrower every other time.

use crate::pages::{PageNumber, RUN_PAGES, Way};

/// Walks followed at a time.
const WALKS: usize = 8;
/// Past faults that are searched for the beginning of a walk.
const RECENT: usize = 16;
/// Pages that a walk may pass without a fault because they are there.
const PASSED_MAX: usize = 32;
/// Faults of others that a walk outlasts for each page it was brought: the walk comes back only
/// when it has gone through them.
const PATIENCE: usize = 8;

/// Widest window of pages that are away. Wider ones gain little: 16 pages share the cost of a
/// fault, and a thread that waits for one page of a window waits for all, and for the room they
/// take.
pub(crate) const AWAY_MAX: usize = 16;
/// Pace of walks over pages that are away. A page brought in for nothing costs as much as the fault
/// it should have saved, so windows begin late and small: with two faults and windows of 4, 16, a
/// Python program with scattered pages used 54 % of what it was brought; with this pace, 77 %.
///
/// Long steps, of a column through a matrix say, are believed after four faults: in little memory,
/// three faults at equal distances come by chance.
pub(crate) const LOADS: Pace =
    Pace { faults: 3, step_max: 4, leap_faults: 4, leap_max: 64, growth: 2, widest: AWAY_MAX };

/// The rules for what is taken for a walk, and how quickly its windows grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Faults in a row that make a walk: the last of them gets the first window.
    pub(crate) faults: isize,
    /// The longest step of such a walk.
    pub(crate) step_max: usize,
    /// Faults that make a walk in longer steps.
    pub(crate) leap_faults: isize,
    /// The longest step of a walk in longer steps.
    pub(crate) leap_max: usize,
    /// Pages of the first window, and the factor from each window to the next.
    pub(crate) growth: usize,
    /// Pages of the widest window.
    pub(crate) widest: usize,
}

/// Pages to bring in together: `count` of them, `step` apart. The first is the one asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Distance from one page to the next: forward, or backward.
    pub(crate) step: isize,
    /// Pages, at least one.
    pub(crate) count: usize,
    /// The walk that goes on with it, if there is one.
    walk: Option<usize>,
}

impl Window {
    /// One page, of no walk.
    pub(crate) const ONE: Self = Self { step: 1, count: 1, walk: None };

    /// Returns the window with at most `count` pages, and at least one.
    pub(crate) fn at_most(self, count: usize) -> Self {
        Self { count: self.count.min(count).max(1), ..self }
    }

    /// Returns how its pages, which are away, come: by a long walk if the walk has gone on for
    /// long, and the window lies in two runs at most.
    pub(crate) fn way(self) -> Way {
        let is_long = self.count > AWAY_MAX / 2;
        if is_long && self.count * self.step.unsigned_abs() <= RUN_PAGES {
            Way::Walk
        } else {
            Way::Alone
        }
    }

    /// Returns page number `index` of the window, when `first` is the page asked for; `None` beyond
    /// the ends of the address space.
    pub(crate) fn page(self, first: PageNumber, index: usize) -> Option<PageNumber> {
        let distance = self.step.checked_mul(index.cast_signed())?;
        first.0.checked_add_signed(distance).map(PageNumber)
    }
}

/// One walk.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    /// The last page of its last window.
    last: PageNumber,
    /// Distance from one page of the window to the next; 0 where there is no walk.
    step: isize,
    /// Pages of its last window.
    window: usize,
    /// When the walk may be given up for another.
    until: usize,
}

/// The walks that a program is on.
#[derive(Debug)]
pub(crate) struct Walks {
    pace: Pace,
    walks: [Walk; WALKS],
    /// The last pages that were asked for, in a ring.
    recent: [PageNumber; RECENT],
    /// Windows so far.
    now: usize,
}

impl Walks {
    /// Creates the state without any walk.
    pub(crate) fn new(pace: Pace) -> Self {
        Self { pace, walks: Default::default(), recent: Default::default(), now: 0 }
    }

    /// Returns the window to bring in for a fault on `page`. `is_there` says of pages whether they
    /// would be passed without a fault.
    pub(crate) fn window(
        &self,
        page: PageNumber,
        mut is_there: impl FnMut(PageNumber) -> bool,
    ) -> Window {
        let Pace { growth, widest, .. } = self.pace;
        if let Some(at) = self.walks.iter().position(|walk| walk.comes_to(page, &mut is_there)) {
            let Walk { step, window, .. } = self.walks[at];
            let count = (window * growth).min(widest);
            // Never the same size twice.
            let count = if count == window { (count - 1).max(1) } else { count };
            return Window { step, count, walk: Some(at) };
        }
        let step = self.recent.iter().map(|other| page.0.wrapping_sub(other.0).cast_signed());
        let step = step.filter(|step| self.is_walked_to(page, *step));
        step.min_by_key(|step| step.unsigned_abs()).map_or(Window::ONE, |step| Window {
            step,
            count: growth.min(widest),
            walk: None,
        })
    }

    /// Returns whether a walk that comes to `page` in such steps had its pages asked for lately.
    fn is_walked_to(&self, page: PageNumber, step: isize) -> bool {
        let before = |times: isize| page.0.wrapping_add_signed(-step * times);
        let Pace { faults, step_max, leap_faults, leap_max, .. } = self.pace;
        let faults = match step.unsigned_abs() {
            0 => return false,
            length if length <= step_max => faults,
            length if length <= leap_max => leap_faults,
            _ => return false,
        };
        (2..faults).all(|times| self.recent.contains(&PageNumber(before(times))))
    }

    /// Records that `window`, or as much of it as its `count` says, was brought in for `page`.
    pub(crate) fn advance(&mut self, page: PageNumber, window: Window) {
        self.now += 1;
        self.recent[self.now % RECENT] = page;
        if window.walk.is_none() && window.count == 1 {
            return;
        }
        let at = window.walk.unwrap_or_else(|| self.first_to_give_up());
        self.walks[at] = Walk {
            last: window.page(page, window.count - 1).unwrap_or(page),
            step: window.step,
            window: window.count,
            until: self.now + PATIENCE * window.count,
        };
    }

    fn first_to_give_up(&self) -> usize {
        let untils = self.walks.iter().enumerate().map(|(at, walk)| (walk.until, at));
        untils.min().map_or(0, |(_, at)| at)
    }
}

impl Walk {
    /// Returns whether `page` is the next page that the walk has to touch.
    fn comes_to(&self, page: PageNumber, is_there: &mut impl FnMut(PageNumber) -> bool) -> bool {
        let distance = page.0.wrapping_sub(self.last.0).cast_signed();
        if self.step == 0 || distance % self.step != 0 {
            return false;
        }
        let steps = distance / self.step;
        let mut passed = (1..steps).map(|step| self.last.0.wrapping_add_signed(step * self.step));
        steps > 0 && passed.len() <= PASSED_MAX && passed.all(|number| is_there(PageNumber(number)))
    }
}

#[cfg(test)]
mod tests {
    //! Risk: pages brought in that no walk comes to, or walks that are served page by page.

    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use std::vec::Vec;

    const STEP_MAX: usize = 4;
    const LEAP_MAX: usize = 12;

    /// Memory in which `touch` brings in what is missing: the pages asked for, and the others.
    struct Memory {
        walks: Walks,
        there: HashSet<usize>,
        windows: Vec<usize>,
    }

    impl Memory {
        fn new(faults: isize, growth: usize, widest: usize) -> Self {
            let leap_faults = faults + 1;
            let pace = Pace {
                faults,
                step_max: STEP_MAX,
                leap_faults,
                leap_max: LEAP_MAX,
                growth,
                widest,
            };
            let walks = Walks::new(pace);
            Self { walks, there: HashSet::new(), windows: Vec::new() }
        }

        fn touch(&mut self, page: PageNumber) {
            if !self.there.insert(page.0) {
                return;
            }
            let window = self.walks.window(page, |page| self.there.contains(&page.0));
            assert_eq!(window.page(page, 0), Some(page));
            for index in 1..window.count {
                self.there.extend(window.page(page, index).map(|page| page.0));
            }
            self.walks.advance(page, window);
            self.windows.push(window.count);
        }
    }

    #[test]
    fn only_walks_get_more_than_they_touch() {
        for (faults, growth, expected) in
            [(2, 4, &[4, 16, 64, 63][..]), (3, 2, &[2, 4, 8, 16, 32, 64])]
        {
            let mut memory = Memory::new(faults, growth, 64);
            for page in 1000..1000 + 128 {
                memory.touch(PageNumber(page));
                // A second, scattered toucher in between changes nothing.
                memory.touch(PageNumber(page * 7000));
            }
            let (walk, single): (Vec<usize>, _) =
                memory.windows.iter().partition(|window| **window > 1);
            assert_eq!(walk, expected);
            assert_eq!(single.len(), 128 + faults.unsigned_abs() - 1);
        }
    }

    #[test]
    fn a_walk_that_left_its_way_begins_anew() {
        let mut memory = Memory::new(3, 2, 16);
        (1000..1009).for_each(|page| memory.touch(PageNumber(page)));
        assert_eq!(memory.windows, [1, 1, 2, 4, 8]);
        [1020, 1031, 1033, 1035].into_iter().for_each(|page| memory.touch(PageNumber(page)));
        assert_eq!(memory.windows, [1, 1, 2, 4, 8, 1, 1, 1, 2]);
    }

    #[test]
    fn leaps_are_believed_later_than_steps() {
        for (step, expected) in [
            (4, &[1, 1, 2, 4, 8][..]),
            (5, &[1, 1, 1, 2, 4]),
            (12, &[1, 1, 1, 2, 4]),
            (13, &[1; 5]),
        ] {
            let mut memory = Memory::new(3, 2, 16);
            for index in 0..64 {
                memory.touch(PageNumber(9000 - step * index));
            }
            assert_eq!(memory.windows[..5], *expected, "{step}");
        }
    }

    #[test]
    fn a_walk_is_long_once_its_windows_are_wide_and_lie_in_two_runs() {
        for (step, expected) in [(1, 3), (-1, 3), (2, 3), (-2, 3), (3, 1), (64, 0)] {
            let windows = [1, 2, 4, 8, 15, 16, 9].map(|count| Window { step, count, walk: None });
            let long = windows.iter().filter(|window| window.way() == Way::Walk).count();
            assert_eq!(long, expected, "{step}");
        }
    }

    #[test]
    fn jumps_by_a_window_end_a_walk() {
        for jump in [15, 16] {
            let mut memory = Memory::new(3, 2, 16);
            (1000..1040).for_each(|page| memory.touch(PageNumber(page)));
            assert_eq!(memory.windows[5..], [16, 15]);
            let last = memory.there.iter().max().expect("some are there") + 1;
            let before = memory.windows.len();
            (0..20).for_each(|index| memory.touch(PageNumber(last + index * jump)));
            assert!(memory.windows[before + 2..].iter().all(|window| *window == 1));
        }
    }

    #[test]
    fn what_is_there_does_not_end_a_walk_but_what_is_missing_does() {
        for (there, expected) in [(1004..1009, [1, 1, 2, 4]), (1004..1008, [1, 1, 2, 1])] {
            let mut memory = Memory::new(3, 2, 16);
            memory.there.extend(there);
            [1000, 1001, 1002, 1009].into_iter().for_each(|page| memory.touch(PageNumber(page)));
            assert_eq!(memory.windows, expected);
        }
    }

    #[test]
    fn nothing_beyond_the_address_space_is_asked_for() {
        let window = Window { step: -3, count: 4, walk: None };
        let pages: Vec<_> = (0..4).map(|index| window.page(PageNumber(7), index)).collect();
        let page = |number| Some(PageNumber(number));
        assert_eq!(pages, [page(7), page(4), page(1), None]);
        assert_eq!(window.at_most(2).count, 2);
        assert_eq!(window.at_most(0).count, 1);
    }

    proptest! {
        #[test]
        fn a_walk_of_any_step_soon_faults_once_a_window(
            step in prop_oneof![1_isize..=12, -12_isize..=-1],
            start in 100_000_usize..200_000,
            (faults, growth, widest) in (2_isize..5, 2_usize..5, 1_usize..64),
        ) {
            const TOUCHES: usize = 1000;
            let mut memory = Memory::new(faults, growth, widest);
            for index in 0..TOUCHES as isize {
                memory.touch(PageNumber(start.wrapping_add_signed(index * step)));
            }
            let most = 14 + 2 * TOUCHES / (2 * widest - 1);
            prop_assert!(memory.windows.len() <= most, "{:?}", memory.windows);
            prop_assert!(memory.windows.iter().all(|window| (1..=widest).contains(window)));
            // No more than what the last window reaches beyond the end.
            prop_assert!(memory.there.len() <= TOUCHES + widest);
        }

        #[test]
        fn scattered_touches_get_what_they_touch(
            pages in proptest::collection::vec(0_usize..1_000_000, 1..200)
        ) {
            let mut memory = Memory::new(2, 4, 64);
            for page in pages {
                memory.touch(PageNumber(1000 + page * (LEAP_MAX + 1)));
            }
            prop_assert!(memory.windows.iter().all(|window| *window == 1));
        }
    }
}
