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

use coldpress_backing::SlotId;
use coldpress_sys::file;
use coldpress_sys::proc::{Files, MappingKind, Memory as ProcessMemory, ResidentGauge};
use coldpress_sys::program::Program;
use coldpress_sys::uffd::{FEATURES_NEEDED, Mode, Userfaultfd};
use coldpress_sys::wait::Waiter;
use coldpress_sys::{
    AsRawFd, Bytes, PAGE_BYTES, Page, PageCount, SysError, SysResult, cpu, map, raw,
};
use coldpress_zswap::Loaded;
use coldpress_zswap::desk::Ticket;

use super::begin::{Start, begin_beside};
use super::copies::{self, protect_shared};
use super::rest::Rest;
use super::thaw::Thaw;
use super::{Left, Service};
use crate::allowance::{Budget, RUN_NS_NEAR};
use crate::control::{BELL_PAGES, Control, FILES_MAX};
use crate::link::{Joined, Link, Note};
use crate::memory::{Faults, Regions};
use crate::pager::{Pager, Placement};
use crate::pages::{PageNumber, PageState};
use crate::store::{NO_MEMORY, key};
use crate::tally::Counter;
use crate::ties::Ties;
use crate::wire::Loudness;

/// The number of yields after which the service looks whether a forker that does not get ready has
/// been killed.
const LOOK_EVERY: u32 = 64;

impl Service {
    /// Answers a thread that wants to fork: sleeps until the fork is over, or refuses it.
    pub(crate) fn answer_fork(&mut self) {
        if !self.control.fork.see() {
            return;
        }
        // The forker may wait until its last ring is read, or for a page of its stack.
        let mut tries = 0_u32;
        let needs = loop {
            self.pager.read_messages();
            self.take_hints();
            self.take_from_disk();
            self.serve_pending();
            match self.control.fork.needs() {
                Some(needs) => break needs,
                None => cpu::yield_now(),
            }
            tries += 1;
            if tries.is_multiple_of(LOOK_EVERY) && self.ties.program.has_left(&self.gauge) {
                return self.control.fork.forget();
            }
        };
        // From here on nothing is taken out.
        if !self.can_be_inherited(needs.stack) || map::inherit_spans(true).is_err() {
            let _ = map::inherit_spans(false);
            self.control.fork.refuse();
            return;
        }
        for address in needs.touched {
            let page = PageNumber::of(address);
            while matches!(
                self.pager.memory.pages.state(page),
                PageState::Limbo | PageState::Stored
            ) {
                self.pager.bring_in(page);
            }
        }
        self.begin_sharing();
        self.pager.settle();
        let is_on_disk = self.pager.store.zswap.lend() > SlotId(0);
        let files = self.pager.store.spills.iter().filter(|_| is_on_disk).map(|(file, _)| *file);
        self.control.fork.set_files(files);
        self.pager.allowance.count(Counter::Forks, 1);
        let taken = Ticket(self.pager.store.limbo.ring().pages_taken());
        self.pager.store.posting.leave_out(taken);
        let (memory, mut followers) = self.pager.parts();
        memory.lift_bars(&mut followers);
        let protects = self.copies.shall_protect(&mut self.pager, &needs.touched);
        let is_behind = copies::protects_behind(&self.pager);
        if protects && !is_behind {
            protect_shared(&mut self.pager, &needs.touched);
        }
        let legacy = (&raw mut *self).cast();
        self.control.fork.grant(legacy, || self.ties.program.has_left(&self.gauge));
        // A failure costs later children some address space.
        let _ = map::inherit_spans(false);
        self.pager.bar_again();
        if protects && is_behind {
            protect_shared(&mut self.pager, &needs.touched);
        }
    }

    /// Notes that a child comes that shares everything in memory.
    pub(crate) fn begin_sharing(&mut self) {
        self.pager.memory.pages.note_fork();
        self.pager.allowance.budget.begin_sharing();
        self.read_gauges();
    }

    /// Whether a child can go on from what is in memory now. The forker's stack must lie outside of
    /// what the service manages: no service would serve a fault on it.
    fn can_be_inherited(&self, stack: usize) -> bool {
        self.pager.store.spills.len() <= FILES_MAX
            && self.pager.store.recording.is_none()
            && self.pager.memory.regions.holding(stack).is_none()
    }

