//! The program's memory: where each page is, what is registered, and every change of the address
//! space, as the kernel reports it.
//!
//! What follows such changes elsewhere, in the store and in the order of reclaim, comes as a
//! [`Follow`].
//!
//! Invariants:
//! 1. When the kernel refuses a call because the address space is changing, everything is looked at
//!    afresh after [`Memory::settle`]: no state read before it may be used after it.
//! 2. The run of a page in state `Limbo` has a slot ([`Memory::check`]).

mod bars;
mod change;
mod discover;
mod faults;
mod gauges;
mod order;
mod regions;
pub(crate) mod trial;

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;

use coldpress_sys::map::Span;
use coldpress_sys::proc::Files;
use coldpress_sys::uffd::{Message, Progress, Stop, Userfaultfd, unshare_page};
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount, cpu};

pub(crate) use bars::{Bar, Bars};
pub(crate) use change::Follow;
pub(crate) use faults::{Fault, Faults};
pub(crate) use gauges::KernelGauges;
pub(crate) use order::{Move, Order};
pub(crate) use regions::Regions;

use crate::control::Control;
use crate::pages::{PageNumber, PageState, PageTable};
use crate::policy::TOUCHES_MAX;
use crate::ties::Ties;

/// Zeros for first touches in runs: never written to, so they take no memory.
pub(crate) const ZEROS: PageCount = PageCount(TOUCHES_MAX);
/// Buffer for /proc/self/maps, whose longest line is a path of 4096 bytes and 100 more.
const MAPS_BUFFER: Bytes = Bytes::kib(16);

/// A range just mapped whose thread waits, or to be given up: number, start, length.
pub(crate) type Hint = (usize, usize, Bytes);

/// Everything that is known of the program's memory.
pub(crate) struct Memory {
    pub(crate) uffd: Userfaultfd,
    pub(crate) pages: PageTable,
    pub(crate) regions: Regions,
    pub(crate) bars: Bars,
    pub(crate) order: Order,
    pub(crate) faults: Faults,
    pub(crate) hints: Vec<Hint>,
    pub(crate) files: Files,
    /// Address ranges of ours that must not be managed.
    pub(crate) own: Vec<Range<usize>>,
    /// Ranges that lay in one mapping with a thread's stack, above it, a moment ago.
    beside_stacks: Vec<Range<usize>>,
    pub(crate) control: &'static Control,
    pub(crate) ties: Rc<Ties>,
    pub(crate) maps_buffer: Vec<u8>,
    /// An address that is always registered, to find out whether the address space changes.
    probe_address: usize,
    zeros: Span,
    messages: [Message; 16],
    /// The page last made this process's own by force.
    last_owned: Option<PageNumber>,
}

/// What [`Memory`] is made of.
pub(crate) struct Parts {
    pub(crate) uffd: Userfaultfd,
    pub(crate) zeros: Span,
    pub(crate) files: Files,
    pub(crate) own: Vec<Range<usize>>,
    /// Ranges that lie in one mapping with a thread's stack, above it.
    pub(crate) beside_stacks: Vec<Range<usize>>,
    pub(crate) control: &'static Control,
    pub(crate) ties: Rc<Ties>,
    pub(crate) probe_address: usize,
    /// What the process may hold.
    pub(crate) share: PageCount,
}

