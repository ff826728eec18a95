//! The budget: how much memory this process holds, how much it may hold, and how fast memory grows
//! without an announcement to us.
//!
//! `used` is the kernel's own figure (RssAnon) plus the desk, read now and then, plus what we have
//! done since. Memory shared with relatives since a fork counts in part (`sharing`). All private
//! memory counts: managed and unmanaged memory, limbo, the pool, our tables. Shared memory of all
//! processes stays in place and counts with what others hold. Memory that grew without us (fresh
//! mappings, stacks) is watched as *native growth*. Room for three times the fastest recent growth,
//! and at least for some, is kept free, so that the budget holds between two readings.
//!
//! ```text
//! 0 ........................ soft ........ hard ........ budget - others ... budget
//!    nothing to do            reclaim along  reclaim first  reserve
//! ```
//!
//! *Soft* is the low watermark and *hard* the min watermark: above soft, reclaim goes along with
//! faults; above hard, reclaim comes before anything else.

use coldpress_sys::{Bytes, PageCount};

use super::gauges::Gauges;
use super::mapped::Mapped;
use super::shares::{Meter, Waited};
use super::sharing::{Sharing, SharingInput};
use crate::ledger::{Gain, Holding, Ledger, Terms};
use crate::pages::REGION_BYTES_MIN;
use crate::watermarks::{BAND_MAX, band};

/// Divisors and bounds of the least reserve. The reserve is room for native growth, and the first
/// burst comes before any growth was seen. Because malloc's mappings are announced before they are
/// touched, half of the reserve that is needed without this is enough: no more runs of seven
/// programs pass their budgets. Relatives that share memory learn only some time later what each of
/// them has made its own.
const RESERVE_PART: usize = 48;
const RESERVE_PART_OF_RELATIVES: usize = 9;
const RESERVE_MIN: PageCount = Bytes::mib(1).pages_down();
const RESERVE_MAX: PageCount = Bytes::mib(4).pages_down();
const RESERVE_MAX_OF_RELATIVES: PageCount = Bytes::mib(10).pages_down();
/// Additional reserve for each process that begins to be managed at the same time. Each makes
/// tables and a pool, and takes the room that is left for its own until it has heard of the others.
/// So for a second, each process keeps this much free for each of the others, up to a 12th of the
/// budget. Without it 24 processes that fill 384 MiB within 256 MiB hold up to 276 MiB for 0.1 s,
/// with half of it up to 264, with it up to 257.
const RESERVE_BESIDE: PageCount = Bytes::mib(1).pages_down();
const RESERVE_PART_BESIDE: usize = 12;
const BEGINS_NS: u64 = 1_000_000_000;
/// Divisor by which growth fades at each reading: by a 64th, so that 8 MiB fade to a tenth in some
/// 150 readings, which are a millisecond or two apart near the limit. The room for growth is three
/// times the growth, and at most a quarter of the budget.
const GROWTH_FADES: usize = 64;
/// Divisor by which a burst fades at each reading. A burst is expected to recur for longer than
/// other growth: it fades by a 512th, 8 MiB to nothing in some 1100 readings. A program whose
/// thread gets another malloc arena fills up to 9 MiB before the next reading, because the
/// scheduler lets the thread run for up to 7 ms after it has waited for us (Linux 6.18, ticks of 4
/// ms), whatever our nice value. Without this, a program that had been quiet for 0.1 s passed 48
/// MiB by up to 9 MiB in a third of its runs; with it, by up to 2 MiB in one run of thirty. The
/// room for a burst is one and a half times the burst: with three times, python takes a sixth
/// longer in 70 MiB, and with once, a fifth of the runs pass the budget. The room is at most a
/// quarter of what the others leave, so that the others do not drive out everything that this
/// process holds.
const BURST_FADES: usize = 512;
/// Share of the budget, in percent, above which memory is managed; below it, the kernel does
/// everything.
const MANAGE_AT_PERCENT: usize = 70;
/// Least distance below the budget at which management begins, whatever the share. At 3 GB/s of
/// first touches it lasts 11 ms: time for a reading, the set-up and the first eviction.
const MANAGE_ROOM: PageCount = Bytes::mib(32).pages_down();
/// Pages by which a budget shrinks at each reading on its way to a smaller one, so that a fault
/// waits for less than a millisecond of reclaim: 250 MiB/s.
const LOWERED_BY: PageCount = PageCount(64);
/// Largest part of a budget that shared memory takes by making private memory move out. Where
/// shared memory takes more, the budget cannot be kept, and squeezing what is left would only be
/// slow.
const SHARED_PART_MAX: (usize, usize) = (7, 8);
/// Time since its last served fault after which a process no longer waits for relatives, nor they
/// for it. While a parent does nothing, a child that writes to all of 200 MiB takes 1.7 s, and 2.4
/// to 4.2 s when either of them waits for the other.
const ACTIVE_NS: u64 = 50_000_000;
/// Lead over a relative at which a process waits for it: how much less than the relative the
/// process has in memory. What they share becomes free when all of them have taken it; until then
/// each adds what its compressed copy takes. Without a limit one of three processes that rebuild 77
/// MiB was 30 MiB ahead, held 10 MiB for that, and nothing became free. With half of this limit
/// three processes held up to 97 MiB of 89; with this limit 92.
const LEAD_MAX: PageCount = Bytes::mib(4).pages_down();
/// Memory above which a child does not have the kernel look at all of it before the child runs: the
/// child may be about to exec.
const ASKED_AT_ONCE: PageCount = Bytes::mib(32).pages_down();
/// Least share of the budget that a process gets, or an eighth of a small budget: a process that
/// comes when others hold everything needs a pool to begin with.
const SHARE_MIN: PageCount = Bytes::mib(4).pages_down();

