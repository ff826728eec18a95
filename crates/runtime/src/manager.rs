//! The manager: everything the service knows and does about a program's memory.
//!
//! Only the service has the manager, so nothing here is locked. Its parts: `change` acts on the
//! kernel's reports about the address space, `fault` brings pages in (swap-in), `reclaim` takes
//! them out (swap-out).
//!
//! Invariants:
//! 1. A page is `Stored`, or waits in `served`, or its copy is kept, exactly when zswap has an
//!    entry under its key.
//! 2. A page is `Limbo` exactly when its run has a slot and its bytes lie there.
//! 3. When the kernel refuses a call because the address space is changing, everything is looked at
//!    afresh after `Manager::settle`: no state read before it may be used after it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use coldpress_backing::{Backing, FileBacking, SlotCount, SlotId};
use coldpress_mem::frames::FrameAllocator;
use coldpress_mem::pools::Switch;
use coldpress_sys::file::SpillFile;
use coldpress_sys::map::Span;
use coldpress_sys::proc::Files;
use coldpress_sys::program::Program;
use coldpress_sys::ring::Ring;
use coldpress_sys::uffd::{FEATURES_NEEDED, Message, Mode, Userfaultfd};
use coldpress_sys::wait::Waiter;
use coldpress_sys::{
    AsRawFd, Bytes, OwnedFd, PAGE_BYTES, PageCount, SysError, SysResult, cpu, raw,
};
use coldpress_zswap::seal::{SealError, Sealer};
use coldpress_zswap::{Area, Key, Offset, StoreError, Zswap};

use crate::away::Away;
use crate::bar::Bars;
use crate::budget::{Budget, Past, Seen};
use crate::clock::Clock;
use crate::control::{BELL_PAGES, Control};
use crate::copies::Copies;
use crate::fault::TOUCHES;
use crate::gauging::{RUN_NS_NEAR, Running};
use crate::helper::Helper;
use crate::idle::Idle;
use crate::ledger::{Ledger, Terms};
use crate::limbo::{self, Limbo};
use crate::link::{Joined, Link};
use crate::order::Order;
use crate::pages::{PageNumber, PageTable};
use crate::placement::Placement;
use crate::pools::{self, Pools};
use crate::queue::RunQueue;
use crate::recompress::Rest;
use crate::record::Recording;
use crate::refusals::Refusals;
use crate::regions::Regions;
use crate::shares::Waited;
use crate::tally::{Counter, Tally};
use crate::trial;
use crate::tune::Tuning;
use crate::turns::Turns;
use crate::walks::Walks;

/// The zswap area of the program's own pages.
const PROGRAM_AREA: Area = Area(0);
/// Zeros for first touches in runs: never written to, so they take no memory.
pub(crate) const ZEROS: PageCount = PageCount(64);
/// Free frames of the pool that may keep their memory.
pub(crate) const FRAMES_KEPT: PageCount = Bytes::kib(256).pages_down();
/// Buffer for /proc/self/maps, whose longest line is a path of 4096 bytes and 100 more.
const MAPS_BUFFER: Bytes = Bytes::kib(16);

/// A fault that waits to be served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) page: PageNumber,
    pub(crate) thread: u32,
    pub(crate) read_at_ticks: u64,
    /// How long the fault waited before, for the process's turn or for room.
    pub(crate) waited_ticks: u64,
    /// Whether its page is being read back from disk.
    pub(crate) is_coming: bool,
    /// Whether it is a write to a page that is there, and protected.
    pub(crate) is_protected: bool,
}

impl Fault {
    /// Records that the fault has waited until now, and returns for how long.
    pub(crate) fn wait_until(&mut self, ticks: u64) -> u64 {
        let waited = ticks.wrapping_sub(self.read_at_ticks);
        self.waited_ticks += waited;
        self.read_at_ticks = ticks;
        waited
    }
}

/// Faults on pages that were away, since this process began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refaults {
    pub(crate) faults: u64,
    /// The faults among them on pages in limbo that belong to no walk.
    pub(crate) in_limbo: u64,
    /// How long threads have waited in these faults, without waiting for their turn.
    pub(crate) ticks: u64,
}

