//! The tally of a process: everything that it counts, as one row of words that other processes may
//! read.
//!
//! Words come in groups. What zswap counts is copied in now and then; the rest is counted here. The
//! owner of a tally is the only process to write it, so a load and a store suffice to count. All
//! accesses are Relaxed, as a reader may see numbers that are a moment old, but never a torn one.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use coldpress_mem::frames::{FrameStats, Mobility};
use coldpress_sys::{Bytes, PageCount};
use coldpress_zswap::{AGE_CLASS_MS, AGE_CLASSES, Counters, SIZE_CLASS_BYTES, SIZE_CLASSES, Stats};

use crate::pages::{UNITS_MAX, UNITS_PER_SHARE};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident $text:literal,)*) => {
        /// A number that a process counts outside of zswap, or sums up for its users.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter {
            $($(#[doc = $doc])* $name,)*
        }

        impl Counter {
            /// Every counter, in the order of the report.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns what the counter counts, as a sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),*).trim_ascii_start(),)*
                }
            }

            /// Returns the key in the JSON report.
            pub const fn key(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

counters! {
    /// Faults served: touches of a page that was not present.
    Faults "faults",
    /// Faults on pages never touched before; each may bring several pages.
    FirstTouchFaults "first_touch_faults",
    /// Faults on pages still in limbo.
    LimboFaults "limbo_faults",
    /// Faults on pages that were compressed, or on disk: what the kernel calls major.
    MajorFaults "major_faults",
    /// Pages brought back before a thread asked for them, because a walk was coming their way
    /// (readahead).
    PagesReadAhead "readahead_pages",
    /// Pages brought back from the pool or from disk, same-filled ones included.
    PagesLoaded "swap_in_pages",
    /// Pages read back from disk.
    PagesReadBack "read_back_pages",
    /// Pages stored: compressed, same-filled or kept raw.
    PagesStored "swap_out_pages",
    /// Pages stored that held one repeated word and cost no storage.
    SameFilled "same_filled_pages",
    /// Pages that still equalled their kept copy when they were taken out again.
    PagesUnchanged "unchanged_pages",
    /// Bytes that stored pages took, after compression.
    BytesStored "swap_out_bytes",
    /// Pages written back to disk.
    PagesWrittenBack "written_back_pages",
    /// Nanoseconds from reading a fault to its page being placed.
    StallNs "stall_ns",
    /// Nanoseconds of all stalls for pages in limbo, without waits for a turn.
    LimboStallNs "limbo_stall_ns",
    /// Nanoseconds of all stalls for pages that were compressed in memory, without waits for a
    /// turn.
    PoolStallNs "pool_stall_ns",
    /// Nanoseconds of all stalls for pages that were read from disk meanwhile, without waits for a
    /// turn.
    DiskStallNs "disk_stall_ns",
    /// Faults that waited for the turn of their process (load control).
    TurnWaits "turn_waits",
    /// Nanoseconds of all stalls that were waits for a turn.
    TurnWaitNs "turn_wait_ns",
    /// Nanoseconds during which idle memory was looked for, while the budget asked for nothing.
    IdleNs "idle_ns",
    /// Nanoseconds of `idle_ns` for which threads waited for pages that had been taken, wake-up
    /// included.
    IdleStallNs "idle_stall_ns",
    /// Pages taken as samples of their neighbours.
    IdleSamples "idle_samples",
    /// Samples that were touched before they counted as idle.
    IdleSamplesTouched "idle_samples_touched",
    /// Pages taken because they were idle.
    IdlePages "idle_pages",
    /// Pages saved times the milliseconds for which they were saved, while idle memory was wanted.
    SavedPageMs "saved_page_ms",
    /// Bytes of compressed pages moved closer together.
    BytesCompacted "compacted_bytes",
    /// Pages moved out of the program.
    PagesMoved "moved_pages",
    /// Pages that could not be brought back and were poisoned.
    PagesPoisoned "poisoned_pages",
    /// Pages thought to be in place that were not: given up by the program (MADV_FREE) and dropped
    /// by the kernel, so that they read as zeros; or unmapped a moment before.
    PagesDropped "dropped_pages",
    /// Forks of managed processes.
    Forks "forks",
    /// Children of managed forks that took over everything their parent had, away or not.
    Heirs "heirs",
    /// Writes, to pages shared with relatives since a fork, that waited for room for the copy.
    CopyFaults "copy_faults",
    /// Pages brought back for a fork whose child could not bring them back.
    ForkPages "fork_pages",
    /// Times the service changed its processor to follow the program.
    Migrations "migrations",
    /// Nanoseconds of processor time that the service used.
    ServiceNs "service_ns",
    /// Blocks of 2 MiB of our own memory that were wholly free at the last look.
    HugeBlocksAvailable "huge_blocks_available",
    /// Blocks of 2 MiB whose memory went back to the system as a whole.
    BlocksReturned "blocks_returned",
}

/// The names of what a process holds now. The values come from `held`, and the last ones, of what
/// the program has, from `Tally::set_program`.
const HELD: &[&str] = &[
    // Frames of the pool, and pages stored anywhere.
    "pool_pages",
    "stored_pages",
    // Writes to disk under way.
    "outstanding_flushes",
    // Bytes of the objects in the pool.
    "pool_bytes",
    // Stored pages that are in the pool, those of them that are in a former pool, and pages on
    // disk.
    "in_pool_pages",
    "draining_pages",
    "on_disk_pages",
    // Stored pages that are dense, and pages of the pool that recompression has not looked at.
    "dense_pages",
    "young_pages",
    // Slots of the file in use, 64 KiB each.
    "slots_used",
    // Bytes of tables, buffers and codecs.
    "table_bytes",
    // Bytes of pages that are away, less what the process holds in memory for them.
    "saved_bytes",
    // Frames of the two zones that hold memory, and of the tables that describe frames and blocks.
    "core_pages",
    "easy_reclaim_pages",
    "descriptor_pages",
    // Pages of the program that are in place in memory, and pages in limbo.
    "resident_pages",
    "limbo_pages",
];
/// The number of names that are of the program, not of the store.
const OF_PROGRAM: usize = 2;

fn held(
    stats: &Stats,
    frames: &FrameStats,
    draining: PageCount,
    saved: Bytes,
) -> [u64; HELD.len() - OF_PROGRAM] {
    [
        stats.pool_pages.0 as u64,
        stats.stored_pages.0 as u64,
        stats.outstanding_flushes.into(),
        stats.pool_bytes.0 as u64,
        stats.in_pool_pages.0 as u64,
        draining.0 as u64,
        stats.written_back_pages.0 as u64,
        stats.dense_pages.0 as u64,
        stats.young_pages.0 as u64,
        stats.slots_used.into(),
        stats.memory.0 as u64,
        saved.0 as u64,
        frames.zone(Mobility::Core).held.0 as u64,
        frames.zone(Mobility::EasyReclaim).held.0 as u64,
        frames.tables.0 as u64,
    ]
}

/// The number of classes of a latency. A latency counts in the lowest class n for which it is below
/// 2^(n+1) ns; the last class counts everything longer too (from 2 s).
pub const LATENCY_CLASSES: usize = 32;

/// The classes of refault distances: four of four units each, then four to each power of two.
pub const REFAULT_CLASSES: usize = refault_class(UNITS_MAX) + 1;
/// The thousandths of what a process may hold.
const PERMILLE: usize = 1000;

/// Returns the class of a refault distance.
const fn refault_class(units: u16) -> usize {
    if units < 16 {
        return units as usize / 4;
    }
    let power = units.ilog2();
    (power as usize - 3) * 4 + (units >> (power - 2) & 3) as usize
}

/// Returns the bound of a class of refault distances, in thousandths of what a process may hold.
const fn refault_bound(class: usize) -> usize {
    let units = if class < 4 { (class + 1) * 4 } else { (class % 4 + 5) << (class / 4 + 1) };
    (units * PERMILLE).div_ceil(UNITS_PER_SHARE)
}

/// A group of words of a tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The [`Counter`]s.
    Counters,
    /// The events that zswap counts, see [`Counters`].
    Zswap,
    /// The amounts that zswap holds now.
    Held,
    /// Latencies of faults, from reading a fault to its page being placed, in classes of powers of
    /// two of nanoseconds.
    FaultNs,
    /// Latencies of loads from zswap, in the same classes. They do not include the time that a page
    /// takes to come from disk.
    LoadNs,
    /// Latencies of stores to zswap, in the same classes.
    StoreNs,
    /// Sizes of stored pages, see [`SIZE_CLASSES`].
    Sizes,
    /// The time that pages loaded from the pool had been there, see [`AGE_CLASSES`].
    LoadedAges,
    /// The time that pages sent off to be written back had been in the pool.
    FlushedAges,
    /// Faults on stored pages by their refault distance: how much was stored since the page was, as
    /// a part of what the process may hold.
    Refaults,
    /// Nanoseconds of the stalls for such faults, waits for a turn included, by the same.
    RefaultNs,
}

/// The index at which each group ends.
const ENDS: [usize; 11] = {
    let lengths = [
        Counter::ALL.len(),
        Counters::NAMES.len(),
        HELD.len(),
        LATENCY_CLASSES,
        LATENCY_CLASSES,
        LATENCY_CLASSES,
        SIZE_CLASSES,
        AGE_CLASSES,
        AGE_CLASSES,
        REFAULT_CLASSES,
        REFAULT_CLASSES,
    ];
    let mut ends = lengths;
    let mut index = 1;
    while index < ends.len() {
        ends[index] += ends[index - 1];
        index += 1;
    }
    ends
};
pub(crate) const WORDS: usize = ENDS[ENDS.len() - 1];
/// The highest value that anything counts to: 292 years of nanoseconds, or a tebibyte saved for a
/// year by the page and millisecond. Any process of a run may have written a word, so higher ones
/// are ignored.
const WORD_MAX: u64 = i64::MAX.cast_unsigned();

impl Group {
    /// Returns the names of the group's words; none for a histogram.
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Zswap => Counters::NAMES,
            Self::Held => HELD,
            _ => &[],
        }
    }

    /// Returns the bound that all values in this class of a histogram are below.
    pub const fn bound(self, class: usize) -> usize {
        match self {
            Self::Sizes => (class + 1) * SIZE_CLASS_BYTES + 1,
            Self::Refaults | Self::RefaultNs => refault_bound(class),
            Self::LoadedAges | Self::FlushedAges => (AGE_CLASS_MS as usize) << class,
            _ => 2 << class,
        }
    }

    /// Returns the indexes of the group's words.
    const fn range(self) -> Range<usize> {
        let index = self as usize;
        let start = if index == 0 { 0 } else { ENDS[index - 1] };
        start..ENDS[index]
    }
}