/// What a process holds and may hold.
pub(crate) struct Budget {
    total: PageCount,
    seat: usize,
    used: PageCount,
    /// Resident pages that relatives are charged with.
    credit: PageCount,
    /// What others hold, plus the shared memory that private memory makes room for.
    others: PageCount,
    /// Shared memory beyond that.
    beyond: PageCount,
    /// The part of all this that may have been counted twice.
    doubts: PageCount,
    /// Largest native growth between two readings; fades soon.
    growth: PageCount,
    /// The same; fades late.
    burst: PageCount,
    /// Native growth since the last discovery of mappings.
    undiscovered: PageCount,
    sharing: Sharing,
    mapped: Mapped,
    /// Faults at the last reading, and until when the process counts as active.
    faults: u64,
    active_until_ns: u64,
    /// Whether a relative is to take first what the two share.
    leads: bool,
    /// Use down to which this process reclaims ahead until the next reading. Other processes do so
    /// too, and what each of them has freed is not known before.
    ahead_to: PageCount,
    /// Measures what more memory would gain.
    meter: Meter,
    /// Whether memory is of more use to other processes.
    yields: bool,
    lasting: Lasting,
    /// Until when management has just begun, and in how many other processes it has too.
    begins_until_ns: u64,
    beside: usize,
}

/// What all processes hold, without the moments in which relatives are charged twice. What one
/// process has given up counts until that process publishes it, when another may have taken it
/// already. What an unmanaged process held counts until the launcher has heard of its end.
#[derive(Clone, Copy, Debug, Default)]
struct Lasting {
    /// The least since the last span ended, when the current span ends, and the least in the last
    /// span.
    least: PageCount,
    until_ns: u64,
    before: PageCount,
    /// When the process last had relatives.
    related_ns: u64,
}

impl Lasting {
    /// Length of a span. Of a parent and a child that writes to 48 MiB and ends, the figure misses
    /// up to 3 MiB of 61; with 15 ms up to 5 MiB. For three relatives that rebuild 66 MiB it is up
    /// to 2 MiB too high; without spans up to 3 MiB.
    const SPAN_NS: u64 = 8_000_000;

    /// Returns the least of what was `held` in the last one or two spans, if the process has had
    /// relatives lately, and `held` otherwise. In that time the launcher usually hears which
    /// process has ended, and relatives hear which has joined.
    fn note(&mut self, now_ns: u64, held: PageCount, has_relatives: bool) -> PageCount {
        if now_ns >= self.until_ns {
            let before = if self.until_ns == 0 && !has_relatives { held } else { self.least };
            (self.before, self.least) = (before, held);
            self.until_ns = now_ns + Self::SPAN_NS;
        }
        self.least = self.least.min(held);
        if has_relatives {
            self.related_ns = now_ns;
        }
        let is_related = has_relatives || now_ns < self.related_ns + 2 * Self::SPAN_NS;
        if is_related { self.before.min(self.least) } else { held }
    }
}

