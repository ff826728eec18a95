//! Memory of processes that have no seat, as /proc shows it from time to time.
//!
//! A process that can be managed says so itself when it has grown to something. What cannot (static
//! programs, those of other users) must be looked for. While anything in the tree runs, it is
//! looked at twenty times a second, which is a third of a percent of a processor at 150 us a look
//! (one program); while nothing does, nothing grows.
//!
//! A child of fork has what its parent has until it writes to it or calls exec. As long as there is
//! one without a seat, what falls to each counts (`parts`): all that a child has would count twice.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use coldpress_sys::PageCount;

use crate::parts::{Asked, Parts, kib_of};
use crate::tree::{self, Life};

/// Between two looks while anything runs; then twice as long each time, up to the most.
const INTERVAL_MIN: Duration = Duration::from_millis(50);
const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// How processes are asked for what they have in common with their children.
struct OfPrivate;

impl Asked for OfPrivate {
    fn all(&self, process: u32) -> Option<PageCount> {
        // One that has ended and was not waited for has none.
        tree::anonymous(process).filter(|pages| pages.0 > 0)
    }

    fn part(&self, process: u32) -> Option<PageCount> {
        kib_of(process, "smaps_rollup", "Pss_Anon:")
    }
}

/// A process of the tree at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// Anonymous memory, if it has no seat.
    unseated: PageCount,
    /// Time it has run, in ticks of the kernel's clock.
    ticks: u64,
    is_forked: bool,
}

/// What was seen last, and when to look again.
pub(crate) struct Unseated {
    seen: HashMap<u32, Seen>,
    /// What falls to each, if any comes from a fork.
    parts: Option<Parts>,
    interval: Duration,
}

impl Unseated {
    /// Nothing was seen yet.
    pub(crate) fn new() -> Self {
        Self { seen: HashMap::new(), parts: None, interval: INTERVAL_MIN }
    }

    /// Looks at all below this process but `services`; those in `seated` count for themselves.
    pub(crate) fn look(&mut self, seated: &HashSet<u32>, services: &HashSet<u32>) {
        self.look_at(tree::holders_of_run(seated, services).into_iter(), seated);
    }

    fn look_at(&mut self, processes: impl Iterator<Item = u32>, seated: &HashSet<u32>) {
        let see = |process| {
            let is_seated = seated.contains(&process);
            // Who ends has given its seat back, and shares what it has with who goes on.
            let Life { ticks, is_ending, is_forked } = Life::of(process)?;
            let counts = !is_seated && !is_ending;
            let unseated = if counts { tree::anonymous(process)? } else { PageCount(0) };
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

    /// `process` has taken a seat, and counts for itself from now on.
    pub(crate) fn sit(&mut self, process: u32) {
        if let Some(seen) = self.seen.get_mut(&process) {
            seen.unseated = PageCount(0);
        }
        if let Some(parts) = &mut self.parts {
            parts.forget(process);
        }
    }

    /// The processes of the tree.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.seen.keys().copied()
    }

    /// What `process` holds, if it has no seat.
    pub(crate) fn held_by(&self, process: u32) -> PageCount {
        let seen = self.seen.get(&process).map_or(PageCount(0), |seen| seen.unseated);
        self.parts.as_ref().map_or(seen, |parts| parts.of(process))
    }

    /// What processes without a seat hold.
    pub(crate) fn pages(&self) -> PageCount {
        if let Some(parts) = &self.parts {
            return parts.sum();
        }
        self.seen.values().fold(PageCount(0), |sum, seen| sum + seen.unseated)
    }

    /// How long until the next look.
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Somebody is awake: the next look may not be farther than this.
    pub(crate) fn soon() -> Duration {
        INTERVAL_MIN
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a launcher that looks all the time, or that does not see what runs.

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
