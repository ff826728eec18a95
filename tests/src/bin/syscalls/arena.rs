//! The arena of slots, and their contents.

use crate::program::pattern::{Kind, PageImage, Tag};
use crate::program::random::mix;
use crate::program::{PAGE, raw};
use crate::{Outcome, Stop};

pub use crate::program::outcome::{exactly, failed, fails, wrong};

/// Pages of a slot.
pub const SLOT_PAGES: usize = 32;
/// Bytes of a slot.
pub const SLOT: usize = SLOT_PAGES * PAGE;
/// The two large buffers of a slot: neither starts nor ends with a page.
pub const A: usize = 100;
/// Start of the second buffer.
pub const B: usize = 16 * PAGE + 36;
/// Bytes of each buffer.
pub const N: usize = 15 * PAGE + 77;
/// Seed of the patterns.
const SEED: u64 = 0x7379_7363;

/// Returns the offset of `size` bytes, aligned to 16, of which half lie on `page` and half on the
/// next page.
pub const fn across(page: usize, size: usize) -> usize {
    (page + 1) * PAGE - (size / 2).next_multiple_of(16)
}

/// Returns the offset of `size` unaligned bytes across the end of `page`.
pub const fn split(page: usize, size: usize) -> usize {
    (page + 1) * PAGE - size / 2
}

/// Which pages of a slot are in memory when the call comes.
#[derive(Clone, Copy)]
pub enum Layout {
    Cold,
    First,
    Last,
    Alternating,
}

impl Layout {
    pub const ALL: [Self; 4] = [Self::Cold, Self::First, Self::Last, Self::Alternating];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::First => "first-resident",
            Self::Last => "last-resident",
            Self::Alternating => "alternating",
        }
    }

    /// Returns whether the page, counted within each half of the slot, is touched again.
    fn touches(self, page: usize) -> bool {
        match self {
            Self::Cold => false,
            Self::First => page == 0,
            Self::Last => page == SLOT_PAGES / 2 - 1,
            Self::Alternating => page.is_multiple_of(2),
        }
    }
}

/// All slots.
pub struct Arena {
    addr: usize,
    slots: usize,
}

impl Arena {
    pub fn new(bytes: usize) -> Self {
        let slots = bytes / SLOT;
        Self { addr: raw::map(slots * SLOT).expect("cannot map the arena"), slots }
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Writes the pattern and what the case prepares into a slot.
    pub fn fill(&self, index: usize, prepare: fn(usize, &mut [u8])) {
        let base = self.addr + index * SLOT;
        unsafe { raw::bytes_mut(base, SLOT) }.copy_from_slice(&image(base, index, prepare));
    }

    /// Returns a slot with its image, made without reading the slot.
    pub fn slot(&self, index: usize, prepare: fn(usize, &mut [u8])) -> Slot {
        let base = self.addr + index * SLOT;
        Slot { base, image: image(base, index, prepare) }
    }
}

fn image(base: usize, index: usize, prepare: fn(usize, &mut [u8])) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SLOT);
    let mut page = PageImage::zero();
    for number in 0..SLOT_PAGES {
        let kind = [Kind::Text, Kind::Sparse, Kind::Text, Kind::Same][number % 4];
        let tag = Tag { owner: index as u32, index: number as u32, version: 1, kind, patches: 0 };
        tag.expected(SEED, &mut page);
        bytes.extend_from_slice(page.bytes());
    }
    prepare(base, &mut bytes);
    bytes
}

/// One slot, and what it must hold in the end.
pub struct Slot {
    pub base: usize,
    image: Vec<u8>,
}

impl Slot {
    /// Returns a pointer to an offset of the slot.
    pub fn at<T>(&self, offset: usize) -> *mut T {
        raw::pointer(self.base + offset).cast()
    }

    /// Returns what the slot must hold there. Before the call, that is what the slot holds.
    pub fn wanted(&self, offset: usize, length: usize) -> &[u8] {
        &self.image[offset..offset + length]
    }

    /// Expects these bytes at `offset` from now on.
    pub fn expect(&mut self, offset: usize, bytes: &[u8]) {
        self.image[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Accepts what the slot holds there, whatever it is: the case has judged it.
    pub fn learn(&mut self, offset: usize, length: usize) {
        let bytes = unsafe { raw::bytes(self.base + offset, length) };
        self.image[offset..offset + length].copy_from_slice(bytes);
    }

    /// Brings in the pages of a layout.
    pub fn touch(&self, layout: Layout) {
        for page in (0..SLOT_PAGES).filter(|page| layout.touches(page % (SLOT_PAGES / 2))) {
            unsafe { self.at::<u8>(page * PAGE + 5).read_volatile() };
        }
    }

    /// Returns the number of pages not in memory, and of all pages of the slot.
    pub fn evicted(&self) -> (usize, usize) {
        let resident = unsafe { raw::resident_pages(self.base, SLOT) }.unwrap_or(SLOT_PAGES);
        (SLOT_PAGES - resident, SLOT_PAGES)
    }

    /// Checks that the whole slot holds what it must.
    pub fn compare(&self) -> Outcome {
        let got = unsafe { raw::bytes(self.base, SLOT) };
        match got.iter().zip(&self.image).position(|(got, wanted)| got != wanted) {
            None => Ok(()),
            Some(at) => {
                let wrong = got.iter().zip(&self.image).filter(|(got, wanted)| got != wanted);
                Err(Stop::Fail(format!(
                    "{} bytes differ, the first at page {} byte {}: {:#x} instead of {:#x}",
                    wrong.count(),
                    at / PAGE,
                    at % PAGE,
                    got[at],
                    self.image[at],
                )))
            }
        }
    }
}

/// Makes bytes that come in from elsewhere: never what a slot held before.
pub fn incoming(length: usize, salt: u64) -> Vec<u8> {
    let words = (0..length.div_ceil(8) as u64).map(|index| mix(salt ^ (index / 3)));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(length);
    bytes
}

/// Copies a value's bytes into an image.
pub fn put<T: Copy>(image: &mut [u8], offset: usize, value: &T) {
    image[offset..offset + size_of::<T>()].copy_from_slice(&bytes_of(value));
}

/// Returns a value's bytes; for types without padding.
pub fn bytes_of<T: Copy>(value: &T) -> Vec<u8> {
    let from = std::ptr::from_ref(value).cast::<u8>();
    unsafe { std::slice::from_raw_parts(from, size_of::<T>()) }.to_vec()
}

/// Checks that bytes that arrived elsewhere are the wanted ones.
pub fn same(what: &str, got: &[u8], wanted: &[u8]) -> Outcome {
    if got == wanted {
        return Ok(());
    }
    let at = got.iter().zip(wanted).position(|(got, wanted)| got != wanted);
    wrong(format!("{what}: {} of {} bytes, differs at {at:?}", got.len(), wanted.len()))
}

/// A descriptor that closes itself.
pub struct Fd(pub i32);

impl Fd {
    pub fn new(call: &str, fd: i32) -> Result<Self, Stop> {
        if fd < 0 { Err(failed(call)) } else { Ok(Self(fd)) }
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        unsafe { libc::close(self.0) };
    }
}
