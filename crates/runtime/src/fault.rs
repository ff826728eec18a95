//! Faults: bringing in the page a thread waits for.
//!
//! ```text
//! None      zeros, several pages at a time when touches are sequential
//! Limbo     copied from limbo: the second chance
//! Stored    decompressed from the pool, or read back from disk first; others are served meanwhile
//! Resident  somebody else was first: just wake
//! ```

use coldpress_sys::page::PAGE_BYTES;
use coldpress_sys::uffd::{Progress, Stop};
use coldpress_sys::{Bytes, PageCount, cpu};
use coldpress_zswap::{LoadError, Loaded};

use crate::manager::{Fault, Manager, ZEROS};
use crate::pages::{Origin, PageNumber, PageState, RUN_PAGES};
use crate::tally::{Counter, Group};

const ONE: Bytes = Bytes(PAGE_BYTES);
/// Entries of served pages that may wait to be dropped: several times what comes between two
/// reclaims.
const SERVED_MAX: usize = 64;
/// When the kernel has no memory for a page, it is asked again this often, this long apart: 10 s.
const STARVED_MAX: u32 = 1_000;
const STARVED_NS: u64 = 10_000_000;

/// How an attempt to bring a page in ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The page is there, and who waited has been woken.
    Placed,
    /// The address space was changing: look again.
    Again,
    /// The page is being read back from disk.
    Coming,
    /// The kernel had no memory for the page: try again.
    Starved,
    /// Nobody can be served there: the range has gone, or the page was there already.
    Moot,
}

impl Manager {
    /// Serves all faults that were read.
    pub(crate) fn serve_pending(&mut self) {
        while let Some(fault) = self.pending.pop_front() {
            // Before the wake-up: a thread that is woken while this one goes on working is moved to
            // an idle processor, and every fault from there costs a wake-up across
            // processors.
            self.reclaim_along();
            self.make_room(PageCount(1));
            self.serve_fault(fault);
        }
    }

    /// Takes in what the disk has finished; faults that may have waited for it are served again.
    pub(crate) fn take_from_disk(&mut self) {
        self.zswap.reap();
        if self.zswap.take_arrivals() {
            while let Some(fault) = self.reading.pop() {
                self.pending.push_front(fault);
            }
        }
    }

    /// Serves one fault, or leaves it in `reading`.
    fn serve_fault(&mut self, fault: Fault) {
        if !self.try_bring_in(fault.page) {
            self.reading.push(fault);
            return;
        }
        self.clock = self.clock.wrapping_add(1);
        self.count(Counter::Faults, 1);
        let stall = cpu::ticks().wrapping_sub(fault.read_at_ticks);
        self.stall_ticks += stall;
        self.tally().note_latency(Group::FaultNs, self.time.span_ns(stall));
        self.placement.follow(fault.thread, self.time.now_ns());
    }

    /// Puts a page where the program can reach it, and wakes who waits for it. Waits for the disk
    /// if it must.
    pub(crate) fn bring_in(&mut self, page: PageNumber) {
        while !self.try_bring_in(page) {
            self.zswap.wait();
            // What has come for others is in the way of this page's read.
            for _ in 0..self.reading.len() {
                let fault = self.reading.remove(0);
                self.serve_fault(fault);
            }
        }
    }

    /// Puts a page where the program can reach it, and wakes who waits for it. False when it is
    /// being read back first.
    fn try_bring_in(&mut self, page: PageNumber) -> bool {
        let mut starved = 0_u32;
        loop {
            let outcome = match self.pages.state(page) {
                PageState::None => self.place_zeros(page),
                PageState::Resident => self.place_dropped(page),
                PageState::Limbo => self.place_from_limbo(page),
                PageState::Stored => self.place_from_store(page),
            };
            match outcome {
                Outcome::Placed => return true,
                Outcome::Coming => return false,
                Outcome::Again => self.settle(),
                Outcome::Starved => {
                    starved += 1;
                    if starved == STARVED_MAX {
                        self.die(format_args!(
                            "the kernel has no memory to bring a page back to {:#x}",
                            page.address()
                        ));
                    }
                    cpu::sleep_ns(STARVED_NS);
                    self.settle();
                }
                Outcome::Moot => {
                    let _ = self.uffd.wake(page.address(), ONE);
                    return true;
                }
            }
        }
    }

