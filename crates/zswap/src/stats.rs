//! What happened, one counter per outcome, and what is held now.
//!
//! Eleven of the thirteen figures of the reference (zswap v4) keep their names: nine counters and,
//! in [`Stats`], `pool_pages` and `stored_pages`. The other two cannot occur:
//! `reject_tmppage_fail`, for there is one buffer and no per-processor section to leave, and
//! `outstanding_flushes`, for a write is over when its call returns.

use coldpress_sys::{Bytes, PageCount};

/// Declares the counters once, as fields and as a list of names and values.
macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// What happened since the store was made. All only grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Each counter with its name, in the order of their declaration.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
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
    /// Pages that compressed poorly. They were stored raw, not refused as the reference does.
    reject_compress_poor,
    /// Stores that replaced a page under the same key.
    duplicate_entry,
    /// Stores that met the pool at the limit where writeback begins.
    pool_limit_hit,
    /// Stores for which the pool had no room, so that writing back was tried.
    reject_flush_attempted,
    /// Stores that found room after writing back.
    saved_by_flush,
    /// Pages refused, for the pool had no room even so.
    reject_zsmalloc_fail,
    /// Pages refused, or renames, for there was no memory for an entry or its place in the index.
    reject_kmemcache_fail,
    /// Pages written back.
    flushed_pages,
    /// Bytes written back.
    flushed_bytes,
    /// Batches that could not be written back. Their pages stayed in the pool.
    reject_flush_fail,
    /// Pages that writeback passed over once, because they had been loaded.
    second_chances,
    /// Slots of the backing store given back, because their last page had gone.
    slots_discarded,
    /// Loads served by repeating a word.
    loaded_same_filled,
    /// Loads served from the pool.
    loaded_from_pool,
    /// Loads served from the backing store.
    loaded_from_backing,
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
}

/// What happened, and what is held now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// What happened since the store was made.
    pub counters: Counters,
    /// Frames the pool holds.
    pub pool_pages: PageCount,
    /// Bytes of the objects in the pool.
    pub pool_bytes: Bytes,
    /// Pages stored, wherever they are.
    pub stored_pages: PageCount,
    /// Pages of these that are a repeated word.
    pub same_filled_pages: PageCount,
    /// Pages of these that are in the pool.
    pub in_pool_pages: PageCount,
    /// Pages of these that are written back.
    pub written_back_pages: PageCount,
    /// Slots of the backing store that are taken, 64 KiB each.
    pub slots_used: u32,
    /// Leaves of the index.
    pub index_leaves: usize,
    /// Memory held outside the pool's frames, see [`crate::Zswap::memory`].
    pub memory: Bytes,
}