    /// Forgets the ranges that the child has not mapped: the program did not want them inherited
    /// (MADV_DONTFORK), or was unmapping them. This must come first, because something else may be
    /// mapped there later.
    fn forget_unmapped(&mut self) {
        let (mut mapped, mut barred) = (Regions::default(), Regions::default());
        let (regions, before) = (&self.pager.memory.regions, &self.pager.memory.bars.ranges);
        let buffer = &mut self.pager.memory.maps_buffer;
        let result = self.pager.memory.files.mappings.for_each(buffer, |mapping| {
            let range = mapping.start..mapping.end;
            if mapping.kind != MappingKind::Other {
                regions.for_each_part(range.clone(), |part| mapped.insert(part));
            }
            before.for_each_part(range, |part| barred.insert(part));
        });
        self.pager.memory.bars.ranges = barred;
        if let Err(error) = result {
            abandon(self.control, format_args!("{error}"));
        }
        let mut gone = Vec::<Range<usize>>::new();
        for region in self.pager.memory.regions.iter() {
            mapped.for_each_gap(region, |gap| gone.push(gap));
        }
        for gap in gone {
            let (memory, mut followers) = self.pager.parts();
            memory.forget(gap.clone(), &mut followers);
            memory.regions.remove(gap);
        }
    }

    /// Registers everything that the parent had registered.
    fn register_all(&self) -> SysResult<()> {
        let bell = self.control.bell.address();
        self.pager.memory.uffd.register(
            bell,
            Bytes(BELL_PAGES * PAGE_BYTES),
            Mode::WriteProtect,
        )?;
        self.pager.store.limbo.register(&self.pager.memory.uffd)?;
        for region in self.pager.memory.regions.iter() {
            self.pager.memory.uffd.register(
                region.start,
                Bytes(region.end - region.start),
                Mode::Faults,
            )?;
        }
        Ok(())
    }

    /// Takes the registrations back, as far as they were made.
    fn unregister_all(&self) {
        for region in self.pager.memory.regions.iter() {
            let _ =
                self.pager.memory.uffd.unregister(region.start, Bytes(region.end - region.start));
        }
    }

