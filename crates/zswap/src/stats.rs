//! Counters, one per outcome, and what is held now.
//!
//! The thirteen figures of zswap v4 (the mail) keep their names: ten counters and, in [`Stats`],
//! `pool_pages`, `stored_pages` and `outstanding_flushes`.

use core::sync::atomic::{AtomicU64, Ordering};

use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

/// Declares the counters once, as fields and as lists of names and values.
macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Counters since the store was made. They only grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// The names of the counters, in the order of their declaration.
            pub const NAMES: &[&str] = &[$(stringify!($name)),+];

            /// Returns the values, in the order of [`Counters::NAMES`].
            pub const fn values(&self) -> [u64; Self::NAMES.len()] {
                [$(self.$name),+]
            }
        }

        /// The counters of a shard, for any number of threads. Their sums over all shards are
        /// [`Counters`] and the classes of [`Stats`].
        #[derive(Debug, Default)]
        pub(crate) struct Counted {
            $(pub(crate) $name: Count,)+
            sizes: [Count; SIZE_CLASSES],
            loaded_ages: [Count; AGE_CLASSES],
            flushed_ages: [Count; AGE_CLASSES],
        }

        impl Counted {
            /// Adds the counters, without the classes, to the sums.
            pub(crate) fn add_to(&self, counters: &mut Counters) {
                $(counters.$name += self.$name.get();)+
            }
        }
    };
}

counters! {
    /// Pages stored as a repeated word, without storage.
    stored_same_filled,
    /// Pages stored compressed.
    stored_compressed,
    /// Bytes of the pages counted in `stored_compressed`, after compression.
    compressed_bytes,
    /// Pages that compressed poorly and were stored as they are.
    stored_incompressible,
    /// Pages that a helper had compressed, or found incompressible, before they were stored.
    stored_by_helper,
    /// Stores that replaced a page under the same key.
    duplicate_entry,
    /// Pages refused because the store is switched off.
    reject_disabled,
    /// Pages refused because they compressed poorly.
    reject_compress_poor,
    /// Pages refused by the running-mean limit.
    reject_mean_poor,
    /// Pages refused because the pool had been full and is not below its accept threshold yet.
    reject_accept_threshold,
    /// Stores that met the pool at the limit where writeback begins.
    pool_limit_hit,
    /// Stores for which the pool had no room, so that writing back was tried.
    reject_flush_attempted,
    /// Stores that found room after writing back.
    saved_by_flush,
    /// Pages refused because the pool had no room even so.
    reject_zsmalloc_fail,
    /// Pages refused, or renames, because there was no memory for an entry or its place in the
    /// index.
    reject_kmemcache_fail,
    /// Batches not begun because every buffer to write back through was under way.
    reject_tmppage_fail,
    /// Pages written back.
    flushed_pages,
    /// Bytes written back, with the tags of their seals.
    flushed_bytes,
    /// Batches that could not be written back. Their pages stayed in the pool.
    reject_flush_fail,
    /// Batches not begun because writing back had failed shortly before.
    flush_skipped,
    /// Batches not begun because the backing store has no free slot.
    reject_backing_full,
    /// Batches not begun because writing back is switched off.
    reject_writeback_off,
    /// Batches not begun because the bytes of this period are used up.
    reject_writeback_limit,
    /// Pages that writeback passed over once, because they had been loaded.
    second_chances,
    /// Slots of the backing store given back, because their last page had gone.
    slots_discarded,
    /// Loads served by repeating a word.
    loaded_same_filled,
    /// Loads served from the pool.
    loaded_from_pool,
    /// Loads of dense pages, among those from the pool.
    loaded_dense,
    /// Loads served from the backing store.
    loaded_from_backing,
    /// Loads that found a page still being read back, and did not wait for it.
    load_coming,
    /// Loads of a key that has no page.
    load_missed,
    /// Loads refused because the bytes were damaged.
    load_corrupt,
    /// Loads refused because the backing store failed.
    load_backing_fail,
    /// Pages dropped because they are no longer wanted.
    invalidated,
    /// Pages renamed.
    renamed,
    /// Changes of the codec, or of its level.
    codec_switched,
    /// Changes of the knobs refused because the codec could not be made.
    reject_codec_fail,
    /// Dictionaries made of stored pages.
    dictionaries,
    /// Dictionaries not made because there was no memory for them.
    reject_dictionary_fail,
    /// Pages compressed again, densely.
    recompressed_pages,
    /// Bytes by which the pages counted in `recompressed_pages` became smaller.
    recompressed_saved_bytes,
    /// Pages left as they are because dense ones would hardly be smaller.
    reject_recompress_poor,
    /// Pages left as they are because they were loaded after writeback last looked at them.
    reject_recompress_loaded,
    /// Pages not made denser yet because the pool had no room for another object.
    reject_recompress_full,
    /// Pages left as they are because they are damaged. Their loads will say so.
    reject_recompress_corrupt,
    /// Pages moved to the pool that is in use now.
    drained_pages,
    /// Pages not moved to that pool yet because it had no room for another object.
    reject_drain_full,
}

