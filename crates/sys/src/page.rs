//! Pages and the unit types every layer shares.
//!
//! An index, a count and a size are different things, so each has a type; conversions are named.

use core::ops::{Add, AddAssign, Sub, SubAssign};

/// Bytes in a page of the program and in a frame of ours. x86-64 and the common arm64 kernels use 4
/// KiB.
pub const PAGE_BYTES: usize = 4096;
/// log2 of [`PAGE_BYTES`]: an address shifted right by this is a page number.
pub const PAGE_SHIFT: u32 = PAGE_BYTES.trailing_zeros();
/// Bytes in a block of frames: one huge page of the processor.
pub const BLOCK_BYTES: usize = 2 << 20;
/// Frames in a block.
pub const FRAMES_PER_BLOCK: usize = BLOCK_BYTES / PAGE_BYTES;

const _: () = assert!(PAGE_BYTES.is_power_of_two() && BLOCK_BYTES.is_multiple_of(PAGE_BYTES));

/// The bytes of one page.
pub type Page = [u8; PAGE_BYTES];

/// A page aligned in memory, so that words of it can be compared and the kernel can copy it whole.
#[repr(C, align(4096))]
#[derive(Clone)]
pub struct PageBuffer(pub Page);

impl PageBuffer {
    /// A page of zeros.
    pub const ZERO: Self = Self([0; PAGE_BYTES]);
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub usize);

impl Bytes {
    /// Returns `count` kibibytes.
    pub const fn kib(count: usize) -> Self {
        Self(count << 10)
    }

    /// Returns `count` mebibytes.
    pub const fn mib(count: usize) -> Self {
        Self(count << 20)
    }

    /// Returns the pages that hold this many bytes, rounded up.
    pub const fn pages_up(self) -> PageCount {
        PageCount(self.0.div_ceil(PAGE_BYTES))
    }

    /// Returns the whole pages inside this many bytes, rounded down.
    pub const fn pages_down(self) -> PageCount {
        PageCount(self.0 / PAGE_BYTES)
    }
}

/// A number of pages, or of frames: both are [`PAGE_BYTES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageCount(pub usize);

impl PageCount {
    /// Returns the size of these pages.
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0 * PAGE_BYTES)
    }

    /// Returns the difference, or zero when `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Implements addition and subtraction for a count type.
macro_rules! count_arithmetic {
    ($($name:ident),*) => {$(
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
    )*};
}
count_arithmetic!(Bytes, PageCount);
