//! The pool a store is built on: that of `mem`, or under a model checker, which sees nothing of it,
//! the part of its contract that a store relies on.

#[cfg(not(loom))]
pub(crate) use coldpress_mem::pools::{CHECKS_HANDLES, Handle, Pool};
#[cfg(loom)]
pub(crate) use contract::{CHECKS_HANDLES, Handle, Pool, PoolStats, UnknownHandle};

#[cfg(loom)]
mod contract {
    use coldpress_sys::{Bytes, PageCount};

    /// Names alone are checked.
    pub(crate) const CHECKS_HANDLES: bool = false;

    /// The name of an object.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Handle(pub u32);

    /// There is no object of this name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct UnknownHandle;

    /// What a pool holds.
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

    /// A store of objects, see `coldpress_mem::pools::Pool`. Who reads, writes or frees an object
    /// waits for who does so already.
    pub trait Pool: Sync {
        /// Makes room for an object.
        fn alloc(&self, size: Bytes) -> Result<Handle, ()>;
        /// Drops an object.
        fn free(&self, handle: Handle) -> Result<(), UnknownHandle>;
        /// Fills an object.
        fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), UnknownHandle>;
        /// Lends the object's bytes.
        fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> Result<R, UnknownHandle>;
        /// What the pool holds.
        fn stats(&self) -> PoolStats;
        /// Frames that hold objects.
        fn frames(&self) -> PageCount {
            self.stats().frames
        }
    }
}
