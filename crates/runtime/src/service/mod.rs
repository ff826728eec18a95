//! The service, from its start to the end of the program's memory.
//!
//! 1. *Joined.* The program has mapped 4 MiB, or less of a small budget: the service joins the
//!    launcher's run and counts into the budget. The kernel itself serves the faults.
//! 2. *Managing.* 70 % of the budget is used, or all but 32 MiB of a small one, or idle memory is
//!    wanted and this process has stopped growing: memory is registered, and pages start to move.
//! 3. *Left.* The program has ended or called exec. The service ends with the last process that has
//!    the memory.
//!
//! The service is a process of its own that shares the program's memory (`sys::beside`). It has no
//! libc behind it: no thread-local memory, no malloc, no lock that a thread of the program can
//! hold, and all signals blocked.
//!
//! The service owns the four parts of the runtime, in its pager, and runs the loop. Only the
//! service has them, so nothing here is locked.

mod begin;
mod copies;
mod effects;
mod heir;
mod hints;
mod idle;
mod look;
mod open;
mod quiet;
mod rest;
mod thaw;
mod warnings;

use alloc::rc::Rc;
use coldpress_sys::proc::ResidentGauge;
use coldpress_sys::wait::Waiter;
use coldpress_sys::{PageCount, beside, confine, cpu, program};

use crate::control::{Control, Stage};
use crate::ledger::Holding;
use crate::pager::Pager;
use crate::policy::{self, Step};
use crate::tally::Counter;
use crate::ties::Ties;
use begin::Begun;
pub(crate) use begin::Start;
use copies::Copies;
#[cfg(feature = "preload")]
pub(crate) use heir::do_without;
use idle::Idle;
use rest::Rest;
use thaw::Thaw;

/// How far the service's nice value is below the program's, while it watches and while it serves
/// faults: other threads on a busy processor wait for it. But a thread that is woken from a fault
/// should run at once, because its next fault then arrives before the service would have gone to
/// sleep. With 5 that happens less often, with 10 hardly ever, and a fault takes 2 us more (Linux
/// 6.18).
const EARLY_BY: i32 = 10;
const SERVES_BY: i32 = 3;
/// Time between two looks whether other processes still have the memory, once the program has left
/// it.
const LEFT_NS: u64 = 5_000_000;

/// The service of one process.
pub(crate) struct Service {
    pager: Pager,
    copies: Copies,
    idle: Idle,
    thaw: Thaw,
    rest: Rest,
    left: Left,
    waiter: Waiter,
    gauge: ResidentGauge,
    due: look::Due,
    control: &'static Control,
    ties: Rc<Ties>,
}

/// Whether the program has left this memory.
#[derive(Default)]
pub(crate) struct Left {
    pub(crate) is_so: bool,
    /// When to look again which processes still have it.
    pub(crate) look_at_ns: u64,
}

/// Runs the service for all of its life. Returns when asked to stop, or when there is nothing to
/// do.
pub(crate) fn run(start: &Start) {
    // At once: a service that comes late to a busy processor finds the budget passed.
    let nice = cpu::nice();
    cpu::set_nice(nice - EARLY_BY);
    // On errors the program stays unmanaged, which is always correct.
    let Ok(begun) = Begun::begin(start) else { return };
    let Some(mut service) = begin::manage(start, begun) else { return };
    cpu::set_nice(nice - SERVES_BY);
    start.control.set_stage(Stage::Managing);
    service.serve();
}

/// Runs the service of a child for all of its life, with what its parent's service knew.
///
/// # Safety
/// The calling process is the child of a fork that was granted ([`Control::freeze`]), and calls
/// this once.
pub(crate) unsafe fn run_as_heir(start: &Start) {
    cpu::set_nice(cpu::nice() - SERVES_BY);
    // SAFETY: the caller's promise.
    let service = unsafe { heir::take_over(start) };
    // An error is ignored: the parent had its filter, and the pages of the child must be served.
    let _ = confine::give_up_rights();
    if service.is_some() {
        start.control.set_stage(Stage::Managing);
    }
    start.control.fork.note_inherited();
    if let Some(mut service) = service {
        service.serve();
    }
}

