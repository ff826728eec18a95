//! The service thread, from its first sleep to the end of the program.
//!
//! 1. *Watching.* It sleeps, and looks at the resident size now and then. A short program ends
//!    before the first look. Nothing is open, nothing is mapped but its stack.
//! 2. *Joined.* Memory has grown to something: it joins the launcher's run and counts into the
//!    budget.
//! 3. *Managing.* About 70 % of the budget is used, or idle memory is wanted and this process has
//!    stopped growing: memory is registered, and pages start to move.
//!
//! The thread has no libc behind it: no thread-local memory, no malloc, no lock a program's thread
//! can hold, a file table of its own, all signals blocked.

use core::ffi::CStr;
use core::fmt;
use core::ops::Range;

use coldpress_backing::SlotCount;
use coldpress_mem::frames::{Config, FrameAllocator, SPAN_MAX};
use coldpress_sys::cpu::RseqArea;
use coldpress_sys::page::BLOCK_BYTES;
use coldpress_sys::proc::{self, ResidentGauge};
use coldpress_sys::{AsRawFd, Bytes, PageCount, SysResult, cpu, raw};
use coldpress_zswap::StoreError;

use crate::budget::{Budget, Past};
use crate::clock::Clock;
use crate::control::{Control, Stage};
use crate::heir;
use crate::ledger::Told;
use crate::link::Joined;
use crate::manager::{Manager, Parts};
use crate::placement::Placement;
use crate::proactive::Growth;
use crate::reclaim::{Step, TRIM_MAX, TRIM_MAX_IDLE};
use crate::tally::Counter;

/// A program whose resident size, code included, never passed this is not looked at more closely: a
/// shell has about 4 MiB.
const LOOK_CLOSER_AT: Bytes = Bytes::mib(5);
/// Anonymous memory at which a process joins the run.
const JOIN_AT: Bytes = Bytes::mib(2);
/// This thread is so much less nice than the program while it watches, and while it serves faults:
/// others on a busy processor wait for it. But a thread that is woken from a fault shall run at
/// once, as its next fault is there then before this thread would have gone to sleep: with 5 that
/// happens less often, with 10 hardly ever, and a fault takes 2 us more (Linux 6.18).
const EARLY_BY: i32 = 10;
const SERVES_BY: i32 = 3;
/// Fastest growth reckoned with: first touches of huge pages by two threads (THP: 0.19 of 1.5 us
/// per page).
const GROWTH_BYTES_PER_US: usize = 8_000;
/// Shortest and longest sleep between two looks.
const SLEEP_NS_MIN: u64 = 500_000;
const SLEEP_NS_MAX: u64 = 10_000_000;
/// A program that has run for less than an eighth of the time at so many looks in a row rests: the
/// next look comes when it has run for this long, which is a few MiB of first touches.
const LOOKS_AT_REST: u32 = 8;
const RUN_NS: u64 = 1_000_000;
/// "Near": this much below the hard limit.
const NEAR: PageCount = Bytes::mib(16).pages_down();
/// Shared memory below this is not worth a word.
const SHARED_IGNORED: Bytes = Bytes::mib(1);
/// Slots of the disk given back at a time: 1 to 2 ms each (measured on ext4).
const SLOTS_TRIMMED: SlotCount = SlotCount(4);
/// Compressed bytes moved at a time to pack the pool closer: 10 to 40 us.
const COMPACTED: Bytes = Bytes::kib(16);
/// So much locked memory may always be there: a process with little more need not be told of it.
const LOCKED_IGNORED: Bytes = Bytes::mib(1);
/// The core zone at first. Tables take about 42 bytes for a page that is away (24 of entry, 4 of
/// index, 8 of handle, some 4 of page table, a part of a zspage descriptor), so this is enough for
/// 400 MiB away, and blocks are added on demand: an allocation of theirs must not fail.
const CORE_AT_FIRST: Bytes = Bytes::mib(4);
/// Between two looks at what cannot be moved.
const IMMOVABLE_NS: u64 = 250_000_000;

