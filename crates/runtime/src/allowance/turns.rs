//! Turns: processes that together need more memory than there is play one after the other (load
//! control).
//!
//! When less fits than the working sets of all of them, each loses its pages to the others before
//! it has used them, and all time goes into bringing pages back: they thrash. Fewer processes at a
//! time get more done. This is load control (Denning, Thrashing: its causes and prevention, 1968)
//! by what serving faults takes, and turns by time, as the swap token of Linux 2.6 had them (Jiang
//! and Zhang, Token-ordered LRU, 2005).
//!
//! - A process that *plays* has its faults served. A process that *waits* does not, so its threads
//!   sleep in their faults, and its memory goes to those that play (`shares`), because a little
//!   more of it would gain it nothing.
//! - All may play, until the processes that fault keep the processors busy and serving them takes
//!   too much. Then an eighth fewer may play in each period, down to one for each processor and two
//!   at least. One more may play in each period in which serving takes little, or in which the
//!   processes that fault leave processors idle, until no process waits: a process that plays may
//!   wait for what a waiting one would send.
//! - A turn ends when it was long enough and another process waits, or, for the process that came
//!   last, when too many play. The process that has waited longest is next: when another may play,
//!   when memory has been left for all that it has away, and after [`WAIT_MS`] in any case. A
//!   process that asks no longer, because it was stopped, is passed over.

use coldpress_sys::PageCount;

use core::sync::atomic::Ordering;

use super::Allowance;
use super::mean::Mean;
use crate::knobs::Knob;
use crate::ledger::Millionths;
use crate::ledger::{Figure, Ledger, SEATS, Told, Turn};

/// The shortest turn while others wait: bringing 60 MiB back takes a tenth of it.
const TURN_MS: u32 = 4_000;
/// The longest wait.
const WAIT_MS: u32 = 2_000;
/// Time without a fault after which a process needs no turn, or has been stopped.
const PLAYS_MS: u32 = 50;
/// Time between two changes of how many may play.
const PERIOD_MS: u32 = 300;
/// Time between two processes that come in because memory is left.
const ENTRY_MS: u32 = 100;
/// Least stay of a process that comes in, whichever processes play: some thousand faults, so that
/// it lets go of a lock that it may have.
const STAY_MS: u32 = 20;
/// Parts of each processor that serving faults takes, above which fewer may play, and below which
/// more may. Three times as much is spent beside it: on what is moved out, and above all on caches
/// that are cold for many processes (16 compilers in 512 MiB).
const BUSY_HIGH: Millionths = Millionths(30_000);
const BUSY_LOW: Millionths = Millionths(12_000);
/// Least number of processes that may play, on one processor too: of a client and its server, the
/// one that waits for the other would count as playing for [`PLAYS_MS`] more at every step.
const LEAST: u32 = 2;
/// Part of each processor at which it counts as busy: what the processes that fault spend on
/// running and on waiting to be served, together. A process that waits for something else most of
/// the time would only wait longer by turns, so below this part more may play.
const DEMAND_MIN: Millionths = Millionths(750_000);
/// Time over which the mean of what serving faults takes follows.
const MEAN_NS: u64 = 100_000_000;

/// When a process's turn began, and since when it waits for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Standing {
    began: Option<u32>,
    waits: Option<u32>,
}

impl Figure {
    /// Returns the word.
    fn get(&self) -> u32 {
        // Relaxed: the word stands for itself, as in all that follows.
        self.0.load(Ordering::Relaxed)
    }

    /// Returns whether the word changed from `before` to `after`; `false` if it is not `before` any
    /// longer.
    fn change(&self, before: u32, after: u32) -> bool {
        // Relaxed: as above.
        self.0.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Turn {
    /// Returns what the process has published.
    fn standing(&self) -> Standing {
        let time = |word: &Figure| Some(word.get()).filter(|ms| *ms != 0);
        Standing { began: time(&self.began_ms), waits: time(&self.waits_ms) }
    }

    /// Publishes what the process does.
    fn publish(&self, own: Standing) {
        self.began_ms.set(own.began.unwrap_or(0));
        self.waits_ms.set(own.waits.unwrap_or(0));
    }
}

/// What others do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Others {
    playing: u32,
    /// Playing processes that came later than this one.
    later: u32,
    waiting: u32,
    /// How long the first of them has waited.
    waited_ms: u32,
}

/// What the processes that fault take.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Part of the time for having faults served.
    busy: Millionths,
    /// Part of the time for running.
    runs: Millionths,
}

