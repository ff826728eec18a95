//! The ledger: one page range shared by the launcher and every managed process of a run.
//!
//! The launcher writes the terms once, before the first process joins. Each process owns one seat
//! and is the only writer of its numbers; everybody reads all seats, so the budget is one although
//! nobody holds a lock. A seat is given out and taken back by the launcher alone.
//!
//! All numbers are plain counters: a reader may see one a moment old, never a torn one, so every
//! access is Relaxed but for `Seat::process`, which publishes a seat.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use coldpress_codec::CodecId;
use coldpress_mem::pools::PoolKind;
use coldpress_sys::shared::{self, Shared};
use coldpress_sys::{AsFd, Bytes, OwnedFd, PageCount, SysResult};

/// Processes of a run that can be managed at the same time; more stay unmanaged.
pub const SEATS: usize = 512;
/// Changes whenever the layout below does.
pub const LEDGER_VERSION: u32 = 3;

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident $text:literal,)*) => {
        /// What a process counts. The text is the key in the JSON report.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter {
            $($(#[doc = $doc])* $name,)*
        }

        impl Counter {
            /// Every counter, in the order of the report.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The key in the JSON report.
            pub const fn key(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

counters! {
    /// Faults served: touches of a page that was not there.
    Faults "faults",
    /// Faults on pages never touched before; each may bring several pages.
    FirstTouchFaults "first_touch_faults",
    /// Faults on pages still in limbo.
    LimboFaults "limbo_faults",
    /// Pages decompressed from the pool, same-filled ones included.
    PagesLoaded "pages_loaded",
    /// Pages read back from disk.
    PagesReadBack "read_back_pages",
    /// Pages stored: compressed, same-filled or kept raw.
    PagesStored "pages_stored",
    /// Pages stored that held one repeated word and cost no storage.
    SameFilled "same_filled_pages",
    /// Bytes that stored pages took, after compression.
    BytesStored "stored_bytes",
    /// Pages written back to disk.
    PagesWrittenBack "written_back_pages",
    /// Nanoseconds from reading a fault to its page being placed.
    StallNs "stall_ns",
    /// Bytes of compressed pages moved closer together.
    BytesCompacted "compacted_bytes",
    /// Pages moved out of the program.
    PagesMoved "moved_pages",
    /// Pages that could not be brought back and were poisoned.
    PagesPoisoned "poisoned_pages",
    /// Pages thought to be in place that were not: given up by the program (MADV_FREE) and dropped
    /// by the kernel, so they read as zeros; or unmapped a moment before.
    PagesDropped "dropped_pages",
    /// Forks for which everything was brought back.
    Forks "forks",
    /// Pages brought back for a fork.
    ForkPages "fork_pages",
    /// Times the service thread changed its processor to follow the program.
    Migrations "migrations",
    /// Blocks of 2 MiB of our own memory that were free as a whole when last looked at.
    HugeBlocksAvailable "huge_blocks_available",
    /// Blocks of 2 MiB whose memory went back to the system as a whole.
    BlocksReturned "blocks_returned",
}

/// Counters in a seat.
pub const COUNTERS: usize = Counter::ALL.len();

/// The terms of a run and the seats of its processes.
#[repr(C)]
#[derive(Debug)]
pub struct Ledger {
    version: AtomicU32,
    verbose: AtomicU32,
    /// The place of the pool's kind in [`PoolKind::ALL`].
    pool: AtomicU32,
    budget_pages: AtomicU64,
    pool_pages_max: AtomicU64,
    spill_bytes_max: AtomicU64,
    codec: AtomicU64,
    /// Anonymous pages of processes of the tree that have no seat, as the launcher last saw them.
    unseated_pages: AtomicU64,
    peak_pages: AtomicU64,
    /// The seats; the first [`SEATS`] processes take them.
    pub seats: [Seat; SEATS],
}

/// What the launcher decides and every process obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// All memory the tree may hold.
    pub budget: PageCount,
    /// Pool size at which writeback to disk begins.
    pub pool_max: PageCount,
    /// Most bytes on disk; 0 when there is no disk.
    pub spill_max: Bytes,
    /// How pages are compressed.
    pub codec: CodecId,
    /// Where compressed pages are kept.
    pub pool: PoolKind,
    /// Whether to tell what costs time.
    pub verbose: bool,
}

/// One process's numbers.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Seat {
    process: AtomicU32,
    managing: AtomicU32,
    used_pages: AtomicU64,
    pool_pages: AtomicU64,
    counters: [AtomicU64; COUNTERS],
}

impl Ledger {
    /// Makes the ledger of a run: a descriptor to hand to its processes, and the launcher's own
    /// view.
    pub fn create(terms: Terms) -> SysResult<(OwnedFd, Shared<Self>)> {
        let fd = shared::create(c"coldpress-ledger", Bytes(size_of::<Self>()))?;
        // SAFETY: a ledger is made of atomics, and zeroed memory is an empty one.
        let ledger: Shared<Self> = unsafe { Shared::map(fd.as_fd())? };
        ledger.set_terms(terms);
        Ok((fd, ledger))
    }

    /// Writes the terms into a fresh ledger.
    fn set_terms(&self, terms: Terms) {
        self.verbose.store(u32::from(terms.verbose), Ordering::Relaxed);
        self.budget_pages.store(terms.budget.0 as u64, Ordering::Relaxed);
        self.pool_pages_max.store(terms.pool_max.0 as u64, Ordering::Relaxed);
        self.spill_bytes_max.store(terms.spill_max.0 as u64, Ordering::Relaxed);
        self.codec.store(encode_codec(terms.codec), Ordering::Relaxed);
        self.pool.store(encode_pool(terms.pool), Ordering::Relaxed);
        // Release pairs with the Acquire in `terms`.
        self.version.store(LEDGER_VERSION, Ordering::Release);
    }

    /// The terms, or `None` when the launcher is of another version.
    pub fn terms(&self) -> Option<Terms> {
        // Acquire pairs with the Release in `set_terms`.
        if self.version.load(Ordering::Acquire) != LEDGER_VERSION {
            return None;
        }
        Some(Terms {
            budget: PageCount(self.budget_pages.load(Ordering::Relaxed) as usize),
            pool_max: PageCount(self.pool_pages_max.load(Ordering::Relaxed) as usize),
            spill_max: Bytes(self.spill_bytes_max.load(Ordering::Relaxed) as usize),
            codec: decode_codec(self.codec.load(Ordering::Relaxed)),
            pool: decode_pool(self.pool.load(Ordering::Relaxed))?,
            verbose: self.verbose.load(Ordering::Relaxed) != 0,
        })
    }

    /// Pages that all processes but the one in `seat` hold.
    pub fn used_by_others(&self, seat: usize) -> PageCount {
        let seated: u64 = (self.seats.iter().enumerate())
            .filter(|(index, other)| *index != seat && other.is_taken())
            .map(|(_, other)| other.used_pages.load(Ordering::Relaxed))
            .sum();
        PageCount((seated + self.unseated_pages.load(Ordering::Relaxed)) as usize)
    }

    /// Pages that all processes hold.
    pub fn used(&self) -> PageCount {
        self.used_by_others(SEATS)
    }

    /// Says what processes without a seat hold.
    pub fn set_unseated(&self, pages: PageCount) {
        self.unseated_pages.store(pages.0 as u64, Ordering::Relaxed);
    }

    /// Raises the peak to what is used now.
    pub fn note_peak(&self) {
        self.peak_pages.fetch_max(self.used().0 as u64, Ordering::Relaxed);
    }

    /// The most pages ever noted.
    pub fn peak(&self) -> PageCount {
        PageCount(self.peak_pages.load(Ordering::Relaxed) as usize)
    }
}

impl Seat {
    /// Whether a process has the seat.
    pub fn is_taken(&self) -> bool {
        self.process() != 0
    }

    /// The process that has the seat, 0 for none.
    pub fn process(&self) -> u32 {
        // Acquire pairs with the Release in `assign`: the numbers seen are of this process.
        self.process.load(Ordering::Acquire)
    }

    /// Gives the seat to `process` (0 takes it back) and clears its numbers. For the launcher.
    pub fn assign(&self, process: u32) {
        self.managing.store(0, Ordering::Relaxed);
        self.used_pages.store(0, Ordering::Relaxed);
        self.pool_pages.store(0, Ordering::Relaxed);
        for counter in &self.counters {
            counter.store(0, Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `process`.
        self.process.store(process, Ordering::Release);
    }

    /// Says what this process holds, and how much of it is the pool.
    pub fn publish(&self, used: PageCount, pool: PageCount) {
        self.used_pages.store(used.0 as u64, Ordering::Relaxed);
        self.pool_pages.store(pool.0 as u64, Ordering::Relaxed);
    }

    /// Pages this process holds.
    pub fn used(&self) -> PageCount {
        PageCount(self.used_pages.load(Ordering::Relaxed) as usize)
    }

    /// Frames of its pool.
    pub fn pool(&self) -> PageCount {
        PageCount(self.pool_pages.load(Ordering::Relaxed) as usize)
    }

    /// Says that its pages are managed now.
    pub fn set_managing(&self) {
        self.managing.store(1, Ordering::Relaxed);
    }

    /// Whether its pages were ever managed.
    pub fn is_managing(&self) -> bool {
        self.managing.load(Ordering::Relaxed) != 0
    }

    /// Counts. Only the owner of the seat writes, so a load and a store are enough.
    pub fn add(&self, counter: Counter, amount: u64) {
        let cell = &self.counters[counter as usize];
        cell.store(cell.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }

    /// Replaces a counter by a total kept elsewhere.
    pub fn set(&self, counter: Counter, total: u64) {
        self.counters[counter as usize].store(total, Ordering::Relaxed);
    }

    /// Reads a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Ordering::Relaxed)
    }
}

/// Kind in the low byte, level as i32 above bit 32.
fn encode_codec(codec: CodecId) -> u64 {
    match codec {
        CodecId::Lz4 => 0,
        CodecId::Lzo => 1,
        CodecId::Zstd { level } => 2 | u64::from(level.cast_unsigned()) << 32,
    }
}

fn decode_codec(word: u64) -> CodecId {
    match word & 0xff {
        1 => CodecId::Lzo,
        2 => CodecId::Zstd { level: ((word >> 32) as u32).cast_signed() },
        _ => CodecId::Lz4,
    }
}

fn encode_pool(kind: PoolKind) -> u32 {
    PoolKind::ALL.iter().take_while(|other| **other != kind).count() as u32
}

fn decode_pool(word: u32) -> Option<PoolKind> {
    PoolKind::ALL.get(word as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        budget: PageCount(40_000),
        pool_max: PageCount(20_000),
        spill_max: Bytes::mib(77),
        codec: CodecId::Lz4,
        pool: PoolKind::Zsmalloc,
        verbose: true,
    };

    #[test]
    fn terms_come_back_as_they_were_set() {
        let codecs = [CodecId::Lz4, CodecId::Lzo, CodecId::Zstd { level: -7 }];
        for (codec, pool) in codecs.into_iter().zip(PoolKind::ALL.iter().cycle()) {
            let terms = Terms { codec, pool: *pool, ..TERMS };
            let (fd, _first) = Ledger::create(terms).unwrap();
            // SAFETY: the descriptor is of a ledger, made a line above.
            let second: Shared<Ledger> = unsafe { Shared::map(fd.as_fd()).unwrap() };
            assert_eq!(second.terms(), Some(terms));
        }
        let empty = shared::create(c"empty", Bytes(size_of::<Ledger>())).unwrap();
        // SAFETY: zeroed memory is an empty ledger, which is made of atomics.
        let empty: Shared<Ledger> = unsafe { Shared::map(empty.as_fd()).unwrap() };
        assert_eq!(empty.terms(), None);
    }

    #[test]
    fn others_are_all_but_oneself_and_the_unseated_count() {
        let (_fd, ledger) = Ledger::create(TERMS).unwrap();
        for (seat, pages) in [(0, 100), (3, 20), (5, 3)] {
            ledger.seats[seat].assign(1000 + seat as u32);
            ledger.seats[seat].publish(PageCount(pages), PageCount(1));
        }
        ledger.set_unseated(PageCount(7));
        assert_eq!(ledger.used(), PageCount(130));
        assert_eq!(ledger.used_by_others(0), PageCount(30));
        ledger.note_peak();
        ledger.seats[0].assign(0);
        assert_eq!(ledger.used(), PageCount(30));
        assert_eq!(ledger.peak(), PageCount(130));
    }
}