/// What the constructor hands to the thread.
pub struct Start {
    /// The launcher's socket.
    pub socket: &'static CStr,
    /// The budget, for the length of sleeps; the launcher's terms decide later.
    pub budget: Bytes,
    /// Shared with the program's threads.
    pub control: &'static Control,
    /// Where the pool and our tables will live; without a span yet.
    pub frames: &'static FrameAllocator,
    /// Bytes that large allocations of ours take outside the frames.
    pub heap_bytes: fn() -> Bytes,
    /// The thread that started us, and its rseq area, if it has one.
    pub main_thread: (u32, Option<RseqArea>),
    /// Address ranges of ours that must stay unmanaged.
    pub own: [Range<usize>; 2],
    /// Whether this process comes from a fork, and shares its memory.
    pub is_forked: bool,
    /// Called with the link's descriptor number, for messages from a panic.
    pub note_link: fn(i32),
}

/// The life of the service thread. Returns when told to stop, or when there is nothing to do.
pub fn run(start: &Start) {
    raw::name_thread(c"coldpress");
    // At once: who comes late to a busy processor finds the budget passed.
    let nice = cpu::nice();
    cpu::set_nice(nice - EARLY_BY);
    let mut looking = Looking::new(start.control);
    if !watch(start, &mut looking) {
        return;
    }
    // From here on errors mean that the program stays unmanaged, which is always correct.
    let Ok(()) = raw::private_files(core::iter::empty()) else { return };
    let Ok(gauge) = ResidentGauge::open() else { return };
    let Some(joined) = join(start, &gauge, &mut looking) else { return };
    (start.note_link)(joined.link.socket().as_raw_fd());
    let Some(mut manager) = manage(start, gauge, joined, &mut looking) else { return };
    cpu::set_nice(nice - SERVES_BY);
    manager.serve();
}

/// The life of the service thread of a child that inherits what its parent's knew.
///
/// # Safety
/// This is the child of a fork that was granted ([`Control::freeze`]), and this is called once.
pub unsafe fn run_as_heir(start: &Start) {
    raw::name_thread(c"coldpress");
    cpu::set_nice(cpu::nice() - SERVES_BY);
    // SAFETY: the caller's promise.
    let manager = unsafe { heir::take_over(start) };
    if manager.is_some() {
        start.control.set_stage(Stage::Managing);
    }
    start.control.note_inherited();
    if let Some(mut manager) = manager {
        manager.serve();
    }
}

/// How long growth to `room` takes at least, within the bounds of a sleep.
fn sleep_for(room: Bytes) -> u64 {
    ((room.0 / GROWTH_BYTES_PER_US) as u64 * 1000).clamp(SLEEP_NS_MIN, SLEEP_NS_MAX)
}

/// Looks at a program that is not managed yet, and the sleep between them.
struct Looking<'c> {
    control: &'c Control,
    /// The last look that was asked for when this one began.
    number: u32,
    /// The last look that was answered.
    answered: u32,
    /// How long the program's threads had run at the last look.
    ran_ns: u64,
    looks_at_rest: u32,
}

impl<'c> Looking<'c> {
    fn new(control: &'c Control) -> Self {
        let ran_ns = cpu::others_ran_ns();
        Self { control, number: 0, answered: 0, ran_ns, looks_at_rest: 0 }
    }

    /// Begins a look; whether somebody waits for it.
    fn begin(&mut self) -> bool {
        self.number = self.control.looks.asked();
        self.number != self.answered
    }

    /// Ends the look, and sleeps for `longest_ns`, until the next is asked for, or until told to
    /// stop: then false.
    fn sleep(&mut self, longest_ns: u64) -> bool {
        self.answered = self.number;
        self.control.looks.answer(self.number);
        self.control.looks.sleep(self.number, longest_ns);
        !self.control.is_stopped()
    }

