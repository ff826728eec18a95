//! Runs of frames that grow: for users that want many frames side by side, but not all at once.

use coldpress_sys::page::FRAMES_PER_BLOCK;

use super::record::Recorder;
use super::trace::Event;
use super::zone::Chunk;
use super::{Descriptor, FrameAllocator, FrameId, Mobility, ORDER_MAX, Spans};

impl FrameAllocator {
    /// Takes 2^`order` frames, with undefined contents, at the start of a free chunk of order
    /// `whole`, or of the nearest order there is. Returns the first frame, which is aligned to the
    /// chunk's length, and the order of the chunk: [`FrameAllocator::extend_run`] may add the rest.
    /// Returns `None` as [`FrameAllocator::alloc_order`] does, and for a `whole` below `order`.
    /// Each frame is freed alone.
    #[must_use = "a frame that nobody names is lost"]
    pub(crate) fn alloc_run(
        &self,
        order: u8,
        whole: u8,
        mobility: Mobility,
    ) -> Option<(FrameId, u8)> {
        let spans = self.spans().filter(|_| whole <= ORDER_MAX)?;
        let take = |zone| self.zones.lock(spans, zone).take_first(order, whole);
        let (chunk, whole) = self.find(spans, mobility, take)?;
        spans.hand_out(chunk);
        self.recorder.note_run(chunk, mobility);
        Some((FrameId(chunk.head), whole))
    }

    /// Returns whether it could take the 2^`order` frames from `frame` on: only if they are all
    /// free. `frame` must be a multiple of their number, and follow, in the same block, a frame
    /// that is handed out. The frames lie in the zone of that block and are recorded as taken for
    /// `mobility`.
    pub(crate) fn extend_run(&self, frame: FrameId, order: u8, mobility: Mobility) -> bool {
        let chunk = Chunk { head: frame.0, order };
        assert!(order <= ORDER_MAX && frame.0.is_multiple_of(1 << order));
        assert!(!(frame.0 as usize).is_multiple_of(FRAMES_PER_BLOCK), "frames of another block");
        let spans = self.placed();
        assert!(spans.tables.get(frame.0 - 1).is_handed_out(), "frame {} follows none", frame.0);
        // A statement of its own, so that the lock is released.
        let taken = self.zones.lock_of(spans, frame.0).take_at(chunk);
        if taken {
            spans.hand_out(chunk);
            self.recorder.note_run(chunk, mobility);
        }
        taken
    }
}

impl Recorder {
    /// Notes a run that is handed out. Each of its frames is an allocation of its own, because it
    /// is freed alone.
    fn note_run(&self, chunk: Chunk, mobility: Mobility) {
        chunk.frames().for_each(|id| self.note(|| Event::Alloc { id, order: 0, mobility }));
    }
}

impl Spans {
    /// Marks the frames of a chunk as handed out.
    pub(super) fn hand_out(&self, chunk: Chunk) {
        for frame in chunk.frames() {
            debug_assert_eq!(self.tables.get(frame), Descriptor::Cached, "frame {frame} is taken");
            self.tables.set(frame, Descriptor::Core);
        }
    }
}