/// Everything that the service works with.
pub struct Manager {
    pub(crate) uffd: Userfaultfd,
    pub(crate) pages: PageTable,
    pub(crate) regions: Regions,
    pub(crate) copies: Copies,
    pub(crate) bars: Bars,
    pub(crate) order: Order,
    pub(crate) limbo: Limbo,
    pub(crate) limbo_pages: PageCount,
    pub(crate) limbo_target: PageCount,
    pub(crate) zswap: Zswap<Pools>,
    pub(crate) frames: &'static FrameAllocator,
    pub(crate) heap_bytes: fn() -> Bytes,
    pub(crate) own_held: OwnHeld,
    pub(crate) budget: Budget,
    pub(crate) ledger: Ledger,
    pub(crate) seat: usize,
    pub(crate) link: Link,
    pub(crate) control: &'static Control,
    pub(crate) queue: RunQueue,
    pub(crate) pending: VecDeque<Fault>,
    /// Faults whose pages are being read back.
    pub(crate) reading: Vec<Fault>,
    /// Walks of first touches.
    pub(crate) touches: Walks,
    pub(crate) away: Away,
    pub(crate) placement: Placement,
    pub(crate) zeros: Span,
    pub(crate) clock: u32,
    /// The clock at the last look whether threads fault.
    pub(crate) clock_at_look: u32,
    pub(crate) stuck: Stuck,
    /// When to read the gauges again.
    pub(crate) gauges_at: u64,
    pub(crate) gauge_interval_ns: u64,
    pub(crate) waiter: Waiter,
    pub(crate) program: Program,
    pub(crate) left: Left,
    /// Ranges just mapped whose threads wait: number, start, length.
    pub(crate) hints: Vec<(usize, usize, Bytes)>,
    pub(crate) rest: Rest,
    pub(crate) running: Running,
    pub(crate) idle: Idle,
    pub(crate) time: Clock,
    pub(crate) refaults: Refaults,
    pub(crate) turns: Turns,
    /// Pages that came in from zswap and whose entries are still to be dropped. No thread waits for
    /// that, but it must be done before anything is stored.
    pub(crate) served: Vec<PageNumber>,
    /// Pages that came in since reclaim last went along with faults.
    pub(crate) arrivals: usize,
    /// Pages that zswap refused while reclaim worked for the budget, and the reason of its last
    /// refusal.
    pub(crate) refusals: Refusals,
    pub(crate) last_refusal: Option<StoreError>,
    pub(crate) tuning: Tuning,
    pub(crate) helper: Helper,
    /// The page last made this process's own by force.
    pub(crate) last_owned: Option<PageNumber>,
    pub(crate) messages: [Message; 16],
    pub(crate) files: Files,
    pub(crate) maps_buffer: Vec<u8>,
    pub(crate) own: Vec<Range<usize>>,
    pub(crate) recording: Option<Recording>,
    /// The files that stored pages may lie in, each with its first slot.
    pub(crate) spills: Vec<(i32, SlotId)>,
    /// Blocks that an ancestor of this process had given back before the fork.
    pub(crate) blocks_returned_before: u64,
}

/// Whether the program has left this memory.
#[derive(Default)]
pub(crate) struct Left {
    pub(crate) is_so: bool,
    /// When to look again which processes still have it.
    pub(crate) look_at_ns: u64,
}

/// State of reclaim while nothing can be reclaimed.
#[derive(Default)]
pub(crate) struct Stuck {
    /// When to try again; 0 when something can be reclaimed.
    pub(crate) until_ns: u64,
    /// Whether reclaim was stuck since what cannot be moved was last looked at.
    pub(crate) since_look: bool,
    /// Whether pages that relatives share are taken too.
    pub(crate) takes_shared: bool,
    /// Leaves of which the kernel was asked in this step what relatives share.
    pub(crate) leaves_looked_at: usize,
    /// Since when relatives are to take shared pages first, 0 when they are not; and when a run was
    /// last taken.
    pub(crate) leads_from_ns: u64,
    pub(crate) taken_at_ns: u64,
    /// When to look again at what cannot be moved.
    pub(crate) look_at_ns: u64,
}

/// What our own tables and pool take.
#[derive(Default)]
pub(crate) struct OwnHeld {
    pub(crate) pages: PageCount,
    /// Total growth of these pages: the number of them that were touched first.
    pub(crate) grown: PageCount,
}

/// What the manager needs from the outside.
pub struct Parts {
    /// The joined run.
    pub joined: Joined,
    /// Where the pool and our own tables live.
    pub frames: &'static FrameAllocator,
    /// Bytes that large allocations of ours take outside the frames.
    pub heap_bytes: fn() -> Bytes,
    /// Shared with the program's threads.
    pub control: &'static Control,
    /// Follows the faulting threads.
    pub placement: Placement,
    /// Address ranges of ours that must not be managed: the object's data, the service's stack.
    pub own: [Range<usize>; 2],
    /// The budget as read so far.
    pub budget: Budget,
    /// A clock that knows its rate.
    pub time: Clock,
    /// The program that is served.
    pub program: Program,
    /// The files of /proc about its memory.
    pub files: Files,
    /// The ring for transfers to the disk and back, where there may be some.
    pub ring: Option<Ring>,
    /// The waiter, which watches nothing yet.
    pub waiter: Waiter,
}

