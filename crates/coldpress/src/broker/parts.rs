//! Parts: each process's share of the memory it has in common with others. Each page is divided by
//! the number of processes that map it, so the sum over a tree has each page once.
//!
//! To report a part, the kernel looks at every page (`smaps_rollup`). So it is asked only when a
//! cheap figure has changed, and for 2 % of the time. In between, the part of a single process
//! grows with that figure. Of several processes, what one maps anew is usually already mapped by
//! another.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use coldpress_sys::{Bytes, PageCount};

use crate::proc;

/// The change of a process's common memory that counts: more than this part of it, and more than
/// this size.
const CHANGED_PART: usize = 64;
const CHANGED: PageCount = Bytes::kib(256).pages_down();
/// The pause between two questions to the kernel, as a multiple of the time that one took.
pub(crate) const ASK_COST_FACTOR: u32 = 50;

/// The number of times that all processes are asked at once, while some of them end.
const TRIES: usize = 4;

/// The part of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    /// All common memory that the process has now.
    all: PageCount,
    /// The part of the process when the kernel was last asked, and all that it had then; zero
    /// before.
    part: PageCount,
    of: PageCount,
}

impl Part {
    fn now(self, is_only: bool) -> PageCount {
        let scaled = PageCount(self.part.0 * self.all.0 / self.of.0.max(1));
        if is_only { scaled } else { scaled.min(self.part) }
    }

    fn has_changed(self) -> bool {
        self.all.0.abs_diff(self.of.0) > CHANGED.0.max(self.of.0 / CHANGED_PART)
    }
}

/// The parts of several processes, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    seen: HashMap<u32, Part>,
    /// The parts of processes that have gone since the kernel was asked: others may still have the
    /// memory.
    left_behind: PageCount,
    /// The most that all have, while some end at each asking: an end gives no other process more
    /// memory.
    at_most: Option<PageCount>,
    /// Whether a process has come, gone or changed, so that the known parts of others are out of
    /// date.
    is_stale: bool,
    ask_at: Option<Instant>,
}

/// A way to ask for the memory of a process.
pub(crate) trait Asked {
    /// Returns all common memory of `process`: a cheap figure. Returns nothing when the process has
    /// ended.
    fn all(&self, process: u32) -> Option<PageCount>;
    /// Returns the part of `process`, each page divided by the number of processes that map it.
    /// Returns nothing where the kernel hides it.
    fn part(&self, process: u32) -> Option<PageCount>;
}

impl Parts {
    /// Takes `all` common memory of each process, and asks for the parts if they are out of date. A
    /// process that has not been asked for its part yet has none.
    pub(crate) fn note(
        &mut self,
        all: impl Iterator<Item = (u32, PageCount)>,
        now: Instant,
        asked: &impl Asked,
    ) {
        let mut before = std::mem::take(&mut self.seen);
        self.seen.extend(all.map(|(process, all)| {
            let known = before.remove(&process).unwrap_or_default();
            (process, Part { all, ..known })
        }));
        let gone = before.values().fold(PageCount(0), |sum, part| sum + part.part);
        self.left_behind += gone;
        self.is_stale |= !before.is_empty() || self.seen.values().any(|part| part.has_changed());
        if !self.is_stale || self.ask_at.is_some_and(|at| now < at) {
            return;
        }
        let begun = Instant::now();
        let known = self.sum().max(self.most());
        self.at_most = None;
        let mut tries = 1..TRIES;
        while self.ask(asked) {
            if tries.next().is_none() {
                self.at_most = Some(known);
                break;
            }
        }
        self.ask_at = Some(now + ASK_COST_FACTOR * begun.elapsed().max(Duration::from_micros(100)));
    }

    /// Returns whether any process ended while this asked for the part of each.
    ///
    /// A process that maps less by the time that all have been asked has no more than that. A
    /// process that has ended has no part: its memory may be in the parts of those asked after it.
    /// A process that maps more gets the part of what it had when the asking began, because the
    /// part of a process asked before may have the new memory whole.
    fn ask(&mut self, asked: &impl Asked) -> bool {
        let parts: Vec<_> = self
            .seen
            .iter()
            .map(|(process, part)| (*process, asked.part(*process).unwrap_or(part.all)))
            .collect();
        self.is_stale = false;
        self.left_behind = PageCount(0);
        let is_only = parts.len() == 1;
        let mut has_any_gone = false;
        for (process, part) in parts {
            let Some(all) = asked.all(process) else {
                let gone = self.seen.remove(&process).expect("it was asked for its part");
                self.left_behind += gone.part;
                (self.is_stale, has_any_gone) = (true, true);
                continue;
            };
            let known = self.seen.get_mut(&process).expect("it was asked for its part");
            self.is_stale |= all.0.abs_diff(known.all.0) > CHANGED.0;
            let before = all.min(known.all);
            let share = PageCount(part.min(all).0 * before.0 / all.0.max(1));
            let part = if is_only { part.min(before) } else { share };
            *known = Part { all: before, part, of: before };
        }
        has_any_gone
    }

