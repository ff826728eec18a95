//! The service, from its start to the end of the program's memory.
//!
//! 1. *Joined.* The program has mapped something: the service joins the launcher's run and counts
//!    into the budget. The kernel itself serves the faults.
//! 2. *Managing.* About 70 % of the budget is used, or idle memory is wanted and this process has
//!    stopped growing: memory is registered, and pages start to move.
//! 3. *Left.* The program has ended or called exec. The service ends with the last process that has
//!    the memory.
//!
//! The service is a process of its own that shares the program's memory (`sys::beside`). It has no
//! libc behind it: no thread-local memory, no malloc, no lock that a thread of the program can
//! hold, and all signals blocked.

use alloc::boxed::Box;
use core::ffi::CStr;
use core::fmt;
use core::ops::Range;

use coldpress_backing::SlotCount;
use coldpress_mem::frames::{Config, FrameAllocator, SPAN_MAX};
use coldpress_sys::cpu::RseqArea;
use coldpress_sys::page::BLOCK_BYTES;
use coldpress_sys::proc::{Files, ResidentGauge};
use coldpress_sys::program::{self, Program};
use coldpress_sys::ring::Ring;
use coldpress_sys::wait::Waiter;
use coldpress_sys::{AsRawFd, Bytes, PageCount, SysError, SysResult, beside, confine, cpu, raw};
use coldpress_zswap::StoreError;

use crate::budget::{Budget, Past, Seen};
use crate::clock::Clock;
use crate::control::{Control, Stage};
use crate::gauging::RUN_NS_NEAR;
use crate::heir;
use crate::idle::Growth;
use crate::knobs::{Knob, Knobs};
use crate::ledger::Told;
use crate::link::{self, Joined};
use crate::manager::{Manager, Parts, tell_unmanaged};
use crate::placement::Placement;
use crate::reclaim::{Step, TRIM_MAX, TRIM_MAX_IDLE};
use crate::shares::Holding;
use crate::tally::Counter;

/// How far the service's nice value is below the program's, while it watches and while it serves
/// faults: other threads on a busy processor wait for it. But a thread that is woken from a fault
/// should run at once, because its next fault then arrives before the service would have gone to
/// sleep. With 5 that happens less often, with 10 hardly ever, and a fault takes 2 us more (Linux
/// 6.18).
const EARLY_BY: i32 = 10;
const SERVES_BY: i32 = 3;
/// Fastest growth to reckon with: first touches of huge pages by two threads (THP: 0.19 of 1.5 us
/// per page).
const GROWTH_BYTES_PER_US: usize = 8_000;
/// Shortest and longest sleep between two looks.
const SLEEP_NS_MIN: u64 = 500_000;
const SLEEP_NS_MAX: u64 = 10_000_000;
/// Looks in a row at which a program has run for less than an eighth of the time, after which it
/// rests. Looks then come `REST_FACTOR` times less often, but at least every `REST_NS_MAX`, because
/// an exec must be seen too.
const LOOKS_AT_REST: u32 = 8;
const REST_FACTOR: u64 = 4;
const REST_NS_MAX: u64 = 25_000_000;
/// Time between two looks whether other processes still have the memory, once the program has left
/// it.
const LEFT_NS: u64 = 5_000_000;
/// Distance below the hard limit that is "near".
const NEAR: PageCount = Bytes::mib(16).pages_down();
/// Slots of the disk given back at a time: 1 to 2 ms each (measured on ext4).
const SLOTS_TRIMMED: SlotCount = SlotCount(4);
/// Compressed bytes moved at a time to pack the pool closer: 10 to 40 us.
const COMPACTED: Bytes = Bytes::kib(16);
/// Locked memory that may always be there: up to this much, the user is not asked to lock less.
const LOCKED_IGNORED: Bytes = Bytes::mib(1);
/// Size of the core zone at first. Tables take about 42 bytes for a page that is away (24 of entry,
/// 4 of index, 8 of handle, some 4 of page table, a part of a zspage descriptor), so this is enough
/// for 400 MiB away. Blocks are added on demand, because an allocation of tables must not fail.
const CORE_AT_FIRST: Bytes = Bytes::mib(4);
/// Divisor of all memory that a program may have: this part is for tables of what is away, 42 bytes
/// a page.
const CORE_PART: usize = 96;
/// Time between two looks at what cannot be moved.
const IMMOVABLE_NS: u64 = 250_000_000;

