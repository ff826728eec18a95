//! The budget: how much this process holds, how much it may, and how fast memory grows that nobody
//! told us of.
//!
//! `used` is the kernel's own figure (RssAnon) and the desk, read now and then, plus what we did
//! since; what is shared with relatives since a fork counts in part (`sharing`).
//! Everything private counts in it: managed and unmanaged memory, limbo, the pool, our tables.
//! Shared memory of all processes, which stays in place, counts with what others hold. What grew
//! without us (fresh mappings, stacks) is watched as *native growth*: room for three times the
//! fastest growth lately, and for some at least, is kept free, so that the budget holds between two
//! readings.
//!
//! ```text
//! 0 ........................ soft ........ hard ........ budget - others ... budget
//!    nothing to do            reclaim along  reclaim first  reserve
//! ```

use coldpress_sys::proc::{Files, ResidentGauge};
use coldpress_sys::program::Program;
use coldpress_sys::{Bytes, PageCount, SysResult, raw};

use crate::ledger::{Ledger, Terms};
use crate::mapped::Mapped;
use crate::shares::{Gain, Holding, Meter, Waited};
use crate::sharing::{Now, Sharing};

/// The reserve is room for native growth, and such a part of the budget, within these bounds, at
/// least: the first burst comes before any was seen. What malloc maps is told before it is touched,
/// so with half of what it took before that, no more runs of seven programs pass their budgets.
/// Relatives that share learn some time later what each of them has made its own.
const RESERVE_PART: usize = 48;
const RESERVE_PART_OF_RELATIVES: usize = 9;
const RESERVE_MIN: PageCount = Bytes::mib(1).pages_down();
const RESERVE_MAX: PageCount = Bytes::mib(4).pages_down();
const RESERVE_MAX_OF_RELATIVES: PageCount = Bytes::mib(10).pages_down();
/// Processes that begin to be managed at the same time each make tables and a pool, and take the
/// room that is left for their own until they have heard of the others: for a second, each keeps so
/// much more for each of these, up to such a part of the budget. Without it 24 that fill 384 MiB
/// within 256 hold up to 276 for 0.1 s, with half of it up to 264, with it up to 257.
const RESERVE_BESIDE: PageCount = Bytes::mib(1).pages_down();
const RESERVE_PART_BESIDE: usize = 12;
const BEGINS_NS: u64 = 1_000_000_000;
/// Growth fades by a 64th a reading, 8 MiB to a tenth in some 150 of them, which take a millisecond
/// or two each near the limit. The room for it is three times as much, and a quarter of the budget
/// at most.
const GROWTH_FADES: usize = 64;
/// But a burst is believed to come again for longer: it fades by a 512th, 8 MiB to nothing in some
/// 1100 readings. A program whose thread gets another arena of malloc fills up to 9 MiB before the
/// next reading, as the scheduler lets it run for up to 7 ms once it has waited for us (Linux 6.18,
/// ticks of 4 ms), whatever our nice value. Without this, one that had been quiet for 0.1 s passed
/// 48 MiB by up to 9 in a third of its runs; with it by up to 2 in one of thirty. Half as much
/// again as the burst is enough room: with three times as much python takes a sixth longer in 70
/// MiB, and with as much, a fifth of the runs pass. It is a quarter of what the others leave at
/// most, so that they do not drive out all that this process holds.
const BURST_FADES: usize = 512;
/// Between soft and hard, reclaim goes along with faults: a 128th of the budget, within these
/// bounds, and a 32nd at most.
const BAND_MIN: PageCount = Bytes::mib(1).pages_down();
const BAND_MAX: PageCount = Bytes::mib(2).pages_down();
/// While use is between soft and hard, reclaim goes along with faults, for this many pages at a
/// time: a fault in six takes longer by that, and the other five wait for nothing. One page at a
/// time would make each fault wait for a compression, as both threads share a processor. With
/// eight, and sixteen while the pool grows, the mean of faults is the same, and their 99th
/// percentile a tenth longer.
pub const PAGES_TOGETHER: usize = 6;
/// Memory above this share of the budget is managed (in percent); below, the kernel does
/// everything.
const MANAGE_AT_PERCENT: usize = 70;
/// Management begins at least this much below the budget, whatever the share: at 3 GB/s of first
/// touches it is 11 ms, time for a reading, the set-up and the first eviction.
const MANAGE_ROOM: PageCount = Bytes::mib(32).pages_down();
/// A budget that has become smaller is approached by this much at a reading, so that a fault waits
/// for less than a millisecond of reclaim: 250 MiB/s.
const LOWERED_BY: PageCount = PageCount(64);
/// What shared memory takes of a budget at most, as a part of it, in that private memory makes room
/// for it: where it takes more the budget cannot be kept, and what is left would only be slow.
const SHARED_PART_MAX: (usize, usize) = (7, 8);
/// A process of which no fault was served for so long neither waits for relatives nor is waited
/// for. While a parent does nothing, a child that writes to all of 200 MiB takes 1.7 s, and 2.4 to
/// 4.2 s when either of them waits for the other.
const ACTIVE_NS: u64 = 50_000_000;
/// How much less one process may have in memory than a relative before it waits for that one: what
/// they share is free when all have taken it, and until then each adds what it is compressed.
/// Without a limit one of three that rebuild 77 MiB was 30 MiB ahead, for which it held 10, and
/// nothing was free. With half of this three held up to 97 MiB of 89, with this 92.
const LEAD_MAX: PageCount = Bytes::mib(4).pages_down();
/// A child with more than this does not have the kernel look at all of it before it runs: it may be
/// about to exec.
const ASKED_AT_ONCE: PageCount = Bytes::mib(32).pages_down();
/// A process's share of the budget is at least this, or an eighth of a small budget: whoever comes
/// when others hold everything needs a pool to begin with.
const SHARE_MIN: PageCount = Bytes::mib(4).pages_down();

