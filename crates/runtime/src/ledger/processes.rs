//! What only the processes of a run read and publish, and the launcher does not.
//!
//! All numbers are plain counters, as in all of the ledger: every access is Relaxed.

use core::sync::atomic::Ordering;

use coldpress_sys::PageCount;

use super::{Ledger, Seat};
use crate::tally::Counter;

impl Ledger {
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
