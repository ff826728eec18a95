//! The store: where pages are that the program does not have, from limbo to the pool and the disk,
//! and the memory of ours that this takes.
//!
//! Invariant: zswap has an entry under a page's key exactly when the page is `Stored`, or waits in
//! `served`, or its copy is kept.

mod inherit;
mod kept;
mod limbo;
mod pools;
mod posting;
mod record;

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;

use coldpress_backing::{Backing, FileBacking, SlotCount, SlotId};
use coldpress_mem::frames::FrameAllocator;
use coldpress_mem::pools::Switch;
use coldpress_sys::errno::ENOMEM;
use coldpress_sys::file::SpillFile;
use coldpress_sys::ring::Ring as IoRing;
use coldpress_sys::uffd::Userfaultfd;
use coldpress_sys::{
    Bytes, OwnedFd, PAGE_BYTES, Page, PageBuffer, PageCount, SysError, SysResult, cpu,
};
use coldpress_zswap::desk::Ticket;
use coldpress_zswap::seal::Sealer;
use coldpress_zswap::{Area, Key, LoadError, Loaded, NewError, Offset, Stats, StoreError, Zswap};

pub(crate) use kept::Kept;
pub(crate) use limbo::Limbo;
pub(crate) use pools::Pools;
pub(crate) use posting::Posting;
pub(crate) use record::Recording;

use crate::allowance::{Allowance, Tuning};
use crate::ledger::Terms;
use crate::link::Link;
use crate::pages::{PageNumber, PageState, PageTable, RunNumber};
use crate::policy::{AWAY_MAX, target};
use crate::tally::{Counter, Group, Tally};
use crate::ties::Ties;

/// The zswap area of the program's own pages.
pub(crate) const PROGRAM_AREA: Area = Area(0);
/// Free frames of the pool that may keep their memory.
const FRAMES_KEPT: PageCount = Bytes::kib(256).pages_down();
/// Entries of returned pages that may wait to be dropped: several times what comes back between two
/// reclaims.
const SERVED_MAX: usize = 64;
/// Reads from disk that readahead may have under way: half of zswap's buffers, so that other faults
/// find one.
pub(crate) const READAHEAD_MAX: usize = 4;
/// Largest number of free frames whose memory is given back at a time. Single frames take 3 to 6 us
/// each, so faults wait a millisecond or so. While no fault waits, more are given back.
pub(crate) const TRIM_MAX: PageCount = Bytes::mib(1).pages_down();
pub(crate) const TRIM_MAX_IDLE: PageCount = Bytes::mib(8).pages_down();

/// Which pages are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storing {
    /// All that the knobs allow.
    Allowed,
    /// Of them, those that are compressible.
    Compressible,
    /// All, whatever the knobs and the pool's limit say.
    All,
}

/// Everything about pages that the program does not have.
pub(crate) struct Store {
    pub(crate) zswap: Zswap<Pools>,
    pub(crate) limbo: Limbo,
    pub(crate) limbo_pages: PageCount,
    /// Pages that limbo may hold.
    pub(crate) limbo_target: PageCount,
    pub(crate) frames: &'static FrameAllocator,
    /// Bytes that large allocations of ours take outside the frames.
    heap_bytes: fn() -> Bytes,
    pub(crate) own_held: OwnHeld,
    /// Pages that came in from zswap and whose entries are still to be dropped. No thread waits for
    /// that, but it must be done before anything is stored.
    served: Vec<PageNumber>,
    /// Pages that have come back and whose compressed copies are kept.
    pub(crate) kept: Kept,
    /// Pages being read from disk that no fault has asked for.
    pub(crate) readahead: Vec<PageNumber>,
    /// Pages on their way back.
    pub(crate) buffer: Box<[PageBuffer]>,
    /// Pages posted for the helper.
    pub(crate) posting: Posting,
    pub(crate) recording: Option<Recording>,
    /// The files that stored pages may lie in, each with its first slot.
    pub(crate) spills: Vec<(i32, SlotId)>,
    /// Blocks that an ancestor of this process had given back before the fork.
    pub(crate) blocks_returned_before: u64,
    pub(crate) ties: Rc<Ties>,
}

/// What [`Store`] is made of.
pub(crate) struct Parts {
    pub(crate) zswap: Zswap<Pools>,
    pub(crate) limbo: Limbo,
    pub(crate) frames: &'static FrameAllocator,
    pub(crate) heap_bytes: fn() -> Bytes,
    pub(crate) posting: Posting,
    pub(crate) recording: Option<Recording>,
    pub(crate) spills: Vec<(i32, SlotId)>,
    pub(crate) slots_max: SlotCount,
    /// What the process may hold.
    pub(crate) share: PageCount,
    pub(crate) ties: Rc<Ties>,
}

/// What our own tables and pool take.
#[derive(Default)]
pub(crate) struct OwnHeld {
    pub(crate) pages: PageCount,
    /// Total growth of these pages: the number of them that were touched first.
    pub(crate) grown: PageCount,
}

