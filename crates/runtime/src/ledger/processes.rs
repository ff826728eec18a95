//! What only the processes of a run read and publish, and the launcher does not.
//!
//! All numbers are plain counters, as in all of the ledger: every access is Relaxed.

use core::sync::atomic::Ordering;

use coldpress_sys::PageCount;

use super::{Ledger, Seat, Table};
use crate::tally::Counter;

impl Ledger {
    /// Returns the words of turns that all processes share.
    pub(crate) fn turn_table(&self) -> &Table {
        &self.shared.turns
    }

    /// Wakes the helper if it sleeps.
    pub(crate) fn ring_helper(&self) {
        self.shared.bell.ring();
    }

    /// Raises the peak to `used`, the pages that all processes hold.
    pub(crate) fn note_used(&self, used: PageCount) {
        let peak_pages = &self.shared.peak_pages;
        // `used` is usually no peak, and a load leaves the cache line with all its readers.
        if used.0 as u64 > peak_pages.load(Ordering::Relaxed) {
            peak_pages.fetch_max(used.0 as u64, Ordering::Relaxed);
        }
    }

    /// Counts pages that a process copies.
    pub(crate) fn note_copied(&self, pages: PageCount) {
        self.shared.copied_pages.fetch_add(pages.0 as u64, Ordering::Relaxed);
    }

    /// Returns the number of pages that processes have copied.
    pub(crate) fn copied(&self) -> u64 {
        self.shared.copied_pages.load(Ordering::Relaxed)
    }

    /// Returns the pages that all processes but the one in `seat` have ever stored, without the
    /// processes that have ended.
    pub(crate) fn stored_by_others(&self, seat: usize) -> u64 {
        let others = self.taken().filter(|(index, _)| *index != seat);
        let tallies = others.map(|(index, _)| &self.shared.tallies[index]);
        tallies.fold(0, |sum, tally| sum.saturating_add(tally.get(Counter::PagesStored)))
    }

    /// Returns the number of processes that share memory with relatives, or may, for each
    /// processor; at least 1.
    pub(crate) fn crowd(&self) -> u64 {
        let may = |seat: &Seat| {
            let words = [&seat.sharing, &seat.family];
            words.into_iter().any(|word| word.load(Ordering::Relaxed) != 0)
        };
        let sharing = self.taken().filter(|(_, seat)| may(seat));
        (sharing.count() / self.processors().max(1) as usize).max(1) as u64
    }

    /// Returns the number of processes whose management has just begun, without the one in `seat`.
    pub(crate) fn beginning_beside(&self, seat: usize) -> usize {
        let begins = |seat: &Seat| seat.beginning.load(Ordering::Relaxed) != 0;
        self.taken().filter(|(index, other)| *index != seat && begins(other)).count()
    }

    /// Returns the number of processes of the `family`, without the one in `seat`.
    pub(crate) fn relatives(&self, seat: usize, family: u32) -> u64 {
        self.of_family(seat, family).count() as u64
    }

    /// Returns the most pages that a managed relative of the process in `seat` has left in memory,
    /// of those relatives that take what they share.
    pub(crate) fn most_left(&self, seat: usize, family: u32) -> PageCount {
        let managed = self.of_family(seat, family).filter(|seat| seat.is_managing());
        let most = managed.map(|seat| seat.left_pages.load(Ordering::Relaxed)).max();
        PageCount(most.unwrap_or_default() as usize)
    }

    fn of_family(&self, seat: usize, family: u32) -> impl Iterator<Item = &Seat> {
        let seats = (family != 0).then(|| self.taken()).into_iter().flatten();
        let others = seats.filter(move |(index, _)| *index != seat);
        let are = others.filter(move |(_, seat)| seat.family.load(Ordering::Relaxed) == family);
        are.map(|(_, seat)| seat)
    }
}

impl Seat {
    /// Publishes whether all pages of this process are in the program, to stay there.
    pub(crate) fn set_thawed(&self, is_thawed: bool) {
        self.thawed.store(u32::from(is_thawed), Ordering::Relaxed);
    }

    /// Publishes whether the management of this process has just begun.
    pub(crate) fn set_beginning(&self, is_beginning: bool) {
        self.beginning.store(u32::from(is_beginning), Ordering::Relaxed);
    }

    /// Publishes whether this process shares much memory with relatives.
    pub(crate) fn set_sharing(&self, is_sharing: bool) {
        self.sharing.store(u32::from(is_sharing), Ordering::Relaxed);
    }

    /// Publishes that this process has asked how much memory the machine has.
    pub(crate) fn set_asked(&self) {
        self.asked.store(1, Ordering::Relaxed);
    }
}
