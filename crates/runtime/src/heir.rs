//! Heirs: the child of a `fork` takes over the state of its parent's service.
//!
//! ```text
//! forker   asks      |  clone  | lets it go on
//! parent   settles, grants, sleeps       | goes on
//! child              |         | waits      | goes on
//! heir                          opens, registers | serves
//! ```
//!
//! The state of the runtime is memory like any other: tables, pool and limbo come to the child as
//! copies (copy-on-write, so that they cost only what changes). What the kernel keeps for a process
//! does not come along: registrations, descriptors, the seat, the file on disk. The heir is a
//! service that the child's only thread starts and waits for. It opens and registers all of that
//! anew. Until then nothing else has run in the child, so no thread has touched a page that is
//! away.
//!
//! Invariants:
//! 1. While it is frozen, the parent's service changes nothing. Other threads of the parent may
//!    change the address space then, but such a call has not returned before `fork` does: nothing
//!    that the forker knows can depend on it, in the child no more than without us.
//! 2. A child whose heir cannot serve it has every page in place before it goes on, and is
//!    unmanaged.
//! 3. The parent's descriptors are never closed by their numbers here, because those numbers belong
//!    to other files in this process.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::mem;
use core::ops::Range;

use coldpress_backing::{Backing, FileBacking, Layer, SlotId};
use coldpress_sys::file::{self, SpillFile};
use coldpress_sys::proc::{Files, MappingKind, Memory, ResidentGauge};
use coldpress_sys::program::Program;
use coldpress_sys::ring::Ring;
use coldpress_sys::uffd::{FEATURES_NEEDED, Mode, Userfaultfd};
use coldpress_sys::wait::Waiter;
use coldpress_sys::{
    AsRawFd, Bytes, FromRawFd, OwnedFd, PAGE_BYTES, Page, PageCount, SysError, SysResult, cpu, map,
    raw,
};
use coldpress_zswap::Loaded;
use coldpress_zswap::desk::Ticket;

use crate::budget::Budget;
use crate::control::{BELL_PAGES, Control, FILES_MAX};
use crate::gauging::{RUN_NS_NEAR, Running};
use crate::link::{Joined, Link, Note};
use crate::manager::{self, Left, Manager, Refaults, Stuck};
use crate::pages::{PageNumber, PageState};
use crate::placement::Placement;
use crate::recompress::Rest;
use crate::regions::Regions;
use crate::service::{self, Start};
use crate::tally::Counter;
use crate::thaw::Thaw;
use crate::turns::Turns;
use crate::wire::Loudness;

/// The number of yields after which the service looks whether a forker that does not get ready has
/// been killed.
const LOOK_EVERY: u32 = 64;

impl Manager {
    /// Answers a thread that wants to fork: sleeps until the fork is over, or refuses it.
    pub(crate) fn answer_fork(&mut self) {
        if !self.control.see_fork() {
            return;
        }
        // The forker may wait until its last ring is read, or for a page of its stack.
        let mut tries = 0_u32;
        let needs = loop {
            self.read_messages();
            self.take_hints();
            self.take_from_disk();
            self.serve_pending();
            match self.control.fork_needs() {
                Some(needs) => break needs,
                None => cpu::yield_now(),
            }
            tries += 1;
            if tries.is_multiple_of(LOOK_EVERY) && self.program.has_left(self.budget.gauge()) {
                return self.control.forget_fork();
            }
        };
        // From here on nothing is taken out.
        if !self.can_be_inherited(needs.stack) || map::inherit_spans(true).is_err() {
            let _ = map::inherit_spans(false);
            self.control.refuse_fork();
            return;
        }
        for address in needs.touched {
            let page = PageNumber::of(address);
            while matches!(self.pages.state(page), PageState::Limbo | PageState::Stored) {
                self.bring_in(page);
            }
        }
        self.begin_sharing();
        self.settle();
        let is_on_disk = self.zswap.lend() > SlotId(0);
        let files = self.spills.iter().filter(|_| is_on_disk).map(|(file, _)| *file);
        self.control.set_files(files);
        self.count(Counter::Forks, 1);
        self.helper.leave_out(Ticket(self.limbo.ring().pages_taken()));
        self.lift_bars();
        let protects = self.shall_protect(&needs.touched);
        let is_behind = self.protects_behind();
        if protects && !is_behind {
            self.protect_shared(&needs.touched);
        }
        let legacy = (&raw mut *self).cast();
        self.control.grant(legacy, || self.program.has_left(self.budget.gauge()));
        // A failure costs later children some address space.
        let _ = map::inherit_spans(false);
        self.bar_again();
        if protects && is_behind {
            self.protect_shared(&needs.touched);
        }
    }

