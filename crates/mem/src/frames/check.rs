//! A walk over everything a zone keeps, for tests.

use coldpress_sys::page::FRAMES_PER_BLOCK;

use super::blocks::BlockState;
use super::zone::{Chunk, EMPTY, HELD, Locked};
use super::{Descriptor, FrameAllocator, Mobility, ORDER_MAX};

/// Figures counted by the walk over the blocks of a zone, to compare with the zone's own.
#[derive(Debug, Default, PartialEq, Eq)]
struct ZoneCensus {
    fresh: usize,
    live: usize,
    online: usize,
    listed: usize,
    idle: usize,
    aside: usize,
    held: usize,
    chunks: [[usize; ORDER_MAX as usize + 1]; 2],
}

impl FrameAllocator {
    /// Walks all tables and lists, and panics when an invariant is broken. For tests, and only
    /// while no other thread adds or removes blocks.
    pub fn check(&self) {
        if let Some(spans) = self.spans() {
            Mobility::ALL.into_iter().for_each(|name| self.zones.lock(spans, name).check());
        }
    }
}

impl Locked<'_> {
    fn check(&self) {
        let mut found = ZoneCensus::default();
        for (index, block) in self.tables.blocks().iter().enumerate() {
            let name = match block.state() {
                BlockState::Offline => continue,
                BlockState::Fresh(name) | BlockState::Live(name) | BlockState::Isolated(name) => {
                    name
                }
                state => panic!("block {index} is {state:?} with nobody at work on it"),
            };
            if name == self.name {
                found.online += FRAMES_PER_BLOCK;
                self.check_block(index, &mut found);
            }
        }
        let zone = &*self.zone;
        let expected = ZoneCensus {
            fresh: zone.fresh,
            live: zone.live,
            online: zone.online,
            listed: zone.free,
            idle: zone.idle,
            aside: zone.aside,
            held: zone.held,
            chunks: zone.lists.map(|lists| lists.map(|list| list.chunks)),
        };
        assert_eq!(found, expected, "the {:?} zone counts wrong", self.name);
        self.check_lists();
    }

    fn check_block(&self, index: usize, found: &mut ZoneCensus) {
        let block = &self.tables.blocks()[index];
        let all = Chunk::block(index).frames();
        let held = self.tables.held(all.clone());
        found.held += held;
        if block.state() == BlockState::Fresh(self.name) {
            assert!(held == 0, "block {index} is fresh and holds memory");
            assert!(index >= self.zone.fresh_from, "block {index} is below `fresh_from`");
            found.fresh += 1;
            return;
        }
        found.live += 1;
        let isolated = block.state() == BlockState::Isolated(self.name);
        let (mut frame, mut free) = (all.start, 0);
        while frame < all.end {
            match self.tables.get(frame) {
                Descriptor::Free { order, .. } => {
                    assert!(!isolated, "an isolated block has a listed chunk");
                    let chunk = Chunk { head: frame, order };
                    self.check_chunk(chunk, found);
                    free += chunk.len();
                    frame = chunk.frames().end;
                    continue;
                }
                Descriptor::FreeTail => {
                    assert!(isolated, "frame {frame} is free and in no chunk");
                    free += 1;
                }
                Descriptor::Offline => panic!("frame {frame} of a block in use is offline"),
                _ => assert_eq!(self.tables.held(frame..frame + 1), 1, "frame {frame} is used"),
            }
            frame += 1;
        }
        assert_eq!(free, block.free(), "free frames of block {index}");
        if isolated {
            found.aside += free;
        }
    }

    fn check_chunk(&self, chunk: Chunk, found: &mut ZoneCensus) {
        let Chunk { head, order } = chunk;
        assert!(order <= ORDER_MAX && head.is_multiple_of(1 << order), "{chunk:?} is misplaced");
        for frame in chunk.frames().skip(1) {
            assert_eq!(self.tables.get(frame), Descriptor::FreeTail, "frame {frame} of {chunk:?}");
        }
        if order < ORDER_MAX
            && let Descriptor::Free { order: other, .. } = self.tables.get(head ^ 1 << order)
        {
            assert!(other != order, "{chunk:?} is not merged with its buddy");
        }
        let held = self.tables.held(chunk.frames());
        let list = if held > 0 { HELD } else { EMPTY };
        found.chunks[list][usize::from(order)] += 1;
        found.listed += chunk.len();
        found.idle += held;
    }

    /// Follows each list: it must be as long as it counts, of its own order and kind, and linked
    /// both ways.
    fn check_lists(&self) {
        for (kind, lists) in self.zone.lists.iter().enumerate() {
            for (order, list) in lists.iter().enumerate() {
                let (mut at, mut before) = (list.first, None);
                for _ in 0..list.chunks {
                    let head = at.expect("a list is as long as it counts");
                    let chunk = Chunk { head: head.0, order: order as u8 };
                    let Descriptor::Free { order: own, prev, next } = self.tables.get(head.0)
                    else {
                        panic!("{chunk:?} is listed and not free");
                    };
                    assert_eq!((usize::from(own), prev), (order, before), "broken list");
                    let held = self.tables.held(chunk.frames()) > 0;
                    assert_eq!(held, kind == HELD, "{chunk:?} is in the wrong list");
                    (before, at) = (at, next);
                }
                assert_eq!(at, None, "a list is longer than it counts");
            }
        }
    }
}