    /// The same; but while the program rests, until it runs: a tree may have hundreds of processes
    /// that only wait.
    fn sleep_or_nap(&mut self, longest_ns: u64) -> bool {
        let before = core::mem::replace(&mut self.ran_ns, cpu::others_ran_ns());
        let rests = self.ran_ns.saturating_sub(before) < longest_ns / 8;
        self.looks_at_rest = if rests { self.looks_at_rest + 1 } else { 0 };
        if self.looks_at_rest >= LOOKS_AT_REST && self.control.looks.begin_nap(self.number) {
            // The clock of the process is looked at by the kernel's tick only, so it is not for one
            // that runs.
            let has_slept = cpu::sleep_until_run(RUN_NS);
            self.control.looks.end_nap();
            if has_slept {
                return !self.control.is_stopped();
            }
        }
        self.sleep(longest_ns)
    }
}

/// Sleeps until the program has grown to something, or asks. False when told to stop.
fn watch(start: &Start, looking: &mut Looking<'_>) -> bool {
    let longest = sleep_for(Bytes(start.budget.0 / 4));
    let mut sleep_ns = SLEEP_NS_MIN.min(longest);
    while looking.sleep_or_nap(sleep_ns) {
        if looking.begin() || raw::resident_peak() >= LOOK_CLOSER_AT {
            return true;
        }
        sleep_ns = (sleep_ns * 2).min(longest);
    }
    false
}

/// Waits for anonymous memory worth joining for, and joins. `None`: stopped, or nobody to join.
fn join(start: &Start, gauge: &ResidentGauge, looking: &mut Looking<'_>) -> Option<Joined> {
    let threshold = JOIN_AT.0.min(start.budget.0 / 16);
    loop {
        let is_asked = looking.begin();
        if gauge.anonymous().ok()?.bytes().0 >= threshold
            || is_asked && gauge.writable().ok()?.bytes() >= start.budget
        {
            return Joined::join(start.socket).ok();
        }
        if !looking.sleep_or_nap(sleep_for(Bytes(start.budget.0 / 4))) {
            return None;
        }
    }
}

/// Counts into the budget until it is time to manage, then sets that up.
fn manage(
    start: &Start,
    gauge: ResidentGauge,
    joined: Joined,
    looking: &mut Looking<'_>,
) -> Option<alloc::boxed::Box<Manager>> {
    let mut time = Clock::start();
    let mut budget = Budget::new(gauge, &joined.terms, joined.seat);
    let mut growth = Growth::new(cpu::monotonic_ns());
    if start.is_forked {
        budget.begin_sharing();
    }
    loop {
        let is_asked = looking.begin();
        budget.read(&joined.ledger, Past::default()).ok()?;
        let is_worth_it = growth.is_worth_managing(budget.used(), cpu::monotonic_ns());
        let wants_idle = || joined.ledger.knobs().idle_share().is_some();
        if budget.manage_now() || is_asked && budget.may_be_passed().ok()? {
            break;
        }
        if is_worth_it && wants_idle() {
            // To take what relatives share would cost memory.
            budget.look_for_sharing();
            break;
        }
        if !looking.sleep(sleep_for(budget.room_before_managing().bytes())) {
            return None;
        }
    }
    budget.begin_managing();
    time.adjust();
    let total = budget.total();
    let (main_thread, area) = start.main_thread;
    if let Err(error) = prepare_memory(start, total) {
        let process = raw::process_id();
        joined
            .link
            .warn(format_args!("process {process} is not managed: no room for tables: {error}"));
        return None;
    }
    // On a failure the user has been told.
    Manager::new(Parts {
        frames: start.frames,
        heap_bytes: start.heap_bytes,
        control: start.control,
        placement: Placement::new(main_thread, area, &start.control.stay),
        own: start.own.clone(),
        budget,
        time,
        joined,
    })
    .ok()
}

/// Gives the frame allocator its span: the pool cannot outgrow the budget, nor our tables. All of
/// it is online, as only what is touched takes memory.
fn prepare_memory(start: &Start, total: PageCount) -> SysResult<()> {
    start.control.make_bell()?;
    let online = whole_blocks(2 * total.bytes().0).min(Bytes(SPAN_MAX.0 / 2));
    start.frames.init(Config {
        span: Bytes(2 * online.0),
        core: Some(CORE_AT_FIRST),
        online,
        easy_reclaim_hot_add: false,
        on_demand: true,
    })
}

