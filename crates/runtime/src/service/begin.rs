//! The beginning of a service: joining the run, watching until there is something to do, and
//! setting up what manages the program.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::ops::Range;

use coldpress_mem::frames::{Config, FrameAllocator, SPAN_MAX};
use coldpress_sys::cpu::RseqArea;
use coldpress_sys::errno::ENOMEM;
use coldpress_sys::page::BLOCK_BYTES;
use coldpress_sys::proc::{Files, ResidentGauge};
use coldpress_sys::program::Program;
use coldpress_sys::ring::Ring;
use coldpress_sys::wait::Waiter;
use coldpress_sys::{
    AsRawFd, Bytes, PageCount, SysError, SysResult, beside, confine, costs, cpu, raw,
};

use super::Service;
use super::idle::Growth;
use super::open::{Parts, tell_unmanaged};
use crate::allowance::{Budget, PastActivity, RUN_NS_NEAR};
use crate::clock::Clock;
use crate::control::Control;
use crate::knobs::{Knob, Knobs};
use crate::link::{self, Joined};
use crate::memory::KernelGauges;
use crate::pager::Placement;
use crate::pages::REGION_BYTES_MIN;
use crate::wire::BESIDE_STACKS_MAX;

/// Shortest and longest sleep between two looks.
const SLEEP_NS_MIN: u64 = 500_000;
const SLEEP_NS_MAX: u64 = 10_000_000;
/// Looks in a row at which a program has run for less than an eighth of the time, after which it
/// rests. Looks then come `REST_FACTOR` times less often, but at least every `REST_NS_MAX`, because
/// an exec must be seen too.
const LOOKS_AT_REST: u32 = 8;
const REST_FACTOR: u64 = 4;
const REST_NS_MAX: u64 = 25_000_000;
/// Size of the core zone at first. Tables take about 42 bytes for a page that is away (24 of entry,
/// 4 of index, 8 of handle, some 4 of page table, a part of a zspage descriptor), so this is enough
/// for 400 MiB away. Blocks are added on demand, because an allocation of tables must not fail.
const CORE_AT_FIRST: Bytes = Bytes::mib(4);
/// Divisor of all memory that a program may have: this part is for tables of what is away, 42 bytes
/// a page.
const CORE_PART: usize = 96;

/// What the library hands to the service.
pub(crate) struct Start {
    /// The launcher's socket.
    pub(crate) socket: &'static CStr,
    /// A descriptor of the run's directory, through which that path leads; it stays open.
    pub(crate) directory: Option<i32>,
    /// Shared with the program's threads.
    pub(crate) control: &'static Control,
    /// Where the pool and our tables will live; without a span yet.
    pub(crate) frames: &'static FrameAllocator,
    /// Bytes that large allocations of ours take outside the frames.
    pub(crate) heap_bytes: fn() -> Bytes,
    /// The rseq area of the program's main thread, if it has one.
    pub(crate) main_area: Option<RseqArea>,
    /// Address ranges of ours that must stay unmanaged.
    pub(crate) own: [Range<usize>; 2],
    /// Ranges that lie in one mapping with a thread's stack, above it; those of zeros are none.
    pub(crate) beside_stacks: [[usize; 2]; BESIDE_STACKS_MAX],
    /// Whether this process comes from a fork, and shares its memory.
    pub(crate) is_forked: bool,
    /// Called with the descriptor numbers of the link and of the program's process, for a panic.
    pub(crate) note_link: fn(i32, i32),
}

impl Start {
    /// Returns whether memory is known that can be taken in beside a thread's stack.
    fn knows_of_stacks(&self) -> bool {
        let is_taken = |[start, end]: &[usize; 2]| end - start >= REGION_BYTES_MIN.0;
        self.beside_stacks.iter().any(is_taken)
    }
}

/// Everything that needs a right, of a service that has given up all rights.
pub(super) struct Begun {
    program: Program,
    gauge: ResidentGauge,
    joined: Joined,
    files: SysResult<Files>,
    ring: Option<Ring>,
    waiter: Waiter,
}

impl Begun {
    pub(super) fn begin(start: &Start) -> SysResult<Self> {
        begin_beside(start.directory.into_iter())?;
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
    ((room.0 / costs::GROWTH_BYTES_PER_US) as u64 * 1000).clamp(SLEEP_NS_MIN, SLEEP_NS_MAX)
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
pub(super) fn manage(start: &Start, begun: Begun) -> Option<Box<Service>> {
    let Begun { program, gauge, joined, files, ring, waiter } = begun;
    let mut time = Clock::start();
    let mut looking = Looking::new(start.control, &program);
    let mut budget = Budget::new(&joined.terms, joined.seat);
    let mut growth = Growth::new(cpu::monotonic_ns());
    if start.is_forked {
        budget.begin_as_child(gauge.resident().ok()?.anonymous);
    }
    loop {
        let is_asked = looking.begin();
        let family = start.control.family();
        let seen = KernelGauges { gauge: &gauge, program: &program, files: files.as_ref().ok() };
        let past = PastActivity { now_ns: cpu::monotonic_ns(), ..PastActivity::default() };
        budget.read(&joined.ledger, past, family, &seen).ok()?;
        let is_worth_it = growth.is_worth_managing(budget.used(), cpu::monotonic_ns());
        let wants_idle = || joined.ledger.knobs().idle_share().is_some();
        if budget.manage_now() || is_asked && budget.may_be_passed(gauge.writable().ok()?) {
            break;
        }
        // What is known of stacks holds for a moment.
        if start.knows_of_stacks() || is_worth_it && wants_idle() {
            // Taking what relatives share would cost memory.
            budget.look_for_sharing();
            break;
        }
        looking.sleep(&program, sleep_for(budget.room_before_managing().bytes()));
        if start.control.life.is_stopped() || joined.ledger.are_over() || program.has_left(&gauge) {
            joined.link.leave();
            return None;
        }
    }
    time.adjust();
    budget.begin_managing(time.now_ns());
    let total = budget.total();
    let (process, stay) = (program.process(), &start.control.stay);
    let limits = Limits::of(&program, &gauge);
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
    Service::open(Parts {
        frames: start.frames,
        heap_bytes: start.heap_bytes,
        control: start.control,
        placement: Placement::new(process, start.main_area, stay),
        own: start.own.clone(),
        beside_stacks: ranges(&start.beside_stacks),
        gauge,
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

/// Returns the ranges of which there are any.
fn ranges(words: &[[usize; 2]]) -> Vec<Range<usize>> {
    words.iter().map(|[start, end]| *start..*end).filter(|range| !range.is_empty()).collect()
}

/// How much the program may map, where that is limited.
struct Limits {
    /// What is left of the addresses.
    left: Option<Bytes>,
    /// All that the program may have, in place or away.
    most: Option<Bytes>,
}

impl Limits {
    fn of(program: &Program, gauge: &ResidentGauge) -> Self {
        let mapped = gauge.size().map_or(Bytes(0), PageCount::bytes);
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
    start.control.bell.make()?;
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