/// What a process has done until now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PastActivity {
    /// Nanoseconds of the monotonic clock.
    pub(crate) now_ns: u64,
    /// Faults that were served.
    pub(crate) faults: u64,
    /// Pages of our own memory that were touched first.
    pub(crate) own: PageCount,
    /// Pages shared since a fork that were copied.
    pub(crate) copied: u64,
    /// What threads have waited for in faults on pages that were away.
    pub(crate) waited: Waited,
    /// Pages that limbo may hold.
    pub(crate) limbo: PageCount,
    /// Pages of our own that are not anonymous memory.
    pub(crate) desk: PageCount,
}

impl Budget {
    /// Creates a budget for the process in `seat`.
    pub(crate) fn new(terms: &Terms, seat: usize) -> Self {
        let zero = PageCount(0);
        Self {
            total: terms.budget,
            seat,
            used: zero,
            credit: zero,
            others: zero,
            beyond: zero,
            doubts: zero,
            growth: zero,
            burst: zero,
            undiscovered: zero,
            sharing: Sharing::default(),
            mapped: Mapped::default(),
            leads: false,
            faults: 0,
            active_until_ns: 0,
            ahead_to: zero,
            meter: Meter::default(),
            yields: false,
            lasting: Lasting::default(),
            begins_until_ns: 0,
            beside: 0,
        }
    }

    /// Records that this process has forked: what it shares counts once.
    pub(crate) fn begin_sharing(&mut self) {
        self.sharing.begin();
    }

    /// Records that this process comes from a fork, and shares what it has: `anonymous` pages.
    pub(crate) fn begin_as_child(&mut self, anonymous: PageCount) {
        if anonymous <= ASKED_AT_ONCE {
            self.sharing.look();
        } else {
            self.sharing.begin();
        }
    }

    /// Has the next reading ask whether this process shares memory with relatives unnoticed.
    pub(crate) fn look_for_sharing(&mut self) {
        self.sharing.look();
    }

    /// Continues, in a child, from what `parent` had when it forked.
    pub(crate) fn inherit(&mut self, parent: &mut Self) {
        (self.total, self.used, self.credit) = (parent.total, parent.used, parent.credit);
        self.sharing = core::mem::take(&mut parent.sharing).go_on_in_child();
        self.lasting = parent.lasting;
    }

    /// Returns whether relatives may share much of what is used.
    pub(crate) fn shares_much(&self) -> bool {
        self.sharing.is_much()
    }

    /// Returns whether taking memory of this process frees any, on the whole. A process that shares
    /// memory with relatives, and is charged with less than the least share, keeps its memory:
    /// taking any would make inherited tables and pool its own, some 1 MiB.
    pub(crate) fn is_worth_taking(&self) -> bool {
        !self.shares_much() || self.used >= least_share(self.total)
    }