    /// Puts every page that is away in its place, with no help but the kernel's. Ends the program
    /// if it cannot.
    fn populate(&mut self) {
        let failed = |error: SysError| -> ! { abandon(self.control, format_args!("{error}")) };
        let memory = ProcessMemory::open().unwrap_or_else(|error| failed(error));
        let end = PageNumber(usize::MAX / 2);
        let mut at = PageNumber(0);
        while let Some((page, state)) = self.pager.memory.pages.next_known(at..end) {
            at = page.plus(1);
            let store = &mut self.pager.store;
            let (key, buffer) = (key(page), &mut store.buffer[0].0);
            match state {
                PageState::Limbo => {
                    let run = self.pager.memory.pages.run(page.run());
                    let Some(slot) = run.and_then(|run| run.slot) else { continue };
                    let source = store.limbo.address(slot, page) as *const Page;
                    // SAFETY: the page was moved there, and no thread writes to limbo.
                    buffer.copy_from_slice(unsafe { &*source });
                }
                PageState::Stored => loop {
                    match store.zswap.load(key, buffer) {
                        Ok(Loaded::SameFilled | Loaded::FromPool | Loaded::FromBacking) => break,
                        Ok(Loaded::Coming) => store.zswap.wait(),
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
        mem::forget(mem::replace(&mut self.pager.memory.files, files));
        if !self.pager.store.limbo.has_room() {
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
        let ties = Ties::shared(link, program);
        let Pager { memory, store, allowance, policy, placement, ties: pagers, .. } =
            &mut self.pager;
        mem::forget((
            mem::replace(&mut memory.uffd, uffd),
            mem::replace(&mut self.waiter, waiter),
            mem::replace(&mut self.gauge, gauge),
            mem::replace(&mut memory.ties, ties.clone()),
            mem::replace(&mut store.ties, ties.clone()),
            mem::replace(pagers, ties.clone()),
            mem::replace(&mut self.ties, ties.clone()),
        ));
        allowance.inherit(Budget::new(&terms, seat), ledger, seat);
        store.posting.inherit(desk, allowance.tuning.share);
        memory.own = start.own.to_vec();
        *placement = Placement::new(ties.program.process(), start.main_area, &start.control.stay);
        // These faults are of threads that are not here. What was read for them is treated like
        // readahead.
        let faults = mem::replace(&mut memory.faults, Faults::new());
        store.readahead.extend(faults.reading.iter().map(|fault| fault.page));
        memory.hints.clear();
        policy.begin_in_child();
        store.own_held.grown = PageCount(0);
        store.blocks_returned_before = store.frames.stats().blocks_returned();
        (self.thaw, self.rest) = (Thaw::default(), Rest::default());
        // The parent's timer is not this process's, nor is its descriptor.
        mem::forget(self.due.quiet.timer.take());
        (self.left, self.due) = (Left::default(), self.due.in_child());
        self.idle.begin_as_heir();
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
    /// Opens the handles for the heir of `service`, whose store becomes the heir's own, whatever
    /// fails.
    fn open(start: &Start, service: &mut Service) -> SysResult<Self> {
        let join = |gauge| {
            let program = Program::follow(start.control.program())?;
            let joined = Joined::join(start.socket, &program)?;
            Ok((gauge, program, joined))
        };
        let joined = ResidentGauge::open().and_then(join);
        let ancestors = service.pager.store.take_files(start.control);
        let (gauge, program, mut joined) = match joined {
            Ok(joined) => joined,
            Err(error) => {
                service.pager.store.own_store(ancestors, None)?;
                return Err(error);
            }
        };
        (start.note_link)(joined.link.socket().as_raw_fd(), program.pidfd().as_raw_fd());
        let uffd = mem::replace(&mut joined.uffd, Err(NO_MEMORY));
        let opened = service.pager.store.own_store(ancestors, Some(&mut joined)).and_then(|()| {
            let uffd = uffd?;
            uffd.handshake(FEATURES_NEEDED)?;
            joined.link.lend(&uffd)?;
            let waiter = Waiter::new(RUN_NS_NEAR)?;
            waiter.watch(&uffd)?;
            waiter.also_see_end(program.pidfd())?;
            if let Some(signal) = service.pager.store.zswap.signal() {
                waiter.also_wake_by(signal)?;
            }
            Ok((uffd, waiter))
        });
        let (uffd, waiter) = opened.inspect_err(|error| tell_unmanaged(&joined.link, *error))?;
        Ok(Self { joined, gauge, program, uffd, waiter })
    }
}

fn tell_unmanaged(link: &Link, error: SysError) {
    link.warn(format_args!("process {} is not managed: {error}", link.process()));
}

/// Returns the service that the parent's service left.
///
/// # Safety
/// This is the child of a fork that was granted, and no other thread takes the service.
unsafe fn legacy(start: &Start) -> Box<Service> {
    // SAFETY: the parent's service left its boxed service there, and sleeps; this copy of it
    // has no other owner, by the caller's promise.
    unsafe { Box::from_raw(start.control.fork.legacy().cast()) }
}

/// Takes over in the child's service. Returns `None` when it cannot: then every page is in place,
/// and the process is unmanaged.
///
/// # Safety
/// This is the child of a fork that was granted, and no other thread takes over.
pub(crate) unsafe fn take_over(start: &Start) -> Option<Box<Service>> {
    // SAFETY: the caller's promise.
    let mut service = unsafe { legacy(start) };
    // This comes first, because it makes room for descriptors.
    if let Err(error) = begin_beside(start.control.fork.files()) {
        abandon(start.control, format_args!("{error}"));
    }
    service.begin_alone();
    let Ok(handles) = Handles::open(start, &mut service) else {
        service.populate();
        // The service's handles are the parent's.
        mem::forget(service);
        return None;
    };
    service.take_handles(start, handles);
    if let Err(error) = service.register_all() {
        tell_unmanaged(&service.ties.link, error);
        service.unregister_all();
        service.populate();
        service.ties.link.take_back();
        service.ties.link.leave();
        return None;
    }
    service.pager.bar_again();
    let allowance = &service.pager.allowance;
    allowance.ledger.set_managing(allowance.seat);
    allowance.count(Counter::Heirs, 1);
    let protects = service.copies.begin_in_child();
    // The room that there is depends on what other processes hold.
    service.read_gauges();
    let Service { copies, pager, .. } = &mut *service;
    if protects && copies.shall_protect(pager, &[]) {
        protect_shared(pager, &[]);
    }
    let process = service.ties.process();
    service.ties.tell(format_args!("process {process} goes on managed after fork"));
    Some(service)
}

/// Puts every page in place, in a child without a service. For the child's only thread.
///
/// # Safety
/// The same as for [`take_over`].
pub(crate) unsafe fn do_without(start: &Start) {
    // SAFETY: the caller's promise.
    let mut service = unsafe { legacy(start) };
    service.begin_alone();
    let ancestors = service.pager.store.take_files(start.control);
    if let Err(error) = service.pager.store.own_store(ancestors, None) {
        abandon(start.control, format_args!("{error}"));
    }
    service.populate();
    // The service's handles are the parent's.
    mem::forget(service);
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
