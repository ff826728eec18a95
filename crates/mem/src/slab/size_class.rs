//! Which size class an allocation belongs to.

use core::alloc::Layout;

use coldpress_sys::PAGE_BYTES;

/// Bytes at the start of a slab frame kept for its header.
pub(super) const HEADER_BYTES: usize = 32;
/// Every object starts at a multiple of this.
pub(super) const GRANULE: usize = 16;

/// Object sizes. Below 256 the usual steps; above, the largest sizes of which 12, 9, 7, 5, 4, 3 and
/// 2 fit behind a header, so that no frame ends in more than 64 unused bytes.
const SIZES: [u16; CLASSES] =
    [16, 32, 48, 64, 96, 128, 192, 256, 336, 448, 576, 800, 1008, 1344, 2032];
/// Number of size classes.
pub(super) const CLASSES: usize = 15;
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

/// Where an allocation lives; a function of its layout, so that freeing needs no lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// One of several objects in a frame, of this class.
    Class(usize),
    /// A frame of its own, without a header.
    Frame,
    /// A span of its own.
    Span,
}

impl Place {
    pub(super) fn of(layout: Layout) -> Self {
        let (size, align) = (layout.size(), layout.align());
        if size > PAGE_BYTES || align > PAGE_BYTES {
            return Self::Span;
        }
        if size > LARGEST {
            return Self::Frame;
        }
        let smallest = usize::from(CLASS_OF_GRANULES[size.div_ceil(GRANULE)]);
        // Objects are counted from the frame's end, so they are aligned as far as their size is.
        (smallest..CLASSES)
            .find(|class| object_bytes(*class).is_multiple_of(align))
            .map_or(Self::Frame, Self::Class)
    }
}

/// The size of objects of a class.
pub(super) const fn object_bytes(class: usize) -> usize {
    SIZES[class] as usize
}

/// The number of objects in a frame of a class.
pub(super) const fn capacity(class: usize) -> usize {
    (PAGE_BYTES - HEADER_BYTES) / object_bytes(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_fits_its_class_and_no_smaller_class_would_do() {
        for size in 1..=PAGE_BYTES {
            for align in (0..=12).map(|shift| 1 << shift) {
                let fits = |class: &usize| {
                    object_bytes(*class) >= size && object_bytes(*class).is_multiple_of(align)
                };
                let expected = (0..CLASSES).find(fits).map_or(Place::Frame, Place::Class);
                let layout = Layout::from_size_align(size, align).unwrap();
                assert_eq!(Place::of(layout), expected, "{layout:?}");
            }
        }
        let span = Layout::from_size_align(PAGE_BYTES + 1, 1).unwrap();
        assert_eq!(Place::of(span), Place::Span);
        let span = Layout::from_size_align(1, 2 * PAGE_BYTES).unwrap();
        assert_eq!(Place::of(span), Place::Span);
    }
}