    fn outcome(&self, progress: Progress) -> Outcome {
        match progress.stop {
            _ if progress.done > Bytes(0) => Outcome::Placed,
            None => Outcome::Placed,
            Some(Stop::Changing) => Outcome::Again,
            Some(Stop::Failed(_)) => Outcome::Starved,
            Some(Stop::Present | Stop::Busy | Stop::Gone | Stop::Unfit) => Outcome::Moot,
        }
    }

    fn copy_zeros(&self, page: PageNumber, count: PageCount) -> Progress {
        // SAFETY: the zeros are a mapping of ours that is never registered and at least `ZEROS`
        // long.
        unsafe { self.uffd.copy(page.address(), self.zeros.base().as_ptr(), count.bytes()) }
    }

    /// A fault on a page that should be there. Either it is, as this is the second of two faults on
    /// it, and COPY replaces nothing; or the program had given it up and the kernel dropped it:
    /// then zeros are right.
    fn place_dropped(&mut self, page: PageNumber) -> Outcome {
        let outcome = self.outcome(self.copy_zeros(page, PageCount(1)));
        if outcome == Outcome::Placed {
            self.count(Counter::PagesDropped, 1);
        }
        outcome
    }

    /// A first touch: zeros, for as many pages as the touches so far make likely.
    fn place_zeros(&mut self, page: PageNumber) -> Outcome {
        let window = self.streams.window(page);
        let room = self.budget.hard().saturating_sub(self.budget.used()).0;
        // It is registered; how far is not known where a mapping has grown since.
        let region_end = self
            .regions
            .holding(page.address())
            .map_or_else(|| page.run().first().plus(RUN_PAGES), |range| PageNumber::of(range.end));
        let within = region_end.0.saturating_sub(page.0);
        let limit = window.min(room).min(within).max(1);
        let mut count = 1
            + (1..limit)
                .take_while(|ahead| self.pages.state(page.plus(*ahead)) == PageState::None)
                .count();
        let mut progress = self.copy_zeros(page, PageCount(count));
        // Neighbouring regions are one to us, but may be two mappings of the kernel's, and COPY
        // takes no two. Arenas grow by some pages at a time.
        while progress.stop == Some(Stop::Gone) && count > 1 {
            count /= 2;
            progress = self.copy_zeros(page, PageCount(count));
        }
        let placed = progress.done.pages_down();
        for index in 0..placed.0 {
            self.note_arrival(page.plus(index), Origin::FirstTouch);
        }
        self.streams.advance(page, placed.0);
        self.count(Counter::FirstTouchFaults, 1);
        self.outcome(progress)
    }

    /// The page waits in limbo: it was taken too early, so it will be left in place for longer.
    fn place_from_limbo(&mut self, page: PageNumber) -> Outcome {
        let Some(slot) = self.pages.run(page.run()).and_then(|run| run.slot) else {
            self.die(format_args!("a page in limbo has no slot: {:#x}", page.address()))
        };
        let source = self.limbo.address(slot, page) as *const u8;
        // SAFETY: limbo is registered for write protection only, so reading it asks nothing of us.
        let progress = unsafe { self.uffd.copy(page.address(), source, ONE) };
        let outcome = self.outcome(progress);
        if outcome == Outcome::Placed {
            self.limbo_pages -= PageCount(1);
            self.note_arrival(page, Origin::Limbo);
            self.count(Counter::LimboFaults, 1);
        }
        outcome
    }