    /// Notes that a child comes that shares everything in memory.
    pub(crate) fn begin_sharing(&mut self) {
        self.pages.note_fork();
        self.budget.begin_sharing();
        self.read_gauges();
    }

    /// Whether a child can go on from what is in memory now. The forker's stack must lie outside of
    /// what the service manages: no service would serve a fault on it.
    fn can_be_inherited(&self, stack: usize) -> bool {
        self.spills.len() <= FILES_MAX
            && self.recording.is_none()
            && self.regions.holding(stack).is_none()
    }

    /// Forgets the ranges that the child has not mapped: the program did not want them inherited
    /// (MADV_DONTFORK), or was unmapping them. This must come first, because something else may be
    /// mapped there later.
    fn forget_unmapped(&mut self) {
        let (mut mapped, mut barred) = (Regions::default(), Regions::default());
        let (regions, before) = (&self.regions, &self.bars.ranges);
        let result = self.files.mappings.for_each(&mut self.maps_buffer, |mapping| {
            let range = mapping.start..mapping.end;
            if mapping.kind != MappingKind::Other {
                regions.for_each_part(range.clone(), |part| mapped.insert(part));
            }
            before.for_each_part(range, |part| barred.insert(part));
        });
        self.bars.ranges = barred;
        if let Err(error) = result {
            abandon(self.control, format_args!("{error}"));
        }
        let mut gone = Vec::<Range<usize>>::new();
        for region in self.regions.iter() {
            mapped.for_each_gap(region, |gap| gone.push(gap));
        }
        for gap in gone {
            self.forget(gap.clone());
            self.regions.remove(gap);
        }
    }

    /// Registers everything that the parent had registered.
    fn register_all(&self) -> SysResult<()> {
        let bell = self.control.bell_address();
        self.uffd.register(bell, Bytes(BELL_PAGES * PAGE_BYTES), Mode::WriteProtect)?;
        self.limbo.register(&self.uffd)?;
        for region in self.regions.iter() {
            self.uffd.register(region.start, Bytes(region.end - region.start), Mode::Faults)?;
        }
        Ok(())
    }

    /// Takes the registrations back, as far as they were made.
    fn unregister_all(&self) {
        for region in self.regions.iter() {
            let _ = self.uffd.unregister(region.start, Bytes(region.end - region.start));
        }
    }

    /// Puts every page that is away in its place, with no help but the kernel's. Ends the program
    /// if it cannot.
    fn populate(&mut self) {
        let failed = |error: SysError| -> ! { abandon(self.control, format_args!("{error}")) };
        let memory = Memory::open().unwrap_or_else(|error| failed(error));
        let end = PageNumber(usize::MAX / 2);
        let mut at = PageNumber(0);
        while let Some((page, state)) = self.pages.next_known(at..end) {
            at = page.plus(1);
            let (key, buffer) = (Self::key(page), &mut self.away.buffer[0].0);
            match state {
                PageState::Limbo => {
                    let Some(slot) = self.pages.run(page.run()).and_then(|run| run.slot) else {
                        continue;
                    };
                    let source = self.limbo.address(slot, page) as *const Page;
                    // SAFETY: the page was moved there, and no thread writes to limbo.
                    buffer.copy_from_slice(unsafe { &*source });
                }
                PageState::Stored => loop {
                    match self.zswap.load(key, buffer) {
                        Ok(Loaded::From(_)) => break,
                        Ok(Loaded::Coming) => self.zswap.wait(),
                        Ok(Loaded::Missing) => {
                            abandon(self.control, format_args!("{key:?} is missing"))
                        }
                        Err(error) => abandon(self.control, format_args!("{error}")),
                    }
                },
                PageState::Resident | PageState::None => continue,
            }
            if let Err(error) = memory.write(page.address(), buffer) {
                failed(error);
            }
        }
    }

