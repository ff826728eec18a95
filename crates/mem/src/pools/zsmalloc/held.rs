//! The frames that hold a pool's objects: taken, given back, counted by class, and moved.
//!
//! Invariant: while the pool has the claim, every frame it holds names its [`Owner`], but for a
//! huge object's between its allocation and its first handle.

use coldpress_sys::{PAGE_BYTES, PageCount};

use super::super::Handle;
use super::size_class::CLASSES;
use super::zspage::ZspageRef;
use crate::frames::{FrameAllocator, FrameId, Mobility, MoveClaim};

/// The index in a frame's descriptor that says the owner is the handle of a huge object.
const HUGE_INDEX: u8 = u8::MAX;

/// What the descriptor of a frame of the pool names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The zspage, and the frame's place in its chain.
    Zspage(ZspageRef, usize),
    /// The huge object.
    Huge(Handle),
}

impl Owner {
    /// The owner and the index of a frame's descriptor.
    pub(super) fn encode(self) -> (u32, u8) {
        match self {
            Self::Zspage(zspage, index) => (zspage.to_word(), index as u8),
            Self::Huge(handle) => (handle.0, HUGE_INDEX),
        }
    }

    /// The reverse of [`Owner::encode`].
    pub(super) fn decode(owner: u32, index: u8) -> Self {
        match index {
            HUGE_INDEX => Self::Huge(Handle(owner)),
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

/// The frames of a pool, by the numbers of its classes.
pub(super) struct HeldFrames<'f> {
    pub(super) allocator: &'f FrameAllocator,
    pub(super) classes: [Held; CLASSES],
    count: usize,
    /// While the pool holds frames and was the first in their allocator to do so.
    claim: Option<MoveClaim<'f>>,
}

impl<'f> HeldFrames<'f> {
    pub(super) const fn new(allocator: &'f FrameAllocator) -> Self {
        let classes = [Held { objects: 0, frames: 0 }; CLASSES];
        Self { allocator, classes, count: 0, claim: None }
    }

    /// How many there are.
    pub(super) fn count(&self) -> PageCount {
        PageCount(self.count)
    }

    /// Whether the frames can be moved: another pool's in the same allocator may be.
    pub(super) fn are_movable(&self) -> bool {
        self.claim.is_some()
    }

    /// A frame for a class. `None` when there is none.
    pub(super) fn take(&mut self, number: usize) -> Option<FrameId> {
        let frame = self.allocator.alloc(Mobility::EasyReclaim).ok()?;
        if self.count == 0 {
            self.claim = self.allocator.claim_moves();
        }
        self.count += 1;
        self.classes[number].frames += 1;
        Some(frame)
    }

    /// Gives back a frame of a class.
    ///
    /// # Safety
    /// The frame was taken here, and nothing refers to it any more.
    pub(super) unsafe fn put(&mut self, number: usize, frame: FrameId) {
        // SAFETY: the caller's promise.
        unsafe { self.allocator.free(frame) };
        self.count -= 1;
        self.classes[number].frames -= 1;
        if self.count == 0 {
            self.claim = None;
        }
    }

    /// Says whose a frame is, if this pool moves its frames.
    ///
    /// # Safety
    /// The frame was taken here, and it is its owner's until it is put back.
    pub(super) unsafe fn set_owner(&self, frame: FrameId, owner: Owner) {
        if self.claim.is_some() {
            let (owner, index) = owner.encode();
            // SAFETY: the frame is the pool's, and with the claim the pool moves it for its owner.
            unsafe { self.allocator.set_owner(frame, owner, index) };
        }
    }

    /// Takes the frame `to` in place of `from`, with its bytes, for the same owner, who must use it
    /// from now on.
    ///
    /// # Safety
    /// `from` was taken here and is this owner's; `to` is handed out and nobody uses it. The pool
    /// is borrowed mutably.
    pub(super) unsafe fn replace(&self, from: FrameId, to: FrameId, owner: Owner) {
        let (source, target) = (self.allocator.address(from), self.allocator.address(to));
        // SAFETY: the two differ, as one is used and one is not; nobody else reaches their bytes.
        // Of `from` none are used any more.
        unsafe {
            target.copy_from_nonoverlapping(source, PAGE_BYTES);
            self.set_owner(to, owner);
            self.allocator.free(from);
        }
    }
}