impl Service {
    /// Serves the program, which is managed from now on, until asked to stop, or until no process
    /// has its memory any more.
    fn serve(&mut self) {
        self.pager.discover();
        let mut idle = false;
        loop {
            let has_read = !idle && self.pager.read_messages();
            if has_read {
                self.due.quiet.note_asked();
            }
            if self.control.life.is_stopped() || self.pager.allowance.ledger.are_over() {
                return self.stop();
            }
            if (self.left.is_so || self.waiter.has_seen_end()) && self.is_over() {
                self.pager.store.write_events();
                // Until the kernel has given the memory up, which takes milliseconds, it is no room
                // for others, but no process holds it. What is shared is charged to relatives when
                // this process has ended.
                let left = Holding {
                    doubt: self.pager.allowance.budget.exclusive(),
                    ..Holding::default()
                };
                self.pager.allowance.ledger.seat(self.pager.allowance.seat).publish(left);
                self.ties.link.leave();
                // The kernel gives up, all at once, what this process has.
                beside::exit_process(0);
            }
            self.answer_fork();
            if self.control.holds.is_held() {
                self.keep_quiet();
            }
            let is_thawing = self.thaw_step();
            self.take_hints();
            self.take_from_disk();
            // Reclaim of the last round may have read faults.
            let faults = &self.pager.memory.faults;
            let nobody_waits = idle && faults.pending.is_empty() && faults.reading.is_empty();
            self.look_around(nobody_waits);
            // Last, so that little is done once a thread has been woken. Reclaim reads messages
            // too, so there may be faults even when idle.
            self.serve_pending();
            // While no fault waits, reclaim goes ahead of the next faults.
            let ahead = idle
                && self.pager.allowance.budget.wants_reclaim_ahead()
                && policy::reclaim_step(self) == Step::Done;
            // With nothing else to do, the service looks for idle memory, and makes stored pages
            // denser.
            let ahead = ahead || (idle && (self.idle_step() || self.recompress_step()));
            self.control.gate.open();
            // These steps too may have read faults, even when they had nothing to do.
            let is_asked = !self.pager.memory.faults.pending.is_empty()
                || !self.pager.memory.hints.is_empty()
                || self.pager.store.zswap.has_arrivals();
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
                Err(error) => self.ties.die(format_args!("faults cannot be waited for: {error}")),
            }
        }
    }

    /// Brings everything back, and gives up what the service has: the program goes on alone.
    fn stop(&mut self) {
        thaw::bring_all_back(&mut self.pager);
        self.pager.lift_all_bars();
        self.pager
            .placement
            .let_all_go(&|allowed, thread| self.ties.link.give_processors(allowed, thread));
        self.pager.store.write_events();
        self.control.set_stage(Stage::Watching);
        // With its last descriptor the userfaultfd goes. Threads that wait in its ranges go on, and
        // limbo can be unmapped, which would otherwise send an event that nothing reads.
        self.ties.link.take_back();
        while let Some((index, ..)) = self.pager.memory.hints.pop() {
            self.control.bell.finish_hint(index);
        }
        self.ties.link.leave();
    }

    /// Returns whether no process has the memory any more that the program has left. A child by
    /// `vfork`, or by `clone`, may still have it.
    fn is_over(&mut self) -> bool {
        self.left.is_so = true;
        let now = self.pager.allowance.time.now_ns();
        if now < self.left.look_at_ns {
            return false;
        }
        self.left.look_at_ns = now + LEFT_NS;
        // Kernel threads that transfer for this process would count as other processes.
        self.pager.store.zswap.transfer_plainly();
        program::is_alone().unwrap_or(true)
    }

    /// Brings everything back and leaves it there while a thread of the program forks.
    fn keep_quiet(&mut self) {
        let from = self.pager.allowance.time.now_ns();
        let pages = thaw::bring_all_back(&mut self.pager);
        self.pager.lift_all_bars();
        // A thread that waits for room may have what the forking thread waits for.
        if !self.pager.memory.faults.for_room.is_empty() {
            self.copies.protect_nothing(&mut self.pager);
        }
        self.begin_sharing();
        self.control.holds.set_quiet();
        if pages > PageCount(0) {
            let ms = (self.pager.allowance.time.now_ns() - from) / 1_000_000;
            self.ties.tell(format_args!(
                "fork: brought {} MiB back in {ms} ms; the child shares them until it execs",
                pages.bytes().0 >> 20
            ));
        }
        self.pager.allowance.count(Counter::Forks, 1);
        self.pager.allowance.count(Counter::ForkPages, pages.0);
        loop {
            // A thread that has a hold may wait for a lock that a forking thread has.
            self.control.fork.refuse();
            self.pager.read_messages();
            self.take_hints();
            self.take_from_disk();
            self.serve_pending();
            if !self.control.holds.is_held() && self.control.holds.end_quiet() {
                // What was read meanwhile may date from before the fork.
                self.pager.allowance.budget.look_for_sharing();
                return;
            }
            // A thread that was killed during its hold does not release it.
            self.left.is_so = self.waiter.has_seen_end() || self.ties.program.has_left(&self.gauge);
            if self.left.is_so {
                return;
            }
            if let Err(error) = self.waiter.wait() {
                self.ties.die(format_args!("faults cannot be waited for: {error}"));
            }
        }
    }
}
