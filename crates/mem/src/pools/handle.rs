//! The names of an object: a handle for its user, a name inside its pool.
//!
//! Idea: a name is a place in the handle table, and is reused after its object was freed. To tell
//! an object from earlier objects of that name, or from those of another pool, a handle also has a
//! stamp: a number that no other handle of the process has. The table keeps the stamps of the names
//! in use. Stamps exist where mistakes are checked for, see [`CHECKS_HANDLES`]; elsewhere they are
//! empty arrays and cost nothing.

#![forbid(unsafe_code)]

use core::fmt;
#[cfg(not(loom))]
use core::sync::atomic::AtomicU32;
use core::sync::atomic::{AtomicU32 as Counter, Ordering};

#[cfg(loom)]
use loom::sync::atomic::AtomicU32;

/// Whether a pool refuses every handle that is not one of its objects, and not only those whose
/// name is not in use: in debug builds, and with the feature `verify`. The check costs four bytes
/// in each handle and in each place of the handle table.
pub const CHECKS_HANDLES: bool = cfg!(any(debug_assertions, feature = "verify"));

/// The highest bit of a name, which no handle table sets.
pub(super) const SIDE_SHIFT: u32 = 31;

/// Numbers in a stamp.
const STAMP_NUMBERS: usize = CHECKS_HANDLES as usize;
type Number = [u32; STAMP_NUMBERS];

/// The handle of an object for its user, valid in the pool that allocated it until it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    pub(super) name: Name,
    stamp: Number,
}

const _: () = assert!(CHECKS_HANDLES || size_of::<Handle>() == size_of::<u32>());

impl Handle {
    /// Makes a handle without a stamp, for a [`super::Pool`] that is implemented elsewhere. The
    /// pools here have no object of that handle.
    pub const fn new(name: u32) -> Self {
        Self { name: Name(name), stamp: [0; STAMP_NUMBERS] }
    }

    /// Returns the name, which differs between all objects that a pool holds at one time. It is
    /// never zero in the pools here.
    pub const fn name(self) -> u32 {
        self.name.0
    }

    /// Returns the handle by which a [`super::Switch`] names an object that its pool on `side`
    /// names `self`.
    pub(super) const fn on_side(self, side: bool) -> Self {
        Self { name: Name(self.name.0 | (side as u32) << SIDE_SHIFT), ..self }
    }

    /// Returns the side and the pool's own handle: the reverse of [`Handle::on_side`].
    pub(super) const fn side(self) -> (bool, Self) {
        let name = Name(self.name.0 & !(1 << SIDE_SHIFT));
        (self.name.0 >> SIDE_SHIFT != 0, Self { name, ..self })
    }
}

/// The error of a handle without an object in the pool: it was freed, or belongs to another pool.
///
/// Where [`CHECKS_HANDLES`] is false, this is only found when the name is not in use; a handle
/// whose name was reused reaches the new object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownHandle;

impl fmt::Display for UnknownHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pool has no object of this handle")
    }
}

impl core::error::Error for UnknownHandle {}

/// The name of an object inside its pool: as long as it is in use, its handle without the stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name(pub(super) u32);

/// The stamp of a name in use. Any bytes, zeros too, are a valid stamp.
#[repr(transparent)]
pub(super) struct Stamp([AtomicU32; STAMP_NUMBERS]);

/// The number of stamps given. Zero is the stamp of [`Handle::new`]; after 2^32 - 1 more they
/// repeat.
static GIVEN: Counter = Counter::new(0);

impl Stamp {
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU32::new(0)))
    }

    /// Returns a new handle of `name` that equals no other. The name has this stamp from now on.
    pub(super) fn give(&self, name: Name) -> Handle {
        let stamp = self.0.each_ref().map(|kept| {
            // Relaxed: it only matters that no two handles get the same number.
            let number = GIVEN.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            // Relaxed: a reader of the stamp has seen the word of the name, which a Release stores
            // later.
            kept.store(number, Ordering::Relaxed);
            number
        });
        Handle { name, stamp }
    }

    /// Returns the handle with this stamp. The caller has seen the word of the name in use.
    pub(super) fn handle(&self, name: Name) -> Handle {
        // Relaxed: stored before the word that the caller has seen.
        Handle { name, stamp: self.0.each_ref().map(|kept| kept.load(Ordering::Relaxed)) }
    }
}
