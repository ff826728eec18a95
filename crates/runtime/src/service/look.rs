//! What is due every few milliseconds: gauges, knobs, new mappings, warnings.

use coldpress_backing::SlotCount;
use coldpress_sys::run_timer::RunTimer;
use coldpress_sys::{Bytes, PageCount, cpu};

use super::Service;
use super::quiet::{self, Found, Outside, Quiet};
use super::rest::Leisure;
use crate::allowance::{PastActivity, RUN_NS_NEAR};
use crate::memory::KernelGauges;
use crate::pager::Pager;
use crate::pages::PageNumber;
use crate::policy;
use crate::store::{TRIM_MAX, TRIM_MAX_IDLE};
use crate::tally::Counter;

/// Distance below the hard limit that is "near".
const NEAR: PageCount = Bytes::mib(16).pages_down();
/// Slots of the disk given back at a time: 1 to 2 ms each (measured on ext4).
const SLOTS_TRIMMED: SlotCount = SlotCount(4);
/// Compressed bytes moved at a time to pack the pool closer: 10 to 40 us.
const COMPACTED: Bytes = Bytes::kib(16);
/// Time between two looks at what cannot be moved.
const IMMOVABLE_NS: u64 = 250_000_000;

/// When what is due.
#[derive(Debug)]
pub(super) struct Due {
    /// When to read the gauges again, and how long after each reading.
    gauges_at_ns: u64,
    gauge_interval_ns: u64,
    pub(super) quiet: Quiet,
    /// When to look again at what cannot be moved.
    immovable_at_ns: u64,
    /// The policy's clock at the last look whether threads fault.
    clock: u32,
    /// Where the next check of invariants begins.
    checked: PageNumber,
}

impl Due {
    /// Returns what is due in a child: everything, and the clock goes on.
    pub(super) fn in_child(&self) -> Self {
        Self { clock: self.clock, ..Self::default() }
    }
}

impl Default for Due {
    fn default() -> Self {
        Self {
            gauges_at_ns: 0,
            gauge_interval_ns: RUN_NS_NEAR,
            quiet: Quiet::default(),
            immovable_at_ns: 0,
            clock: 0,
            checked: PageNumber(0),
        }
    }
}

impl Service {
    /// Does what is due every few milliseconds: gauges, knobs, new mappings, warnings, recording,
    /// and whether the program rests.
    pub(super) fn look_around(&mut self, nobody_waits: bool) {
        let now = self.pager.allowance.time.now_ns();
        if now < self.due.gauges_at_ns || self.goes_on_resting(now) {
            return;
        }
        if self.pager.allowance.time.adjust() {
            self.pager.policy.forget_times();
        }
        let now = self.pager.allowance.time.now_ns();
        // The sooner no change is under way, the fewer words wait to be put in order.
        if self.pager.memory.order.is_open() {
            self.pager.settle();
        }
        self.left.is_so = self.left.is_so || self.ties.program.has_left(&self.gauge);
        let ran = self.ties.program.ran_ns();
        self.pager.allowance.running.note(now, ran);
        self.rest.note(now, self.pager.policy.clock, ran);
        let link = &self.ties.link;
        let give = |allowed: &_, thread| link.give_processors(allowed, thread);
        self.pager.placement.let_rest(now, &give);
        if self.pager.allowance.budget.is_worth_taking() {
            let moved = self.pager.store.zswap.compact(COMPACTED).moved;
            self.pager.allowance.count(Counter::BytesCompacted, moved.0);
        }
        // Frames that the program freed without any reclaim.
        self.pager.store.trim_frames(if nobody_waits { TRIM_MAX_IDLE } else { TRIM_MAX });
        self.pager.store.write_events();
        self.tune(nobody_waits);
        self.read_gauges();
        self.copies.lift_protection(&mut self.pager);
        self.copies.look(&mut self.pager);
        self.idle.look_at_pressure(&self.pager.allowance, now);
        if let Some(processes) = self.pager.allowance.look_at_turns() {
            self.warn_of_turns(processes);
        }
        if self.pager.allowance.budget.take_undiscovered() {
            self.pager.discover();
        }
        let rests = self.begin_rest(now, ran);
        self.set_gauge_interval(rests);
        // What wakes the service while the program rests is looked at at once.
        self.due.gauges_at_ns = if rests { now } else { now + self.due.gauge_interval_ns };
        if now >= self.due.immovable_at_ns {
            self.look_at_immovable();
            self.look_at_waits();
            // Giving disk blocks back takes milliseconds: only while no thread faults.
            self.pager.store.zswap.take_back_lent();
            if nobody_waits && self.pager.policy.clock == self.due.clock {
                self.pager.store.zswap.trim_backing(SLOTS_TRIMMED);
            }
            self.due.clock = self.pager.policy.clock;
            self.due.immovable_at_ns = now + IMMOVABLE_NS;
            if cfg!(debug_assertions) {
                self.due.checked = self.pager.check_some(self.due.checked);
            }
        }
    }

    /// Returns whether the program still rests at `now_ns`, and nothing else asks for a look.
    fn goes_on_resting(&self, now_ns: u64) -> bool {
        let allowance = &self.pager.allowance;
        let outside = || Outside::of(&allowance.ledger, allowance.seat);
        !self.left.is_so
            && !self.waiter.has_seen_end()
            && self.due.quiet.goes_on(now_ns, outside, || self.ties.program.ran_ns())
    }