fn whole_blocks(bytes: usize) -> Bytes {
    Bytes(bytes.next_multiple_of(BLOCK_BYTES))
}

impl Manager {
    /// Serves the program until told to stop.
    fn serve(&mut self) {
        self.control.set_stage(Stage::Managing);
        self.discover();
        let mut idle = false;
        loop {
            let has_read = !idle && self.read_messages();
            if self.control.is_stopped() {
                self.bring_all_back();
                self.placement.let_all_go();
                self.write_events();
                self.control.set_stage(Stage::Watching);
                // With its last descriptor the userfaultfd goes: whoever waits in its ranges goes
                // on, and limbo can be unmapped, of which nobody would read the event.
                self.link.take_back();
                while let Some((index, ..)) = self.hints.pop() {
                    self.control.finish_hint(index);
                }
                return;
            }
            self.answer_fork();
            if self.control.is_held() {
                self.keep_quiet();
            }
            let is_thawing = self.thaw_step();
            self.take_hints();
            self.take_from_disk();
            // Reclaim of the last turn may have read faults.
            self.look_around(idle && self.pending.is_empty() && self.reading.is_empty());
            // Last, so that little is done once a thread has been woken. Reclaim reads messages
            // too, so there may be faults even when idle.
            self.serve_pending();
            // With nobody waiting, reclaim goes ahead of the next faults.
            let ahead =
                idle && self.budget.wants_reclaim_ahead() && self.reclaim_step() == Step::Done;
            // With nothing else to do, idle memory is looked for, and stored pages are made denser.
            let ahead = ahead || (idle && (self.proactive_step() || self.age_step()));
            self.control.open_gate();
            // That too may have read faults, also when it had nothing to do.
            let is_asked =
                !self.pending.is_empty() || !self.hints.is_empty() || self.zswap.has_arrivals();
            let result = if ahead || is_thawing || is_asked {
                self.waiter.has_come()
            } else if has_read {
                // Who was woken has run meanwhile, and may have faulted again.
                Ok(true)
            } else {
                self.waiter.wait()
            };
            match result {
                Ok(something) => idle = !something,
                Err(error) => self.die(format_args!("faults cannot be waited for: {error}")),
            }
        }
    }

    /// What is done every few milliseconds: gauges, knobs, new mappings, warnings, recording,
    /// whether the program rests.
    pub(crate) fn look_around(&mut self, nobody_waits: bool) {
        if self.time.now_ns() < self.gauges_at {
            return;
        }
        if self.time.adjust() {
            // It was said by a clock that was ahead.
            self.stuck.until_ns = 0;
        }
        let now = self.time.now_ns();
        // The sooner no change is under way, the less is left to be told apart.
        if self.order.is_open() {
            self.settle();
        }
        let ran = cpu::others_ran_ns();
        self.running.note(now, ran);
        self.rest.note(now, self.clock, ran);
        self.placement.let_rest(now);
        if self.budget.is_worth_taking() {
            let moved = self.zswap.compact(COMPACTED).moved;
            self.count(Counter::BytesCompacted, moved.0);
        }
        // What the program gave up without any reclaim going on.
        self.trim_frames(if nobody_waits { TRIM_MAX_IDLE } else { TRIM_MAX });
        self.write_events();
        self.tune(nobody_waits);
        self.read_gauges();
        self.look_at_pressure(now);
        self.look_at_turns();
        if self.budget.take_undiscovered() {
            self.discover();
        }
        self.set_gauge_interval();
        self.gauges_at = now + self.gauge_interval_ns;
        if now >= self.immovable_at {
            self.look_at_immovable();
            // Giving disk blocks back takes milliseconds: only while nobody faults.
            self.zswap.take_back_lent();
            if nobody_waits && self.clock == self.clock_at_look {
                self.zswap.trim_backing(SLOTS_TRIMMED);
            }
            self.clock_at_look = self.clock;
            self.immovable_at = now + IMMOVABLE_NS;
        }
    }

