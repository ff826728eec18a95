//! Pins: a thread that uses the bytes of an object holds a bit of the object's word, and no other
//! thread moves or frees the object.
//!
//! Idea (`HANDLE_PIN_BIT` of Linux mm/zsmalloc.c, until 5.16): readers wait for no lock of a pool,
//! and movers leave alone an object that is being read. A thread sets the bit under a lock that it
//! holds for a few instructions, one of [`LOCKS`] by the leaf of the word: so the leaf cannot go
//! away between finding the word and pinning it. The holder clears the bit without a lock.
//!
//! Invariants:
//! 1. A word is found under the lock of its leaf. The memory read on the way is given back only
//!    after nothing leads there any more and the lock was passed ([`Pins::pass`]).
//! 2. Only the holder writes a word in use. A leaf with such a word is not given back.

#[cfg(not(loom))]
use core::sync::atomic::AtomicU64;

use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering;

use coldpress_sys::sync::{Backoff, SpinLock};
#[cfg(loom)]
use loom::sync::atomic::AtomicU64;

/// The bit of a word whose object is being used.
pub(super) const PIN: u64 = 1 << 15;
/// The bits of a word that hold the size of its object, 1 to 4096; zero when it is not in use.
pub(super) const SIZE_MASK: u64 = PIN - 1;
/// Locks of a table. Threads that look up words of different leaves rarely share one.
pub(super) const LOCKS: usize = 16;

/// A lock on a cache line of its own, because different processors use different ones.
#[repr(align(64))]
struct Lock(SpinLock<()>);

/// The locks under which words are found.
pub(super) struct Pins([Lock; LOCKS]);

/// The right to use an object, and to write its word; released on drop.
pub(super) struct Pinned<'w>(&'w AtomicU64);

/// The result of an attempt to pin a word.
enum Attempt<'w> {
    Pinned(Pinned<'w>),
    /// Another thread holds the word.
    Busy,
    /// The word is not in use.
    Unused,
}

impl Pins {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self([const { Lock(SpinLock::new(())) }; LOCKS])
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self(core::array::from_fn(|_| Lock(SpinLock::new(()))))
    }

    /// Pins the word of leaf `leaf` that `find` finds, and waits for its holder. Returns `None`
    /// when the word is not in use. `find` is called under the lock of the leaf.
    #[inline]
    pub(super) fn pin<'w>(
        &self,
        leaf: u32,
        find: impl Fn() -> Option<&'w AtomicU64>,
    ) -> Option<Pinned<'w>> {
        let mut backoff = Backoff::default();
        loop {
            match self.attempt(leaf, &find) {
                Attempt::Pinned(pinned) => return Some(pinned),
                Attempt::Busy => backoff.wait(),
                Attempt::Unused => return None,
            }
        }
    }

    /// Pins a word as [`Pins::pin`] does, but also returns `None` when another thread holds the
    /// word.
    #[inline]
    pub(super) fn try_pin<'w>(
        &self,
        leaf: u32,
        find: impl Fn() -> Option<&'w AtomicU64>,
    ) -> Option<Pinned<'w>> {
        match self.attempt(leaf, &find) {
            Attempt::Pinned(pinned) => Some(pinned),
            Attempt::Busy | Attempt::Unused => None,
        }
    }

    #[inline]
    fn attempt<'w>(&self, leaf: u32, find: &impl Fn() -> Option<&'w AtomicU64>) -> Attempt<'w> {
        let _lock = self.lock(leaf).lock();
        let Some(word) = find() else { return Attempt::Unused };
        // Acquire pairs with the Release in the drop of the last pin: this thread sees the object
        // as the last holder left it.
        let value = word.load(Ordering::Acquire);
        if value & SIZE_MASK == 0 {
            return Attempt::Unused;
        }
        if value & PIN != 0 {
            return Attempt::Busy;
        }
        // Relaxed: a thread that pins the word takes the lock.
        word.store(value | PIN, Ordering::Relaxed);
        Attempt::Pinned(Pinned(word))
    }

    /// Returns what `look` returns under the lock of a leaf.
    #[inline]
    pub(super) fn get<R>(&self, leaf: u32, look: impl FnOnce() -> R) -> R {
        let _lock = self.lock(leaf).lock();
        look()
    }

    /// Waits for the threads that are looking for a word of a leaf right now.
    pub(super) fn pass(&self, leaf: u32) {
        drop(self.lock(leaf).lock());
    }

    fn lock(&self, leaf: u32) -> &SpinLock<()> {
        &self.0[leaf as usize % LOCKS].0
    }
}

/// Returns the word without the pin, whether pinned or not. `None` when it is not in use.
#[inline]
pub(super) fn value_of(word: &AtomicU64) -> Option<u64> {
    // Acquire pairs with the Release of the thread that began its use, or dropped a pin.
    let value = word.load(Ordering::Acquire) & !PIN;
    (value & SIZE_MASK != 0).then_some(value)
}

impl<'w> Pinned<'w> {
    /// Begins the use of a word that is not in use.
    #[inline]
    pub(super) fn begin(word: &'w AtomicU64, value: u64) -> Self {
        assert!(value & SIZE_MASK != 0 && value & PIN == 0);
        debug_assert!(value_of(word).is_none(), "the word is in use");
        // Release pairs with the Acquire in `value_of`: the data noted beside the word is there.
        word.store(value | PIN, Ordering::Release);
        Self(word)
    }

    /// Returns the word, without the pin.
    #[inline]
    pub(super) fn word(&self) -> u64 {
        // Relaxed: only the holder of the pin writes the word.
        let word = self.0.load(Ordering::Relaxed);
        debug_assert!(word & PIN != 0, "another thread has let go of the word");
        word & !PIN
    }

    /// Replaces the word by another one in use.
    pub(super) fn set(&mut self, word: u64) {
        debug_assert!(word & SIZE_MASK != 0 && word & PIN == 0);
        // Relaxed: other threads use the word only when the pin is gone.
        self.0.store(word | PIN, Ordering::Relaxed);
    }

    /// Ends the use of the word, and leaves it to the caller to write.
    pub(super) fn into_word(self) -> &'w AtomicU64 {
        ManuallyDrop::new(self).0
    }
}

impl Drop for Pinned<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire of the thread that pins it next.
        self.0.store(self.word(), Ordering::Release);
    }
}