impl Memory {
    /// Creates the state in which nothing is known.
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            uffd: parts.uffd,
            pages: PageTable::new(parts.share),
            regions: Regions::default(),
            bars: Bars::default(),
            order: Order::default(),
            faults: Faults::new(),
            hints: Vec::new(),
            files: parts.files,
            own: parts.own,
            beside_stacks: parts.beside_stacks,
            control: parts.control,
            ties: parts.ties,
            maps_buffer: alloc::vec![0; MAPS_BUFFER.0],
            probe_address: parts.probe_address,
            zeros: parts.zeros,
            messages: [const { Message::EMPTY }; 16],
            last_owned: None,
        }
    }

    /// Returns whether there were any messages, after reading all of them. Changes of the address
    /// space are acted on at once; faults wait in `faults`.
    pub(crate) fn read_messages(&mut self, follow: &mut impl Follow) -> bool {
        let any = self.drain_messages(follow);
        // Until the word that `order` waits for has come, nothing is known of the pages of a move.
        if self.order.is_waiting() {
            self.settle(follow);
        }
        any
    }

    fn drain_messages(&mut self, follow: &mut impl Follow) -> bool {
        let mut any = false;
        loop {
            let count = match self.uffd.read(&mut self.messages) {
                Ok(count) => count,
                Err(error) => self.ties.die(format_args!("faults cannot be read: {error}")),
            };
            let now = cpu::ticks();
            for index in 0..count {
                if let Some(event) = self.messages[index].event() {
                    any = true;
                    self.take_event(event, index + 1..count, now, follow);
                }
            }
            if count < self.messages.len() {
                return any;
            }
        }
    }

    /// Puts zeros where `count` pages from `page` on are.
    pub(crate) fn copy_zeros(&self, page: PageNumber, count: PageCount) -> Progress {
        assert!(count <= ZEROS, "{count:?} of {ZEROS:?}");
        // SAFETY: the zeros are a mapping of ours that is never registered, and long enough.
        unsafe { self.uffd.copy(page.address(), self.zeros.base().as_ptr(), count.bytes()) }
    }

    /// Returns whether there may be a guard page among the `count` pages from `page` on. A COPY
    /// would take its place (Linux 6.18).
    pub(crate) fn may_have_guard(&self, page: PageNumber, count: usize) -> bool {
        let (start, end) = (page.address(), page.plus(count).address());
        self.control.has_guards() && self.files.pagemap.has_guard(start, end).unwrap_or(true)
    }

    /// Returns the end of what is known to be registered around `page`, on which a thread faults.
    /// Where a mapping has grown since, it is not known how far it is registered.
    pub(crate) fn registered_end(&self, page: PageNumber) -> PageNumber {
        let holding = self.regions.holding(page.address());
        holding.map_or_else(
            || page.run().first().plus(crate::pages::RUN_PAGES),
            |range| PageNumber::of(range.end),
        )
    }

    /// Write-protects a range or lifts its protection, and wakes the threads that wait there. A
    /// part that is gone meanwhile needs no protection.
    pub(crate) fn protect(
        &mut self,
        range: Range<usize>,
        is_protected: bool,
        follow: &mut impl Follow,
    ) {
        assert!(!range.is_empty(), "{range:x?} has no page to protect");
        let length = Bytes(range.end - range.start);
        loop {
            match self.uffd.protect(range.start, length, is_protected) {
                Ok(()) => return,
                Err(Stop::Changing) => self.settle(follow),
                Err(_) => {
                    // A thread that waits there tries again, or finds that the range is gone.
                    let _ = self.uffd.wake(range.start, length);
                    return;
                }
            }
        }
    }

    /// Returns whether a page that is shared after `fork` has now become this process's own.
    /// `false` means that it was before, or that this did not help last time: then the page is
    /// pinned.
    pub(crate) fn become_owner(&mut self, page: PageNumber, follow: &mut impl Follow) -> bool {
        self.protect(page_of(page.address()), false, follow);
        let again = self.last_owned.replace(page) == Some(page);
        !again && unshare_page(page.address())
    }

    /// Returns the pages that a MOVE of `count` pages from `page` to `target` has moved beyond the
    /// `told` ones.
    ///
    /// Linux 6.18 can move pages and answer EEXIST. One of the pages changed while the kernel
    /// looked at it (an accessed bit is enough); `move_pages` of mm/userfaultfd.c tries again with
    /// success, keeps the EAGAIN of the first time, and tries once more. A page that has moved is
    /// at the target and no longer here; a page that is at both places was not moved.
    pub(crate) fn moved_beyond(
        &self,
        page: PageNumber,
        target: usize,
        told: PageCount,
        count: PageCount,
    ) -> PageCount {
        let rest = |start: usize| (start + told.bytes().0, start + count.bytes().0);
        let ((from, from_end), (to, to_end)) = (rest(page.address()), rest(target));
        let found = self
            .files
            .pagemap
            .leading_pages(to, to_end)
            .and_then(|there| Ok(there.min(self.files.pagemap.leading_holes(from, from_end)?)));
        match found {
            Ok(pages) => pages,
            Err(error) => self.ties.die(format_args!("moved pages cannot be counted: {error}")),
        }
    }

    /// Checks the invariants of one page that is known.
    ///
    /// # Panics
    /// If the page waits in limbo and its run has no slot.
    pub(crate) fn check(&self, page: PageNumber, state: PageState) {
        let has_slot = self.pages.run(page.run()).is_some_and(|run| run.slot.is_some());
        assert!(state != PageState::Limbo || has_slot, "{page:?} waits in limbo without a slot");
    }
}

/// Returns the page that contains an address, as a range.
pub(crate) fn page_of(address: usize) -> Range<usize> {
    let start = PageNumber::of(address).address();
    start..start + PAGE_BYTES
}