impl Manager {
    /// Sets everything up, and touches nothing of the program yet. The frame allocator must have
    /// its span, and no frame in use.
    pub fn new(parts: Parts) -> SysResult<Box<Self>> {
        let Parts { joined, frames, control, budget, time, program, ring, waiter, .. } = parts;
        let Joined { link, ledger, seat, terms, desk, spill, uffd, is_recorded } = joined;
        // Before the first of our own allocations, so that the recording has every frame.
        let recording = if is_recorded { Recording::begin(&link, frames) } else { None };
        let spills = spill.iter().map(|file| (file.as_raw_fd(), SlotId(0))).collect();
        let tuning = Tuning::begin(&ledger, &budget, time.now_ns());
        let disk = spill.and_then(|file| open_disk(&link, &terms, file, ring));
        let open = |uffd| Tools::open(uffd, &tuning, frames, control, disk);
        let tools = uffd.and_then(open).and_then(|it| it.used_by(&waiter, &program, &link));
        let told = |error: &SysError| tell_unmanaged(&link, *error);
        let Tools { uffd, limbo, zeros, zswap } = tools.inspect_err(told)?;
        Ok(Box::new(Self {
            uffd,
            pages: PageTable::new(budget.share()),
            regions: Regions::default(),
            copies: Copies::default(),
            bars: Bars::default(),
            order: Order::default(),
            limbo,
            limbo_pages: PageCount(0),
            limbo_target: limbo::target(tuning.share),
            zswap,
            frames,
            heap_bytes: parts.heap_bytes,
            own_held: OwnHeld::default(),
            budget,
            ledger,
            seat,
            link,
            control,
            queue: RunQueue::default(),
            pending: VecDeque::with_capacity(64),
            reading: Vec::with_capacity(64),
            touches: Walks::new(TOUCHES),
            away: Away::new(SlotCount::inside(terms.spill_max)),
            placement: parts.placement,
            zeros,
            clock: 0,
            clock_at_look: 0,
            stuck: Stuck::default(),
            gauges_at: 0,
            gauge_interval_ns: RUN_NS_NEAR,
            waiter,
            left: Left::default(),
            hints: Vec::new(),
            rest: Rest::default(),
            running: Running::begin(time.now_ns(), program.ran_ns()),
            program,
            idle: Idle::new(time.started_ns()),
            messages: [const { Message::EMPTY }; 16],
            files: parts.files,
            maps_buffer: alloc::vec![0; MAPS_BUFFER.0],
            own: parts.own.to_vec(),
            recording,
            spills,
            blocks_returned_before: 0,
            time,
            refaults: Refaults::default(),
            turns: Turns::default(),
            arrivals: 0,
            served: Vec::new(),
            refusals: Refusals::default(),
            last_refusal: None,
            helper: Helper::new(desk, tuning.share),
            tuning,
            last_owned: None,
        })
        .begin())
    }

    fn begin(mut self: Box<Self>) -> Box<Self> {
        self.measure_own();
        self.ledger.seats[self.seat].set_managing();
        let (pool, codec) = (self.zswap.pool().current().kind(), self.zswap.knobs().codec);
        let process = self.link.process();
        self.link.tell(format_args!("process {process} is managed: pool {pool}, codec {codec}"));
        self
    }

    /// Returns the key under which zswap keeps a page.
    pub(crate) fn key(page: PageNumber) -> Key {
        Key { area: PROGRAM_AREA, offset: Offset(page.0 as u64) }
    }

    pub(crate) fn area() -> Area {
        PROGRAM_AREA
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.ledger.tallies[self.seat]
    }

    pub(crate) fn count(&self, counter: Counter, amount: usize) {
        self.tally().add(counter, amount as u64);
    }

    /// Returns whether there were any messages, after reading all of them. Changes of the address
    /// space are acted on at once; faults wait in `pending`.
    pub(crate) fn read_messages(&mut self) -> bool {
        let any = self.drain_messages();
        // Until the word that `order` waits for has come, nothing is known of the pages of a move.
        if self.order.is_waiting() {
            self.settle();
        }
        any
    }