    fn place_from_store(&mut self, page: PageNumber) -> Outcome {
        let begun = cpu::ticks();
        let result = self.zswap.load(Self::key(page), &mut self.page_buffer.0);
        match result {
            Ok(Loaded::From(_)) => {
                let took = self.time.span_ns(cpu::ticks().wrapping_sub(begun));
                self.tally().note_latency(Group::LoadNs, took);
            }
            Ok(Loaded::Coming) => return Outcome::Coming,
            Ok(Loaded::Missing) => {
                self.die(format_args!("a stored page is not in the store: {:#x}", page.address()))
            }
            Err(error) => return self.poison(page, error),
        }
        // SAFETY: the buffer is memory of ours, which is never registered.
        let progress = unsafe { self.uffd.copy(page.address(), self.page_buffer.0.as_ptr(), ONE) };
        let outcome = self.outcome(progress);
        if outcome == Outcome::Placed {
            if self.served.len() == SERVED_MAX {
                self.drop_served();
            }
            self.served.push(page);
            self.note_arrival(page, Origin::Store);
        }
        outcome
    }

    /// The page's bytes are lost: who touches it gets SIGBUS, never wrong bytes.
    fn poison(&mut self, page: PageNumber, error: LoadError) -> Outcome {
        let progress = self.uffd.poison(page.address(), ONE);
        let outcome = self.outcome(progress);
        if outcome == Outcome::Placed {
            self.zswap.invalidate(Self::key(page));
            self.pages.set_state(page, PageState::None);
            self.count(Counter::PagesPoisoned, 1);
            self.link.warn(format_args!(
                "the page at {:#x} is lost and poisoned (SIGBUS on touch): {error}",
                page.address()
            ));
        }
        outcome
    }

    fn note_arrival(&mut self, page: PageNumber, from: Origin) {
        self.budget.add(PageCount(1));
        self.arrivals += 1;
        if self.pages.arrive(page, from, self.clock) {
            self.queue.push_back(page.run());
        }
    }
}

/// Sequential first touches: who touched a page will soon touch the next. One entry per walk
/// through memory.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    entries: [Stream; 8],
    oldest: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The page whose touch would continue the walk.
    next: PageNumber,
    /// Pages placed at its last touch.
    window: usize,
}

/// The windows of a walk: 1, then these. Runs of 16 and 64 cost 0.72 and 0.57 of the kernel's own
/// fault per page (far-memory.md 3.3), so what is placed needlessly is cheap, and bounded by what
/// was touched before.
const WINDOWS: [usize; 3] = [4, 16, 64];
const _: () = assert!(WINDOWS[2] == ZEROS.0);

impl Streams {
    /// How many pages to place for a first touch of `page`.
    fn window(&self, page: PageNumber) -> usize {
        let Some(stream) = self.entries.iter().find(|stream| stream.next == page) else {
            return 1;
        };
        WINDOWS.into_iter().find(|window| *window > stream.window).unwrap_or(ZEROS.0)
    }

    /// `count` pages were placed at `page`.
    fn advance(&mut self, page: PageNumber, count: usize) {
        let stream = Stream { next: page.plus(count), window: count };
        match self.entries.iter_mut().find(|stream| stream.next == page) {
            Some(entry) => *entry = stream,
            None => {
                self.entries[self.oldest] = stream;
                self.oldest = (self.oldest + 1) % self.entries.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_walks_get_more_than_they_touch() {
        let mut streams = Streams::default();
        let mut page = PageNumber(1000);
        let mut placed = std::vec::Vec::new();
        for _ in 0..6 {
            let window = streams.window(page);
            streams.advance(page, window);
            placed.push(window);
            // A second, scattered toucher in between changes nothing.
            let other = PageNumber(page.0 * 7);
            assert_eq!(streams.window(other), 1);
            streams.advance(other, 1);
            page = page.plus(window);
        }
        assert_eq!(placed, [1, 4, 16, 64, 64, 64]);
    }
}
