//! Size classes, and the number of frames in a zspage of each.
//!
//! The geometry is that of Linux mm/zsmalloc.c (`calculate_zspage_chain_size`, `zs_create_pool`): a
//! class every 16 bytes from 32 to 4096; the shortest chain with the least unused tail; classes
//! with the same chain and the same number of objects are one, of the larger size.
//!
//! Unlike in zsmalloc of Linux, a zspage is several such chains in a row, as many as possible:
//! because its frames are taken one by one, that costs no frame, and there are fewer descriptors.
//!
//! Long chains make more classes, each with a partly filled frame, which is costly for small pools.
//! So a class that would not exist with chains of up to [`BASE_CHAIN`] begins as a part of the next
//! class that would: its first [`BEGINNERS`] objects go there.

use core::ops::RangeInclusive;

use coldpress_sys::{Bytes, PAGE_BYTES};

/// Difference between the sizes of neighbouring classes.
pub(super) const CLASS_STEP: usize = 16;
/// The smallest class.
pub(super) const CLASS_MIN: usize = 32;
/// Number of sizes before merging.
const SIZES: usize = (PAGE_BYTES - CLASS_MIN) / CLASS_STEP + 1;
/// The longest chain of frames.
pub(in crate::pools) const CHAIN_MAX: usize = 16;
/// The chains that small pools begin with.
const BASE_CHAIN: usize = 8;
/// Objects that a class of longer chains gives away before it holds any. Between 12 and 32 the
/// sizes of real heaps take no more frames than in chains of up to [`BASE_CHAIN`], at 30,000
/// objects as at a million; with fewer, classes that hold little cost more than they save.
pub(super) const BEGINNERS: u8 = 24;
/// Maximum classes after merging: reached with chains of up to [`CHAIN_MAX`].
pub(super) const CLASSES: usize = 192;
/// Bytes at the end of a slot that hold the name of its object. Handles of Linux's zsmalloc take
/// eight.
pub(super) const NAME_BYTES: usize = size_of::<u32>();
/// Maximum objects of a zspage: slots of 48 bytes in three frames already reach it.
const OBJECTS_MAX: usize = 256;

/// One class. A class of one object, which is a frame, is *huge*: it needs no zspages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeClass {
    /// Bytes of a slot, which holds an object.
    pub(super) size: u16,
    /// Slots of a zspage.
    pub(super) objects: u16,
    /// Frames of a zspage.
    pub(super) chain: u8,
    /// The number of the class that its first objects go to; its own number if they stay.
    base: u8,
}