/// What a process may hold and holds.
pub struct Budget {
    gauge: ResidentGauge,
    total: PageCount,
    seat: usize,
    used: PageCount,
    /// Resident pages that relatives are charged with.
    credit: PageCount,
    /// What others hold, and shared memory that room is made for.
    others: PageCount,
    /// Shared memory beyond that.
    beyond: PageCount,
    /// What of all this may be no more than is counted twice.
    doubts: PageCount,
    /// Largest native growth between two readings; fades soon.
    growth: PageCount,
    /// The same; fades late.
    burst: PageCount,
    /// Native growth since the last discovery of mappings.
    undiscovered: PageCount,
    sharing: Sharing,
    mapped: Mapped,
    /// Faults at the last reading, and until when the process counts as one that has some.
    faults: u64,
    active_until_ns: u64,
    /// Whether a relative is to take first what they share.
    leads: bool,
    /// Down to here this process reclaims ahead until the next reading: others do so too, and what
    /// each of them has freed is not known before.
    ahead_to: PageCount,
    /// What more memory would gain.
    meter: Meter,
    /// Whether memory is of more use to others.
    yields: bool,
    lasting: Lasting,
    /// Until when its management has just begun, and of how many others it has too.
    begins_until_ns: u64,
    beside: usize,
}

/// What is held, but for moments in which relatives are charged twice: what one has given up counts
/// until it says so, when another has taken it already; and one that has ended unmanaged, until the
/// launcher has heard of it.
#[derive(Clone, Copy, Debug, Default)]
struct Lasting {
    /// The least since the last span ended, when the next do, and the least in the last.
    least: PageCount,
    until_ns: u64,
    before: PageCount,
    /// When there were relatives last.
    related_ns: u64,
}

impl Lasting {
    /// Of a parent and a child that writes to 48 MiB and ends, up to 3 MiB of 61 are not told so;
    /// with 15 ms up to 5. Three relatives that rebuild 66 MiB are told with up to 2 too much;
    /// without this with up to 3.
    const SPAN_NS: u64 = 8_000_000;

    /// The least of what was `held` in the last one or two spans, for those that have had relatives
    /// lately: mostly the launcher hears in that time of who ends, and relatives of who has joined.
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
pub struct Past {
    /// Nanoseconds of the monotonic clock.
    pub now_ns: u64,
    /// Faults that were served.
    pub faults: u64,
    /// Pages of ours that were touched first.
    pub own: PageCount,
    /// Pages shared since a fork that were copied.
    pub copied: u64,
    /// What was waited for in those on pages that were away.
    pub waited: Waited,
    /// Pages of limbo.
    pub limbo: PageCount,
    /// Pages of ours that are no anonymous memory.
    pub desk: PageCount,
}

/// Where the kernel tells what a process does.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// What the program does.
    pub program: &'a Program,
    /// What its memory is, where that may be read.
    pub files: Option<&'a Files>,
    /// The same number for all that come from one process by forks; 0 for who has no relatives.
    pub family: u32,
}

