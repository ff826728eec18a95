//! Size classes and how many frames a zspage of each has.
//!
//! The geometry is that of Linux mm/zsmalloc.c (`calculate_zspage_chain_size`, `zs_create_pool`): a
//! class every 16 bytes from 32 to 4096; the shortest chain with the least unused tail; classes
//! with the same chain and the same number of objects are one, of the larger size.

use coldpress_sys::{Bytes, PAGE_BYTES};

/// Sizes of classes are multiples of this.
pub(super) const CLASS_STEP: usize = 16;
/// The smallest class.
const CLASS_MIN: usize = 32;
/// Sizes before merging.
const SIZES: usize = (PAGE_BYTES - CLASS_MIN) / CLASS_STEP + 1;
/// The longest chain of frames.
pub const CHAIN_MAX: usize = 16;
/// Classes after merging, at most: reached with chains of up to [`CHAIN_MAX`].
pub(super) const CLASSES: usize = 192;
/// Objects of a zspage, at most; a test holds the table to it.
pub(super) const OBJECTS_MAX: usize = 2048;

/// One class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeClass {
    /// Bytes of an object.
    pub(super) size: u16,
    /// Objects of a zspage.
    pub(super) objects: u16,
    /// Frames of a zspage.
    pub(super) chain: u8,
}

impl SizeClass {
    const fn new(size: usize, chain_max: usize) -> Self {
        let (mut chain, mut best) = (1, PAGE_BYTES % size);
        let mut length = 2;
        while length <= chain_max {
            let waste = length * PAGE_BYTES % size;
            if waste < best {
                (chain, best) = (length, waste);
            }
            length += 1;
        }
        let objects = chain * PAGE_BYTES / size;
        Self { size: size as u16, objects: objects as u16, chain: chain as u8 }
    }
}

/// All classes of a pool.
pub(super) struct SizeClasses {
    classes: [SizeClass; CLASSES],
    count: usize,
    /// The class of each size before merging.
    class_of: [u8; SIZES],
}

impl SizeClasses {
    /// The classes for chains of up to `chain_max` frames, which must be 1 to [`CHAIN_MAX`].
    pub(super) const fn new(chain_max: usize) -> Self {
        assert!(chain_max >= 1 && chain_max <= CHAIN_MAX);
        let none = SizeClass { size: 0, objects: 0, chain: 0 };
        let mut all = Self { classes: [none; CLASSES], count: 0, class_of: [0; SIZES] };
        let mut index = SIZES;
        while index > 0 {
            index -= 1;
            let class = SizeClass::new(CLASS_MIN + index * CLASS_STEP, chain_max);
            let merges = all.count > 0 && {
                let larger = all.classes[all.count - 1];
                larger.chain == class.chain && larger.objects == class.objects
            };
            if !merges {
                all.classes[all.count] = class;
                all.count += 1;
            }
            all.class_of[index] = (all.count - 1) as u8;
        }
        all
    }

    /// The number of classes. The first is the one of 4096 bytes.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// A class by its number.
    pub(super) fn class(&self, number: usize) -> SizeClass {
        self.classes[number]
    }

    /// The number of the class for objects of `size`, which must be 1 to 4096.
    pub(super) fn class_of(&self, size: Bytes) -> usize {
        usize::from(
            self.class_of[size.0.max(CLASS_MIN).div_ceil(CLASS_STEP) - CLASS_MIN / CLASS_STEP],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_classes(chain_max: usize) -> Vec<SizeClass> {
        let classes = SizeClasses::new(chain_max);
        (0..classes.count()).map(|number| classes.class(number)).collect()
    }

    /// The kernel's own loop gives these numbers.
    #[test]
    fn as_many_distinct_classes_as_the_reference() {
        let reference = [(4, 69), (6, 94), (8, 119), (10, 141), (12, 159), (16, 192)];
        for (chain_max, distinct) in reference {
            assert_eq!(all_classes(chain_max).len(), distinct, "chains of up to {chain_max}");
        }
    }

    #[test]
    fn the_largest_class_below_a_frame_is_that_of_the_reference() {
        for (chain_max, largest) in [(4, 3264), (8, 3632), (16, 3840)] {
            let classes = all_classes(chain_max);
            let largest_shared = classes.iter().find(|class| class.objects > 1).unwrap();
            assert_eq!(usize::from(largest_shared.size), largest);
            assert_eq!(usize::from(classes[0].size), PAGE_BYTES);
        }
    }

    #[test]
    fn every_size_has_a_class_that_holds_it_in_the_shortest_chain_with_the_least_tail() {
        for chain_max in 1..=CHAIN_MAX {
            let classes = SizeClasses::new(chain_max);
            for size in 1..=PAGE_BYTES {
                let class = classes.class(classes.class_of(Bytes(size)));
                let bytes = usize::from(class.chain) * PAGE_BYTES;
                let objects = usize::from(class.objects);
                assert!(usize::from(class.size) >= size, "size {size} in {class:?}");
                assert!(objects * usize::from(class.size) <= bytes && objects <= OBJECTS_MAX);
                // The class the size would have alone: merging costs neither frames nor objects.
                let own = size.next_multiple_of(CLASS_STEP).max(CLASS_MIN);
                let tails = (1..=chain_max).map(|chain| (chain * PAGE_BYTES % own, chain));
                let (_, chain) = tails.min().unwrap();
                assert_eq!((usize::from(class.chain), objects), (chain, bytes / own));
            }
        }
    }
}