/// A count that any thread may raise.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Raises the count by `more`.
    pub(crate) fn add(&self, more: u64) {
        if more > 0 {
            // Relaxed: a count publishes nothing else.
            self.0.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Returns the count.
    pub(crate) fn get(&self) -> u64 {
        // Relaxed: as above.
        self.0.load(Ordering::Relaxed)
    }
}

/// Width of a class of sizes, in bytes.
pub const SIZE_CLASS_BYTES: usize = 256;
/// Number of classes of the sizes of objects when they were stored, up to a whole page: class `n`
/// counts objects of more than `n * SIZE_CLASS_BYTES` bytes that are in no higher class.
pub const SIZE_CLASSES: usize = PAGE_BYTES / SIZE_CLASS_BYTES;

/// Upper bound of the first class of ages, in milliseconds; its ages are below this.
pub const AGE_CLASS_MS: u64 = 16;
/// Number of classes of the times that pages had been in the pool, up to 70 minutes, and longer.
/// Class `n` counts times of less than `AGE_CLASS_MS << n` milliseconds that are in no lower class;
/// the last class counts all others. The time of a page that writeback passed over begins anew. How
/// exact the classes are depends on the calls of [`crate::Zswap::note_time`]; a class is missed by
/// a quarter or a second.
pub const AGE_CLASSES: usize = 20;

impl Counted {
    /// Counts a page in its class of ages when it is loaded from the pool.
    pub(crate) fn note_loaded_age(&self, class: usize) {
        self.loaded_ages[class].add(1);
    }

    /// Counts a page in its class of ages when it is about to be written back.
    pub(crate) fn note_flushed_age(&self, class: usize) {
        self.flushed_ages[class].add(1);
    }

    /// Adds the classes to the sums.
    pub(crate) fn add_classes(&self, stats: &mut Stats) {
        let add = |sums: &mut [u64], counts: &[Count]| {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count.get());
        };
        add(&mut stats.sizes, &self.sizes);
        add(&mut stats.loaded_ages, &self.loaded_ages);
        add(&mut stats.flushed_ages, &self.flushed_ages);
    }

    /// Counts an object of `length`, which is 1 byte to a page.
    pub(crate) fn note_size(&self, length: Bytes) {
        debug_assert!((1..=PAGE_BYTES).contains(&length.0), "{length:?} is no object's length");
        let class = length.0.saturating_sub(1) / SIZE_CLASS_BYTES;
        self.sizes[class.min(SIZE_CLASSES - 1)].add(1);
    }
}

/// Counters, and what is held now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Counters since the store was made.
    pub counters: Counters,
    /// Sizes of the objects stored since then, see [`SIZE_CLASSES`].
    pub sizes: [u64; SIZE_CLASSES],
    /// Times that the pages loaded from the pool had been there, see [`AGE_CLASSES`].
    pub loaded_ages: [u64; AGE_CLASSES],
    /// Times that the pages sent to the backing store had been in the pool. Pages of a failed write
    /// are the oldest of the pool from then on, and will be counted again.
    pub flushed_ages: [u64; AGE_CLASSES],
    /// Frames the pool holds.
    pub pool_pages: PageCount,
    /// Bytes of the objects in the pool.
    pub pool_bytes: Bytes,
    /// Pages stored, wherever they are.
    pub stored_pages: PageCount,
    /// Batches under way to the backing store.
    pub outstanding_flushes: u32,
    /// Stored pages that are a repeated word.
    pub same_filled_pages: PageCount,
    /// Stored pages that are in the pool.
    pub in_pool_pages: PageCount,
    /// Stored pages that are written back.
    pub written_back_pages: PageCount,
    /// Stored pages, in the pool or written back, that are dense.
    pub dense_pages: PageCount,
    /// Pages of the pool that recompression has not looked at.
    pub young_pages: PageCount,
    /// Slots of the backing store that are taken, 64 KiB each.
    pub slots_used: u32,
    /// Leaves of the index.
    pub index_leaves: usize,
    /// Memory held outside the pool's frames, see [`crate::Zswap::memory`].
    pub memory: Bytes,
}