impl SizeClass {
    /// Returns the class that zsmalloc of Linux would make.
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
        Self::of(size, chain)
    }

    const fn of(size: usize, chain: usize) -> Self {
        let objects = chain * PAGE_BYTES / size;
        Self { size: size as u16, objects: objects as u16, chain: chain as u8, base: 0 }
    }

    /// Returns whether this class and the next larger one merge into one.
    const fn merges_with(self, larger: Self) -> bool {
        larger.chain == self.chain && larger.objects == self.objects
    }

    /// Returns the class with the same slots, in as many chains in a row as frames and slots allow.
    const fn lengthened(self, chain_max: usize) -> Self {
        let mut long = self;
        while !self.is_huge() {
            let longer = Self::of(self.size as usize, (long.chain + self.chain) as usize);
            if longer.chain as usize > chain_max || longer.objects as usize > OBJECTS_MAX {
                break;
            }
            long = Self { base: self.base, ..longer };
        }
        long
    }

    /// Returns whether an object is a whole frame.
    pub(super) const fn is_huge(self) -> bool {
        self.objects == 1
    }

    /// Returns the first and the last frame that a slot lies in.
    pub(super) fn frames_of(self, slot: u16) -> (usize, usize) {
        let start = usize::from(slot) * usize::from(self.size);
        (start / PAGE_BYTES, (start + usize::from(self.size) - 1) / PAGE_BYTES)
    }

    /// Returns the slots that lie in a frame, or partly.
    pub(super) fn slots_in(self, frame: usize) -> RangeInclusive<usize> {
        let size = usize::from(self.size);
        frame * PAGE_BYTES / size..=((frame + 1) * PAGE_BYTES - 1) / size
    }

    /// Returns the frames that `objects` objects take when as few zspages as possible hold them.
    pub(super) fn frames_for(self, objects: usize) -> usize {
        let (full, rest) =
            (objects / usize::from(self.objects), objects % usize::from(self.objects));
        full * usize::from(self.chain) + (rest * usize::from(self.size)).div_ceil(PAGE_BYTES)
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
    /// Makes the classes for chains of up to `chain_max` frames, which must be 1 to [`CHAIN_MAX`].
    pub(super) const fn new(chain_max: usize) -> Self {
        assert!(chain_max >= 1 && chain_max <= CHAIN_MAX);
        let none = SizeClass { size: 0, objects: 0, chain: 0, base: 0 };
        let mut all = Self { classes: [none; CLASSES], count: 0, class_of: [0; SIZES] };
        let base_chain = if chain_max < BASE_CHAIN { chain_max } else { BASE_CHAIN };
        let (mut last, mut last_base) = (none, none);
        let mut index = SIZES;
        while index > 0 {
            index -= 1;
            let size = CLASS_MIN + index * CLASS_STEP;
            let (class, base) = (SizeClass::new(size, chain_max), SizeClass::new(size, base_chain));
            let (is_new, is_base) = (!class.merges_with(last), !base.merges_with(last_base));
            (last, last_base) = (class, base);
            if is_new {
                let number = all.count;
                // Next to the huge class, whose slots are frames, a class begins by itself.
                let before = if number == 0 { 0 } else { all.classes[number - 1].base };
                let base = if is_base || before == 0 { number as u8 } else { before };
                all.classes[number] = SizeClass { base, ..class };
                all.count += 1;
            }
            all.class_of[index] = (all.count - 1) as u8;
        }
        index = 0;
        while index < all.count {
            all.classes[index] = all.classes[index].lengthened(chain_max);
            index += 1;
        }
        all
    }

    /// Returns the number of classes. The first is the one of 4096 bytes, and the only huge one.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns a class by its number.
    pub(super) fn class(&self, number: usize) -> SizeClass {
        self.classes[number]
    }

    /// Returns the class that the first [`BEGINNERS`] objects of a class go to. `None` when they
    /// stay.
    pub(super) fn base_of(&self, number: usize) -> Option<usize> {
        let base = usize::from(self.classes[number].base);
        (base != number).then_some(base)
    }

    /// Returns the number of the class for objects of `size`, which must be 1 to 4096. The name
    /// lies in the slot with the object, unless the class is huge.
    pub(super) fn class_of(&self, size: Bytes) -> usize {
        self.class_of_slot((size.0 + NAME_BYTES).min(PAGE_BYTES))
    }

    /// Returns the number of the class for slots of `size`, which must be 1 to 4096.
    fn class_of_slot(&self, size: usize) -> usize {
        let step = size.max(CLASS_MIN).div_ceil(CLASS_STEP) - CLASS_MIN / CLASS_STEP;
        usize::from(self.class_of[step])
    }
}

#[cfg(test)]
mod tests {
    use super::super::HUGE;
    use super::*;

    fn all_classes(chain_max: usize) -> Vec<SizeClass> {
        let classes = SizeClasses::new(chain_max);
        (0..classes.count()).map(|number| classes.class(number)).collect()
    }

    /// The loop in Linux's zsmalloc gives these numbers.
    #[test]
    fn as_many_distinct_classes_as_the_reference() {
        let reference = [(4, 69), (6, 94), (8, 119), (10, 141), (12, 159), (16, 192)];
        for (chain_max, distinct) in reference {
            assert_eq!(all_classes(chain_max).len(), distinct, "chains of up to {chain_max}");
        }
    }

    #[test]
    fn classes_of_longer_chains_begin_in_those_of_the_base() {
        let base = all_classes(BASE_CHAIN).into_iter().map(|class| class.size);
        let base: std::collections::HashSet<_> = base.collect();
        for chain_max in 1..=CHAIN_MAX {
            let classes = SizeClasses::new(chain_max);
            let mut begun = 0;
            for number in 0..classes.count() {
                let size = classes.class(number).size;
                let Some(first) = classes.base_of(number) else { continue };
                assert!(!base.contains(&size) && first > HUGE && first < number, "{size}");
                assert_eq!(classes.base_of(first), None, "{size}");
                assert!(classes.class(first).size - size < 200, "{size}");
                begun += 1;
            }
            assert_eq!(begun > 0, chain_max > BASE_CHAIN, "chains of up to {chain_max}");
        }
    }

