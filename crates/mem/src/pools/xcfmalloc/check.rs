//! The checks of a pool's structures, from the handles down to the bytes of headers.

use super::blocks::Blocks;
use super::descriptor::{Block, BlockPlace, BlockRef, Role};
use super::progress::NO_FRAME;
use super::{Location, Xcfmalloc};

/// Blocks counted in one way, to compare with those counted in another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Census {
    blocks: usize,
    granules: usize,
    /// The sum of their refs, which differs between equal numbers of different blocks.
    refs: u64,
}

impl Census {
    fn add(&mut self, blocks: &Blocks<'_>, block: BlockRef) {
        self.blocks += 1;
        self.granules += blocks.space.granules_of(blocks.get(block));
        self.refs += u64::from(block.to_word());
    }
}

impl Xcfmalloc<'_> {
    /// Calls `f` with each frame that has objects, once.
    pub(super) fn for_each_frame(&self, blocks: &Blocks<'_>, mut f: impl FnMut(u32)) {
        self.handles.for_each(|_, word| {
            for block in blocks.space.chain(Location::from_word(word).first) {
                // A frame is visited with the first used block in it.
                let frame = blocks.get(block).place.frame();
                let mut used =
                    blocks.space.blocks_of(frame).filter(|it| !blocks.get(*it).is_free());
                if used.next() == Some(block) {
                    f(frame);
                }
            }
        });
    }

    /// Checks the whole pool, and panics when an invariant is broken.
    pub(super) fn check_all(&mut self) {
        let blocks = &*self.blocks.lock();
        assert_eq!(blocks.compaction.isolated, NO_FRAME, "a frame was left isolated");
        let (mut objects, mut in_chains) = (0, Census::default());
        self.handles.for_each(|name, word| {
            let Location { first, size } = Location::from_word(word);
            assert_eq!(blocks.get(first).name(), name, "the first block knows another");
            let (mut length, mut prev) = (0, blocks.get(first).prev);
            for block in blocks.space.chain(first) {
                let descriptor = blocks.get(block);
                let role = if block == first { Role::First } else { Role::Later };
                assert_eq!(descriptor.role, role, "a block of {name:?}");
                assert_eq!(descriptor.prev, prev, "the chain of {name:?} is broken");
                (length, prev) = (length + usize::from(descriptor.length), block);
                in_chains.add(blocks, block);
            }
            assert_eq!(length, usize::from(size), "the length of {name:?}");
            objects += 1;
        });
        let (mut used, mut free, mut frames) = (Census::default(), Census::default(), 0);
        self.for_each_frame(blocks, |frame| {
            frames += 1;
            blocks.check_frame(frame);
            for block in blocks.space.blocks_of(frame) {
                if blocks.get(block).is_free() { &mut free } else { &mut used }.add(blocks, block);
            }
        });
        assert_eq!(used, in_chains, "blocks and names differ");
        assert_eq!((frames, used.granules), (blocks.occupied(), blocks.used), "frames or granules");
        let (listed, empty) = blocks.check_lists();
        assert_eq!(listed, free, "free blocks and lists differ");
        assert_eq!(empty, blocks.empty, "empty frames");
        assert_eq!(blocks.descriptors, used.blocks + free.blocks + empty, "descriptors");
        assert!(objects > 0 || blocks.frames_held == 0, "an empty pool holds frames");
    }
}

impl Blocks<'_> {
    /// Checks invariant 1 and that free neighbours were merged.
    fn check_frame(&self, frame: u32) {
        let (mut start, mut before, mut after_free) = (0, 0, false);
        for block in self.space.blocks_of(frame) {
            let descriptor = self.get(block);
            assert_eq!(descriptor.place, BlockPlace::new(frame, start), "the header names another");
            assert_eq!(
                usize::from(descriptor.before.get()),
                before,
                "the length of the block before"
            );
            assert!(!(after_free && descriptor.is_free()), "free neighbours were not merged");
            before = self.space.granules_of(descriptor);
            (start, after_free) = (start + before, descriptor.is_free());
        }
        assert_eq!(start, self.space.granules(), "the blocks do not fill their frame");
    }

    /// Checks the lists. Returns the free blocks in frames with objects, and the number of frames
    /// without any.
    fn check_lists(&self) -> (Census, usize) {
        let (mut listed, mut empty, mut last_list) =
            (Census::default(), 0, self.space.granules() + 1);
        while let Some(first) = self.largest_below(last_list) {
            last_list = self.get(first).length.into();
            let mut prev = BlockRef::NONE;
            for block in self.space.chain(first) {
                let Block { prev: named, length, role, place, .. } = *self.get(block);
                assert!(
                    role == Role::Free && usize::from(length) == last_list,
                    "on the wrong list"
                );
                assert_eq!(named, prev, "broken list");
                prev = block;
                if last_list == self.space.granules() {
                    self.check_frame(place.frame());
                    empty += 1;
                } else {
                    listed.add(self, block);
                }
            }
        }
        self.check_descriptors();
        (listed, empty)
    }
}