    /// Reads what is really used, by this process and the others, and publishes it. `family` is
    /// common to all processes that come from one process by forks; 0 without relatives.
    pub(crate) fn read<G: Gauges>(
        &mut self,
        ledger: &Ledger,
        past: PastActivity,
        family: u32,
        gauges: &G,
    ) -> Result<(), G::Error> {
        let resident = gauges.resident()?;
        let mapped = self.mapped.look(past.now_ns, resident, past.desk, gauges);
        let unseen = mapped.saturating_sub(ledger.shared());
        let shared = ledger.shared() + unseen;
        let anonymous = resident.anonymous;
        let others = ledger.others(self.seat);
        // The clock may have been set back.
        let begins = self.begins_until_ns.wrapping_sub(past.now_ns) <= BEGINS_NS;
        ledger.seat(self.seat).set_beginning(begins);
        self.beside = if begins { ledger.beginning_beside(self.seat) } else { 0 };
        let room = room_for_shared(shared, ledger.budget());
        self.others = others.used + others.doubt + room;
        self.beyond = shared.saturating_sub(room);
        let copied = ledger.copied().saturating_sub(past.copied);
        let now = SharingInput {
            resident: anonymous,
            others: others.used + others.doubt,
            served: past.faults,
            own: past.own.0 as u64,
            mapped: self.mapped.faults(resident),
            copied,
            noted: past.copied,
            relatives: ledger.relatives(self.seat, family),
            is_passed: self.used_by_all() > self.total,
            crowd: if self.shares_much() || family != 0 { ledger.crowd() } else { 1 },
        };
        let credit = self.sharing.credit(now, gauges);
        // A change found by asking the kernel is no growth; what the program writes to is.
        let resident = anonymous + past.desk;
        let expected = self.used + self.credit;
        let grown = resident.saturating_sub(expected);
        let shrunk = expected.saturating_sub(resident);
        let taken = grown + self.sharing.take_broken();
        self.growth = taken.max(faded(self.growth, GROWTH_FADES));
        self.burst = taken.max(faded(self.burst, BURST_FADES));
        self.undiscovered = (self.undiscovered + grown).saturating_sub(shrunk);
        self.credit = credit;
        self.used = resident.saturating_sub(credit);
        self.total = approach(self.total, ledger.budget(), self.used_by_all());
        let time = self.meter.note(past.now_ns, past.waited);
        let gain = Gain { pages: past.limbo, time };
        let doubt = self.sharing.doubt().min(self.used);
        let used = self.used.saturating_sub(doubt);
        ledger.seat(self.seat).publish(Holding { used, doubt, gain });
        ledger.seat(self.seat).set_sharing(self.shares_much());
        self.follow_relatives(ledger, past, family, anonymous);
        self.doubts = doubt + others.doubt + unseen;
        self.yields = gain.shall_yield_to(others.gain);
        let excess = self.used.saturating_sub(self.soft());
        let part = part_of(excess, self.used, self.used_by_all());
        self.ahead_to = self.used.saturating_sub(part);
        let has_relatives = self.shares_much() || now.relatives > 0;
        ledger.note_used(self.lasting.note(past.now_ns, self.held_by_all(), has_relatives));
        Ok(())
    }

    /// Publishes for relatives what this process has `resident`, if it takes what they share and
    /// has faults, and finds out whether one of them has more.
    fn follow_relatives(
        &mut self,
        ledger: &Ledger,
        past: PastActivity,
        family: u32,
        resident: PageCount,
    ) {
        if past.faults > self.faults {
            (self.faults, self.active_until_ns) = (past.faults, past.now_ns + ACTIVE_NS);
        }
        // The clock may have been set back.
        self.active_until_ns = self.active_until_ns.min(past.now_ns + ACTIVE_NS);
        let takes = self.shares_much() && self.is_worth_taking() && self.is_worth_unsharing();
        let left =
            if takes && past.now_ns < self.active_until_ns { resident } else { PageCount(0) };
        ledger.seat(self.seat).set_family(family, left);
        let is_ahead = || ledger.most_left(self.seat, family) > resident + LEAD_MAX;
        self.leads = left > PageCount(0) && is_ahead();
    }

    /// Begins management. Earlier growth says little of the time to come, because registered memory
    /// no longer grows by itself: no more than an eighth of the budget is believed to grow again.
    /// All mappings are looked at when management begins.
    pub(crate) fn begin_managing(&mut self, now_ns: u64) {
        self.begins_until_ns = now_ns + BEGINS_NS;
        let believed = PageCount(self.total.0 / 8);
        (self.growth, self.burst) = (self.growth.min(believed), self.burst.min(believed));
        self.undiscovered = PageCount(0);
    }

    /// Adds pages that have come to this process by our doing.
    pub(crate) fn add(&mut self, pages: PageCount) {
        self.used += pages;
    }

    /// Subtracts pages that have left.
    pub(crate) fn subtract(&mut self, pages: PageCount) {
        self.used = self.used.saturating_sub(pages);
    }

    /// Returns the pages that are in memory, including those that relatives are charged with.
    pub(crate) fn resident(&self) -> PageCount {
        self.used + self.credit
    }