    #[test]
    fn the_largest_class_below_a_frame_is_that_of_the_reference() {
        for (chain_max, largest) in [(4, 3264), (8, 3632), (16, 3840)] {
            let classes = all_classes(chain_max);
            let largest_shared = classes.iter().find(|class| !class.is_huge()).unwrap();
            assert_eq!(usize::from(largest_shared.size), largest);
            assert_eq!(usize::from(classes[0].size), PAGE_BYTES);
            assert!(classes[0].is_huge() && classes[1..].iter().all(|class| !class.is_huge()));
        }
    }

    /// Returns the bytes of full zspages that an object takes beyond its own, over all sizes, with
    /// the chains of Linux's zsmalloc and a handle of `handle` bytes.
    fn mean_waste(chain_max: usize, handle: usize) -> f64 {
        let classes = SizeClasses::new(chain_max);
        let waste = |size: usize| {
            let number = classes.class_of_slot((size + handle).min(PAGE_BYTES));
            let class = SizeClass::new(classes.class(number).size.into(), chain_max);
            let bytes = usize::from(class.chain) * PAGE_BYTES;
            bytes as f64 / f64::from(class.objects) - size as f64
        };
        (1..=PAGE_BYTES).map(waste).sum::<f64>() / PAGE_BYTES as f64
    }

    /// The figures of Linux's zsmalloc are with its handles of eight bytes.
    #[test]
    fn an_object_wastes_four_bytes_less_than_in_the_reference() {
        for (chain_max, reference) in [(4, 154.9), (6, 92.4), (8, 63.8), (12, 40.5), (16, 31.4)] {
            let (theirs, ours) = (mean_waste(chain_max, 8), mean_waste(chain_max, NAME_BYTES));
            assert!((theirs - reference).abs() < 0.06, "{theirs} in chains of up to {chain_max}");
            assert!((theirs - ours - 3.95).abs() < 0.06, "{ours} in chains of up to {chain_max}");
        }
    }

    #[test]
    fn every_size_has_a_class_that_holds_it_in_chains_with_the_least_tail() {
        for chain_max in 1..=CHAIN_MAX {
            let classes = SizeClasses::new(chain_max);
            for size in 1..=PAGE_BYTES {
                let class = classes.class(classes.class_of_slot(size));
                let (chain, objects) = (usize::from(class.chain), usize::from(class.objects));
                assert!(usize::from(class.size) >= size, "size {size} in {class:?}");
                assert_eq!(objects, chain * PAGE_BYTES / usize::from(class.size));
                assert!(chain <= chain_max && objects <= OBJECTS_MAX);
                // The class that the size would have alone: merging costs neither frames nor
                // objects.
                let own = size.next_multiple_of(CLASS_STEP).max(CLASS_MIN);
                let tails = (1..=chain_max).map(|chain| (chain * PAGE_BYTES % own, chain));
                let (_, shortest) = tails.min().unwrap();
                assert_eq!(chain % shortest, 0, "size {size} in {class:?}");
                assert!(objects >= chain / shortest * (shortest * PAGE_BYTES / own));
                // The chain is as long as possible, except for the huge class.
                let longer = (chain + shortest) * PAGE_BYTES / usize::from(class.size);
                let may_grow = chain + shortest <= chain_max && longer <= OBJECTS_MAX;
                assert!(class.is_huge() || !may_grow, "size {size} in {class:?}");
            }
        }
    }

    #[test]
    fn slots_and_frames_know_each_other() {
        for class in all_classes(CHAIN_MAX) {
            let chain = usize::from(class.chain);
            for slot in 0..class.objects {
                let (first, last) = class.frames_of(slot);
                assert!(first <= last && last <= first + 1 && last < chain, "{slot} of {class:?}");
                for frame in 0..chain {
                    let inside = class.slots_in(frame).contains(&slot.into());
                    assert_eq!(inside, (first..=last).contains(&frame), "{slot} of {class:?}");
                }
            }
            // A full zspage needs all its frames, and every further object at most two more.
            let full = usize::from(class.objects);
            assert_eq!(class.frames_for(full), chain);
            assert_eq!(class.frames_for(3 * full + 1), 3 * chain + 1);
            for objects in 0..full {
                let frames = class.frames_of(objects as u16).1 + 1;
                assert_eq!(class.frames_for(objects + 1), frames);
            }
        }
    }
}