    pub(crate) fn drain_messages(&mut self) -> bool {
        let mut any = false;
        loop {
            let count = match self.uffd.read(&mut self.messages) {
                Ok(count) => count,
                Err(error) => self.die(format_args!("faults cannot be read: {error}")),
            };
            let now = cpu::ticks();
            for index in 0..count {
                if let Some(event) = self.messages[index].event() {
                    any = true;
                    self.take_event(event, index + 1..count, now);
                }
            }
            if count < self.messages.len() {
                return any;
            }
        }
    }

    /// Drops the entries of pages that were served.
    pub(crate) fn drop_served(&mut self) {
        while let Some(page) = self.served.pop() {
            self.zswap.invalidate(Self::key(page));
        }
    }

    /// Reads the gauges: what is used, what others use, what our own tables take.
    pub(crate) fn read_gauges(&mut self) {
        self.drop_served();
        self.measure_own();
        let tally = self.tally();
        let past = Past {
            now_ns: self.time.now_ns(),
            faults: tally.get(Counter::Faults),
            own: self.own_held.grown,
            copied: self.copies.copied,
            waited: Waited {
                faults: self.refaults.faults,
                in_limbo: self.refaults.in_limbo,
                ns: self.time.span_ns(self.refaults.ticks),
            },
            limbo: self.limbo_target,
            desk: self.helper.memory().pages_up(),
        };
        let family = self.control.family();
        let seen = Seen { program: &self.program, files: Some(&self.files), family };
        if let Err(error) = self.budget.read(&self.ledger, past, seen) {
            self.die(format_args!("resident memory cannot be read: {error}"));
        }
        if self.budget.used() < self.budget.soft() || !self.budget.shares_much() {
            self.stuck.takes_shared = false;
        }
        let stats = self.zswap.stats();
        self.note_saved(stats.stored_pages);
        self.look_at_kept(SlotCount(stats.slots_used), stats.pool_pages);
        let counters = stats.counters;
        let tally = self.tally();
        let frames = self.frames.stats();
        tally.set_zswap(&stats, &frames, self.draining_pages(), self.saved());
        let stored = counters.stored_same_filled
            + counters.stored_compressed
            + counters.stored_incompressible;
        tally.set(Counter::PagesStored, stored);
        tally.set(Counter::SameFilled, counters.stored_same_filled);
        let raw_bytes = counters.stored_incompressible * PAGE_BYTES as u64;
        tally.set(Counter::BytesStored, counters.compressed_bytes + raw_bytes);
        tally.set(Counter::PagesWrittenBack, counters.flushed_pages);
        tally.set(Counter::PagesReadBack, counters.loaded_from_backing);
        let loaded =
            counters.loaded_same_filled + counters.loaded_from_pool + counters.loaded_from_backing;
        tally.set(Counter::PagesLoaded, loaded);
        tally.set(Counter::Migrations, self.placement.migrations());
        tally.set(Counter::ServiceNs, cpu::process_ran_ns(0));
        tally.set(Counter::HugeBlocksAvailable, frames.huge_blocks_available() as u64);
        let returned = frames.blocks_returned() - self.blocks_returned_before;
        tally.set(Counter::BlocksReturned, returned);
        tally.set(Counter::StallNs, self.stalled_ns());
        tally.set(Counter::TurnWaitNs, self.time.span_ns(self.turns.waited_ticks));
    }

    /// Returns how long threads have waited for their faults, together.
    pub(crate) fn stalled_ns(&self) -> u64 {
        let waited = self.turns.waited_ticks + self.copies.waited_ticks;
        self.time.span_ns(self.turns.served_ticks + waited)
    }

    /// Charges the budget with the growth of our own memory since it was last measured.
    pub(crate) fn charge_own_growth(&mut self) {
        let before = self.measure_own();
        self.budget.add(self.own_held.pages.saturating_sub(before));
        self.budget.subtract(before.saturating_sub(self.own_held.pages));
    }

    /// Measures what our own tables and pool take, and returns what they took before.
    fn measure_own(&mut self) -> PageCount {
        let now = self.own_memory();
        let before = core::mem::replace(&mut self.own_held.pages, now);
        self.own_held.grown += now.saturating_sub(before);
        before
    }

    fn own_memory(&self) -> PageCount {
        self.frames.frames_held() + (self.heap_bytes)().pages_up() + self.helper.memory().pages_up()
    }