/// The state of memory and of the table.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// How many may play; 0 for all.
    most: u32,
    /// Whether all memory is in use.
    is_full: bool,
    /// Whether the pages that the process has away fit into the memory that is left.
    fits: bool,
    /// Time since a process last came in.
    since_entry_ms: u32,
}

impl Standing {
    /// Returns what a process that has a fault is from now on.
    fn next(self, now: u32, others: Others, room: Room) -> Self {
        let for_ms = |since: u32| now.wrapping_sub(since);
        let plays = Self { began: Some(self.began.unwrap_or(now)), waits: None };
        if room.most == 0 {
            return plays;
        }
        let is_too_many = others.playing >= room.most;
        let may_play = if let Some(began) = self.began {
            let is_over = for_ms(began) >= TURN_MS && others.waiting > 0;
            let has_just_come = for_ms(began) < STAY_MS;
            !room.is_full || has_just_come || !is_over && (!is_too_many || others.later > 0)
        } else {
            let waited = self.waits.map_or(0, for_ms);
            let is_next = others.waiting == 0 || self.waits.is_some() && waited >= others.waited_ms;
            let is_left = room.fits && room.since_entry_ms >= ENTRY_MS;
            waited >= WAIT_MS || is_next && (!is_too_many || is_left)
        };
        if may_play { plays } else { Self { began: None, waits: Some(self.waits.unwrap_or(now)) } }
    }
}

/// Returns how many may play, after `most` could, when `others` do and take `load` of the
/// `processors`.
fn next_most(most: u32, others: Others, load: Load, processors: u32) -> u32 {
    let of_all = |part: Millionths| Millionths(part.0 * u64::from(processors));
    let Load { busy, runs } = load;
    let are_busy = Millionths(busy.0 + runs.0) > of_all(DEMAND_MIN);
    let is_too_much = are_busy && busy > of_all(BUSY_HIGH);
    let least = processors.max(LEAST);
    if is_too_much && others.playing > least {
        let most = if most == 0 { others.playing } else { most.min(others.playing) };
        (most - (most / 8).max(1)).max(least)
    } else if most == 0 || are_busy && busy >= of_all(BUSY_LOW) {
        most
    } else if others.waiting > 0 || others.playing > most {
        most + 1
    } else {
        0
    }
}

/// Returns how many may play by what the table says, within bounds: any process may have written
/// it.
fn believed(most: u32, processors: u32) -> u32 {
    let least = processors.clamp(LEAST, SEATS as u32);
    if most == 0 { 0 } else { most.clamp(least, SEATS as u32) }
}

/// Largest lead of another clock over ours: a time that is ahead of ours was written a moment ago.
const AHEAD_MS: u32 = 60_000;

/// Returns whether more than `span` milliseconds have passed from the time `at` until `now`, which
/// both wrap around. A time that never was, which 0 stands for, is past.
const fn is_past(at: u32, span: u32, now: u32) -> bool {
    let age = now.wrapping_sub(at);
    at == 0 || span < age && age <= u32::MAX - AHEAD_MS
}