/// The words of one process.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Tally {
    words: [AtomicU64; WORDS],
}

impl Tally {
    /// Adds `amount` to a counter. For the owner.
    pub fn add(&self, counter: Counter, amount: u64) {
        self.add_to(Group::Counters.range().start + counter as usize, amount);
    }

    /// Replaces a counter by a total kept elsewhere. For the owner.
    pub fn set(&self, counter: Counter, total: u64) {
        self.words[Group::Counters.range().start + counter as usize]
            .store(total, Ordering::Relaxed);
    }

    /// Replaces a counter by a total that may seem to fall, as one of ticks does when these are
    /// measured better. A counter never falls. For the owner.
    pub fn raise(&self, counter: Counter, total: u64) {
        self.set(counter, total.max(self.get(counter)));
    }

    /// Reads a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.words[Group::Counters.range().start + counter as usize].load(Ordering::Relaxed)
    }

    /// Counts a latency in `group`, which must be a group of latencies. For the owner.
    pub fn note_latency(&self, group: Group, ns: u64) {
        let class = (ns | 1).ilog2() as usize;
        self.add_to(group.range().start + class.min(LATENCY_CLASSES - 1), 1);
    }

    /// Counts a fault on a page with this refault distance, and its stall. For the owner.
    pub fn note_refault(&self, units: u16, stall_ns: u64) {
        let class = refault_class(units);
        self.add_to(Group::Refaults.range().start + class, 1);
        self.add_to(Group::RefaultNs.range().start + class, stall_ns);
    }

    /// Copies in what zswap counted and holds in its `frames`, the number of its pages that are
    /// `draining` from a former pool, and the bytes `saved`. For the owner.
    pub fn set_zswap(&self, stats: &Stats, frames: &FrameStats, draining: PageCount, saved: Bytes) {
        self.set_group(Group::Zswap, &stats.counters.values());
        self.set_group(Group::Held, &held(stats, frames, draining, saved));
        self.set_group(Group::Sizes, &stats.sizes);
        self.set_group(Group::LoadedAges, &stats.loaded_ages);
        self.set_group(Group::FlushedAges, &stats.flushed_ages);
    }

    /// Sets what the program has in memory, in place, and in `limbo`. For the owner.
    pub fn set_program(&self, resident: PageCount, limbo: PageCount) {
        let words = &self.words[Group::Held.range()][HELD.len() - OF_PROGRAM..];
        for (word, pages) in words.iter().zip([resident, limbo]) {
            word.store(pages.0 as u64, Ordering::Relaxed);
        }
    }

    /// Sets every word to zero. For the launcher, while there is no owner.
    pub fn clear(&self) {
        for word in &self.words {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn add_to(&self, index: usize, amount: u64) {
        let word = &self.words[index];
        word.store(word.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    fn set_group(&self, group: Group, values: &[u64]) {
        for (word, value) in self.words[group.range()].iter().zip(values) {
            word.store(*value, Ordering::Relaxed);
        }
    }
}

/// The sum of tallies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    words: [u64; WORDS],
}

impl Default for Figures {
    fn default() -> Self {
        Self { words: [0; WORDS] }
    }
}

impl Figures {
    /// Adds the words of a process, except those that no process can have counted.
    pub fn add(&mut self, tally: &Tally) {
        self.add_words(tally, 0..WORDS);
    }

    /// Adds the words of these groups alone, for readers that come often.
    pub fn add_groups(&mut self, tally: &Tally, groups: &[Group]) {
        groups.iter().for_each(|group| self.add_words(tally, group.range()));
    }

    fn add_words(&mut self, tally: &Tally, range: Range<usize>) {
        for (sum, word) in self.words[range.clone()].iter_mut().zip(&tally.words[range]) {
            let word = Some(word.load(Ordering::Relaxed)).filter(|word| *word <= WORD_MAX);
            *sum = sum.saturating_add(word.unwrap_or(0)).min(WORD_MAX);
        }
    }

    /// Adds the words of other sums.
    pub fn include(&mut self, other: &Self) {
        for (sum, word) in self.words.iter_mut().zip(other.words) {
            *sum = sum.saturating_add(word).min(WORD_MAX);
        }
    }

    /// Adds the words of a process that has ended, which holds nothing any more.
    pub fn add_ended(&mut self, tally: &Tally) {
        let held: [u64; HELD.len()] = core::array::from_fn(|at| self.group(Group::Held)[at]);
        self.add(tally);
        self.words[Group::Held.range()].copy_from_slice(&held);
    }

    /// Returns the sum of a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.group(Group::Counters)[counter as usize]
    }

    /// Returns the amount held of this name, 0 where no amount has that name.
    pub fn held(&self, name: &str) -> u64 {
        let mut all = HELD.iter().zip(self.group(Group::Held));
        all.find(|(known, _)| **known == name).map_or(0, |(_, value)| *value)
    }

    /// Returns the words of a group.
    pub fn group(&self, group: Group) -> &[u64] {
        &self.words[group.range()]
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a figure reported under another's name.

    use std::boxed::Box;
    use std::collections::BTreeSet;

    use super::*;

    fn tally() -> Box<Tally> {
        Box::new(Tally { words: core::array::from_fn(|_| AtomicU64::new(0)) })
    }

    /// Frames that hold memory: 12 of core, 13 easily reclaimed, and 14 of descriptors.
    fn frames() -> FrameStats {
        let mut frames = FrameStats { tables: PageCount(14), ..FrameStats::default() };
        frames.zones[Mobility::Core as usize].held = PageCount(12);
        frames.zones[Mobility::EasyReclaim as usize].held = PageCount(13);
        frames
    }

    #[test]
    fn every_word_has_a_place_of_its_own() {
        let tally = tally();
        for (index, counter) in Counter::ALL.iter().enumerate() {
            tally.add(*counter, 1);
            tally.set(*counter, tally.get(*counter) + index as u64);
            tally.raise(*counter, 0);
        }
        let mut stats = Stats::default();
        stats.counters.renamed = 5;
        stats.sizes[SIZE_CLASSES - 1] = 6;
        stats.memory.0 = 7;
        (stats.loaded_ages[0], stats.flushed_ages[AGE_CLASSES - 1]) = (8, 9);
        tally.set_zswap(&stats, &frames(), PageCount(10), Bytes(11));
        tally.set_program(PageCount(15), PageCount(16));
        tally.note_refault(3, 17);
        tally.note_refault(UNITS_MAX, 18);
        tally.note_latency(Group::FaultNs, 5);
        tally.note_latency(Group::LoadNs, 0);
        tally.note_latency(Group::LoadNs, 1023);
        tally.note_latency(Group::StoreNs, 1024);
        tally.note_latency(Group::StoreNs, u64::MAX);
        let mut figures = Figures::default();
        figures.add(&tally);
        for (index, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(figures.get(*counter), 1 + index as u64, "{counter:?}");
        }
        let renamed = Counters::NAMES.iter().position(|name| *name == "renamed").unwrap();
        assert_eq!(figures.group(Group::Zswap)[renamed], 5);
        assert_eq!(
            figures.group(Group::Held),
            [0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 7, 11, 12, 13, 14, 15, 16]
        );
        assert_eq!(figures.group(Group::Sizes)[SIZE_CLASSES - 1], 6);
        assert_eq!(figures.group(Group::LoadedAges)[0], 8);
        assert_eq!(figures.group(Group::FlushedAges)[AGE_CLASSES - 1], 9);
        assert_eq!(figures.group(Group::Refaults)[0], 1);
        assert_eq!(figures.group(Group::RefaultNs)[0], 17);
        assert_eq!(figures.group(Group::RefaultNs)[REFAULT_CLASSES - 1], 18);
        let classes = |group| -> std::vec::Vec<_> {
            (0..LATENCY_CLASSES).filter(|class| figures.group(group)[*class] == 1).collect()
        };
        assert_eq!(classes(Group::FaultNs), [2]);
        assert_eq!(classes(Group::LoadNs), [0, 9]);
        assert_eq!(classes(Group::StoreNs), [10, 31]);
        let sum: u64 = figures.words.iter().sum();
        let counters: u64 = (1..=Counter::ALL.len() as u64).sum();
        assert_eq!(sum, counters + (5..=18).sum::<u64>() + 7);
        let mut some = Figures::default();
        some.add_groups(&tally, &[Group::Counters, Group::Held]);
        assert_eq!(some.group(Group::Held), figures.group(Group::Held));
        assert_eq!(some.get(Counter::Forks), figures.get(Counter::Forks));
        assert_eq!(some.group(Group::Zswap).iter().sum::<u64>(), 0);
        let mut both = Figures::default();
        (0..2).for_each(|_| both.include(&figures));
        figures.add(&tally);
        assert_eq!(both, figures);
        tally.clear();
        let mut cleared = Figures::default();
        cleared.add(&tally);
        assert_eq!(cleared, Figures::default());
    }

    #[test]
    fn a_refault_distance_is_below_the_bound_of_its_class_and_of_no_lower_one() {
        let units = |class| refault_bound(class) * UNITS_PER_SHARE / PERMILLE;
        for distance in 0..=UNITS_MAX {
            let class = refault_class(distance);
            assert!(usize::from(distance) < units(class), "{distance} in {class}");
            let begins = class == 0 || usize::from(distance) >= units(class - 1);
            assert!(begins, "{distance} in {class}");
        }
        assert_eq!([0, 3, 31].map(refault_bound), [21, 84, 10_667]);
    }

    #[test]
    fn what_cannot_have_been_counted_is_not_summed() {
        let tally = tally();
        tally.set(Counter::Faults, 3);
        let mut figures = Figures::default();
        figures.add(&tally);
        tally.set(Counter::Faults, WORD_MAX + 1);
        figures.add(&tally);
        assert_eq!(figures.get(Counter::Faults), 3);
        tally.set(Counter::Faults, WORD_MAX);
        figures.add(&tally);
        figures.add(&tally);
        assert_eq!(figures.get(Counter::Faults), WORD_MAX);
    }

    #[test]
    fn who_has_ended_holds_nothing() {
        let tally = tally();
        let mut stats = Stats::default();
        (stats.memory.0, stats.counters.renamed) = (7, 1);
        tally.set_zswap(&stats, &frames(), PageCount(0), Bytes(3));
        tally.set_program(PageCount(15), PageCount(16));
        let mut figures = Figures::default();
        figures.add(&tally);
        figures.add_ended(&tally);
        assert_eq!(figures.group(Group::Held)[HELD.len() - 7..], [7, 3, 12, 13, 14, 15, 16]);
        assert_eq!(figures.group(Group::Zswap).iter().sum::<u64>(), 2);
    }

    #[test]
    fn no_two_figures_have_one_name() {
        let counters = Counter::ALL.iter().map(|counter| counter.key());
        let knobs = crate::knobs::Knob::ALL.iter().map(|knob| knob.name());
        let all = || counters.clone().chain(Counters::NAMES.iter().copied());
        let all = all().chain(HELD.iter().copied()).chain(knobs);
        assert_eq!(all.clone().collect::<BTreeSet<_>>().len(), all.count());
    }
}
