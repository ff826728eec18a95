//! The totals of a run: the sum of what its processes count and hold, also those that have ended.

use std::time::Duration;

use coldpress_runtime::ledger::Ledger;
use coldpress_runtime::tally::{Counter, Figures, Group};
use coldpress_sys::{Bytes, PAGE_BYTES};
use serde_json::{Map, Value, json};

/// The name of the figure for saved memory, among those of held memory.
const SAVED: &str = "saved_bytes";

/// The sum over all processes of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    figures: Figures,
    joined: u64,
    managed: u64,
    /// The bytes saved when the last managed process ended.
    saved_at_end: u64,
    /// The time that the run has lasted.
    lasted: Duration,
}

impl Totals {
    /// Returns the totals when the run has `lasted` that long.
    pub(crate) fn after(&self, lasted: Duration) -> Self {
        Self { lasted, ..self.clone() }
    }

    /// Returns the numbers of the process in `seat` alone.
    pub(super) fn of(ledger: &Ledger, seat: usize) -> Self {
        let mut totals = Self::default();
        totals.add(ledger, seat);
        totals
    }

    /// Adds the numbers of a process, read before.
    pub(super) fn include(&mut self, one: &Self) {
        self.figures.include(&one.figures);
        self.joined += one.joined;
        self.managed += one.managed;
    }

    /// Adds the numbers of the process in `seat`.
    pub(crate) fn add(&mut self, ledger: &Ledger, seat: usize) {
        self.figures.add(ledger.tally(seat));
        self.count_in(ledger, seat);
    }

    /// Adds the counters of the process in `seat` and what it holds, and no more: that is what a
    /// point of the timeline needs, in a fifth of the time.
    pub(super) fn add_for_point(&mut self, ledger: &Ledger, seat: usize) {
        self.figures.add_groups(ledger.tally(seat), &[Group::Counters, Group::Held]);
        self.count_in(ledger, seat);
    }

    /// Adds the numbers of a process that leaves its `seat`, when all processes together have
    /// `saved` that many bytes.
    pub(crate) fn add_ended(&mut self, ledger: &Ledger, seat: usize, saved: u64) {
        if ledger.is_managing(seat) {
            self.saved_at_end = saved;
        }
        self.figures.add_ended(ledger.tally(seat));
        self.count_in(ledger, seat);
    }

    fn count_in(&mut self, ledger: &Ledger, seat: usize) {
        self.joined += 1;
        self.managed += u64::from(ledger.is_managing(seat));
    }

    /// Returns the bytes that are saved now.
    pub(crate) fn saved(&self) -> u64 {
        self.figures.held(SAVED)
    }

    /// Returns the bytes that were saved on average.
    pub(super) fn saved_on_average(&self) -> Bytes {
        let byte_ms = u128::from(self.get(Counter::SavedPageMs)) * PAGE_BYTES as u128;
        Bytes((byte_ms / self.lasted.as_millis().max(1)) as usize)
    }

    /// Returns the part of the time that was stalled for idle memory, in per cent.
    pub(super) fn idle_stall_percent(&self) -> f64 {
        let (stalled, of) = (self.get(Counter::IdleStallNs), self.get(Counter::IdleNs));
        (stalled as f64 * 100_000.0 / of.max(1) as f64).round() / 1000.0
    }

    /// Returns the bytes saved when the last managed process ended.
    pub(super) fn saved_at_end(&self) -> u64 {
        self.saved_at_end
    }

    /// Returns the number of managed processes: each has taken a page of its own away and brought
    /// it back.
    pub(crate) fn managed(&self) -> u64 {
        self.managed
    }

    /// Returns the number of processes that have joined.
    pub(crate) fn joined(&self) -> u64 {
        self.joined
    }

    /// Returns what is held now under this name.
    pub(crate) fn held(&self, name: &str) -> u64 {
        self.figures.held(name)
    }

    /// Returns the sum of a counter.
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.figures.get(counter)
    }

    /// Returns the words of a group.
    pub(super) fn group(&self, group: Group) -> &[u64] {
        self.figures.group(group)
    }

    /// Returns how long the run had lasted.
    pub(super) fn lasted(&self) -> Duration {
        self.lasted
    }

    pub(super) fn named(&self, group: Group) -> Map<String, Value> {
        let words = self.figures.group(group).iter().map(|word| Value::from(*word));
        group.names().iter().map(|name| (*name).to_owned()).zip(words).collect()
    }

    /// Returns all histograms by name.
    pub(super) fn histograms(&self) -> Value {
        json!({
            "fault_ns": self.classes(Group::FaultNs),
            "load_ns": self.classes(Group::LoadNs),
            "store_ns": self.classes(Group::StoreNs),
            "stored_size": self.classes(Group::Sizes),
            "loaded_age_ms": self.classes(Group::LoadedAges),
            "flushed_age_ms": self.classes(Group::FlushedAges),
            "refault_permille": self.refaults(),
        })
    }

    /// Returns a histogram: how many were below each bound, and not below the one before.
    fn classes(&self, group: Group) -> Vec<Value> {
        let words = self.figures.group(group).iter().enumerate();
        words
            .filter(|(_, count)| **count > 0)
            .map(|(class, count)| json!({ "below": group.bound(class), "count": count }))
            .collect()
    }

    /// Returns the histogram of refault distances, with the stalls of each class.
    fn refaults(&self) -> Vec<Value> {
        let counts = self.figures.group(Group::Refaults).iter();
        let all = counts.zip(self.figures.group(Group::RefaultNs)).enumerate();
        all.filter(|(_, (count, _))| **count > 0)
            .map(|(class, (count, stall))| {
                let from = class.checked_sub(1).map_or(0, |before| Group::Refaults.bound(before));
                let below = Group::Refaults.bound(class);
                json!({ "from": from, "below": below, "count": count, "stall_ns": stall })
            })
            .collect()
    }

    /// Returns the ratio of the stored pages' size before compression to after; 0 when nothing was
    /// stored.
    pub(super) fn ratio(&self) -> f64 {
        ratio(self.get(Counter::PagesStored), self.get(Counter::BytesStored))
    }
}

/// Returns the ratio of so many pages to the `bytes` that they took; 0 for no page.
pub(super) fn ratio(pages: u64, bytes: u64) -> f64 {
    let before = pages.saturating_mul(PAGE_BYTES as u64);
    if before == 0 { 0.0 } else { before as f64 / bytes.max(1) as f64 }
}

/// Rounds a ratio or a rate as reports have it.
pub(crate) fn rounded(ratio: f64) -> f64 {
    (ratio * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    //! The risk: an average of a long run wraps around.

    use coldpress_runtime::knobs::Knobs;
    use coldpress_runtime::ledger::{Keeper, Terms};
    use coldpress_sys::PageCount;

    use super::*;

    #[test]
    fn the_average_of_a_long_run_is_right() {
        let terms =
            Terms { budget: PageCount(10_000), spill_max: Bytes(0), verbose: false, processors: 2 };
        let (_fds, ledger) = Keeper::create(terms, &Knobs::default()).unwrap();
        // This is 1 TiB for a year.
        let year = Duration::from_secs(365 * 86_400);
        ledger.tally(0).add(Counter::SavedPageMs, (1 << 28) * year.as_millis() as u64);
        let mut totals = Totals::default().after(year);
        totals.add(&ledger, 0);
        assert_eq!(totals.saved_on_average(), Bytes(1 << 40));
    }

    #[test]
    fn what_is_saved_now_is_found() {
        assert!(Group::Held.names().contains(&SAVED));
    }
}
