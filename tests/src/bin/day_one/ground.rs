//! Ground: the memory of one case, and what each page of it must hold.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Stop;
use crate::program::outcome::Outcome;
use crate::program::pattern::{Kind, PageImage, Tag, describe};
use crate::program::random::mix;
use crate::program::{PAGE, raw};

/// Seed of the patterns.
const SEED: u64 = 0x0064_6179_206f_6e65;
/// Bytes of a huge page.
pub const HUGE: usize = 2 << 20;

/// Whether all ground is to consist of huge pages.
static HUGE_PAGES: AtomicBool = AtomicBool::new(false);

/// Makes ground consist of huge pages from now on, where it is large enough.
pub fn ask_for_huge_pages() {
    // Relaxed: one thread exists.
    HUGE_PAGES.store(true, Ordering::Relaxed);
}

/// Memory of one case.
pub struct Ground {
    /// The first address of the ground.
    pub base: usize,
    owner: u32,
    version: u32,
    /// The last writer of each page; `None` when it is unknown.
    tags: Vec<Option<Tag>>,
}

impl Ground {
    /// Maps this number of pages and fills them.
    pub fn map(owner: u32, pages: usize) -> Result<Self, Stop> {
        Self::map_aligned(owner, pages, PAGE)
    }

    /// Maps pages as [`Ground::map`] does, with an aligned start.
    pub fn map_aligned(owner: u32, pages: usize, align: usize) -> Result<Self, Stop> {
        let room = raw::map(pages * PAGE + align).map_err(|error| fail("mmap", &error))?;
        let mut ground = Self::at(owner, room.next_multiple_of(align), pages);
        // Relaxed: set before any ground was laid.
        if HUGE_PAGES.load(Ordering::Relaxed) {
            // A kernel without huge pages refuses.
            let _ = unsafe { raw::advise(ground.base, pages * PAGE, libc::MADV_HUGEPAGE) };
        }
        ground.fill(0..pages);
        Ok(ground)
    }

    /// Makes ground of memory that holds zeros.
    pub fn at(owner: u32, base: usize, pages: usize) -> Self {
        Self { base, owner, version: 0, tags: vec![Some(Tag::default()); pages] }
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> usize {
        self.tags.len()
    }

    /// Returns the number of bytes.
    pub fn length(&self) -> usize {
        self.pages() * PAGE
    }

    /// Returns a pointer to a page.
    pub fn page<T>(&self, page: usize) -> *mut T {
        raw::pointer(self.base + page * PAGE).cast()
    }

    /// Writes pages anew.
    pub fn fill(&mut self, pages: Range<usize>) {
        self.version += 1;
        for page in pages {
            let kind = Kind::by_lot(mix(u64::from(self.owner) << 32 | page as u64));
            self.write(page, page, kind);
        }
    }

    /// Writes pages anew so that many of them are alike.
    pub fn fill_alike(&mut self, pages: Range<usize>) {
        self.version += 1;
        for page in pages {
            self.write(page, page % 4, Kind::Text);
        }
    }

    fn write(&mut self, page: usize, index: usize, kind: Kind) {
        let (owner, version) = (self.owner, self.version);
        let tag = Tag { owner, index: index as u32, version, kind, patches: 0 };
        let mut image = PageImage::zero();
        tag.expected(SEED, &mut image);
        let to = unsafe { raw::bytes_mut(self.base + page * PAGE, PAGE) };
        to.copy_from_slice(image.bytes());
        self.tags[page] = Some(tag);
    }

    /// Expects zeros in these pages from now on.
    pub fn expect_zeros(&mut self, pages: Range<usize>) {
        self.tags[pages].fill(Some(Tag::default()));
    }

    /// Expects anything in these pages from now on.
    pub fn expect_anything(&mut self, pages: Range<usize>) {
        self.tags[pages].fill(None);
    }

    /// Notes that the ground has moved, and has this number of pages now; new pages hold zeros.
    pub fn moved(&mut self, base: usize, pages: usize) {
        self.base = base;
        self.tags.resize(pages, Some(Tag::default()));
    }

    /// Returns the number of pages that are not in memory, and of all pages.
    pub fn evicted(&self) -> (usize, usize) {
        let start = self.base.next_multiple_of(PAGE);
        let bytes = (self.base + self.length() - start) / PAGE * PAGE;
        let resident = unsafe { raw::resident_pages(start, bytes) }.unwrap_or(bytes / PAGE);
        (bytes / PAGE - resident, bytes / PAGE)
    }

    /// Checks that all pages hold what they must.
    pub fn compare(&self) -> Outcome {
        self.compare_part(0..self.pages())
    }

    /// Checks that these pages hold what they must.
    pub fn compare_part(&self, pages: Range<usize>) -> Outcome {
        let wrong: Vec<usize> = pages.filter(|page| !self.is_right(*page)).collect();
        let Some(first) = wrong.first() else { return Ok(()) };
        let mut found = PageImage::zero();
        let bytes = unsafe { raw::bytes(self.base + first * PAGE, PAGE) };
        for (word, eight) in found.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(eight.try_into().expect("chunks of eight"));
        }
        Err(Stop::Fail(format!(
            "{} pages are wrong, the first is page {first} of {}, which should be {:?} and is {}",
            wrong.len(),
            self.pages(),
            self.tags[*first],
            describe(&found),
        )))
    }

    /// Returns whether a page holds what it must.
    pub fn is_right(&self, page: usize) -> bool {
        let Some(tag) = self.tags[page] else { return true };
        let mut image = PageImage::zero();
        tag.expected(SEED, &mut image);
        unsafe { raw::bytes(self.base + page * PAGE, PAGE) == image.bytes() }
    }
}

/// Makes the failure of a call of the test itself.
pub fn fail(call: &str, error: &std::io::Error) -> Stop {
    Stop::Fail(format!("{call}: {error}"))
}