    /// Takes `process` out of the parts, because it counts elsewhere from now on.
    pub(crate) fn forget(&mut self, process: u32) {
        self.is_stale |= self.seen.remove(&process).is_some();
    }

    /// Returns the part of one process.
    pub(crate) fn of(&self, process: u32) -> PageCount {
        let is_only = self.seen.len() == 1;
        self.seen.get(&process).map_or(PageCount(0), |part| part.now(is_only))
    }

    /// Returns the sum of all parts. Of the memory of processes that have gone, as much counts as
    /// others can have in common with them.
    pub(crate) fn sum(&self) -> PageCount {
        let none = (PageCount(0), PageCount(0));
        let (parts, common) = self.seen.iter().fold(none, |(parts, common), (process, part)| {
            let own = self.of(*process);
            (parts + own, common + part.all.saturating_sub(own))
        });
        let sum = parts + self.left_behind.min(common);
        self.at_most.map_or(sum, |most| sum.min(most))
    }

    /// Returns the sum where no other process has any of the memory: while parts change, it is at
    /// least what one process has.
    pub(crate) fn sum_of_own(&self) -> PageCount {
        let least = if self.is_stale { self.most() } else { PageCount(0) };
        self.sum().max(least)
    }

    /// Returns the most common memory that one process has.
    fn most(&self) -> PageCount {
        self.seen.values().map(|part| part.all).max().unwrap_or_default()
    }

    /// Returns the process that has the most common memory.
    pub(crate) fn largest(&self) -> Option<u32> {
        self.seen.iter().max_by_key(|(_, part)| part.all).map(|(process, _)| *process)
    }
}

/// Reads a figure in KiB from a file of `process` in /proc.
pub(crate) fn kib_of(process: u32, file: &str, name: &str) -> Option<PageCount> {
    let text = proc::text(process, file)?;
    let kib = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: usize = kib.split_whitespace().next()?.parse().ok()?;
    Some(Bytes::kib(kib).pages_up())
}

#[cfg(test)]
mod tests {
    //! The risk: memory counts more than once, or not at all.

    use std::cell::Cell;

    use super::*;