impl Ledger {
    /// Returns what all processes but the one in `seat` do, and what all take.
    fn turns(&self, seat: Option<usize>, now: u32) -> (Others, Load) {
        let own = seat.and_then(|seat| self.seat(seat).turn.standing().began);
        let (mut others, mut busy, mut runs) = (Others::default(), 0, 0);
        for (index, other) in self.taken() {
            let turn = &other.turn;
            if is_past(turn.asked_ms.get(), PLAYS_MS, now) {
                continue;
            }
            busy += u64::from(turn.busy.get());
            runs += u64::from(turn.runs.get());
            match turn.standing() {
                _ if Some(index) == seat => {}
                Standing { waits: Some(since), .. } => {
                    others.waiting += 1;
                    others.waited_ms = others.waited_ms.max(now.wrapping_sub(since));
                }
                Standing { began: Some(began), .. } => {
                    others.playing += 1;
                    let is_later = own.is_some_and(|own| began.wrapping_sub(own).cast_signed() > 0);
                    others.later += u32::from(is_later);
                }
                Standing { began: None, waits: None } => {}
            }
        }
        (others, Load { busy: Millionths(busy), runs: Millionths(runs) })
    }
}

/// What this process knows of turns.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// When others were last looked at.
    looked_ms: u32,
    busy: Mean<MEAN_NS>,
    /// What the mean last saw of the time that serving takes.
    busy_ns: u64,
}

impl Allowance {
    /// Returns whether this process plays, so that its faults are served. A process that is
    /// `is_exempt` plays always; `away` is what it has away.
    pub(crate) fn plays(&mut self, is_exempt: bool, away: PageCount) -> bool {
        let now = self.turn_ms();
        let (turn, table) = (&self.ledger.seat(self.seat).turn, self.ledger.turn_table());
        turn.asked_ms.set(now);
        let before = turn.standing();
        let most = if is_exempt { 0 } else { believed(table.most.get(), self.ledger.processors()) };
        // The service looks at what others do once a millisecond.
        let is_known = if most == 0 { before.began.is_some() } else { self.turns.looked_ms == now };
        if is_known {
            return before.began.is_some();
        }
        self.turns.looked_ms = now;
        let others = self.ledger.turns(Some(self.seat), now).0;
        let room = Room {
            most,
            is_full: self.budget.is_full(),
            fits: self.budget.has_room_for(away),
            since_entry_ms: now.wrapping_sub(table.entered_ms.get()),
        };
        let after = before.next(now, others, room);
        if before != after {
            turn.publish(after);
            if most != 0 && after.began.is_some() {
                table.entered_ms.set(now);
                // More processes fit than was thought.
                if room.fits && others.playing >= most {
                    table.most.set(others.playing + 1);
                }
            }
        }
        after.began.is_some()
    }

    /// Publishes what serving faults takes, and sets how many may play when that is due. Called
    /// every few milliseconds. Returns how many processes take turns, if the user is to hear of
    /// that.
    pub(crate) fn look_at_turns(&mut self) -> Option<u32> {
        let busy_ns = self.time.span_ns(self.waited.served_ticks);
        let before = core::mem::replace(&mut self.turns.busy_ns, busy_ns);
        let now_ns = self.time.now_ns();
        let busy = self.turns.busy.note(now_ns, busy_ns.saturating_sub(before));
        let turn = &self.ledger.seat(self.seat).turn;
        for (word, share) in [(&turn.busy, busy), (&turn.runs, self.running.share())] {
            word.set(u32::try_from(share.0).unwrap_or(u32::MAX));
        }
        self.set_most()
    }

    /// Sets how many may play, if no process has lately.
    fn set_most(&self) -> Option<u32> {
        let (now, table) = (self.turn_ms(), self.ledger.turn_table());
        let at = table.set_ms.get();
        if !is_past(at, PERIOD_MS - 1, now) || !table.set_ms.change(at, now) {
            return None;
        }
        let (all, load) = self.ledger.turns(None, now);
        let processors = self.ledger.processors();
        let before = believed(table.most.get(), processors);
        let is_on = self.tuning.knobs.get(Knob::Turns) != 0;
        let most = if is_on { next_most(before, all, load, processors) } else { 0 };
        table.most.set(most);
        let is_new = most != 0 && all.waiting > 0 && self.ledger.is_first_to_tell(Told::Turns);
        is_new.then_some(all.playing + all.waiting)
    }

