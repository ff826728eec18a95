//! The data that a child must find whole and the parent must find unchanged.

use crate::program::pattern::{Kind, PageImage, Tag};
use crate::program::random::mix;
use crate::program::{PAGE, raw};

/// Seed of the patterns.
const SEED: u64 = 0x666f_726b;
/// Pages of a chunk on the heap: below malloc's threshold for a mapping of its own.
const CHUNK_PAGES: usize = 16;

/// Names memory as some libraries name stacks, where the kernel can.
fn name(addr: usize, length: usize) {
    let name = c"fiber stack".as_ptr();
    unsafe { libc::prctl(libc::PR_SET_VMA, libc::PR_SET_VMA_ANON_NAME, addr, length, name) };
}

/// Pages in one mapping and in chunks, with the version each was written in.
pub struct Data {
    addr: usize,
    mapped: usize,
    chunks: Vec<Vec<u8>>,
    versions: Vec<u32>,
}

impl Data {
    /// Makes and fills `bytes`.
    pub fn new(bytes: usize) -> Self {
        let chunk = CHUNK_PAGES * PAGE;
        let chunks: Vec<_> = (0..bytes / 2 / chunk).map(|_| vec![0u8; chunk]).collect();
        let mapped = bytes / 2 / PAGE;
        let half = mapped / 2;
        let addr = unsafe { libc::malloc(half * PAGE) }.expose_provenance();
        let versions = vec![0; mapped + chunks.len() * CHUNK_PAGES];
        let mut data = Self { addr, mapped, chunks, versions };
        (mapped..data.versions.len()).chain(0..half).for_each(|page| data.write(page, 1));
        // The mapping grows and is named while it is managed. malloc's own way to the kernel does
        // not report how far a mapping grows.
        let old = std::ptr::with_exposed_provenance_mut(addr);
        data.addr = unsafe { libc::realloc(old, mapped * PAGE) }.expose_provenance();
        assert!(addr != 0 && data.addr != 0, "no memory");
        (half..mapped).for_each(|page| data.write(page, 1));
        name(data.addr.next_multiple_of(PAGE), mapped / 4 * PAGE);
        data
    }

    /// Checks that every byte is as the versions say.
    pub fn verify(&mut self) -> Result<(), String> {
        self.compare(|_, version| version)
    }

    /// Changes every third page, as a child does, and leaves the versions as they are.
    pub fn scribble(&mut self) {
        for page in (0..self.versions.len()).step_by(3) {
            let version = self.versions[page];
            self.write(page, version + 1000);
            self.versions[page] = version;
        }
    }

    /// Checks that every byte is as `scribble` left it.
    pub fn verify_scribbled(&mut self) -> Result<(), String> {
        self.compare(|page, version| if page % 3 == 0 { version + 1000 } else { version })
            .map_err(|text| format!("after its changes: {text}"))
    }

    /// Rewrites a part of the data that differs from round to round.
    pub fn rewrite(&mut self, round: usize) {
        for page in (round % 5..self.versions.len()).step_by(5) {
            self.write(page, self.versions[page] + 1);
        }
    }

    /// Returns a hash of the versions: equal runs end with equal hashes.
    pub fn digest(&self) -> u64 {
        self.versions.iter().fold(SEED, |hash, version| mix(hash ^ u64::from(*version)))
    }

    fn write(&mut self, page: usize, version: u32) {
        let mut image = PageImage::zero();
        tag(page, version).expected(SEED, &mut image);
        let to = unsafe { raw::bytes_mut(self.place(page), PAGE) };
        to.copy_from_slice(image.bytes());
        self.versions[page] = version;
    }

    fn compare(&mut self, version_of: impl Fn(usize, u32) -> u32) -> Result<(), String> {
        let mut image = PageImage::zero();
        for page in 0..self.versions.len() {
            let version = version_of(page, self.versions[page]);
            tag(page, version).expected(SEED, &mut image);
            let addr = self.place(page);
            let got = unsafe { raw::bytes(addr, PAGE) };
            if got != image.bytes() {
                let zero = got.iter().all(|byte| *byte == 0);
                let what = if zero { "zeros" } else { "other bytes" };
                return Err(format!("page {page} at {addr:#x}: {what}, not version {version}"));
            }
        }
        Ok(())
    }

    fn place(&mut self, page: usize) -> usize {
        if page < self.mapped {
            return self.addr + page * PAGE;
        }
        let page = page - self.mapped;
        let chunk = &mut self.chunks[page / CHUNK_PAGES];
        chunk.as_mut_ptr().expose_provenance() + page % CHUNK_PAGES * PAGE
    }
}

fn tag(page: usize, version: u32) -> Tag {
    let kind = Kind::by_lot(mix((u64::from(version) << 32) ^ page as u64));
    Tag { owner: 1, index: page as u32, version, kind, patches: 0 }
}