    /// Returns the pages that no other process has: at most what goes when this process ends.
    pub(crate) fn exclusive(&self) -> PageCount {
        self.used.saturating_sub(self.credit)
    }

    /// Returns the pages that this process holds.
    pub(crate) fn used(&self) -> PageCount {
        self.used
    }

    /// Returns the whole budget.
    pub(crate) fn total(&self) -> PageCount {
        self.total
    }

    /// Returns this process's share of the budget: what the others leave of it, but never less than
    /// a newcomer needs. What this process holds itself does not change its share.
    pub(crate) fn share(&self) -> PageCount {
        share_of(self.total, self.others)
    }

    /// Returns what all processes use, without the shared memory that no room is made for.
    pub(crate) fn used_by_all(&self) -> PageCount {
        self.used + self.others
    }

    /// Returns what all processes hold, without what is in doubt.
    pub(crate) fn held_by_all(&self) -> PageCount {
        (self.used_by_all() + self.beyond).saturating_sub(self.doubts)
    }

    /// Returns whether about all of the budget is in use. What reclaim ahead of faults leaves free
    /// is no room.
    pub(crate) fn is_full(&self) -> bool {
        !self.has_room_for(PageCount(0))
    }

    /// Returns whether `pages` more can come without any process reclaiming soon.
    pub(crate) fn has_room_for(&self, pages: PageCount) -> bool {
        self.used + pages + PageCount(4 * band(self.total).0) <= self.soft()
    }

    /// Returns whether it is time to manage this process's memory.
    pub(crate) fn manage_now(&self) -> bool {
        self.used_by_all() >= self.manage_at()
    }

    /// Returns whether this process has mapped enough memory to pass the budget before the next
    /// look: `writable` pages.
    pub(crate) fn may_be_passed(&self, writable: PageCount) -> bool {
        writable + self.others >= self.total
    }

    fn manage_at(&self) -> PageCount {
        let share = PageCount(self.total.0 * MANAGE_AT_PERCENT / 100);
        share.min(self.total.saturating_sub(MANAGE_ROOM)).max(PageCount(self.total.0 / 4))
    }

    /// Returns the pages that may still come before management begins.
    pub(crate) fn room_before_managing(&self) -> PageCount {
        self.manage_at().saturating_sub(self.used_by_all())
    }

    /// Returns the min watermark: above it, reclaim comes before anything else.
    pub(crate) fn hard(&self) -> PageCount {
        let least = reserve_min(self.total, self.shares_much()) + beside(self.beside, self.total);
        let reserve = reserve(least, self.total, self.share(), self.growth, self.burst);
        let yielded = if self.yields { band(self.total) } else { PageCount(0) };
        let kept = reserve + yielded + self.sharing.pending();
        self.total.saturating_sub(self.others).saturating_sub(kept)
    }

    /// Returns whether pages that relatives share are worth taking when nothing else can go. Room
    /// for growth that may not come is not worth it.
    pub(crate) fn is_worth_unsharing(&self) -> bool {
        self.used_by_all() + reserve_min(self.total, true) > self.total
            && few_share(self.used, self.credit, self.total)
    }

    /// Returns whether this process leads: it has over `LEAD_MAX` less in memory than a relative,
    /// so that the relative is to take first what they share.
    pub(crate) fn leads(&self) -> bool {
        self.leads
    }

    /// Returns whether this process should reclaim although no fault waits.
    pub(crate) fn wants_reclaim_ahead(&self) -> bool {
        self.used > self.soft().max(self.ahead_to)
    }

    /// Returns the low watermark: above it, reclaim goes along with faults.
    pub(crate) fn soft(&self) -> PageCount {
        self.hard().saturating_sub(band(self.total))
    }

    /// Returns whether enough has grown without us that there must be mappings we do not know; if
    /// so, starts counting anew.
    pub(crate) fn take_undiscovered(&mut self) -> bool {
        let found = self.undiscovered >= REGION_BYTES_MIN.pages_down();
        if found {
            self.undiscovered = PageCount(0);
        }
        found
    }
}

/// Returns what is left of `growth` at the next reading, if it fades by a `fades`th.
fn faded(growth: PageCount, fades: usize) -> PageCount {
    PageCount(growth.0 - growth.0.div_ceil(fades))
}

