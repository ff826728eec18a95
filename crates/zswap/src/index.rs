//! The index: from key to entry. A radix of three levels that holds only what is in use.
//!
//! ```text
//! roots: sorted by (area, offset / 2^15) > 32 leaves > 1024 entry numbers
//!        128 MiB of pages each            4 MiB of pages each
//! ```
//!
//! Each shard has its own index, which leaves out the leaves of the other shards: so a root stands
//! for 1 GiB of pages of the store. A leaf fills one frame, and so do the roots of all shards for
//! the same GiB together. Programs keep their pages in a few dense stretches, so roots are few and
//! a lookup is a short binary search and two steps. Ranges skip absent pages by whole leaves and
//! roots.
//!
//! Invariants (`check` walks them):
//! 1. Roots are sorted, and no two have the same area and number.
//! 2. `used` of a leaf counts its entries, `used` of a root its leaves; neither is ever zero.

use alloc::boxed::Box;
use alloc::vec::Vec;

use coldpress_sys::{Bytes, PAGE_BYTES};

use crate::ids::{EntryId, SHARDS};
use crate::key::{Area, Key, Offset};
use crate::room::{self, NoMemory};

/// Entries in a leaf, which fill one frame.
pub(crate) const LEAF_ENTRIES: usize = 1024;
/// Leaves in a root: their places and those of the other shards together fill one frame.
const ROOT_LEAVES: usize = PAGE_BYTES / size_of::<LeafPlace>() / SHARDS;

const _: () = assert!(size_of::<Leaf>() == PAGE_BYTES);

/// The entries of consecutive pages.
type Leaf = [Option<EntryId>; LEAF_ENTRIES];

/// The place of a leaf: the leaf, if there is one, and the number of its entries.
#[derive(Debug, Default)]
struct LeafPlace {
    leaf: Option<Box<Leaf>>,
    used: u16,
}

/// Consecutive leaves, and what they stand for.
#[derive(Debug)]
struct Root {
    area: Area,
    number: u64,
    leaves: Box<[LeafPlace]>,
    used: u16,
}

/// The place of a key below the roots.
#[derive(Clone, Copy)]
struct Position {
    /// The number of the root in the area.
    root: u64,
    /// The leaf in the root.
    leaf: usize,
    /// The entry in the leaf.
    entry: usize,
}

impl Position {
    /// Returns the position of `offset`.
    const fn of(offset: Offset) -> Self {
        let leaf = offset.0 / LEAF_ENTRIES as u64;
        Self {
            root: leaf / ROOT_LEAVES as u64,
            leaf: (leaf % ROOT_LEAVES as u64) as usize,
            entry: (offset.0 % LEAF_ENTRIES as u64) as usize,
        }
    }

    /// Returns the offset at this position.
    const fn offset(self) -> Offset {
        let leaf = self.root * ROOT_LEAVES as u64 + self.leaf as u64;
        Offset(leaf * LEAF_ENTRIES as u64 + self.entry as u64)
    }
}

/// The index of one shard.
#[derive(Debug, Default)]
pub(crate) struct Index {
    roots: Vec<Root>,
    leaves: usize,
}

impl Index {
    /// Returns the number of leaves.
    pub(crate) fn leaves(&self) -> usize {
        self.leaves
    }

    /// Returns the memory of all levels.
    pub(crate) fn memory(&self) -> Bytes {
        let roots = self.roots.capacity() * size_of::<Root>()
            + self.roots.len() * size_of::<LeafPlace>() * ROOT_LEAVES;
        Bytes(roots + self.leaves * size_of::<Leaf>())
    }

    /// Returns the entry at `key`.
    pub(crate) fn get(&self, key: Key) -> Option<EntryId> {
        let position = Position::of(key.offset);
        let root = &self.roots[self.search(key.area, position.root).ok()?];
        root.leaves[position.leaf].leaf.as_ref()?[position.entry]
    }

    /// Puts an entry at `key`, and returns the one that was there. Without memory nothing changes.
    pub(crate) fn set(&mut self, key: Key, id: EntryId) -> Result<Option<EntryId>, NoMemory> {
        let position = Position::of(key.offset);
        let at = match self.search(key.area, position.root) {
            Ok(at) => at,
            Err(at) => {
                let leaves = room::table(ROOT_LEAVES, LeafPlace::default)?;
                room::reserve_one(&mut self.roots)?;
                let root = Root { area: key.area, number: position.root, leaves, used: 0 };
                self.roots.insert(at, root);
                at
            }
        };
        let root = &mut self.roots[at];
        let place = &mut root.leaves[position.leaf];
        let leaf = match &mut place.leaf {
            Some(leaf) => leaf,
            None => match new_leaf() {
                Ok(leaf) => {
                    root.used += 1;
                    self.leaves += 1;
                    place.leaf.insert(leaf)
                }
                Err(NoMemory) => {
                    self.drop_root_if_empty(at);
                    return Err(NoMemory);
                }
            },
        };
        let before = leaf[position.entry].replace(id);
        place.used += u16::from(before.is_none());
        debug_assert!(usize::from(place.used) <= LEAF_ENTRIES && root.used > 0);
        Ok(before)
    }

    /// Takes the entry at `key` out, and returns it.
    pub(crate) fn remove(&mut self, key: Key) -> Option<EntryId> {
        let position = Position::of(key.offset);
        let at = self.search(key.area, position.root).ok()?;
        let root = &mut self.roots[at];
        let place = &mut root.leaves[position.leaf];
        let id = place.leaf.as_mut()?[position.entry].take()?;
        debug_assert!(place.used > 0 && root.used > 0 && self.leaves > 0, "counted in");
        place.used -= 1;
        if place.used == 0 {
            place.leaf = None;
            self.leaves -= 1;
            root.used -= 1;
            self.drop_root_if_empty(at);
        }
        Some(id)
    }