    fn set_gauge_interval(&mut self) {
        let near = self.budget.used() + NEAR > self.budget.hard();
        let interval = self.running.interval_ns(near);
        if interval != self.gauge_interval_ns && self.waiter.set_interval(interval).is_ok() {
            self.gauge_interval_ns = interval;
        }
    }

    /// Brings everything back and leaves it there while a thread of the program forks.
    fn keep_quiet(&mut self) {
        let from = self.time.now_ns();
        let pages = self.bring_all_back();
        self.budget.begin_sharing();
        self.read_gauges();
        self.control.set_quiet();
        if pages > PageCount(0) {
            let ms = (self.time.now_ns() - from) / 1_000_000;
            self.link.tell(format_args!(
                "fork: brought {} MiB back in {ms} ms; the child shares them until it execs",
                pages.bytes().0 >> 20
            ));
        }
        self.count(Counter::Forks, 1);
        self.count(Counter::ForkPages, pages.0);
        loop {
            // Who holds may wait for a lock that a forker has.
            self.control.refuse_fork();
            self.read_messages();
            self.take_hints();
            self.take_from_disk();
            self.serve_pending();
            if !self.control.is_held() && self.control.end_quiet() {
                return;
            }
            if let Err(error) = self.waiter.wait() {
                self.die(format_args!("faults cannot be waited for: {error}"));
            }
        }
    }

    /// Tells the user, once in a run, when the budget cannot be kept, and why.
    fn look_at_immovable(&mut self) {
        let used = self.budget.used_by_all();
        let stuck = core::mem::take(&mut self.stuck.since_look);
        let immovable = proc::immovable().unwrap_or_default();
        let mib = |bytes: Bytes| bytes.0.div_ceil(1 << 20);
        let total = self.budget.total().bytes();
        if stuck && used.bytes() > total && self.ledger.is_first_to_tell(Told::OverBudget) {
            let data = proc::data_of_files(&mut self.maps_buffer).unwrap_or_default();
            self.link.warn(format_args!(
                "the budget of {} MiB cannot be kept: {} MiB are in use and nothing more can be \
                 moved (in process {}, {} MiB are data of its program and libraries, and {} MiB \
                 are locked{}); raise --memory, or run fewer processes at once{}",
                mib(total),
                mib(used.bytes()),
                raw::process_id(),
                mib(data),
                mib(immovable.locked),
                Refusal(self.last_refusal),
                WayOut(self.last_refusal, immovable.locked)
            ));
        }
        // The seats and the desk are shared memory too, but ours.
        let ours = Bytes(size_of_val(&self.ledger.seats)) + self.ahead.memory();
        let shared = Bytes(immovable.shared.0.saturating_sub(ours.0));
        if shared > SHARED_IGNORED
            && used.bytes() + shared > total
            && self.ledger.is_first_to_tell(Told::Immovable)
        {
            self.link.warn(format_args!(
                "the budget of {} MiB cannot be kept: {} MiB of shared memory are in use beside \
                 {} MiB of private, and shared memory is not managed; raise --memory",
                mib(total),
                mib(shared),
                mib(used.bytes())
            ));
        }
    }
}

/// Why zswap refused pages, as an aside, if it did.
struct Refusal(Option<StoreError>);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |error| write!(f, "; {error}"))
    }
}

/// What else the user can do about that, and about so much that is locked, behind other ways out.
struct WayOut(Option<StoreError>, Bytes);

impl fmt::Display for WayOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1 > LOCKED_IGNORED {
            f.write_str(", or lock less")?;
        }
        f.write_str(match self.0 {
            Some(StoreError::Disabled) => ", or turn the knob enabled on",
            Some(StoreError::PoolFull) => {
                ", or give it a --disk (or a larger --disk-size), or turn the knob writeback on"
            }
            Some(StoreError::Incompressible) => ", or turn the knob keep_incompressible on",
            Some(StoreError::AboveMean) => ", or raise the knob max_mean_zsize",
            Some(StoreError::NoMemory) | None => "",
        })
    }
}