/// Returns the key under which zswap keeps a page.
pub(crate) fn key(page: PageNumber) -> Key {
    Key { area: PROGRAM_AREA, offset: Offset(page.0 as u64) }
}

impl Store {
    /// Creates the state in which nothing is away.
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            zswap: parts.zswap,
            limbo: parts.limbo,
            limbo_pages: PageCount(0),
            limbo_target: target(parts.share),
            frames: parts.frames,
            heap_bytes: parts.heap_bytes,
            own_held: OwnHeld::default(),
            served: Vec::new(),
            kept: Kept::new(parts.slots_max),
            readahead: Vec::with_capacity(READAHEAD_MAX),
            buffer: alloc::vec![PageBuffer::ZERO; AWAY_MAX].into_boxed_slice(),
            posting: parts.posting,
            recording: parts.recording,
            spills: parts.spills,
            blocks_returned_before: 0,
            ties: parts.ties,
        }
    }

    /// Publishes what zswap and the frames have, of the pages `used` in all, and what is `saved`.
    pub(crate) fn publish(&self, stats: &Stats, tally: &Tally, used: PageCount, saved: Bytes) {
        let frames = self.frames.stats();
        tally.set_zswap(stats, &frames, self.draining_pages(), saved);
        let of_program = used.saturating_sub(self.own_held.pages + self.limbo_pages);
        tally.set_program(of_program, self.limbo_pages);
        let counters = &stats.counters;
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
        tally.set(Counter::HugeBlocksAvailable, frames.huge_blocks_available() as u64);
        let returned = frames.blocks_returned() - self.blocks_returned_before;
        tally.set(Counter::BlocksReturned, returned);
    }

    /// Drops the entries of pages that were served.
    pub(crate) fn drop_served(&mut self) {
        while let Some(page) = self.served.pop() {
            self.zswap.invalidate(key(page));
        }
    }

    /// Notes that pages left limbo.
    pub(crate) fn leave_limbo(&mut self, pages: PageCount) {
        assert!(
            pages <= self.limbo_pages,
            "{pages:?} leave limbo, {:?} are there",
            self.limbo_pages
        );
        self.limbo_pages -= pages;
    }

    /// Notes that a page came in from zswap, so that its entry is to be dropped.
    pub(crate) fn note_served(&mut self, page: PageNumber) {
        debug_assert!(!self.served.contains(&page), "{page:?} was served, and is again");
        if self.served.len() == SERVED_MAX {
            self.drop_served();
        }
        self.served.push(page);
    }

    /// Returns how many of `stored` pages are away: their copies are no copies of resident ones.
    pub(crate) fn away_of(&self, stored: PageCount) -> PageCount {
        stored.saturating_sub(self.kept.count() + PageCount(self.served.len()))
    }

    /// Charges the budget with the growth of our own memory since it was last measured.
    pub(crate) fn charge_own_growth(&mut self, allowance: &mut Allowance) {
        let before = self.measure_own();
        allowance.budget.add(self.own_held.pages.saturating_sub(before));
        allowance.budget.subtract(before.saturating_sub(self.own_held.pages));
    }

    /// Measures what our own tables and pool take, and returns what they took before.
    pub(crate) fn measure_own(&mut self) -> PageCount {
        let now = self.own_memory();
        let before = core::mem::replace(&mut self.own_held.pages, now);
        self.own_held.grown += now.saturating_sub(before);
        before
    }

    fn own_memory(&self) -> PageCount {
        self.frames.frames_held()
            + (self.heap_bytes)().pages_up()
            + self.posting.memory().pages_up()
    }

    pub(crate) fn finish_slot(&mut self, uffd: &Userfaultfd, allowance: &mut Allowance) {
        match self.limbo.finish_oldest(uffd) {
            Ok(freed) => allowance.budget.subtract(freed),
            Err(error) => self.ties.die(format_args!("limbo cannot be emptied: {error}")),
        }
        self.trim_frames(TRIM_MAX);
        self.charge_own_growth(allowance);
    }

    /// Gives back the memory of at most `most` free frames, when more than a few have some.
    pub(crate) fn trim_frames(&self, most: PageCount) {
        let idle = self.frames.frames_idle();
        if idle > FRAMES_KEPT + FRAMES_KEPT {
            self.frames.trim(FRAMES_KEPT.max(idle.saturating_sub(most)));
        }
    }

    /// Gives back a slot into which nothing of a run was moved, because the run is `unfit` or for
    /// another reason.
    pub(crate) fn return_slot(
        &mut self,
        pages: &mut PageTable,
        slot: u16,
        number: RunNumber,
        unfit: bool,
    ) {
        if unfit {
            let run = pages.run_mut(number);
            run.unfit_times = (run.unfit_times + 1).min(7);
            run.unfit_sweeps = 1 << run.unfit_times;
        }
        self.limbo.ring().return_slot();
        if pages.run(number).is_some_and(|run| run.slot == Some(slot)) {
            pages.run_mut(number).slot = None;
        }
    }

    /// Returns the address in limbo of a page that is there.
    pub(crate) fn limbo_address(&self, pages: &PageTable, page: PageNumber) -> usize {
        let Some(slot) = pages.run(page.run()).and_then(|run| run.slot) else {
            self.ties.die(format_args!("a page in limbo has no slot: {:#x}", page.address()))
        };
        self.limbo.address(slot, page)
    }

    /// Stores a page that is in limbo. On an error the page stays there.
    pub(crate) fn store_from_limbo(
        &mut self,
        pages: &mut PageTable,
        page: PageNumber,
        which: Storing,
        allowance: &mut Allowance,
    ) -> Result<(), StoreError> {
        self.drop_served();
        let bytes = self.limbo_address(pages, page) as *const Page;
        // SAFETY: the page was moved there and nobody writes to limbo.
        let bytes = unsafe { &*bytes };
        if !self.is_kept(page, bytes, allowance) {
            let begun = cpu::ticks();
            let key = key(page);
            let result = match which {
                Storing::All => self.zswap.store_anyhow(key, bytes),
                Storing::Allowed | Storing::Compressible => {
                    // The page is the next in limbo's order.
                    let offer = self.posting.collect(Ticket(self.limbo.ring().pages_done()));
                    let keeps_all = which == Storing::Allowed;
                    self.zswap.store_offered(key, bytes, keeps_all, offer.as_ref())
                }
            };
            let took = allowance.time.span_ns(cpu::ticks().wrapping_sub(begun));
            allowance.tally().note_latency(Group::StoreNs, took);
            while let Some(warning) = self.zswap.take_warning() {
                self.ties.warn(format_args!("{warning}"));
            }
            result?;
        }
        pages.note_stored(page);
        self.leave_limbo(PageCount(1));
        self.charge_own_growth(allowance);
        Ok(())
    }

    /// Checks the invariant for one page that is known.
    ///
    /// # Panics
    /// If zswap has no entry for a stored page, or has one for a page whose entry is not to be
    /// there.
    pub(crate) fn check(&self, page: PageNumber, state: PageState) {
        let may_be_there = self.served.contains(&page) || self.kept.has(page);
        let is_stored = state == PageState::Stored;
        let is_there = self.zswap.contains(key(page));
        assert!(is_there || !is_stored, "{page:?} is stored, and zswap has no entry");
        assert!(!is_there || is_stored || may_be_there, "{page:?} is {state:?}, and has an entry");
    }

    /// Copies the bytes of a stored page into a place of the buffer. The page may be read back from
    /// disk first.
    pub(crate) fn load(
        &mut self,
        page: PageNumber,
        place: usize,
        allowance: &Allowance,
    ) -> Result<Loading, LoadError> {
        let begun = cpu::ticks();
        let loading = match self.zswap.load(key(page), &mut self.buffer[place].0)? {
            Loaded::SameFilled | Loaded::FromPool => Loading::Here,
            Loaded::FromBacking => Loading::FromDisk,
            Loaded::Coming => return Ok(Loading::Coming),
            Loaded::Missing => self
                .ties
                .die(format_args!("a stored page is not in the store: {:#x}", page.address())),
        };
        let took = allowance.time.span_ns(cpu::ticks().wrapping_sub(begun));
        allowance.tally().note_latency(Group::LoadNs, took);
        Ok(loading)
    }
}