    /// The answers of processes: all memory, and the part. Those not named have ended.
    struct Tells<'a>(&'a [(u32, usize, Option<usize>)]);

    impl Tells<'_> {
        fn of(&self, process: u32) -> Option<(usize, Option<usize>)> {
            self.0.iter().find(|(one, ..)| *one == process).map(|(_, all, part)| (*all, *part))
        }
    }

    impl Asked for Tells<'_> {
        fn all(&self, process: u32) -> Option<PageCount> {
            self.of(process).map(|(all, _)| PageCount(all))
        }

        fn part(&self, process: u32) -> Option<PageCount> {
            self.of(process)?.1.map(PageCount)
        }
    }

    /// Notes that each of these processes has this much, and answers with this part if it is time
    /// to ask. Returns the sum.
    fn note(parts: &mut Parts, now: Instant, all: &[(u32, usize, Option<usize>)]) -> usize {
        let seen = all.iter().map(|(process, all, _)| (*process, PageCount(*all)));
        parts.note(seen, now, &Tells(all));
        parts.sum().0
    }

    #[test]
    fn parts_follow_what_there_is_until_the_kernel_is_asked_again() {
        let (mut parts, begun) = (Parts::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        let half = Some(500);
        assert_eq!(note(&mut parts, at(0), &[(1, 1_000, half), (2, 1_000, half)]), 1_000);
        // It is too soon to ask, then there is no part to be had.
        assert_eq!(note(&mut parts, at(1), &[(1, 2_000, None), (2, 1_000, None)]), 1_000);
        assert_eq!(note(&mut parts, at(900), &[(1, 2_000, None), (2, 1_000, None)]), 3_000);
        let told = [(1, 2_000, Some(1)), (2, 1_000, Some(1))];
        assert_eq!(note(&mut parts, at(1_900), &told), 3_000);
        assert_eq!((parts.of(1).0, parts.of(3).0, parts.largest()), (2_000, 0, Some(1)));
        // One process has gone, so the other's part may have changed; and a part is no more than
        // all.
        assert_eq!(note(&mut parts, at(3_000), &[(2, 1_000, Some(900))]), 900);
        assert_eq!(note(&mut parts, at(3_001), &[(2, 2_000, None)]), 1_800);
        assert_eq!(note(&mut parts, at(3_900), &[(2, 1_000, Some(9_000))]), 1_000);
    }

    #[test]
    fn what_the_gone_had_is_with_others_until_these_are_asked() {
        let (mut parts, begun) = (Parts::default(), Instant::now());
        let soon = begun + Duration::from_nanos(1);
        let third = Some(300);
        let all = [(1, 900, third), (2, 900, third), (3, 900, third)];
        assert_eq!(note(&mut parts, begun, &all), 900);
        assert_eq!(note(&mut parts, soon, &all[..2]), 900);
        assert_eq!(note(&mut parts, soon, &all[..1]), 900);
        assert_eq!(note(&mut parts, soon, &[]), 0);
        // Memory that counts elsewhere is not left behind.
        assert_eq!(note(&mut parts, begun + Duration::from_secs(9), &all), 900);
        parts.forget(3);
        assert_eq!(parts.sum().0, 600);
    }

    #[test]
    fn what_changes_while_it_is_asked_for_counts_once() {
        let (mut parts, begun) = (Parts::default(), Instant::now());
        // The second process ended after the first was asked, or before: all memory is the first's.
        let seen = || [(1, PageCount(1_000)), (2, PageCount(1_000))].into_iter();
        parts.note(seen(), begun, &Tells(&[(1, 1_000, Some(1_000))]));
        assert_eq!(parts.sum().0, 1_000);
        // The first process has let go of all its memory after it was asked.
        let later = begun + Duration::from_secs(1);
        parts.note(seen(), later, &Tells(&[(1, 0, Some(500)), (2, 1_000, Some(1_000))]));
        assert_eq!(parts.sum().0, 1_000);
        assert!(parts.is_stale);
    }

    #[test]
    fn what_one_had_that_ends_while_all_are_asked_is_not_with_it_and_with_others() {
        let (mut parts, begun) = (Parts::default(), Instant::now());
        let third = Some(300);
        let all = [(1, 900, third), (2, 900, third), (3, 900, third)];
        assert_eq!(note(&mut parts, begun, &all), 900);
        let seen = [(1, PageCount(900)), (2, PageCount(900)), (3, PageCount(1_800))];
        let (later, half) = (begun + Duration::from_secs(1), Some(450));
        parts.note(seen.into_iter(), later, &Tells(&[(1, 900, half), (2, 900, half)]));
        assert_eq!(parts.sum().0, 900);
    }

    /// Two processes that come to have the same 1,000 pages, after both were seen and before the
    /// second is asked for its part.
    struct Maps {
        had: usize,
    }

    impl Asked for Maps {
        fn all(&self, _process: u32) -> Option<PageCount> {
            Some(PageCount(1_000))
        }

        fn part(&self, process: u32) -> Option<PageCount> {
            Some(PageCount(if process == 1 { 1_000 - self.had / 2 } else { 500 }))
        }
    }

    #[test]
    fn what_is_mapped_while_it_is_asked_for_counts_once_and_is_there() {
        for had in [0, 200, 1_000] {
            let (mut parts, now) = (Parts::default(), Instant::now());
            let mut note = |now, ones: [usize; 2]| {
                let seen = [(1, PageCount(ones[0])), (2, PageCount(ones[1]))];
                parts.note(seen.into_iter(), now, &Maps { had });
                parts.sum_of_own().0
            };
            assert_eq!(note(now, [1_000, had]), 1_000);
            // It is too soon to ask again.
            assert_eq!(note(now, [1_000, 1_000]), 1_000);
        }
        // Both processes have all pages by the time that the first is asked; the second had none
        // before.
        let (mut parts, now) = (Parts::default(), Instant::now());
        let tells = [(1, 1_000, Some(500)), (2, 1_000, Some(500))];
        let first = [(1, PageCount(1_000)), (2, PageCount(0))];
        parts.note(first.into_iter(), now, &Tells(&tells));
        assert_eq!((parts.sum().0, parts.sum_of_own().0), (500, 1_000));
    }

    /// Several processes that have the same 720 pages. The last one ends whenever all are asked.
    struct Ends {
        left: Cell<u32>,
        begins: Cell<bool>,
    }

    impl Asked for Ends {
        fn all(&self, process: u32) -> Option<PageCount> {
            self.begins.set(true);
            (process < self.left.get()).then_some(PageCount(720))
        }

        fn part(&self, process: u32) -> Option<PageCount> {
            if self.begins.take() {
                self.left.update(|left| left - 1);
            }
            let left = self.left.get();
            (process < left).then_some(PageCount(720 / left as usize))
        }
    }

    #[test]
    fn those_that_end_at_each_asking_do_not_make_it_more() {
        let (mut parts, begun) = (Parts::default(), Instant::now());
        let ends = Ends { left: Cell::new(10), begins: Cell::new(false) };
        let seen = |count| (0..count).map(|process| (process, PageCount(720)));
        parts.note(seen(10), begun, &ends);
        assert_eq!((parts.sum().0, ends.left.get()), (720, 10));
        ends.left.set(9);
        parts.note(seen(9), begun + Duration::from_secs(1), &ends);
        assert_eq!((parts.sum().0, ends.left.get()), (720, 5));
        // Memory that has grown counts.
        let two = [(0, 2_000, Some(1_000)), (1, 2_000, Some(1_000))];
        assert_eq!(note(&mut parts, begun + Duration::from_secs(2), &two), 2_000);
    }

    #[test]
    fn what_grows_all_the_time_counts_at_once() {
        let (mut parts, begun) = (Parts::default(), Instant::now());
        for round in 1..=4 {
            let (now, all) = (begun + Duration::from_secs(round as u64), 1_000 * round);
            let tells = [(1, all + 500, Some(all))];
            parts.note([(1, PageCount(all))].into_iter(), now, &Tells(&tells));
            assert_eq!(parts.sum().0, all);
        }
    }
}