/// What the library hands to the service.
pub struct Start {
    /// The launcher's socket.
    pub socket: &'static CStr,
    /// Shared with the program's threads.
    pub control: &'static Control,
    /// Where the pool and our tables will live; without a span yet.
    pub frames: &'static FrameAllocator,
    /// Bytes that large allocations of ours take outside the frames.
    pub heap_bytes: fn() -> Bytes,
    /// The rseq area of the program's main thread, if it has one.
    pub main_area: Option<RseqArea>,
    /// Address ranges of ours that must stay unmanaged.
    pub own: [Range<usize>; 2],
    /// Whether this process comes from a fork, and shares its memory.
    pub is_forked: bool,
    /// Called with the descriptor numbers of the link and of the program's process, for a panic.
    pub note_link: fn(i32, i32),
}

/// Runs the service for all of its life. Returns when asked to stop, or when there is nothing to
/// do.
pub fn run(start: &Start) {
    // At once: a service that comes late to a busy processor finds the budget passed.
    let nice = cpu::nice();
    cpu::set_nice(nice - EARLY_BY);
    // On errors the program stays unmanaged, which is always correct.
    let Ok(begun) = Begun::begin(start) else { return };
    let Some(mut manager) = manage(start, begun) else { return };
    cpu::set_nice(nice - SERVES_BY);
    start.control.set_stage(Stage::Managing);
    manager.serve();
}

/// Runs the service of a child for all of its life, with what its parent's service knew.
///
/// # Safety
/// The calling process is the child of a fork that was granted ([`Control::freeze`]), and calls
/// this once.
pub unsafe fn run_as_heir(start: &Start) {
    cpu::set_nice(cpu::nice() - SERVES_BY);
    // SAFETY: the caller's promise.
    let manager = unsafe { heir::take_over(start) };
    // An error is ignored: where no filter can be had, the service is as good without one.
    let _ = confine::give_up_rights();
    if manager.is_some() {
        start.control.set_stage(Stage::Managing);
    }
    start.control.note_inherited();
    if let Some(mut manager) = manager {
        manager.serve();
    }
}

/// Everything that needs a right, of a service that has given up all rights.
struct Begun {
    program: Program,
    gauge: ResidentGauge,
    joined: Joined,
    files: SysResult<Files>,
    ring: Option<Ring>,
    waiter: Waiter,
}

impl Begun {
    fn begin(start: &Start) -> SysResult<Self> {
        begin_beside(core::iter::empty())?;
        let program = Program::follow(start.control.program())?;
        let tell = |error: SysError| {
            link::tell_unmanaged(start.socket, &program, format_args!("{error}"));
        };
        let gauge = ResidentGauge::open().inspect_err(|error| tell(*error))?;
        let joined = Joined::join(start.socket, &program).inspect_err(|error| {
            // A launcher does not answer for a program that has gone.
            if !program.has_left(&gauge) {
                tell(*error);
            }
        })?;
        (start.note_link)(joined.link.socket().as_raw_fd(), program.pidfd().as_raw_fd());
        let files = Files::open();
        let ring = joined.spill.as_ref().and_then(|_| Ring::new().ok());
        let waiter = Waiter::new(RUN_NS_NEAR)?;
        confine::give_up_rights().inspect_err(|error| tell_unmanaged(&joined.link, *error))?;
        Ok(Self { program, gauge, joined, files, ring, waiter })
    }
}

