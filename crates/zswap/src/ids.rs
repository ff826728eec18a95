//! Names inside the store: of an entry, of a page on its way, and how many shards there are.
//!
//! They are numbers of 16 and 32 bits that are only passed on. What they name lives in `entry`,
//! `outgoing` and `shard`, which all use them.

use core::num::NonZeroU32;

/// Shards of a store; a power of two. The more there are, the more rarely callers that look up
/// pages at the same time meet; but a small store wastes a chunk of entries in each.
pub(crate) const SHARDS: usize = if cfg!(loom) { 2 } else { 8 };
const SHARDS_NONZERO: NonZeroU32 = NonZeroU32::new(SHARDS as u32).expect("there are shards");

/// The highest number of an entry in its shard.
const NUMBER_MAX: u32 = u32::MAX / SHARDS as u32 - 1;

/// Batches that may be under way at a time: one is gathered while another is written. If the disk
/// falls behind, the pool grows; it keeps the pages anyway.
pub(crate) const BATCHES: usize = 2;
/// Most pages of a batch. Objects of 64 bytes and more fill a batch with fewer.
pub(crate) const MEMBERS_MAX: usize = 1024;
const _: () = assert!(BATCHES * MEMBERS_MAX <= 1 << u16::BITS);

/// The name of an entry: one more than its position in the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryId(NonZeroU32);

impl EntryId {
    /// Returns the entry at `position`, or `None` if its number would be too high.
    pub(crate) fn at(position: usize) -> Option<Self> {
        let number = u32::try_from(position + 1).ok().filter(|number| *number <= NUMBER_MAX)?;
        NonZeroU32::new(number).map(Self)
    }

    /// Returns the position in the chunks of the shard.
    pub(crate) fn position(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The name of an entry of any shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageId(NonZeroU32);

impl PageId {
    /// Returns the name of entry `number` of `shard`.
    pub(crate) fn new(shard: usize, EntryId(number): EntryId) -> Self {
        // Below 2^32, because the number is at most NUMBER_MAX and the shard below SHARDS.
        Self(number.saturating_mul(SHARDS_NONZERO).saturating_add(shard as u32))
    }

    /// Returns the shard, and the entry in it.
    pub(crate) fn parts(self) -> (usize, EntryId) {
        let (shard, number) = (self.0.get() % SHARDS as u32, self.0.get() / SHARDS as u32);
        // Not zero, because `new` began with a number that is not.
        (shard as usize, EntryId(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)))
    }
}

/// The place of a batch and the index of a page in it, as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member(u16);

impl Member {
    /// Returns the member for page `index` of the batch in place `batch`; `index` is below
    /// [`MEMBERS_MAX`].
    pub(crate) fn new(batch: usize, index: usize) -> Self {
        Self((batch * MEMBERS_MAX + index) as u16)
    }

    /// Returns the place of the batch, and the index in it.
    pub(crate) fn parts(self) -> (usize, usize) {
        let number = usize::from(self.0);
        (number / MEMBERS_MAX, number % MEMBERS_MAX)
    }
}
