//! The frames that hold a pool's objects: taken, given back, counted, and moved.
//!
//! Invariant: while the pool has the claim, every frame it holds names its [`Owner`], except the
//! frame of a huge object between its allocation and its first name. No frame names an owner that
//! does not have it, except a frame that is being taken or moved under the lock of its class.

use core::sync::atomic::{AtomicUsize, Ordering};

use coldpress_sys::sync::SpinLock;
use coldpress_sys::{PAGE_BYTES, PageCount};

use super::super::handle::Name;
use super::lists::ZspageRef;
use crate::frames::{Descriptor, FrameAllocator, FrameId, Mobility, MoveClaim};

/// The index in a frame's descriptor that marks the owner as the name of a huge object.
const HUGE_INDEX: u8 = u8::MAX;

/// The owner that the descriptor of a frame of the pool names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The zspage, and the frame's place in its chain.
    Zspage(ZspageRef, usize),
    /// The huge object.
    Huge(Name),
}

impl Owner {
    /// Returns the owner and the index for a frame's descriptor.
    pub(super) fn encode(self) -> (u32, u8) {
        match self {
            Self::Zspage(zspage, index) => (zspage.to_word(), index as u8),
            Self::Huge(name) => (name.0, HUGE_INDEX),
        }
    }

    /// Decodes an owner: the reverse of [`Owner::encode`].
    pub(super) fn decode(owner: u32, index: u8) -> Self {
        match index {
            HUGE_INDEX => Self::Huge(Name(owner)),
            _ => Self::Zspage(ZspageRef::from_word(owner), index.into()),
        }
    }
}

/// The frames of a pool.
pub(super) struct HeldFrames<'f> {
    pub(super) allocator: &'f FrameAllocator,
    /// The number of frames; changes under the lock of the claim.
    count: AtomicUsize,
    /// The right to move frames, held while the pool has frames and was the first in their
    /// allocator.
    claim: SpinLock<Option<MoveClaim<'f>>>,
}

impl<'f> HeldFrames<'f> {
    pub(super) const fn new(allocator: &'f FrameAllocator) -> Self {
        Self { allocator, count: AtomicUsize::new(0), claim: SpinLock::new(None) }
    }

    /// Returns the number of frames.
    #[inline]
    pub(super) fn count(&self) -> PageCount {
        // Relaxed: a statistic, from which nothing else is concluded.
        PageCount(self.count.load(Ordering::Relaxed))
    }

    /// Takes a frame, with its owner if that is known. Returns `None` when there is none.
    pub(super) fn take(&self, owner: Option<Owner>) -> Option<FrameId> {
        let frame = self.allocator.alloc(Mobility::EasyReclaim)?;
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
        // SAFETY: the caller promises that nothing refers to the frame.
        unsafe { self.allocator.free(frame) };
        let PageCount(before) = self.count();
        assert!(before > 0, "a frame is put back once");
        let count = before - 1;
        // Relaxed: changed under the lock alone.
        self.count.store(count, Ordering::Relaxed);
        if count == 0 {
            *claim = None;
        }
    }

    /// Notes the owner of a frame, if this pool moves its frames.
    ///
    /// # Safety
    /// The frame was taken here, and belongs to this owner until it is put back.
    pub(super) unsafe fn set_owner(&self, frame: FrameId, owner: Owner) {
        // SAFETY: the caller promises that the frame belongs to this owner.
        unsafe { self.name_owner(&self.claim.lock(), frame, owner) };
    }

    /// Notes the owner of a frame, under the lock of the claim.
    ///
    /// # Safety
    /// As for [`HeldFrames::set_owner`].
    unsafe fn name_owner(&self, claim: &Option<MoveClaim<'_>>, frame: FrameId, owner: Owner) {
        if claim.is_some() {
            let (owner, index) = owner.encode();
            // SAFETY: the frame belongs to the pool, and with the claim the pool moves it for its
            // owner.
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

    /// Calls `f` if a frame belongs to this pool and this owner, which stays so until `f` returns.
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

    /// Takes the frame `to` in place of `from`, with its bytes, for the same owner, which must use
    /// it from now on.
    ///
    /// # Safety
    /// `from` was taken here and belongs to this owner; `to` is handed out and no code uses it. All
    /// objects in `from` are pinned by the caller, and their slots keep their state meanwhile.
    pub(super) unsafe fn replace(&self, from: FrameId, to: FrameId, owner: Owner) {
        assert_ne!(from, to, "a frame moves to another");
        let (source, target) = (self.allocator.address(from), self.allocator.address(to));
        // SAFETY: the frames differ, because one is used and one is not; no other thread reaches
        // their bytes.
        unsafe { target.copy_from_nonoverlapping(source, PAGE_BYTES) };
        let claim = self.claim.lock();
        // SAFETY: `to` belongs to the owner from now on, and `from` no longer.
        unsafe {
            self.name_owner(&claim, to, owner);
            self.allocator.free(from);
        }
    }
}