/// Takes the first steps of a process that was made with copies of everything: it keeps no
/// descriptor but `kept`.
pub(crate) fn begin_beside(kept: impl Iterator<Item = i32> + Clone) -> SysResult<()> {
    beside::close_files(kept)?;
    beside::leave_surroundings();
    raw::name_thread(c"coldpress");
    Ok(())
}

/// Returns how long growth by `room` takes at least, within the bounds of a sleep.
fn sleep_for(room: Bytes) -> u64 {
    ((room.0 / GROWTH_BYTES_PER_US) as u64 * 1000).clamp(SLEEP_NS_MIN, SLEEP_NS_MAX)
}

/// The looks at a program that is not managed yet, and the sleeps between them.
struct Looking<'c> {
    control: &'c Control,
    /// The last look that was asked for when this one began.
    number: u32,
    /// How long the program's threads had run at the last look.
    ran_ns: u64,
    looks_at_rest: u32,
}

impl<'c> Looking<'c> {
    fn new(control: &'c Control, program: &Program) -> Self {
        // The first look is one that was asked for.
        let number = control.looks.asked().wrapping_sub(1);
        Self { control, number, ran_ns: program.ran_ns(), looks_at_rest: 0 }
    }

    /// Returns whether a thread waits for the look that begins with this call.
    fn begin(&mut self) -> bool {
        let number = self.control.looks.asked();
        core::mem::replace(&mut self.number, number) != number
    }

    /// Ends the look, and sleeps until the next one is asked for, or for `longest_ns`. While the
    /// program rests it sleeps longer: a tree may have hundreds of processes that only wait.
    fn sleep(&mut self, program: &Program, longest_ns: u64) {
        let before = core::mem::replace(&mut self.ran_ns, program.ran_ns());
        let rests = self.ran_ns.saturating_sub(before) < longest_ns / 8;
        self.looks_at_rest = if rests { self.looks_at_rest + 1 } else { 0 };
        let is_at_rest = self.looks_at_rest >= LOOKS_AT_REST;
        let longer = (longest_ns * REST_FACTOR).min(REST_NS_MAX);
        self.control.looks.answer(self.number);
        self.control.looks.sleep(self.number, if is_at_rest { longer } else { longest_ns });
    }
}

/// Counts into the budget until it is time to manage, then sets that up. Returns `None` if the
/// service was stopped, or the program has left or cannot be managed.
fn manage(start: &Start, begun: Begun) -> Option<Box<Manager>> {
    let Begun { program, gauge, joined, files, ring, waiter } = begun;
    let mut time = Clock::start();
    let mut looking = Looking::new(start.control, &program);
    let mut budget = Budget::new(gauge, &joined.terms, joined.seat);
    let mut growth = Growth::new(cpu::monotonic_ns());
    if start.is_forked {
        budget.begin_as_child().ok()?;
    }
    loop {
        let is_asked = looking.begin();
        let family = start.control.family();
        let seen = Seen { program: &program, files: files.as_ref().ok(), family };
        let past = Past { now_ns: cpu::monotonic_ns(), ..Past::default() };
        budget.read(&joined.ledger, past, seen).ok()?;
        let is_worth_it = growth.is_worth_managing(budget.used(), cpu::monotonic_ns());
        let wants_idle = || joined.ledger.knobs().idle_share().is_some();
        if budget.manage_now() || is_asked && budget.may_be_passed().ok()? {
            break;
        }
        if is_worth_it && wants_idle() {
            // Taking what relatives share would cost memory.
            budget.look_for_sharing();
            break;
        }
        looking.sleep(&program, sleep_for(budget.room_before_managing().bytes()));
        if start.control.is_stopped() || program.has_left(budget.gauge()) {
            joined.link.leave();
            return None;
        }
    }
    time.adjust();
    budget.begin_managing(time.now_ns());
    let total = budget.total();
    let (process, stay) = (program.process(), &start.control.stay);
    let limits = Limits::of(&program, &budget);
    if let Err(error) = prepare_memory(start, total, &limits, &joined.ledger.knobs()) {
        match limits.missing(total) {
            Bytes(0) => joined.link.not_managed(format_args!("no room for tables: {error}")),
            missing => joined.link.not_managed(format_args!(
                "no room for pool and tables; raise its ulimit -v by {} MiB",
                missing.0.div_ceil(1 << 20)
            )),
        }
        return None;
    }
    let files = files.inspect_err(|error| tell_unmanaged(&joined.link, *error)).ok()?;
    // On a failure the user has been informed.
    Manager::new(Parts {
        frames: start.frames,
        heap_bytes: start.heap_bytes,
        control: start.control,
        placement: Placement::new(process, start.main_area, stay),
        own: start.own.clone(),
        budget,
        time,
        joined,
        program,
        files,
        ring,
        waiter,
    })
    .ok()
}

