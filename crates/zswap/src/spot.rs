//! Spots: which shard a page lies in, and its name there.
//!
//! A stretch of 4 MiB of pages, a leaf of the index, lies in one shard, and the next stretch in the
//! next. The name in a shard leaves out the leaves of the others, so that names of neighbours are
//! neighbours too, and a range of pages is a range of names in each shard.

use crate::ids::SHARDS;
use crate::index::LEAF_ENTRIES;
use crate::key::{Key, Offset};

/// Returns the number of the leaf of an offset, over all shards.
const fn leaf_of(offset: Offset) -> u64 {
    offset.0 / LEAF_ENTRIES as u64
}

/// The place of a key: the number of its shard, and its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) shard: usize,
    pub(crate) key: Key,
}

impl Spot {
    /// Returns the spot of `key`.
    pub(crate) const fn of(key: Key) -> Self {
        let leaf = leaf_of(key.offset);
        let offset =
            leaf / SHARDS as u64 * LEAF_ENTRIES as u64 + key.offset.0 % LEAF_ENTRIES as u64;
        let key = Key { area: key.area, offset: Offset(offset) };
        Self { shard: (leaf % SHARDS as u64) as usize, key }
    }

    /// Returns the key of this spot.
    #[cfg(test)]
    pub(crate) const fn key(self) -> Key {
        let Self { shard, key: Key { area, offset: Offset(offset) } } = self;
        let leaf = offset / LEAF_ENTRIES as u64 * SHARDS as u64 + shard as u64;
        let offset = leaf * LEAF_ENTRIES as u64 + offset % LEAF_ENTRIES as u64;
        Key { area, offset: Offset(offset) }
    }

    /// Returns the first and the last name that the pages in `first..=last` have in `shard`. `None`
    /// when there are none.
    pub(crate) fn range(shard: usize, first: Offset, last: Offset) -> Option<(Offset, Offset)> {
        let lane = |leaf: u64| (leaf % SHARDS as u64) as usize;
        let ahead = (shard + SHARDS - lane(leaf_of(first))) % SHARDS;
        let behind = (lane(leaf_of(last)) + SHARDS - shard) % SHARDS;
        let first_leaf = leaf_of(first) + ahead as u64;
        let last_leaf = leaf_of(last).checked_sub(behind as u64)?;
        if first_leaf > last_leaf {
            return None;
        }
        let inside = LEAF_ENTRIES as u64;
        let begin = if ahead == 0 { first.0 % inside } else { 0 };
        let end = if behind == 0 { last.0 % inside } else { inside - 1 };
        let name = |leaf: u64, entry| Offset(leaf / SHARDS as u64 * inside + entry);
        Some((name(first_leaf, begin), name(last_leaf, end)))
    }
}

#[cfg(test)]
mod tests {
    //! The risk: two keys with one name, or a range that misses a page.

    use proptest::prelude::*;

    use super::*;

    fn offset() -> impl Strategy<Value = u64> {
        let near = |border: u64| border.saturating_sub(3)..border.saturating_add(3);
        prop_oneof![near(1024), near(8 << 10), near(1 << 40), Just(u64::MAX), any::<u64>()]
    }

    proptest! {
        #[test]
        fn a_spot_is_one_keys_and_keeps_the_order(one in offset(), other in offset()) {
            let [one, other] = [one, other].map(|offset| Key::new(1, offset));
            prop_assert_eq!(Spot::of(one).key(), one);
            if Spot::of(one).shard == Spot::of(other).shard {
                let order = Spot::of(one).key.cmp(&Spot::of(other).key);
                prop_assert_eq!(order, one.cmp(&other));
            }
        }

        #[test]
        fn ranges_of_shards_are_the_range(
            first in offset(), last in offset(), at in offset(),
        ) {
            let (first, last) = (first.min(last), first.max(last));
            let Spot { shard, key } = Spot::of(Key::new(0, at));
            let range = Spot::range(shard, Offset(first), Offset(last));
            let is_in = range.is_some_and(|(first, last)| (first..=last).contains(&key.offset));
            prop_assert_eq!(is_in, (first..=last).contains(&at));
            if let Some((first, last)) = range {
                prop_assert!(first <= last);
            }
        }
    }
}