/// Where the bytes of a stored page are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loading {
    /// In the buffer, and they came from the pool.
    Here,
    /// In the buffer, and they came from disk.
    FromDisk,
    /// On their way from disk.
    Coming,
}

/// The error of a store that got no memory.
pub(crate) const NO_MEMORY: SysError = SysError { call: "zswap", errno: ENOMEM };

/// Where the coldest pages go, and what seals them.
pub(crate) type Disk = (Box<dyn Backing>, Sealer);

/// Opens slots in `file`, with a key of this process's own.
pub(crate) fn open_disk(
    link: &Link,
    terms: &Terms,
    file: OwnedFd,
    ring: Option<IoRing>,
) -> Option<Disk> {
    let sealer = open_sealer(link, terms)?;
    let way = if ring.is_some() { "through io_uring" } else { "by calls that wait" };
    link.tell(format_args!("process {} writes to the disk {way}", link.process()));
    let file = SpillFile::from_fd(file);
    Some((Box::new(FileBacking::new(file, terms.spill_max, ring)), sealer))
}

/// Makes a new key, where anything may be written to disk. What cannot be encrypted is not written:
/// then there is no key, and the user is warned.
fn open_sealer(link: &Link, terms: &Terms) -> Option<Sealer> {
    if terms.spill_max == Bytes(0) {
        return None;
    }
    let tell = |error: &NewError| {
        link.warn(format_args!(
            "process {} writes nothing to the disk, as it cannot encrypt: {error}",
            link.process()
        ));
    };
    Sealer::random().inspect_err(tell).ok()
}

pub(crate) fn open_zswap(
    tuning: &Tuning,
    frames: &'static FrameAllocator,
    disk: Option<Disk>,
) -> SysResult<Zswap<Pools>> {
    let pool = Switch::new(pools::make(tuning.knobs.pool(), frames));
    Zswap::new(tuning.for_store(), pool, disk).map_err(|_| NO_MEMORY)
}