/// How much the program may map, where that is limited.
struct Limits {
    /// What is left of the addresses.
    left: Option<Bytes>,
    /// All that the program may have, in place or away.
    most: Option<Bytes>,
}

impl Limits {
    fn of(program: &Program, budget: &Budget) -> Self {
        let mapped = budget.gauge().size().map_or(Bytes(0), PageCount::bytes);
        let addresses = program.address_limit();
        Self {
            left: addresses.map(|limit| Bytes(limit.0.saturating_sub(mapped.0))),
            most: addresses.into_iter().chain(program.data_limit()).min(),
        }
    }

    /// Returns what the core zone needs at first. Where memory is limited that is all that it will
    /// ever need, because it could not get more once the program has used up its limit.
    fn core(&self) -> Bytes {
        let most = self.most.map_or(0, |most| most.0 / CORE_PART);
        whole_blocks(CORE_AT_FIRST.0.max(most))
    }

    /// Returns the least size of the span: pool and tables cannot outgrow a budget of `total`, and
    /// an eighth is for blocks that are partly used.
    fn least_span(&self, total: PageCount) -> Bytes {
        whole_blocks(total.bytes().0 / 8 * 9 + self.core().0).min(SPAN_MAX)
    }

    /// Returns how many more bytes of addresses are needed: half of those that are left belong to
    /// the program.
    fn missing(&self, total: PageCount) -> Bytes {
        let wanted = 2 * self.least_span(total).0;
        self.left.map_or(Bytes(0), |left| Bytes(wanted.saturating_sub(left.0)))
    }
}

/// Gives the frame allocator its span, of which blocks come online as they are needed. The span has
/// room for a larger budget to come, where the limits leave it.
/// The knobs may ask for another layout of zones.
fn prepare_memory(
    start: &Start,
    total: PageCount,
    limits: &Limits,
    knobs: &Knobs,
) -> SysResult<()> {
    const ENOMEM: i32 = 12;
    start.control.make_bell()?;
    if limits.missing(total) > Bytes(0) {
        return Err(SysError { call: "RLIMIT_AS", errno: ENOMEM });
    }
    let least = limits.least_span(total);
    let most = whole_blocks(4 * total.bytes().0).min(SPAN_MAX);
    let span = if limits.left.is_some() { least } else { most.max(least) };
    // A half of the span is left for compressed pages. Where memory is limited, the zone has all
    // that tables can need: they could not have it later.
    let core = match knobs.core() {
        Some(core) if limits.most.is_none() => whole_blocks(core.0.min(span.0 / 2)),
        _ => limits.core(),
    };
    start.frames.init(Config {
        span,
        core: (knobs.get(Knob::OneZone) == 0).then_some(core),
        online: Bytes(core.0 + BLOCK_BYTES),
        easy_reclaim_hot_add: false,
        on_demand: true,
    })
}

