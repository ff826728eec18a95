//! The pool that a store is built on: the one of `mem`. A model checker cannot look into that pool,
//! so under loom this file has the part of its contract that a store relies on.

#[cfg(not(loom))]
pub(crate) use coldpress_mem::pools::{CHECKS_HANDLES, Handle, Pool};
#[cfg(test)]
#[cfg(loom)]
pub(crate) use contract::{CHECKS_HANDLES, Handle, Pool, PoolStats, UnknownHandle};

#[cfg(test)]
#[cfg(loom)]
mod contract {
    use coldpress_sys::{Bytes, PageCount};

    /// Whether handles carry a stamp: the model's are bare names.
    pub(crate) const CHECKS_HANDLES: bool = false;

    /// The name of an object.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Handle(pub u32);

    /// The error of a name that no object has.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct UnknownHandle;

    /// The contents of a pool, in figures.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PoolStats {
        /// Objects stored.
        pub objects: usize,
        /// The sum of their sizes.
        pub bytes_stored: Bytes,
        /// Frames that hold objects.
        pub frames: PageCount,
        /// Everything else the pool takes.
        pub metadata: Bytes,
    }

    /// A store of objects, see `coldpress_mem::pools::Pool`. A caller that reads, writes or frees
    /// an object waits for any other caller that does.
    pub trait Pool: Sync {
        /// Makes room for an object.
        fn alloc(&self, size: Bytes) -> Result<Handle, ()>;
        /// Drops an object.
        fn free(&self, handle: Handle) -> Result<(), UnknownHandle>;
        /// Fills an object.
        fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), UnknownHandle>;
        /// Lends the object's bytes.
        fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> Result<R, UnknownHandle>;
        /// Returns the pool's contents in figures.
        fn stats(&self) -> PoolStats;
        /// Returns the number of frames that hold objects.
        fn frames(&self) -> PageCount {
            self.stats().frames
        }
    }
}