    /// Returns whether the program rests from now on, at the look at `now_ns`, before which it had
    /// run for `ran_ns`. Then a timer wakes the service when the program runs.
    fn begin_rest(&mut self, now_ns: u64, ran_ns: u64) -> bool {
        let allowance = &self.pager.allowance;
        let (ledger, seat, budget) = (&allowance.ledger, allowance.seat, &allowance.budget);
        let found = Found {
            used: budget.used(),
            total: budget.total(),
            own: self.pager.store.own_held.pages,
            compacted: allowance.tally().get(Counter::BytesCompacted),
        };
        // Samples of idle memory are due whether the program rests or not, and relatives may give
        // up at any moment what they share.
        let may = self.rest.leisure() == Leisure::All
            && !self.pager.memory.faults.any()
            && allowance.tuning.knobs.idle_share().is_none()
            && ledger.relatives(seat, self.control.family()) == 0;
        let quiet = &mut self.due.quiet;
        let may = may && !quiet.is_refused;
        if !quiet.begin(now_ns, ran_ns, (|| Outside::of(ledger, seat), found), may) {
            return false;
        }
        if quiet.timer.is_none() {
            let timer = RunTimer::of(self.ties.program.process()).ok();
            quiet.timer = timer.filter(|it| self.waiter.also_wake_by(it.signal()).is_ok());
        }
        let until = quiet.until_ran_ns();
        let is_set = quiet.timer.as_ref().is_some_and(|timer| timer.set(until).is_ok());
        if !is_set {
            // Where a filter forbids the timer, the program is looked at as often as ever.
            quiet.end();
            quiet.is_refused = true;
        }
        is_set
    }

    fn set_gauge_interval(&mut self, rests: bool) {
        let budget = &self.pager.allowance.budget;
        let near = budget.used() + NEAR > budget.hard();
        let running = &self.pager.allowance.running;
        let interval = if rests { quiet::TICK_NS } else { running.interval_ns(near) };
        if interval != self.due.gauge_interval_ns && self.waiter.set_interval(interval).is_ok() {
            self.due.gauge_interval_ns = interval;
        }
    }

    /// Reads the gauges: what is used, what others use, what our own tables take.
    pub(super) fn read_gauges(&mut self) {
        let Pager { memory, store, allowance, policy, placement, .. } = &mut self.pager;
        store.drop_served();
        store.measure_own();
        let past = PastActivity {
            own: store.own_held.grown,
            copied: self.copies.copied(),
            limbo: store.limbo_target,
            desk: store.posting.memory().pages_up(),
            ..allowance.past()
        };
        let program = &self.ties.program;
        let gauges = KernelGauges { gauge: &self.gauge, program, files: Some(&memory.files) };
        let family = self.control.family();
        if let Err(error) = allowance.budget.read(&allowance.ledger, past, family, &gauges) {
            self.ties.die(format_args!("resident memory cannot be read: {error}"));
        }
        let budget = &allowance.budget;
        if budget.used() < budget.soft() || !budget.shares_much() {
            policy.spare_shared();
        }
        let stats = store.zswap.stats();
        self.idle
            .note_saved(store.away_of(stats.stored_pages).saturating_sub(store.own_held.pages));
        store.look_at_kept(SlotCount(stats.slots_used), stats.pool_pages);
        let tally = allowance.tally();
        let used = allowance.ledger.holding(allowance.seat).used;
        store.publish(&stats, tally, used, self.idle.saved());
        tally.set(Counter::Migrations, placement.migrations());
        tally.set(Counter::ServiceNs, cpu::process_ran_ns(0));
        tally.raise(Counter::StallNs, allowance.stalled_ns());
        let for_turn = allowance.time.span_ns(allowance.waited.for_turn_ticks);
        tally.raise(Counter::TurnWaitNs, for_turn);
    }

    /// Passes the time to zswap, takes over new knobs and a new share of the budget, and begins a
    /// new period of writeback when the last is over. While no fault waits, empties a pool that is
    /// left and shrinks a pool that holds more than it should.
    fn tune(&mut self, nobody_waits: bool) {
        let Pager { memory, store, allowance, .. } = &mut self.pager;
        let now = allowance.time.now_ns();
        store.zswap.note_time(now / 1_000_000);
        let (share, total) = (allowance.budget.share(), allowance.budget.total());
        let has_other_share = allowance.tuning.take_share(share, total);
        if has_other_share {
            memory.pages.set_share(share);
            store.limbo_target = policy::target(share);
        }
        if allowance.tuning.take_knobs(&allowance.ledger) {
            self.follow_knobs();
        } else if has_other_share {
            let wanted = allowance.tuning.for_store();
            // With the codec in force, which cannot be refused.
            let codec = store.zswap.knobs().codec;
            let _ = store.zswap.set_knobs(coldpress_zswap::Knobs { codec, ..wanted });
        }
        let Pager { store, allowance, .. } = &mut self.pager;
        if allowance.tuning.renews(now) {
            store.zswap.renew_writeback();
        }
        store.tend_pools(nobody_waits, allowance);
        if nobody_waits {
            store.zswap.shrink_to_limit();
        }
    }

    /// Has the knobs obeyed that were just taken over.
    fn follow_knobs(&mut self) {
        if !self.pager.allowance.shall_thaw() {
            self.thaw.end(&self.pager.allowance);
        }
        // What was refused may be wanted now.
        self.pager.policy.try_again();
        let Pager { store, allowance, .. } = &mut self.pager;
        let mut wanted = allowance.tuning.for_store();
        let Err(error) = store.zswap.set_knobs(wanted) else { return };
        let (refused, codec) = (wanted.codec, store.zswap.knobs().codec);
        self.ties.warn(format_args!(
            "pages are still compressed with {codec}, as {refused} cannot be had: {error}"
        ));
        wanted.codec = codec;
        // The codec in force cannot be refused.
        let _ = store.zswap.set_knobs(wanted);
    }
}
