//! The words in which the model keeps its notes about frames.

/// The mark for no record, at the end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// The kind of a frame that is a slab.
const SLAB: u64 = 5;
/// The number of words in a cache line.
const LINE_WORDS: usize = 8;

/// Words that start at a cache line and are not touched before use.
pub(super) struct Words {
    memory: Vec<u64>,
    start: usize,
}

impl Words {
    pub(super) fn new(count: usize) -> Self {
        // Zeros come straight from the kernel, page by page as they are touched.
        let memory = vec![0_u64; count + LINE_WORDS];
        let start = memory.as_ptr().align_offset(LINE_WORDS * size_of::<u64>());
        assert!(start < LINE_WORDS, "words are aligned to words");
        Self { memory, start }
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> u64 {
        self.memory[self.start + index]
    }

    #[inline]
    pub(super) fn set(&mut self, index: usize, word: u64) {
        self.memory[self.start + index] = word;
    }
}

/// Splits a word into its two halves.
const fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

const fn word(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The notes about frames. A record is the name of a slab's notes.
pub(super) trait Layout {
    /// Makes notes about `frames` frames, none of them a slab.
    fn new(frames: usize) -> Self;
    /// Turns a frame into a slab of `cache`, with an empty pair. Returns its record.
    fn open(&mut self, frame: u32, cache: u32) -> u32;
    /// Turns a slab into a free frame.
    fn close(&mut self, record: u32);
    /// Returns the record and the cache of a slab.
    fn find(&self, frame: u32) -> (u32, u32);
    /// Returns the frame of a record.
    fn frame(&self, record: u32) -> u32;
    /// Returns freelist and counters.
    fn pair(&self, record: u32) -> (u64, u64);
    fn set_pair(&mut self, record: u32, pair: (u64, u64));
    fn next(&self, record: u32) -> u32;
    fn prev(&self, record: u32) -> u32;
    fn set_next(&mut self, record: u32, next: u32);
    fn set_prev(&mut self, record: u32, prev: u32);
}

/// The layout of struct page: `WORDS` is 8 with padding, 7 without.
pub(super) struct Wide<const WORDS: usize>(Words);

impl<const WORDS: usize> Wide<WORDS> {
    const NEXT: usize = 4;
    const PREV: usize = 5;
    const CACHE: usize = 6;

    #[inline]
    const fn at(frame: u32, word: usize) -> usize {
        frame as usize * WORDS + word
    }

    /// Returns the first aligned place for two words behind word 0.
    #[inline]
    const fn pair_at(frame: u32) -> usize {
        Self::at(frame, 1).next_multiple_of(2)
    }
}

impl<const WORDS: usize> Layout for Wide<WORDS> {
    fn new(frames: usize) -> Self {
        Self(Words::new(frames * WORDS))
    }

    #[inline]
    fn open(&mut self, frame: u32, cache: u32) -> u32 {
        self.0.set(Self::at(frame, 0), SLAB);
        self.0.set(Self::at(frame, Self::CACHE), u64::from(cache));
        self.set_pair(frame, (0, 0));
        frame
    }

    #[inline]
    fn close(&mut self, record: u32) {
        self.0.set(Self::at(record, 0), 0);
    }

    #[inline]
    fn find(&self, frame: u32) -> (u32, u32) {
        assert_eq!(self.0.get(Self::at(frame, 0)), SLAB);
        (frame, self.0.get(Self::at(frame, Self::CACHE)) as u32)
    }

    #[inline]
    fn frame(&self, record: u32) -> u32 {
        record
    }

    #[inline]
    fn pair(&self, record: u32) -> (u64, u64) {
        let at = Self::pair_at(record);
        (self.0.get(at), self.0.get(at + 1))
    }

    #[inline]
    fn set_pair(&mut self, record: u32, (freelist, counters): (u64, u64)) {
        let at = Self::pair_at(record);
        self.0.set(at, freelist);
        self.0.set(at + 1, counters);
    }

    #[inline]
    fn next(&self, record: u32) -> u32 {
        self.0.get(Self::at(record, Self::NEXT)) as u32
    }

    #[inline]
    fn prev(&self, record: u32) -> u32 {
        self.0.get(Self::at(record, Self::PREV)) as u32
    }

    #[inline]
    fn set_next(&mut self, record: u32, next: u32) {
        self.0.set(Self::at(record, Self::NEXT), u64::from(next));
    }

    #[inline]
    fn set_prev(&mut self, record: u32, prev: u32) {
        self.0.set(Self::at(record, Self::PREV), u64::from(prev));
    }
}

/// The number of words in a record of 32 bytes.
const RECORD_WORDS: usize = 4;

/// Records of 32 bytes: owner, links, pair.
struct Records(Words);

impl Records {
    #[inline]
    const fn at(record: u32, word: usize) -> usize {
        record as usize * RECORD_WORDS + word
    }

    #[inline]
    fn owner(&self, record: u32) -> (u32, u32) {
        halves(self.0.get(Self::at(record, 0)))
    }

    #[inline]
    fn set_owner(&mut self, record: u32, low: u32, high: u32) {
        self.0.set(Self::at(record, 0), word(low, high));
    }

    #[inline]
    fn links(&self, record: u32) -> (u32, u32) {
        halves(self.0.get(Self::at(record, 1)))
    }

    #[inline]
    fn set_links(&mut self, record: u32, next: u32, prev: u32) {
        self.0.set(Self::at(record, 1), word(next, prev));
    }

    #[inline]
    fn pair(&self, record: u32) -> (u64, u64) {
        (self.0.get(Self::at(record, 2)), self.0.get(Self::at(record, 3)))
    }

    #[inline]
    fn set_pair(&mut self, record: u32, (freelist, counters): (u64, u64)) {
        self.0.set(Self::at(record, 2), freelist);
        self.0.set(Self::at(record, 3), counters);
    }
}

/// Writes the methods of [`Layout`] that both owners of [`Records`] have alike.
macro_rules! records_hold_the_rest {
    () => {
        #[inline]
        fn pair(&self, record: u32) -> (u64, u64) {
            self.records.pair(record)
        }

        #[inline]
        fn set_pair(&mut self, record: u32, pair: (u64, u64)) {
            self.records.set_pair(record, pair);
        }

        #[inline]
        fn next(&self, record: u32) -> u32 {
            self.records.links(record).0
        }

        #[inline]
        fn prev(&self, record: u32) -> u32 {
            self.records.links(record).1
        }

        #[inline]
        fn set_next(&mut self, record: u32, next: u32) {
            self.records.set_links(record, next, self.prev(record));
        }

        #[inline]
        fn set_prev(&mut self, record: u32, prev: u32) {
            self.records.set_links(record, self.next(record), prev);
        }
    };
}

/// The layout with a record in the place of a descriptor.
pub(super) struct Inline {
    records: Records,
}

impl Layout for Inline {
    fn new(frames: usize) -> Self {
        Self { records: Records(Words::new(frames * RECORD_WORDS)) }
    }

    #[inline]
    fn open(&mut self, frame: u32, cache: u32) -> u32 {
        self.records.set_owner(frame, SLAB as u32, cache);
        self.set_pair(frame, (0, 0));
        frame
    }

    #[inline]
    fn close(&mut self, record: u32) {
        self.records.set_owner(record, 0, 0);
    }

    #[inline]
    fn find(&self, frame: u32) -> (u32, u32) {
        let (kind, cache) = self.records.owner(frame);
        assert_eq!(u64::from(kind), SLAB);
        (frame, cache)
    }

    #[inline]
    fn frame(&self, record: u32) -> u32 {
        record
    }

    records_hold_the_rest!();
}

/// The layout with a word for each frame, and for each slab a record, taken from the lowest free
/// ones.
pub(super) struct Aside {
    words: Words,
    records: Records,
    /// The first record never used.
    unused: u32,
    /// The last record given back, the start of a list through `next`.
    spare: u32,
}

impl Layout for Aside {
    fn new(frames: usize) -> Self {
        Self {
            words: Words::new(frames),
            records: Records(Words::new(frames * RECORD_WORDS)),
            unused: 0,
            spare: NONE,
        }
    }

    #[inline]
    fn open(&mut self, frame: u32, cache: u32) -> u32 {
        let record = if self.spare == NONE {
            self.unused += 1;
            self.unused - 1
        } else {
            let record = self.spare;
            self.spare = self.next(record);
            record
        };
        self.words.set(frame as usize, word(SLAB as u32, record));
        self.records.set_owner(record, frame, cache);
        self.set_pair(record, (0, 0));
        record
    }

    #[inline]
    fn close(&mut self, record: u32) {
        self.words.set(self.frame(record) as usize, 0);
        self.set_next(record, self.spare);
        self.spare = record;
    }

    #[inline]
    fn find(&self, frame: u32) -> (u32, u32) {
        let (kind, record) = halves(self.words.get(frame as usize));
        assert_eq!(u64::from(kind), SLAB);
        (record, self.records.owner(record).1)
    }

    #[inline]
    fn frame(&self, record: u32) -> u32 {
        self.records.owner(record).0
    }

    records_hold_the_rest!();
}