    /// Returns the time in milliseconds, never 0.
    fn turn_ms(&self) -> u32 {
        self.now_ms().max(1)
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a process whose turn never comes, or many that play when few fit.

    use proptest::prelude::*;

    use super::*;

    const NOW: u32 = 50_000;

    fn plays(for_ms: u32) -> Standing {
        Standing { began: Some(NOW - for_ms), waits: None }
    }

    fn waits(for_ms: u32) -> Standing {
        Standing { began: None, waits: Some(NOW - for_ms) }
    }

    fn room(most: u32) -> Room {
        Room { most, is_full: true, fits: false, since_entry_ms: 0 }
    }

    fn others(playing: u32, later: u32, waiting: u32, waited_ms: u32) -> Others {
        Others { playing, later, waiting, waited_ms }
    }

    #[test]
    fn what_never_was_is_past_however_long_the_machine_is_up() {
        for now in [1, NOW, u32::MAX / 2 + 9, u32::MAX] {
            let (before, after) = (now.wrapping_sub(9), now.wrapping_add(9));
            let found = [(0, 8), (before, 8), (before, 9), (after, 0)];
            let found = found.map(|(at, span)| is_past(at, span, now));
            assert_eq!(found, [true, true, before == 0, after == 0], "{now}");
            // Four weeks.
            assert!(is_past(now.wrapping_sub(28 * 86_400_000), 8, now), "{now}");
        }
    }

    #[test]
    fn all_play_while_nobody_thrashes() {
        let none = Standing::default();
        assert_eq!(none.next(NOW, others(90, 3, 5, 900), room(0)), plays(0));
        assert_eq!(plays(9_000).next(NOW, others(90, 3, 5, 900), room(0)), plays(9_000));
        assert_eq!(waits(70).next(NOW, others(90, 3, 5, 900), room(0)), plays(0));
    }

    #[test]
    fn a_turn_ends_when_somebody_waits_or_too_many_play() {
        assert_eq!(plays(TURN_MS).next(NOW, others(3, 2, 1, 9), room(4)), waits(0));
        assert_eq!(plays(TURN_MS).next(NOW, others(3, 2, 0, 0), room(4)), plays(TURN_MS));
        assert_eq!(plays(TURN_MS - 1).next(NOW, others(3, 2, 1, 9), room(4)), plays(TURN_MS - 1));
        // The process that came last leaves, but not at once.
        assert_eq!(plays(STAY_MS).next(NOW, others(4, 1, 0, 0), room(4)), plays(STAY_MS));
        assert_eq!(plays(STAY_MS).next(NOW, others(4, 0, 0, 0), room(4)), waits(0));
        assert_eq!(plays(STAY_MS - 1).next(NOW, others(4, 0, 0, 0), room(4)), plays(STAY_MS - 1));
        // Not while memory is left unused.
        let left = Room { is_full: false, ..room(4) };
        assert_eq!(plays(TURN_MS).next(NOW, others(4, 0, 1, 9), left), plays(TURN_MS));
    }

    #[test]
    fn who_has_waited_longest_is_next() {
        let come = |own: Standing, others, room| own.next(NOW, others, room).began.is_some();
        assert!(come(waits(30), others(3, 0, 2, 30), room(4)));
        assert!(!come(waits(29), others(3, 0, 2, 30), room(4)));
        assert!(!come(Standing::default(), others(3, 0, 1, 0), room(4)));
        assert!(come(Standing::default(), others(3, 0, 0, 0), room(4)));
        assert!(!come(waits(900), others(4, 0, 2, 30), room(4)));
        assert!(come(waits(WAIT_MS), others(4, 0, 2, WAIT_MS + 9), room(4)));
        let left = Room { is_full: false, fits: true, since_entry_ms: ENTRY_MS, ..room(4) };
        assert!(come(waits(900), others(4, 0, 2, 30), left));
        assert!(!come(waits(20), others(4, 0, 2, 30), left));
        assert!(!come(waits(900), others(4, 0, 2, 30), Room { since_entry_ms: 99, ..left }));
        assert!(!come(waits(900), others(4, 0, 2, 30), Room { fits: false, ..left }));
    }

    #[test]
    fn fewer_may_play_while_faults_take_too_much() {
        let next = |most, playing, waiting, busy| {
            let load = Load { busy: Millionths(busy), runs: Millionths(1_800_000) };
            next_most(most, others(playing, 0, waiting, 0), load, 2)
        };
        assert_eq!((next(0, 16, 0, 60_001), next(0, 16, 0, 60_000)), (14, 0));
        assert_eq!((next(14, 16, 2, 200_000), next(14, 9, 2, 200_000)), (13, 8));
        assert_eq!(
            (next(3, 3, 9, 200_000), next(2, 2, 9, 200_000), next(0, 2, 0, 900_000)),
            (2, 2, 0)
        );
        assert_eq!((next(5, 5, 9, 24_000), next(5, 5, 9, 23_999)), (5, 6));
        assert_eq!((next(5, 6, 0, 0), next(5, 5, 0, 0)), (6, 0));
    }

    #[test]
    fn nobody_waits_while_processors_are_left() {
        let next = |playing, runs, busy, processors| {
            let load = Load { busy: Millionths(busy), runs: Millionths(runs) };
            next_most(0, others(playing, 0, 0, 0), load, processors)
        };
        assert_eq!(next(32, 1_500_000, 100_000, 2), 28);
        // Servers that wait for clients most of the time.
        assert_eq!(next(32, 1_300_000, 100_000, 2), 0);
        // All wait for the disk.
        assert_eq!(next(32, 10_000, 9_000_000, 2), 28);
        assert_eq!([1, 2, 3].map(|playing| next(playing, 90_000, 900_000, 1)), [0, 0, 2]);
        // Replicas wait for their turn, and the processes that play wait for them to read.
        let next = |runs, waiting| {
            let load = Load { busy: Millionths(900_000), runs: Millionths(runs) };
            next_most(2, others(2, 0, waiting, 0), load, 2)
        };
        assert_eq!([(601_000, 3), (600_000, 3), (600_000, 0)].map(|(r, w)| next(r, w)), [2, 3, 0]);
    }

    #[test]
    fn nobody_can_be_kept_from_playing_by_a_word_of_the_table() {
        let found = [0, 1, 2, 3, 600, u32::MAX].map(|most| believed(most, 2));
        assert_eq!(found, [0, 2, 2, 3, 512, 512]);
        assert_eq!([0, 8, u32::MAX].map(|processors| believed(1, processors)), [2, 8, 512]);
    }

    proptest! {
        /// Holds whatever stands in all seats.
        #[test]
        fn random_words_are_counted_and_no_more(seed in any::<u64>(), now in any::<u32>()) {
            let keeper = crate::ledger::scribbled(seed);
            for seat in [None, Some(0), Some(SEATS - 1)] {
                let (others, load) = keeper.turns(seat, now);
                prop_assert!(others.playing + others.waiting <= SEATS as u32);
                prop_assert!(others.later <= others.playing);
                let most = believed(keeper.turn_table().most.get(), 2);
                let own = Standing { began: Some(seed as u32), waits: Some((seed >> 32) as u32) };
                own.next(now, others, room(most));
                prop_assert!(next_most(most, others, load, 2) <= SEATS as u32 + 1);
            }
        }

        /// Holds whatever others do.
        #[test]
        fn nobody_waits_for_ever(
            asks in prop::collection::vec((0_u32..90, 0_u32..9, 1_u32..90, 0_u32..9_000), 1..200),
            most in 1_u32..20,
        ) {
            let mut own = waits(0);
            let mut now = NOW;
            for (playing, later, waiting, waited) in asks {
                now += 10;
                own = own.next(now, others(playing, later, waiting, waited), room(most));
                prop_assert!(own.began.is_some() != own.waits.is_some());
                prop_assert!(own.waits.is_none_or(|since| now - since < WAIT_MS));
            }
        }
    }
}
