//! Making a service that manages its program: everything that may be refused, and what to tell the
//! user then.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use coldpress_backing::{SlotCount, SlotId};
use coldpress_mem::frames::FrameAllocator;
use coldpress_sys::errno::{EACCES, EMFILE, ENOMEM, EPERM};
use coldpress_sys::map::Span;
use coldpress_sys::proc::{Files, ResidentGauge};
use coldpress_sys::program::Program;
use coldpress_sys::ring::Ring;
use coldpress_sys::uffd::{FEATURES_NEEDED, Mode, Userfaultfd};
use coldpress_sys::wait::Waiter;
use coldpress_sys::{AsRawFd, Bytes, PAGE_BYTES, SysError, SysResult};
use coldpress_zswap::Zswap;

use super::copies::Copies;
use super::idle::Idle;
use super::look::Due;
use super::rest::Rest;
use super::thaw::Thaw;
use super::{Left, Service};
use crate::allowance::{Allowance, Budget, Tuning};
use crate::clock::Clock;
use crate::control::{BELL_PAGES, Control};
use crate::link::{Joined, Link};
use crate::memory::{self, Memory, ZEROS, trial};
use crate::pager::{Pager, Placement};
use crate::policy::{self, Policy};
use crate::store::{self, Disk, Limbo, Pools, Posting, Recording, Store};
use crate::ties::Ties;

/// What the service needs from the outside.
pub(super) struct Parts {
    /// The joined run.
    pub(super) joined: Joined,
    /// Where the pool and our own tables live.
    pub(super) frames: &'static FrameAllocator,
    /// Bytes that large allocations of ours take outside the frames.
    pub(super) heap_bytes: fn() -> Bytes,
    /// Shared with the program's threads.
    pub(super) control: &'static Control,
    /// Follows the faulting threads.
    pub(super) placement: Placement,
    /// Address ranges of ours that must not be managed: the object's data, the service's stack.
    pub(super) own: [Range<usize>; 2],
    /// Ranges that lie in one mapping with a thread's stack, above it.
    pub(super) beside_stacks: Vec<Range<usize>>,
    /// What is in memory.
    pub(super) gauge: ResidentGauge,
    /// The budget as read so far.
    pub(super) budget: Budget,
    /// A clock that knows its rate.
    pub(super) time: Clock,
    /// The program that is served.
    pub(super) program: Program,
    /// The files of /proc about its memory.
    pub(super) files: Files,
    /// The ring for transfers to the disk and back, where there may be some.
    pub(super) ring: Option<Ring>,
    /// The waiter, which watches nothing yet.
    pub(super) waiter: Waiter,
}

impl Service {
    /// Sets everything up, and touches nothing of the program yet. The frame allocator must have
    /// its span, and no frame in use.
    pub(super) fn open(parts: Parts) -> SysResult<Box<Self>> {
        let Parts { joined, frames, control, gauge, budget, time, program, ring, waiter, .. } =
            parts;
        let Joined { link, ledger, seat, terms, desk, spill, uffd, is_recorded } = joined;
        // Before the first of our own allocations, so that the recording has every frame.
        let recording = if is_recorded { Recording::begin(&link, frames) } else { None };
        let ties = Ties::shared(link, program);
        let spills = spill.iter().map(|file| (file.as_raw_fd(), SlotId(0))).collect();
        let allowance = Allowance::new(budget, ledger, seat, time, ties.program.ran_ns());
        let tuning = &allowance.tuning;
        let disk = spill.and_then(|file| store::open_disk(&ties.link, &terms, file, ring));
        let open = |uffd| Tools::open(uffd, tuning, frames, control, disk);
        let tools = uffd.and_then(open).and_then(|it| it.used_by(&waiter, &ties));
        let told = |error: &SysError| tell_unmanaged(&ties.link, *error);
        let Tools { uffd, limbo, zeros, zswap } = tools.inspect_err(told)?;
        let share = tuning.share;
        let idle = Idle::new(allowance.time.started_ns());
        let memory = Memory::new(memory::Parts {
            uffd,
            zeros,
            files: parts.files,
            own: parts.own.to_vec(),
            beside_stacks: parts.beside_stacks,
            control,
            ties: ties.clone(),
            probe_address: limbo.probe_address(),
            share: allowance.budget.share(),
        });
        let store = Store::new(store::Parts {
            zswap,
            limbo,
            frames,
            heap_bytes: parts.heap_bytes,
            posting: Posting::new(desk, share),
            recording,
            spills,
            slots_max: SlotCount::inside(terms.spill_max),
            share,
            ties: ties.clone(),
        });
        let policy = Policy::default();
        let placement = parts.placement;
        let service = Self {
            pager: Pager {
                memory,
                store,
                allowance,
                policy,
                placement,
                control,
                ties: ties.clone(),
            },
            copies: Copies::default(),
            idle,
            thaw: Thaw::default(),
            rest: Rest::default(),
            left: Left::default(),
            waiter,
            gauge,
            due: Due::default(),
            control,
            ties,
        };
        Ok(Box::new(service).begin())
    }

    fn begin(mut self: Box<Self>) -> Box<Self> {
        let Pager { store, allowance, .. } = &mut self.pager;
        store.measure_own();
        allowance.ledger.set_managing(allowance.seat);
        let (pool, codec) = (store.zswap.pool().current().kind(), store.zswap.knobs().codec);
        let process = self.ties.process();
        self.ties.tell(format_args!("process {process} is managed: pool {pool}, codec {codec}"));
        self
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
        let limbo = Limbo::reserve(policy::target(tuning.budget))?;
        let zeros = Span::reserve(ZEROS.bytes(), Bytes(PAGE_BYTES))?;
        zeros.forbid_huge_pages();
        let zswap = store::open_zswap(tuning, frames, disk)?;
        // Declared after the memory that is registered, so that it is closed before that memory is
        // unmapped when anything fails from here on.
        let uffd = uffd;
        uffd.handshake(FEATURES_NEEDED)?;
        trial::take_and_bring_back(&uffd)?;
        limbo.register(&uffd)?;
        uffd.register(control.bell.address(), Bytes(BELL_PAGES * PAGE_BYTES), Mode::WriteProtect)?;
        Ok(Self { uffd, limbo, zeros, zswap })
    }

    /// Has `waiter` watch everything there is to wait for, and lends the userfaultfd to the
    /// launcher, which keeps it until the memory is gone. Without that, memory that is being taken
    /// down would read as zeros to a system call that is still under way.
    fn used_by(mut self, waiter: &Waiter, ties: &Ties) -> SysResult<Self> {
        waiter.watch(&self.uffd)?;
        waiter.also_see_end(ties.program.pidfd())?;
        self.zswap.signal().map_or(Ok(()), |signal| waiter.also_wake_by(signal))?;
        ties.link.lend(&self.uffd).map(|()| self)
    }
}

/// Reports to the user that this process is not managed, why, and what to do if that is plain.
pub(super) fn tell_unmanaged(link: &Link, error: SysError) {
    let way_out = match error.errno {
        EMFILE => "; raise its ulimit -n by 16",
        ENOMEM => "; raise its ulimit -v",
        EACCES => "; it hides itself (PR_SET_DUMPABLE), or its user may not read its file",
        EPERM => "; a filter may forbid it (seccomp(2)): try coldpress doctor within the same",
        _ => "",
    };
    link.not_managed(format_args!("{error}{way_out}"));
}