    /// Does what comes first in a child, whatever becomes of it: asks the kernel about this
    /// process's own memory, has its own children inherit nothing yet, and forgets what it has not
    /// inherited.
    fn begin_alone(&mut self) {
        let files = Files::open();
        let files = files.unwrap_or_else(|error| abandon(self.control, format_args!("{error}")));
        // The parent's descriptor numbers belong to other files here.
        mem::forget(mem::replace(&mut self.files, files));
        if !self.limbo.has_room() {
            // A room that another thread was making at the fork is not here, or has no user.
            self.control.room.give_back();
            self.control.room.reset();
        }
        // A failure costs children some address space.
        let _ = map::inherit_spans(false);
        self.forget_unmapped();
    }

    /// Takes handles of this process in place of the parent's. The parent's descriptors are not
    /// closed, because their numbers belong to other files here.
    fn take_handles(&mut self, start: &Start, handles: Handles) {
        let Handles { joined, gauge, program, uffd, waiter } = handles;
        let Joined { link, ledger, seat, terms, desk, .. } = joined;
        let mut budget = Budget::new(gauge, &terms, seat);
        budget.inherit(&mut self.budget);
        mem::forget((
            mem::replace(&mut self.uffd, uffd),
            mem::replace(&mut self.waiter, waiter),
            mem::replace(&mut self.program, program),
            mem::replace(&mut self.link, link),
            mem::replace(&mut self.ledger, ledger),
            mem::replace(&mut self.budget, budget),
        ));
        self.seat = seat;
        self.helper.inherit(desk, self.tuning.share);
        self.tuning.thaw = Thaw::default();
        self.own = start.own.to_vec();
        let stay = &start.control.stay;
        self.placement = Placement::new(self.program.process(), start.main_area, stay);
        // These faults are of threads that are not here. What was read for them is treated like
        // readahead.
        self.pending.clear();
        self.turns = Turns::default();
        self.away.expect(mem::take(&mut self.reading).into_iter().map(|fault| fault.page));
        self.hints.clear();
        self.stuck = Stuck::default();
        self.rest = Rest::default();
        self.running = Running::begin(self.time.now_ns(), 0);
        self.left = Left::default();
        self.idle.begin_as_heir();
        self.gauges_at = 0;
        self.own_held.grown = PageCount(0);
        self.refaults = Refaults::default();
        self.gauge_interval_ns = RUN_NS_NEAR;
        self.blocks_returned_before = self.frames.stats().blocks_returned();
    }
}

/// The handles that the kernel and the launcher keep for a process.
struct Handles {
    joined: Joined,
    gauge: ResidentGauge,
    program: Program,
    uffd: Userfaultfd,
    waiter: Waiter,
}

impl Handles {
    /// Opens the handles for the heir of `manager`, whose store becomes the heir's own, whatever
    /// fails.
    fn open(start: &Start, manager: &mut Manager) -> SysResult<Self> {
        let join = |gauge| {
            let program = Program::follow(start.control.program())?;
            let joined = Joined::join(start.socket, &program)?;
            Ok((gauge, program, joined))
        };
        let joined = ResidentGauge::open().and_then(join);
        let ancestors = manager.take_files(start);
        let (gauge, program, mut joined) = match joined {
            Ok(joined) => joined,
            Err(error) => {
                manager.own_store(ancestors, None)?;
                return Err(error);
            }
        };
        (start.note_link)(joined.link.socket().as_raw_fd(), program.pidfd().as_raw_fd());
        let uffd = mem::replace(&mut joined.uffd, Err(manager::NO_MEMORY));
        let opened = manager.own_store(ancestors, Some(&mut joined)).and_then(|()| {
            let uffd = uffd?;
            uffd.handshake(FEATURES_NEEDED)?;
            joined.link.lend(&uffd)?;
            let waiter = Waiter::new(RUN_NS_NEAR)?;
            waiter.watch(&uffd)?;
            waiter.also_see_end(program.pidfd())?;
            if let Some(signal) = manager.zswap.signal() {
                waiter.also_wake_by(signal)?;
            }
            Ok((uffd, waiter))
        });
        let (uffd, waiter) = opened.inspect_err(|error| tell_unmanaged(&joined.link, *error))?;
        Ok(Self { joined, gauge, program, uffd, waiter })
    }
}

impl Manager {
    /// Returns the files of ancestors, by this process's own descriptors.
    fn take_files(&mut self, start: &Start) -> Vec<Layer> {
        let files = mem::take(&mut self.spills).into_iter().zip(start.control.files());
        let layer = |((_, first), file)| {
            self.spills.push((file, first));
            // SAFETY: the forker has opened the file for its child, of which this is the one owner.
            let file = SpillFile::from_fd(unsafe { OwnedFd::from_raw_fd(file) });
            Layer { file, first }
        };
        files.map(layer).collect()
    }