/// Returns the part of an excess that falls to a process that holds `used` pages of `all`.
fn part_of(excess: PageCount, used: PageCount, all: PageCount) -> PageCount {
    PageCount(excess.0 * used.0 / all.0.max(1))
}

/// Returns whether what a process shares is shared by few processes, or is much of the budget of
/// `total`. A process that takes a shared page makes it its own first, and all that share the page
/// have to do so before any memory is free. With more than three processes, what they compress
/// takes more than what they shared.
fn few_share(used: PageCount, credit: PageCount, total: PageCount) -> bool {
    credit.0 <= 2 * used.0 || used.0 >= total.0 / 4
}

/// Returns what is kept free for native growth: at least `least`, in a budget of `total` of which
/// others leave `share`.
fn reserve(
    least: PageCount,
    total: PageCount,
    share: PageCount,
    growth: PageCount,
    burst: PageCount,
) -> PageCount {
    let growth = PageCount((3 * growth.0).min(total.0 / 4));
    let burst = PageCount((3 * burst.0 / 2).min(share.0 / 4));
    least.max(growth).max(burst)
}

/// Returns the additional reserve while management begins in `others` other processes too, in a
/// budget of `total`.
fn beside(others: usize, total: PageCount) -> PageCount {
    PageCount((others * RESERVE_BESIDE.0).min(total.0 / RESERVE_PART_BESIDE))
}

/// Returns the least reserve in a budget of `total`, of a process that `shares` memory with
/// relatives or does not.
fn reserve_min(total: PageCount, shares: bool) -> PageCount {
    let (part, most) = if shares {
        (RESERVE_PART_OF_RELATIVES, RESERVE_MAX_OF_RELATIVES)
    } else {
        (RESERVE_PART, RESERVE_MAX)
    };
    PageCount(total.0 / part).clamp(RESERVE_MIN, most)
}

/// Returns the next budget on the way from `total` to `wanted`, of which `used` is in use. A larger
/// budget takes effect at once, and the unused part of `total` goes at once.
fn approach(total: PageCount, wanted: PageCount, used: PageCount) -> PageCount {
    total.min(used + RESERVE_MAX_OF_RELATIVES + BAND_MAX).saturating_sub(LOWERED_BY).max(wanted)
}

/// Returns the part of `shared` memory that room is made for in a budget of `total`.
fn room_for_shared(shared: PageCount, total: PageCount) -> PageCount {
    let (part, of) = SHARED_PART_MAX;
    shared.min(PageCount(total.0 / of * part))
}

/// Returns what `others` leave of a budget of `total`, but never less than a newcomer needs.
fn share_of(total: PageCount, others: PageCount) -> PageCount {
    total.saturating_sub(others).max(least_share(total))
}

fn least_share(total: PageCount) -> PageCount {
    SHARE_MIN.min(PageCount(total.0 / 8))
}

#[cfg(test)]
mod tests {
    //! The risk: a process whose pool may hold nothing, or more than the budget; a process that has
    //! just filled memory and does so again when the room for that is gone, or that never gets that
    //! room back.

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_share_is_what_others_leave() {
        let share = |total, others| share_of(PageCount(total), PageCount(others)).0;
        assert_eq!((share(100_000, 0), share(100_000, 30_000)), (100_000, 70_000));
        assert_eq!((share(100_000, 99_000), share(100_000, 200_000)), (1024, 1024));
        assert_eq!(share(4096, 4096), 512);
    }

    #[test]
    fn what_lasts_is_noted_and_no_moment() {
        let mut lasting = Lasting::default();
        let mut note = |steps: u64, pages, is_shared| {
            let now_ns = 1_000_000_000 + steps * Lasting::SPAN_NS / 10;
            lasting.note(now_ns, PageCount(pages), is_shared).0
        };
        (0..40).for_each(|step| assert_eq!(note(step, 100, false), 100));
        (40..45).for_each(|step| assert_eq!(note(step, 150, true), 100));
        (45..48).for_each(|step| assert_eq!(note(step, 150, false), 100));
        (48..60).for_each(|step| assert!(note(step, 120, false) <= 120));
        assert_eq!((note(60, 300, false), note(150, 300, false)), (120, 300));
    }