    /// Ends the program, loudly, because it could not go on with the right bytes. The launcher does
    /// so when this process ends; where the launcher has gone, this process does.
    pub(crate) fn die(&self, why: core::fmt::Arguments<'_>) -> ! {
        self.link.fatal(why);
        self.program.kill();
        raw::abort_process()
    }
}

/// Resources that may be refused. The userfaultfd comes first, so that it is closed before the
/// memory registered with it is unmapped: else this thread would wait for itself to read the event.
struct Tools {
    uffd: Userfaultfd,
    limbo: Limbo,
    zeros: Span,
    zswap: Zswap<Pools>,
}

impl Tools {
    fn open(
        uffd: Userfaultfd,
        tuning: &Tuning,
        frames: &'static FrameAllocator,
        control: &Control,
        disk: Option<Disk>,
    ) -> SysResult<Self> {
        let limbo = Limbo::reserve(limbo::target(tuning.budget))?;
        let zeros = Span::reserve(ZEROS.bytes(), Bytes(PAGE_BYTES))?;
        zeros.forbid_huge_pages();
        let zswap = open_zswap(tuning, frames, disk)?;
        // Declared after the memory that is registered, so that it is closed before that memory is
        // unmapped when anything fails from here on.
        let uffd = uffd;
        uffd.handshake(FEATURES_NEEDED)?;
        trial::take_and_bring_back(&uffd)?;
        limbo.register(&uffd)?;
        uffd.register(control.bell_address(), Bytes(BELL_PAGES * PAGE_BYTES), Mode::WriteProtect)?;
        Ok(Self { uffd, limbo, zeros, zswap })
    }

    /// Has `waiter` watch everything there is to wait for, and lends the userfaultfd to the
    /// launcher, which keeps it until the memory is gone. Without that, memory that is being taken
    /// down would read as zeros to a system call that is still under way.
    fn used_by(mut self, waiter: &Waiter, program: &Program, link: &Link) -> SysResult<Self> {
        waiter.watch(&self.uffd)?;
        waiter.also_see_end(program.pidfd())?;
        self.zswap.signal().map_or(Ok(()), |signal| waiter.also_wake_by(signal))?;
        link.lend(&self.uffd).map(|()| self)
    }
}

/// Reports to the user that this process is not managed, why, and what to do if that is plain.
pub(crate) fn tell_unmanaged(link: &Link, error: SysError) {
    const EPERM: i32 = 1;
    const ENOMEM: i32 = 12;
    const EACCES: i32 = 13;
    const EMFILE: i32 = 24;
    let way_out = match error.errno {
        EMFILE => "; raise its ulimit -n by 16",
        ENOMEM => "; raise its ulimit -v",
        EACCES => "; it hides itself (PR_SET_DUMPABLE), or its user may not read its file",
        EPERM => "; a filter may forbid it (seccomp(2)): try coldpress doctor within the same",
        _ => "",
    };
    link.not_managed(format_args!("{error}{way_out}"));
}

/// The error of a store that got no memory.
pub(crate) const NO_MEMORY: SysError = SysError { call: "zswap", errno: 12 };

/// Where the coldest pages go, and what seals them.
type Disk = (Box<dyn Backing>, Sealer);

/// Opens slots in `file`, with a key of this process's own.
fn open_disk(link: &Link, terms: &Terms, file: OwnedFd, ring: Option<Ring>) -> Option<Disk> {
    let sealer = open_sealer(link, terms)?;
    let way = if ring.is_some() { "through io_uring" } else { "by calls that wait" };
    link.tell(format_args!("process {} writes to the disk {way}", link.process()));
    let file = SpillFile::from_fd(file);
    Some((Box::new(FileBacking::new(file, terms.spill_max, ring)), sealer))
}

/// Makes a new key, where anything may be written to disk. What cannot be encrypted is not written:
/// then there is no key, and the user is warned.
pub(crate) fn open_sealer(link: &Link, terms: &Terms) -> Option<Sealer> {
    if terms.spill_max == Bytes(0) {
        return None;
    }
    let tell = |error: &SealError| {
        link.warn(format_args!(
            "process {} writes nothing to the disk, as it cannot encrypt: {error}",
            link.process()
        ));
    };
    Sealer::random().inspect_err(tell).ok()
}

fn open_zswap(
    tuning: &Tuning,
    frames: &'static FrameAllocator,
    disk: Option<Disk>,
) -> SysResult<Zswap<Pools>> {
    let pool = Switch::new(pools::make(tuning.knobs.pool(), frames));
    Zswap::new(tuning.for_store(), pool, disk).map_err(|_| NO_MEMORY)
}
