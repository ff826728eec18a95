//! The size class of an allocation, and how many objects of a class are kept where.

use core::alloc::Layout;

use coldpress_sys::PAGE_BYTES;

/// Alignment of every object.
pub(super) const GRANULE: usize = 16;
/// Granules of a frame.
pub(super) const FRAME_GRANULES: usize = PAGE_BYTES / GRANULE;
/// Bytes behind every object that show writes beyond it: none in release builds.
pub(super) const RED_ZONE: usize = if cfg!(debug_assertions) { 16 } else { 0 };

/// Object sizes. Below 256 the usual steps; above, the largest sizes of which 12, 9, 8, 6, 5, 4, 3
/// and 2 fit into a frame, so that no frame ends in more than 64 unused bytes.
const SIZES: [u16; CLASSES] =
    [16, 32, 48, 64, 96, 128, 192, 256, 336, 448, 512, 672, 816, 1024, 1360, 2048];
/// Number of size classes.
pub(super) const CLASSES: usize = 16;
const LARGEST: usize = SIZES[CLASSES - 1] as usize;

/// The smallest class for each number of granules.
const CLASS_OF_GRANULES: [u8; LARGEST / GRANULE + 1] = {
    let mut table = [0; LARGEST / GRANULE + 1];
    let mut granules = 0;
    let mut class = 0;
    while granules < table.len() {
        if granules * GRANULE > SIZES[class] as usize {
            class += 1;
        }
        table[granules] = class as u8;
        granules += 1;
    }
    table
};

/// The kind of an allocation; a function of its layout, so that freeing needs no lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllocationKind {
    /// One of several objects in a frame, of this class.
    Class(usize),
    /// A frame of its own.
    Frame,
    /// A span of its own.
    Span,
}

impl AllocationKind {
    #[inline]
    pub(super) const fn of(layout: Layout) -> Self {
        let (size, align) = (layout.size(), layout.align());
        if size + RED_ZONE <= LARGEST && align <= GRANULE {
            return Self::Class(CLASS_OF_GRANULES[(size + RED_ZONE).div_ceil(GRANULE)] as usize);
        }
        Self::of_large_or_aligned(size, align)
    }

    const fn of_large_or_aligned(size: usize, align: usize) -> Self {
        if size > PAGE_BYTES || align > PAGE_BYTES {
            return Self::Span;
        }
        if size + RED_ZONE > LARGEST {
            return Self::Frame;
        }
        // Objects lie at multiples of their size in a frame, so the size's alignment is theirs.
        let mut class = CLASS_OF_GRANULES[(size + RED_ZONE).div_ceil(GRANULE)] as usize;
        while !object_bytes(class).is_multiple_of(align) {
            class += 1;
            if class == CLASSES {
                return Self::Frame;
            }
        }
        Self::Class(class)
    }
}

/// Returns the size of objects of a class.
#[inline]
pub(super) const fn object_bytes(class: usize) -> usize {
    SIZES[class] as usize
}

/// Returns the number of objects in a frame of a class.
pub(super) const fn capacity(class: usize) -> usize {
    PAGE_BYTES / object_bytes(class)
}

/// Returns the maximum objects of a class that a processor keeps to itself: 64 KiB of them, up to
/// 2048.
pub(super) const fn stack_capacity(class: usize) -> usize {
    let objects = (64 << 10) / object_bytes(class);
    if objects > 2048 { 2048 } else { objects }
}

/// Returns how many objects go from or to a processor's stack at a time: half of it.
pub(super) const fn batch(class: usize) -> usize {
    stack_capacity(class) / 2
}

/// Returns the maximum objects of a class on their way between processors: 1 MiB of them, up to
/// 16384. A power of two, and at least two batches.
pub(super) const fn depot_capacity(class: usize) -> usize {
    let objects = (1 << 20) / object_bytes(class);
    let most = if objects > 16384 { 16384 } else { objects };
    1 << most.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_fits_its_class_and_no_smaller_class_would_do() {
        for size in 1..=PAGE_BYTES {
            for align in (0..=12).map(|shift| 1 << shift) {
                let fits = |class: &usize| {
                    let bytes = object_bytes(*class);
                    bytes >= size + RED_ZONE && bytes.is_multiple_of(align)
                };
                let expected =
                    (0..CLASSES).find(fits).map_or(AllocationKind::Frame, AllocationKind::Class);
                let layout = Layout::from_size_align(size, align).unwrap();
                assert_eq!(AllocationKind::of(layout), expected, "{layout:?}");
            }
        }
        let span = Layout::from_size_align(PAGE_BYTES + 1, 1).unwrap();
        assert_eq!(AllocationKind::of(span), AllocationKind::Span);
        let span = Layout::from_size_align(1, 2 * PAGE_BYTES).unwrap();
        assert_eq!(AllocationKind::of(span), AllocationKind::Span);
    }

    #[test]
    fn capacities_hold_what_moves_at_a_time() {
        for class in 0..CLASSES {
            assert!(object_bytes(class).is_multiple_of(GRANULE));
            assert!(PAGE_BYTES - capacity(class) * object_bytes(class) <= 64);
            assert!(batch(class) >= 16);
            assert!(depot_capacity(class) >= 4 * batch(class));
        }
    }
}
