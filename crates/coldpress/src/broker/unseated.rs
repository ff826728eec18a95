//! Memory of processes that have no seat, as /proc shows it from time to time.
//!
//! A process that can be managed reports itself when it has grown to some size. Processes that
//! cannot (static programs, those of other users) must be looked for. While anything in the tree
//! runs, the launcher looks at the tree twenty times a second, which takes a third of a percent of
//! a processor at 150 us a look (one program). While nothing runs, nothing grows.
//!
//! A child of fork has what its parent has until it writes to it or calls exec. As long as there is
//! such a child without a seat, the part of each process counts (`parts`): all that the child has
//! would count twice.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use coldpress_sys::PageCount;

use super::parts::{Asked, Parts, kib_of};
use crate::proc::{self, Life};
use crate::tree;

/// The shortest and the longest interval between two looks. It is the shortest while anything runs,
/// and then doubles each time.
const INTERVAL_MIN: Duration = Duration::from_millis(50);
const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// The way to ask processes for what they have in common with their children.
struct OfPrivate;

impl Asked for OfPrivate {
    fn all(&self, process: u32) -> Option<PageCount> {
        // A process that has ended and was not waited for has no memory.
        proc::anonymous(process).filter(|pages| pages.0 > 0)
    }

    fn part(&self, process: u32) -> Option<PageCount> {
        kib_of(process, "smaps_rollup", "Pss_Anon:")
    }
}

/// A process of the tree at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// The anonymous memory of the process, if it has no seat.
    unseated: PageCount,
    /// The time that the process has run, in ticks of the kernel's clock.
    ticks: u64,
    is_forked: bool,
}

/// The processes at the last look, and the time until the next.
pub(crate) struct Unseated {
    seen: HashMap<u32, Seen>,
    /// The part of each process, if any comes from a fork.
    parts: Option<Parts>,
    interval: Duration,
}

impl Unseated {
    /// Makes the state before the first look.
    pub(crate) fn new() -> Self {
        Self { seen: HashMap::new(), parts: None, interval: INTERVAL_MIN }
    }

    /// Looks at all processes below this one except `services`; those in `seated` count for
    /// themselves.
    pub(crate) fn look(&mut self, seated: &HashSet<u32>, services: &HashSet<u32>) {
        self.look_at(tree::holders_of_run(seated, services).into_iter(), seated);
    }

    fn look_at(&mut self, processes: impl Iterator<Item = u32>, seated: &HashSet<u32>) {
        let see = |process| {
            let is_seated = seated.contains(&process);
            // A process that ends has given its seat back, and shares what it has with a process
            // that goes on.
            let Life { ticks, is_ending, is_forked } = Life::of(process)?;
            let counts = !is_seated && !is_ending;
            let unseated = if counts { proc::anonymous(process)? } else { PageCount(0) };
            Some((process, Seen { unseated, ticks, is_forked }))
        };
        self.take(processes.filter_map(see).collect());
    }

    fn take(&mut self, seen: HashMap<u32, Seen>) {
        let is_same = seen == self.seen;
        self.interval = if is_same { (self.interval * 2).min(INTERVAL_MAX) } else { INTERVAL_MIN };
        self.seen = seen;
        let is_forked = |seen: &Seen| seen.is_forked && seen.unseated > PageCount(0);
        if !self.seen.values().any(is_forked) {
            self.parts = None;
            return;
        }
        let all = self.seen.iter().map(|(process, seen)| (*process, seen.unseated));
        let parts = self.parts.get_or_insert_default();
        parts.note(all.filter(|(_, unseated)| unseated.0 > 0), Instant::now(), &OfPrivate);
    }

    /// Takes `process` out of the count: it has taken a seat, and counts for itself from now on.
    pub(crate) fn sit(&mut self, process: u32) {
        if let Some(seen) = self.seen.get_mut(&process) {
            seen.unseated = PageCount(0);
        }
        if let Some(parts) = &mut self.parts {
            parts.forget(process);
        }
    }

    /// Returns the processes of the tree.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.seen.keys().copied()
    }

    /// Returns what `process` holds, if it has no seat.
    pub(crate) fn held_by(&self, process: u32) -> PageCount {
        let seen = self.seen.get(&process).map_or(PageCount(0), |seen| seen.unseated);
        self.parts.as_ref().map_or(seen, |parts| parts.of(process))
    }

    /// Returns what processes without a seat hold.
    pub(crate) fn pages(&self) -> PageCount {
        if let Some(parts) = &self.parts {
            return parts.sum();
        }
        self.seen.values().fold(PageCount(0), |sum, seen| sum + seen.unseated)
    }

    /// Returns the time until the next look.
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the longest time until the next look when a process is awake.
    pub(crate) fn soon() -> Duration {
        INTERVAL_MIN
    }
}

#[cfg(test)]
mod tests {
    //! The risk: the launcher looks all the time, or does not see what runs.

    use super::*;

    #[test]
    fn looks_become_rare_while_nothing_runs_and_frequent_when_something_does() {
        let seen =
            |ticks| HashMap::from([(7, Seen { unseated: PageCount(3), ticks, is_forked: false })]);
        let mut unseated = Unseated::new();
        unseated.take(seen(1));
        assert_eq!(unseated.interval(), INTERVAL_MIN);
        for _ in 0..10 {
            unseated.take(seen(1));
        }
        assert_eq!(unseated.interval(), INTERVAL_MAX);
        unseated.take(seen(2));
        assert_eq!(unseated.interval(), INTERVAL_MIN);
        assert_eq!(unseated.pages(), PageCount(3));
        unseated.sit(7);
        assert_eq!(unseated.pages(), PageCount(0));
    }

    #[test]
    fn who_has_a_seat_is_not_counted_twice() {
        let own = std::process::id();
        let mut unseated = Unseated::new();
        unseated.look_at([own].into_iter(), &HashSet::new());
        assert!(unseated.pages() > PageCount(10));
        unseated.look_at([own].into_iter(), &HashSet::from([own]));
        assert_eq!(unseated.seen[&own].unseated, PageCount(0));
    }
}
