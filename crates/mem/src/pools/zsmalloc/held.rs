//! The frames that hold a pool's objects: taken, given back, counted, and moved.
//!
//! Invariant: while the pool has the claim, every frame it holds names its [`Owner`], but for a
//! huge object's between its allocation and its first name. No frame names an owner that has not
//! got it, but for one that is being taken or moved under the lock of its class.

use core::sync::atomic::{AtomicUsize, Ordering};

use coldpress_sys::sync::SpinLock;
use coldpress_sys::{PAGE_BYTES, PageCount};

use super::super::handle::Name;
use super::zspage::ZspageRef;
use crate::frames::{Descriptor, FrameAllocator, FrameId, Mobility, MoveClaim};

/// The index in a frame's descriptor that says the owner is the name of a huge object.
const HUGE_INDEX: u8 = u8::MAX;

/// What the descriptor of a frame of the pool names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The zspage, and the frame's place in its chain.
    Zspage(ZspageRef, usize),
    /// The huge object.
    Huge(Name),
}

impl Owner {
    /// The owner and the index of a frame's descriptor.
    pub(super) fn encode(self) -> (u32, u8) {
        match self {
            Self::Zspage(zspage, index) => (zspage.to_word(), index as u8),
            Self::Huge(name) => (name.0, HUGE_INDEX),
        }
    }

    /// The reverse of [`Owner::encode`].
    pub(super) fn decode(owner: u32, index: u8) -> Self {
        match index {
            HUGE_INDEX => Self::Huge(Name(owner)),
            _ => Self::Zspage(ZspageRef::from_word(owner), index.into()),
        }
    }
}

/// What a class holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) objects: u32,
    pub(super) frames: u32,
}

impl Held {
    pub(super) fn add(&mut self, objects: u32, frames: u32) {
        self.objects += objects;
        self.frames += frames;
    }
}

/// The frames of a pool.
pub(super) struct HeldFrames<'f> {
    pub(super) allocator: &'f FrameAllocator,
    /// How many there are; changes under the lock of the claim.
    count: AtomicUsize,
    /// While the pool holds frames and was the first in their allocator to do so.
    claim: SpinLock<Option<MoveClaim<'f>>>,
}

impl<'f> HeldFrames<'f> {
    pub(super) const fn new(allocator: &'f FrameAllocator) -> Self {
        Self { allocator, count: AtomicUsize::new(0), claim: SpinLock::new(None) }
    }

    /// How many there are.
    #[inline]
    pub(super) fn count(&self) -> PageCount {
        // Relaxed: a figure, by which nothing else is known.
        PageCount(self.count.load(Ordering::Relaxed))
    }

    /// A frame, with its owner if that is known. `None` when there is none.
    pub(super) fn take(&self, owner: Option<Owner>) -> Option<FrameId> {
        let frame = self.allocator.alloc(Mobility::EasyReclaim).ok()?;
        let mut claim = self.claim.lock();
        let PageCount(count) = self.count();
        if count == 0 {
            *claim = self.allocator.claim_moves();
        }
        // Relaxed: changed under the lock alone.
        self.count.store(count + 1, Ordering::Relaxed);
        if let Some(owner) = owner {
            // SAFETY: the frame was just handed to us for this owner.
            unsafe { self.name_owner(&claim, frame, owner) };
        }
        Some(frame)
    }

    /// Gives a frame back.
    ///
    /// # Safety
    /// The frame was taken here, and nothing refers to it any more.
    pub(super) unsafe fn put(&self, frame: FrameId) {
        let mut claim = self.claim.lock();
        // SAFETY: the caller's promise.
        unsafe { self.allocator.free(frame) };
        let count = self.count().0 - 1;
        // Relaxed: changed under the lock alone.
        self.count.store(count, Ordering::Relaxed);
        if count == 0 {
            *claim = None;
        }
    }

    /// Says whose a frame is, if this pool moves its frames.
    ///
    /// # Safety
    /// The frame was taken here, and it is its owner's until it is put back.
    pub(super) unsafe fn set_owner(&self, frame: FrameId, owner: Owner) {
        // SAFETY: the caller's promise.
        unsafe { self.name_owner(&self.claim.lock(), frame, owner) };
    }

    /// # Safety
    /// As for [`HeldFrames::set_owner`].
    unsafe fn name_owner(&self, claim: &Option<MoveClaim<'_>>, frame: FrameId, owner: Owner) {
        if claim.is_some() {
            let (owner, index) = owner.encode();
            // SAFETY: the frame is the pool's, and with the claim the pool moves it for its owner.
            unsafe { self.allocator.set_owner(frame, owner, index) };
        }
    }

    /// Leaves the frames where they are from now on.
    pub(super) fn give_up_moves(&mut self) {
        if let Some(claim) = self.claim.get_mut().take() {
            // SAFETY: only frames of the pool with the claim have an owner, and we have it alone.
            unsafe { claim.disown() };
        }
    }

    /// Calls `f` if a frame is this pool's and its owner's; it stays so until `f` returns.
    pub(super) fn if_owned<R>(
        &self,
        frame: FrameId,
        owner: Owner,
        f: impl FnOnce() -> Option<R>,
    ) -> Option<R> {
        let claim = self.claim.lock();
        let (owner, index) = owner.encode();
        // With the claim, all frames with an owner are ours; they are given back under the lock.
        let has_owner = self.allocator.descriptor(frame) == Descriptor::Movable { owner, index };
        (claim.is_some() && has_owner).then(f)?
    }

    /// Takes the frame `to` in place of `from`, with its bytes, for the same owner, who must use it
    /// from now on.
    ///
    /// # Safety
    /// `from` was taken here and is this owner's; `to` is handed out and nobody uses it. All
    /// objects in `from` are pinned by the caller, and their slots keep their state meanwhile.
    pub(super) unsafe fn replace(&self, from: FrameId, to: FrameId, owner: Owner) {
        let (source, target) = (self.allocator.address(from), self.allocator.address(to));
        // SAFETY: the two differ, as one is used and one is not; nobody else reaches their bytes.
        unsafe { target.copy_from_nonoverlapping(source, PAGE_BYTES) };
        let claim = self.claim.lock();
        // SAFETY: `to` is the owner's from now on, and `from` is not any more.
        unsafe {
            self.name_owner(&claim, to, owner);
            self.allocator.free(from);
        }
    }
}