    #[test]
    fn a_burst_is_believed_for_a_second_and_not_for_ever() {
        let mut left = std::iter::successors(Some(Bytes::mib(8).pages_down()), |burst| {
            (burst.0 > 0).then(|| faded(*burst, BURST_FADES))
        });
        assert!(left.nth(199) > Some(Bytes::mib(5).pages_down()));
        let readings = 200 + left.count();
        assert!((1_000..1_200).contains(&readings), "{readings}");
    }

    #[test]
    fn a_burst_leaves_room_for_the_next_and_for_what_is_held() {
        let pages = |mib| Bytes::mib(mib).pages_down();
        let kept = |share, growth, burst| {
            let least = reserve_min(pages(48), false);
            let [share, growth, burst] = [share, growth, burst].map(pages);
            reserve(least, pages(48), share, growth, burst).bytes().0 >> 20
        };
        assert_eq!([kept(48, 0, 0), kept(48, 0, 6), kept(48, 0, 40)], [1, 9, 12]);
        // Relatives that share memory keep more free.
        assert_eq!([false, true].map(|shares| reserve_min(pages(60), shares).0), [320, 1706]);
        assert_eq!([kept(48, 2, 1), kept(48, 40, 40)], [6, 12]);
        // So do processes that begin together.
        let together = |others| beside(others, pages(256)).bytes().0 >> 20;
        assert_eq!([0, 1, 12, 400].map(together), [0, 1, 12, 21]);
        // Where others hold most of the budget, the reserve is a quarter of what they leave.
        assert_eq!([kept(12, 0, 8), kept(8, 0, 40)], [3, 2]);
    }

    /// The risk: sixteen processes that each free the whole excess.
    #[test]
    fn processes_free_what_is_too_much_once() {
        let part =
            |excess, used, all| part_of(PageCount(excess), PageCount(used), PageCount(all)).0;
        assert_eq!((part(512, 1000, 1000), part(0, 0, 0)), (512, 0));
        let held = [100, 2_000, 30_000, 7];
        let all = held.iter().sum();
        let freed: usize = held.iter().map(|used| part(512, *used, all)).sum();
        assert!((512 - held.len()..=512).contains(&freed), "{freed}");
    }

    #[test]
    fn little_is_left_to_who_shares_it_in_small_budgets_too() {
        let found = [8192, 32_768, 1 << 20].map(|total| least_share(PageCount(total)).0);
        assert_eq!(found, [1024; 3]);
        assert_eq!(least_share(PageCount(4096)), PageCount(512));
    }

    /// The risk: many children that each copy what all share, and compress the copy.
    #[test]
    fn what_many_share_stays() {
        let held = PageCount(3_000);
        // Of a parent and this many children, each is charged with its part.
        let few = |children: usize, total| {
            let used = PageCount(held.0 / (1 + children));
            few_share(used, PageCount(held.0 - used.0), PageCount(total))
        };
        assert_eq!(
            [1, 2, 3, 60].map(|children| few(children, 100_000)),
            [true, true, false, false]
        );
        assert_eq!([3, 5, 60].map(|children| few(children, 2_000)), [true, true, false]);
    }

    /// The risk: faults that wait until the whole excess has gone; or a budget that is never
    /// reached.
    #[test]
    fn a_smaller_budget_comes_little_by_little_and_a_larger_one_at_once() {
        let next =
            |total, wanted, used| approach(PageCount(total), PageCount(wanted), PageCount(used)).0;
        assert_eq!(next(100_000, 100_000, 99_000), 100_000);
        assert_eq!(next(100_000, 300_000, 99_000), 300_000);
        assert_eq!(next(100_000, 50_000, 99_000), 99_936);
        assert_eq!(next(50_010, 50_000, 49_000), 50_000);
        let unused = next(100_000, 20_000, 30_000);
        assert!((30_000..40_000).contains(&unused), "{unused}");
    }

    proptest! {
        #[test]
        fn a_share_is_never_nothing_and_never_more_than_all(
            total in 4096_usize..1 << 40, others in any::<usize>(),
        ) {
            let share = share_of(PageCount(total), PageCount(others));
            prop_assert!(share.0 >= 512 && share.0 <= total);
        }
    }
}