fn whole_blocks(bytes: usize) -> Bytes {
    Bytes(bytes.next_multiple_of(BLOCK_BYTES))
}

impl Manager {
    /// Serves the program, which is managed from now on, until asked to stop, or until no process
    /// has its memory any more.
    fn serve(&mut self) {
        self.discover();
        let mut idle = false;
        loop {
            let has_read = !idle && self.read_messages();
            if self.control.is_stopped() {
                return self.stop();
            }
            if (self.left.is_so || self.waiter.has_seen_end()) && self.is_over() {
                self.write_events();
                // Until the kernel has given the memory up, which takes milliseconds, it is no room
                // for others, but no process holds it. What is shared is charged to relatives when
                // this process has ended.
                let left = Holding { doubt: self.budget.exclusive(), ..Holding::default() };
                self.ledger.seats[self.seat].publish(left);
                self.link.leave();
                // The kernel gives up, all at once, what this process has.
                beside::exit_process(0);
            }
            self.answer_fork();
            if self.control.is_held() {
                self.keep_quiet();
            }
            let is_thawing = self.thaw_step();
            self.take_hints();
            self.take_from_disk();
            // Reclaim of the last round may have read faults.
            self.look_around(idle && self.pending.is_empty() && self.reading.is_empty());
            // Last, so that little is done once a thread has been woken. Reclaim reads messages
            // too, so there may be faults even when idle.
            self.serve_pending();
            // While no fault waits, reclaim goes ahead of the next faults.
            let ahead =
                idle && self.budget.wants_reclaim_ahead() && self.reclaim_step() == Step::Done;
            // With nothing else to do, the service looks for idle memory, and makes stored pages
            // denser.
            let ahead = ahead || (idle && (self.idle_step() || self.recompress_step()));
            self.control.open_gate();
            // These steps too may have read faults, even when they had nothing to do.
            let is_asked =
                !self.pending.is_empty() || !self.hints.is_empty() || self.zswap.has_arrivals();
            let result = if ahead || is_thawing || is_asked {
                self.waiter.has_come()
            } else if has_read {
                // The woken thread has run meanwhile, and may have faulted again.
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

    /// Brings everything back, and gives up what the service has: the program goes on alone.
    fn stop(&mut self) {
        self.bring_all_back();
        self.lift_all_bars();
        self.placement.let_all_go(&|allowed, thread| self.link.give_processors(allowed, thread));
        self.write_events();
        self.control.set_stage(Stage::Watching);
        // With its last descriptor the userfaultfd goes. Threads that wait in its ranges go on, and
        // limbo can be unmapped, which would otherwise send an event that nothing reads.
        self.link.take_back();
        while let Some((index, ..)) = self.hints.pop() {
            self.control.finish_hint(index);
        }
        self.link.leave();
    }

    /// Returns whether no process has the memory any more that the program has left. A child by
    /// `vfork`, or by `clone`, may still have it.
    fn is_over(&mut self) -> bool {
        self.left.is_so = true;
        let now = self.time.now_ns();
        if now < self.left.look_at_ns {
            return false;
        }
        self.left.look_at_ns = now + LEFT_NS;
        // Kernel threads that transfer for this process would count as other processes.
        self.zswap.transfer_plainly();
        program::is_alone().unwrap_or(true)
    }

    /// Does what is due every few milliseconds: gauges, knobs, new mappings, warnings, recording,
    /// and whether the program rests.
    pub(crate) fn look_around(&mut self, nobody_waits: bool) {
        if self.time.now_ns() < self.gauges_at {
            return;
        }
        if self.time.adjust() {
            // These times were set by a clock that was ahead.
            self.stuck.until_ns = 0;
            (self.stuck.leads_from_ns, self.stuck.taken_at_ns) = (0, 0);
        }
        let now = self.time.now_ns();
        // The sooner no change is under way, the fewer words wait to be put in order.
        if self.order.is_open() {
            self.settle();
        }
        self.left.is_so = self.left.is_so || self.program.has_left(self.budget.gauge());
        let ran = self.program.ran_ns();
        self.running.note(now, ran);
        self.rest.note(now, self.clock, ran);
        self.placement.let_rest(now, &|allowed, thread| self.link.give_processors(allowed, thread));
        if self.budget.is_worth_taking() {
            let moved = self.zswap.compact(COMPACTED).moved;
            self.count(Counter::BytesCompacted, moved.0);
        }
        // Frames that the program freed without any reclaim.
        self.trim_frames(if nobody_waits { TRIM_MAX_IDLE } else { TRIM_MAX });
        self.write_events();
        self.tune(nobody_waits);
        self.read_gauges();
        self.lift_protection();
        self.look_at_copies();
        self.look_at_pressure(now);
        self.look_at_turns();
        if self.budget.take_undiscovered() {
            self.discover();
        }
        self.set_gauge_interval();
        self.gauges_at = now + self.gauge_interval_ns;
        if now >= self.stuck.look_at_ns {
            self.look_at_immovable();
            self.look_at_waits();
            // Giving disk blocks back takes milliseconds: only while no thread faults.
            self.zswap.take_back_lent();
            if nobody_waits && self.clock == self.clock_at_look {
                self.zswap.trim_backing(SLOTS_TRIMMED);
            }
            self.clock_at_look = self.clock;
            self.stuck.look_at_ns = now + IMMOVABLE_NS;
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
        self.lift_all_bars();
        // A thread that waits for room may have what the forking thread waits for.
        if self.copies.is_waiting() {
            self.protect_nothing();
        }
        self.begin_sharing();
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
            // A thread that has a hold may wait for a lock that a forking thread has.
            self.control.refuse_fork();
            self.read_messages();
            self.take_hints();
            self.take_from_disk();
            self.serve_pending();
            if !self.control.is_held() && self.control.end_quiet() {
                // What was read meanwhile may date from before the fork.
                self.budget.look_for_sharing();
                return;
            }
            // A thread that was killed during its hold does not release it.
            self.left.is_so =
                self.waiter.has_seen_end() || self.program.has_left(self.budget.gauge());
            if self.left.is_so {
                return;
            }
            if let Err(error) = self.waiter.wait() {
                self.die(format_args!("faults cannot be waited for: {error}"));
            }
        }
    }

    /// Warns the user, once in a run, when the budget cannot be kept, and says why.
    fn look_at_immovable(&mut self) {
        let used = self.budget.held_by_all().bytes();
        let total = self.budget.total().bytes();
        if !core::mem::take(&mut self.stuck.since_look) || used <= total {
            return;
        }
        let is_shared = self.ledger.shared().bytes().0 > total.0 / 2;
        let what = if is_shared { Told::OverByShared } else { Told::OverBudget };
        if !self.ledger.is_first_to_tell(what) || is_shared {
            return;
        }
        let data = self.files.data_of_files(&mut self.maps_buffer).unwrap_or_default();
        let locked = self.files.locked().unwrap_or_default();
        let mib = |bytes: Bytes| bytes.0.div_ceil(1 << 20);
        self.link.warn(format_args!(
            "the budget of {} MiB cannot be kept: {} MiB are in use and nothing more can be moved \
             (in process {}, {} MiB are data of its program and libraries, and {} MiB are \
             locked{}); raise --memory, or run fewer processes at once{}",
            mib(total),
            mib(used),
            self.link.process(),
            mib(data),
            mib(locked),
            Refusal(self.last_refusal),
            WayOut(self.last_refusal, locked)
        ));
    }
}

/// Why zswap refused pages, as an aside, if it did.
struct Refusal(Option<StoreError>);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |error| write!(f, "; {error}"))
    }
}

/// What else the user can do about refused pages and about locked memory, named after other ways
/// out.
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