    /// Returns the lowest offset of `first..=last` in `area` that has an entry. An empty stretch
    /// costs one step per root or leaf that exists, not one per page.
    pub(crate) fn first_in(&self, area: Area, first: Offset, last: Offset) -> Option<Offset> {
        let start = Position::of(first);
        let at = self.search(area, start.root).unwrap_or_else(|at| at);
        for root in self.roots[at..].iter().take_while(|root| root.area == area) {
            let is_first_root = root.number == start.root;
            let first_leaf = if is_first_root { start.leaf } else { 0 };
            for (number, place) in root.leaves.iter().enumerate().skip(first_leaf) {
                let Some(leaf) = &place.leaf else { continue };
                let is_first_leaf = is_first_root && number == start.leaf;
                let skip = if is_first_leaf { start.entry } else { 0 };
                if let Some(found) = leaf[skip..].iter().position(Option::is_some) {
                    let entry = skip + found;
                    let found = Position { root: root.number, leaf: number, entry }.offset();
                    return (found <= last).then_some(found);
                }
            }
        }
        None
    }

    /// Returns the place of the root `number` of `area`, or where it would have to be.
    fn search(&self, area: Area, number: u64) -> Result<usize, usize> {
        self.roots.binary_search_by_key(&(area, number), |root| (root.area, root.number))
    }

    /// Drops the root in place `at` if it has no leaf, and with the last root the list of roots.
    fn drop_root_if_empty(&mut self, at: usize) {
        if self.roots[at].used == 0 {
            debug_assert!(self.roots[at].leaves.iter().all(|place| place.leaf.is_none()));
            self.roots.remove(at);
            if self.roots.is_empty() {
                self.roots = Vec::new();
            }
        }
    }

    /// Lists all entries in the order of keys, after a walk over all levels that stops at a broken
    /// invariant.
    #[cfg(test)]
    pub(crate) fn check(&self) -> Vec<(Key, EntryId)> {
        let mut all = Vec::new();
        let mut leaves = 0;
        assert!(self.roots.is_sorted_by_key(|root| (root.area, root.number)));
        for root in &self.roots {
            let mut in_root = 0;
            for (leaf, place) in root.leaves.iter().enumerate() {
                let Some(entries) = &place.leaf else {
                    assert_eq!(place.used, 0);
                    continue;
                };
                let before = all.len();
                for (entry, id) in entries.iter().enumerate() {
                    let offset = Position { root: root.number, leaf, entry }.offset();
                    all.extend(id.map(|id| (Key { area: root.area, offset }, id)));
                }
                assert_eq!(place.used as usize, all.len() - before);
                assert!(place.used > 0, "an empty leaf was kept");
                in_root += 1;
            }
            assert_eq!(root.used, in_root);
            assert!(in_root > 0, "an empty root was kept");
            leaves += in_root as usize;
        }
        assert_eq!(leaves, self.leaves);
        all
    }
}

/// Allocates a leaf without entries.
fn new_leaf() -> Result<Box<Leaf>, NoMemory> {
    room::table(LEAF_ENTRIES, || None)?.try_into().map_err(|_| NoMemory)
}

#[cfg(test)]
mod tests {
    //! The risk: an entry found under another's key, or missed by a range, is a wrong or a lost
    //! page.

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::entry::{Entries, PagePlace};

    /// Makes offsets at and around the borders of leaves and roots, and the last ones of all.
    fn offset() -> impl Strategy<Value = u64> {
        prop_oneof![
            0_u64..4,
            1022_u64..1026,
            (1_u64 << 15) - 2..(1 << 15) + 2,
            (1_u64 << 18) - 2..(1 << 18) + 2,
            (1_u64 << 40) - 1..(1 << 40) + 1100,
            u64::MAX - 3..=u64::MAX,
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_index_does_as_a_map_does(
            steps in prop::collection::vec(
                (0_u8..6, 0_u16..3, offset(), offset(), 0_u64..5), 0..300,
            ),
        ) {
            let (mut index, mut map) = (Index::default(), BTreeMap::new());
            let mut entries = Entries::default();
            for (verb, area, offset, other, memory) in steps {
                let key = Key::new(area, offset);
                match verb {
                    0..3 => {
                        let id = entries.alloc(PagePlace::SameFilled { word: 0 }).unwrap();
                        room::failing::after(Some(memory));
                        let set = index.set(key, id);
                        room::failing::after(None);
                        if let Ok(before) = set {
                            prop_assert_eq!(before, map.insert(key, id));
                        }
                    }
                    3 => prop_assert_eq!(index.remove(key), map.remove(&key)),
                    _ => {
                        let (first, last) = (offset.min(other), offset.max(other));
                        let range = key.min(Key::new(area, first))..=Key::new(area, last);
                        let expected = map.range(range).next().map(|(key, _)| key.offset);
                        let found = index.first_in(key.area, Offset(first), Offset(last));
                        prop_assert_eq!(found, expected);
                    }
                }
                prop_assert_eq!(index.get(key), map.get(&key).copied());
                let all: Vec<_> = map.iter().map(|(&key, &id)| (key, id)).collect();
                prop_assert_eq!(index.check(), all);
            }
            for key in map.into_keys() {
                prop_assert!(index.remove(key).is_some());
            }
            prop_assert_eq!((index.leaves(), index.memory()), (0, Bytes(0)));
        }
    }
}