impl Budget {
    /// A budget for the process in `seat`.
    pub fn new(gauge: ResidentGauge, terms: &Terms, seat: usize) -> Self {
        let zero = PageCount(0);
        Self {
            gauge,
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

    /// The gauge of what is resident.
    pub fn gauge(&self) -> &ResidentGauge {
        &self.gauge
    }

    /// This process has forked: what it shares counts once.
    pub fn begin_sharing(&mut self) {
        self.sharing.begin();
    }

    /// This process comes from a fork, and shares what it has.
    pub fn begin_as_child(&mut self) -> SysResult<()> {
        if self.gauge.resident()?.anonymous <= ASKED_AT_ONCE {
            self.sharing.look();
        } else {
            self.sharing.begin();
        }
        Ok(())
    }

    /// This process may share memory with relatives that nobody has noted.
    pub fn look_for_sharing(&mut self) {
        self.sharing.look();
    }

    /// In a child: goes on from what `parent` had when it forked.
    pub fn inherit(&mut self, parent: &mut Self) {
        (self.total, self.used, self.credit) = (parent.total, parent.used, parent.credit);
        self.sharing = core::mem::take(&mut parent.sharing).go_on_in_child();
        self.lasting = parent.lasting;
    }

    /// Whether relatives may share much of what is used.
    pub fn shares_much(&self) -> bool {
        self.sharing.is_much()
    }

    /// Whether taking memory of this process frees any, on the whole. One that shares memory with
    /// relatives, and is charged with less than the least share, keeps it: to take any makes tables
    /// and pool that it has inherited its own, some 1 MiB.
    pub fn is_worth_taking(&self) -> bool {
        !self.shares_much() || self.used >= least_share(self.total)
    }

    /// Reads what is really used, by this process and the others, and publishes it.
    pub fn read(&mut self, ledger: &Ledger, past: Past, seen: Seen<'_>) -> SysResult<()> {
        let resident = self.gauge.resident()?;
        let mapped = self.mapped.look(past.now_ns, resident, past.desk, seen.files);
        let unseen = mapped.saturating_sub(ledger.shared());
        let shared = ledger.shared() + unseen;
        let anonymous = resident.anonymous;
        let others = ledger.others(self.seat);
        // The clock may have been set back.
        let begins = self.begins_until_ns.wrapping_sub(past.now_ns) <= BEGINS_NS;
        ledger.seats[self.seat].set_beginning(begins);
        self.beside = if begins { ledger.beginning_beside(self.seat) } else { 0 };
        let room = room_for_shared(shared, ledger.budget());
        self.others = others.used + others.doubt + room;
        self.beyond = shared.saturating_sub(room);
        let copied = ledger.copied().saturating_sub(past.copied);
        let now = Now {
            resident: anonymous,
            others: others.used + others.doubt,
            served: past.faults,
            own: past.own.0 as u64,
            mapped: self.mapped.faults(resident),
            copied,
            noted: past.copied,
            relatives: ledger.relatives(self.seat, seen.family),
            is_passed: self.used_by_all() > self.total,
            crowd: if self.shares_much() || seen.family != 0 { ledger.crowd() } else { 1 },
        };
        // What is written to by the service becomes this process's own too.
        let faults = || seen.program.minor_faults() + raw::minor_faults();
        let fair_part = || seen.files.and_then(|files| files.fair_part().ok());
        let credit = self.sharing.credit(now, faults, fair_part);
        // What changes by asking the kernel is no growth; what the program writes to is.
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
        ledger.seats[self.seat].publish(Holding { used, doubt, gain });
        ledger.seats[self.seat].set_sharing(self.shares_much());
        self.follow_relatives(ledger, past, seen.family, anonymous);
        self.doubts = doubt + others.doubt + unseen;
        self.yields = gain.shall_yield_to(others.gain);
        let excess = self.used.saturating_sub(self.soft());
        let part = part_of(excess, self.used, self.used_by_all());
        self.ahead_to = self.used.saturating_sub(part);
        let has_relatives = self.shares_much() || now.relatives > 0;
        ledger.note_used(self.lasting.note(past.now_ns, self.held_by_all(), has_relatives));
        Ok(())
    }

    /// Tells relatives what this process has `resident`, if it takes what they share and has
    /// faults, and finds out whether one of them has more.
    fn follow_relatives(&mut self, ledger: &Ledger, past: Past, family: u32, resident: PageCount) {
        if past.faults > self.faults {
            (self.faults, self.active_until_ns) = (past.faults, past.now_ns + ACTIVE_NS);
        }
        // The clock may have been set back.
        self.active_until_ns = self.active_until_ns.min(past.now_ns + ACTIVE_NS);
        let takes = self.shares_much() && self.is_worth_taking() && self.is_worth_unsharing();
        let left =
            if takes && past.now_ns < self.active_until_ns { resident } else { PageCount(0) };
        ledger.seats[self.seat].set_family(family, left);
        let is_ahead = || ledger.most_left(self.seat, family) > resident + LEAD_MAX;
        self.leads = left > PageCount(0) && is_ahead();
    }

    /// Growth before management says little of the time to come, as what is registered no longer
    /// grows by itself: an eighth of the budget is believed. All mappings are looked at when
    /// management begins.
    pub fn begin_managing(&mut self, now_ns: u64) {
        self.begins_until_ns = now_ns + BEGINS_NS;
        let believed = PageCount(self.total.0 / 8);
        (self.growth, self.burst) = (self.growth.min(believed), self.burst.min(believed));
        self.undiscovered = PageCount(0);
    }

    /// Pages have come to this process by our doing.
    pub fn add(&mut self, pages: PageCount) {
        self.used += pages;
    }

    /// Pages have left.
    pub fn subtract(&mut self, pages: PageCount) {
        self.used = self.used.saturating_sub(pages);
    }

    /// Pages that are in memory, those too that relatives are charged with.
    pub fn resident(&self) -> PageCount {
        self.used + self.credit
    }

    /// What of it nobody else has: at most what goes when this process ends.
    pub fn exclusive(&self) -> PageCount {
        self.used.saturating_sub(self.credit)
    }

    /// Pages this process holds.
    pub fn used(&self) -> PageCount {
        self.used
    }

    /// The whole budget.
    pub fn total(&self) -> PageCount {
        self.total
    }

    /// This process's share of the budget: what the others leave of it, but never less than a
    /// newcomer needs. What it holds itself does not change it.
    pub fn share(&self) -> PageCount {
        share_of(self.total, self.others)
    }

    /// Used by all processes, but for shared memory that no room is made for.
    pub fn used_by_all(&self) -> PageCount {
        self.used + self.others
    }

    /// What all processes hold, without what is in doubt.
    pub fn held_by_all(&self) -> PageCount {
        (self.used_by_all() + self.beyond).saturating_sub(self.doubts)
    }

    /// Whether about all of the budget is in use: what reclaim ahead leaves free is no room.
    pub fn is_full(&self) -> bool {
        !self.has_room_for(PageCount(0))
    }

    /// Whether so many pages can come without anybody reclaiming soon.
    pub fn has_room_for(&self, pages: PageCount) -> bool {
        self.used + pages + PageCount(4 * band(self.total).0) <= self.soft()
    }

    /// Whether it is time to manage this process's memory.
    pub fn manage_now(&self) -> bool {
        self.used_by_all() >= self.manage_at()
    }

    /// Whether this process has mapped so much that it could pass the budget before anybody looks
    /// again.
    pub fn may_be_passed(&self) -> SysResult<bool> {
        Ok(self.gauge.writable()? + self.others >= self.total)
    }

    fn manage_at(&self) -> PageCount {
        let share = PageCount(self.total.0 * MANAGE_AT_PERCENT / 100);
        share.min(self.total.saturating_sub(MANAGE_ROOM)).max(PageCount(self.total.0 / 4))
    }

    /// Pages that may still come before management begins.
    pub fn room_before_managing(&self) -> PageCount {
        self.manage_at().saturating_sub(self.used_by_all())
    }

    /// Above this, reclaim comes before anything else.
    pub fn hard(&self) -> PageCount {
        let least = reserve_min(self.total, self.shares_much()) + beside(self.beside, self.total);
        let reserve = reserve(least, self.total, self.share(), self.growth, self.burst);
        let yielded = if self.yields { band(self.total) } else { PageCount(0) };
        let kept = reserve + yielded + self.sharing.pending();
        self.total.saturating_sub(self.others).saturating_sub(kept)
    }

    /// Whether pages that relatives share are worth taking when nothing else can go. Room for
    /// growth that may not come is not worth it.
    pub fn is_worth_unsharing(&self) -> bool {
        self.used_by_all() + reserve_min(self.total, true) > self.total
            && few_share(self.used, self.credit, self.total)
    }

    /// Whether this process has so much less in memory than a relative that the relative is to
    /// take first what they share.
    pub fn leads(&self) -> bool {
        self.leads
    }

    /// Whether this process should reclaim though nobody waits.
    pub fn wants_reclaim_ahead(&self) -> bool {
        self.used > self.soft().max(self.ahead_to)
    }

    /// Above this, reclaim goes along.
    pub fn soft(&self) -> PageCount {
        self.hard().saturating_sub(band(self.total))
    }

    /// Whether so much grew without us that there must be mappings we do not know; starts counting
    /// anew.
    pub fn take_undiscovered(&mut self) -> bool {
        let found = self.undiscovered >= crate::regions::REGION_BYTES_MIN.pages_down();
        if found {
            self.undiscovered = PageCount(0);
        }
        found
    }
}

/// What is left of `growth` at the next reading, if it fades by a `fades`th.
fn faded(growth: PageCount, fades: usize) -> PageCount {
    PageCount(growth.0 - growth.0.div_ceil(fades))
}

/// What of an excess falls to a process that holds `used` of what `all` do.
fn part_of(excess: PageCount, used: PageCount, all: PageCount) -> PageCount {
    PageCount(excess.0 * used.0 / all.0.max(1))
}

/// Whether what a process shares is shared by few, or is much of the budget of `total`. Who takes a
/// shared page makes it its own first, and all who share it have to, until any memory is free: with
/// more than three, what they compress takes more than what they shared.
fn few_share(used: PageCount, credit: PageCount, total: PageCount) -> bool {
    credit.0 <= 2 * used.0 || used.0 >= total.0 / 4
}

/// What is kept free for native growth, the `least` or more, in a budget of `total` of which others
/// leave `share`.
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

/// What more is kept free beside so many `others` while management begins, in a budget of `total`.
fn beside(others: usize, total: PageCount) -> PageCount {
    PageCount((others * RESERVE_BESIDE.0).min(total.0 / RESERVE_PART_BESIDE))
}

/// The reserve at least, in a budget of `total`, of a process that `shares` or does not.
fn reserve_min(total: PageCount, shares: bool) -> PageCount {
    let (part, most) = if shares {
        (RESERVE_PART_OF_RELATIVES, RESERVE_MAX_OF_RELATIVES)
    } else {
        (RESERVE_PART, RESERVE_MAX)
    };
    PageCount(total.0 / part).clamp(RESERVE_MIN, most)
}

/// From soft to hard, in a budget of `total`.
pub fn band(total: PageCount) -> PageCount {
    PageCount(total.0 / 128).clamp(BAND_MIN, BAND_MAX).min(PageCount(total.0 / 32))
}

/// The next budget on the way from `total` to `wanted`, of which `used` is in use: a larger one
/// holds at once, and what nobody uses of `total` goes at once.
fn approach(total: PageCount, wanted: PageCount, used: PageCount) -> PageCount {
    total.min(used + RESERVE_MAX_OF_RELATIVES + BAND_MAX).saturating_sub(LOWERED_BY).max(wanted)
}

/// What of `shared` memory room is made for in a budget of `total`.
fn room_for_shared(shared: PageCount, total: PageCount) -> PageCount {
    let (part, of) = SHARED_PART_MAX;
    shared.min(PageCount(total.0 / of * part))
}

/// What `others` leave of a budget of `total`, but never less than a newcomer needs.
fn share_of(total: PageCount, others: PageCount) -> PageCount {
    total.saturating_sub(others).max(least_share(total))
}

fn least_share(total: PageCount) -> PageCount {
    SHARE_MIN.min(PageCount(total.0 / 8))
}

#[cfg(test)]
mod tests {
    //! The risk: a process whose pool may hold nothing, or more than the budget; one that has just
    //! been filling memory and does so again when the room for that is gone, or that never gets
    //! that room back.

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
        // Relatives that share keep more.
        assert_eq!([false, true].map(|shares| reserve_min(pages(60), shares).0), [320, 1706]);
        assert_eq!([kept(48, 2, 1), kept(48, 40, 40)], [6, 12]);
        // So do those that begin together.
        let together = |others| beside(others, pages(256)).bytes().0 >> 20;
        assert_eq!([0, 1, 12, 400].map(together), [0, 1, 12, 21]);
        // Others hold more than the reserve leaves of all.
        assert_eq!([kept(12, 0, 8), kept(8, 0, 40)], [3, 2]);
    }

    /// The risk: sixteen processes that free what is too much sixteen times.
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

    /// The risk: many children, of which each copies what all share, and compresses the copy.
    #[test]
    fn what_many_share_stays() {
        let held = PageCount(3_000);
        // Of a parent and so many children, each is charged with its part.
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

    /// The risk: faults that wait until all of what is too much has gone; or a budget that is never
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