    /// Makes the store's disk this process's own. With what the process has `joined`, new pages go
    /// to a file of its own.
    fn own_store(&mut self, ancestors: Vec<Layer>, joined: Option<&mut Joined>) -> SysResult<()> {
        let first = self.zswap.lend();
        let mut own = None;
        if let Some(Joined { link, terms, spill, .. }) = joined
            && let Some(sealer) = manager::open_sealer(link, terms)
            && let Some(file) = spill.take()
        {
            self.spills.push((file.as_raw_fd(), first));
            own = Some((sealer, (SpillFile::from_fd(file), terms.spill_max)));
        }
        let (sealer, file) = own.unzip();
        let has_any = file.is_some() || !ancestors.is_empty();
        let ring = file.as_ref().and_then(|_| Ring::new().ok());
        let backing = has_any.then(|| FileBacking::of_heir(ancestors, first, file, ring));
        let backing = backing.map(|backing| Box::new(backing) as Box<dyn Backing>);
        self.zswap.become_own(backing, sealer).map_err(|_| manager::NO_MEMORY)
    }
}

fn tell_unmanaged(link: &Link, error: SysError) {
    link.warn(format_args!("process {} is not managed: {error}", link.process()));
}

/// Returns the manager that the parent's service left.
///
/// # Safety
/// This is the child of a fork that was granted, and no other thread takes the manager.
unsafe fn legacy(start: &Start) -> Box<Manager> {
    // SAFETY: the parent's service left its boxed manager there, and sleeps; this copy of it
    // has no other owner, by the caller's promise.
    unsafe { Box::from_raw(start.control.legacy().cast()) }
}

/// Takes over in the child's service. Returns `None` when it cannot: then every page is in place,
/// and the process is unmanaged.
///
/// # Safety
/// This is the child of a fork that was granted, and no other thread takes over.
pub unsafe fn take_over(start: &Start) -> Option<Box<Manager>> {
    // SAFETY: the caller's promise.
    let mut manager = unsafe { legacy(start) };
    // This comes first, because it makes room for descriptors.
    if let Err(error) = service::begin_beside(start.control.files()) {
        abandon(start.control, format_args!("{error}"));
    }
    manager.begin_alone();
    let Ok(handles) = Handles::open(start, &mut manager) else {
        manager.populate();
        // The manager's handles are the parent's.
        mem::forget(manager);
        return None;
    };
    manager.take_handles(start, handles);
    if let Err(error) = manager.register_all() {
        tell_unmanaged(&manager.link, error);
        manager.unregister_all();
        manager.populate();
        manager.link.take_back();
        manager.link.leave();
        return None;
    }
    manager.bar_again();
    manager.ledger.seats[manager.seat].set_managing();
    manager.count(Counter::Heirs, 1);
    let protects = manager.copies.begin_in_child();
    // The room that there is depends on what other processes hold.
    manager.read_gauges();
    if protects && manager.shall_protect(&[]) {
        manager.protect_shared(&[]);
    }
    let process = manager.link.process();
    manager.link.tell(format_args!("process {process} goes on managed after fork"));
    Some(manager)
}

/// Puts every page in place, in a child without a service. For the child's only thread.
///
/// # Safety
/// The same as for [`take_over`].
pub unsafe fn do_without(start: &Start) {
    // SAFETY: the caller's promise.
    let mut manager = unsafe { legacy(start) };
    manager.begin_alone();
    let ancestors = manager.take_files(start);
    if let Err(error) = manager.own_store(ancestors, None) {
        abandon(start.control, format_args!("{error}"));
    }
    manager.populate();
    // The manager's handles are the parent's.
    mem::forget(manager);
}

/// Ends a child that could not go on with the right bytes. Called by the child's own thread, or by
/// its service.
fn abandon(control: &Control, why: fmt::Arguments<'_>) -> ! {
    let program = control.program();
    let mut note = Note::new(Loudness::Fatal);
    let _ = writeln!(note, "coldpress: fatal: a child of fork cannot be given its memory: {why}");
    // There may be no launcher to inform, and descriptors here are not the program's.
    file::append_to_stderr_of(program, &note.bytes()[1..]);
    if raw::process_id() != program {
        raw::kill(program);
    }
    raw::abort_process()
}
