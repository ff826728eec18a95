//! Making and ending regions: fresh mappings, huge-page sized ones, `malloc` blocks.

use std::sync::atomic::Ordering;

use crate::program::PAGE;
use crate::program::raw;

use crate::ops::Worker;
use crate::region::{Home, Region, State, Whole};

/// Pages of a huge page of the kernel.
const HUGE_PAGES: usize = 512;

impl Worker<'_> {
    /// Makes a random region and hands it to all threads.
    pub fn create(&mut self) {
        let most = self.region_pages_max;
        let pages = match self.random.below(100) {
            0..=19 => self.random.between(1, 64.min(most)),
            20..=79 => self.random.between((most / 8).max(1), most / 2),
            _ => self.random.between(1, most),
        };
        let mut region = match self.random.below(100) {
            0..=24 => self.create_block(pages.max(16)),
            25..=39 if most >= HUGE_PAGES => {
                let count = self.random.between(1, (most / HUGE_PAGES).min(4));
                self.create_huge(count * HUGE_PAGES)
            }
            _ => self.create_mapping(pages),
        };
        // Some regions are read first: the zeros must be there before anything is written.
        if self.random.percent(50) {
            self.verify(&mut region);
        }
        let pages = region.pages.len();
        let first = if self.random.percent(70) { 0 } else { self.random.below(pages / 2 + 1) };
        self.write(&mut region, first..pages);
        self.world.put(region);
    }

    /// Makes a fresh mapping: its pages must read as zeros whatever held the addresses before.
    pub fn create_mapping(&mut self, pages: usize) -> Box<Region> {
        let id = self.world.new_id();
        let mut region = Box::new(Region::new(id, 0, pages, Home::Mapping));
        region.addr = self.must(&region, "mmap", raw::map(pages * PAGE));
        self.world.mapped_at(region.addr, pages, self.thread);
        self.note(&mut region, "mmap", &(0..pages));
        region
    }

    /// Makes a mapping aligned to a huge page, by mapping more and giving the ends back.
    fn create_huge(&mut self, pages: usize) -> Box<Region> {
        let huge = HUGE_PAGES * PAGE;
        let mut region = self.create_mapping(pages + HUGE_PAGES);
        let start = region.addr.next_multiple_of(huge);
        let head = (start - region.addr) / PAGE;
        if head > 0 {
            let result = unsafe { raw::unmap(region.addr, head * PAGE) };
            self.must(&region, "munmap of the head", result);
        }
        let tail = start + pages * PAGE;
        if head < HUGE_PAGES {
            let result = unsafe { raw::unmap(tail, (HUGE_PAGES - head) * PAGE) };
            self.must(&region, "munmap of the tail", result);
        }
        region.addr = start;
        region.pages.truncate(pages);
        self.note(&mut region, "aligned, HUGEPAGE", &(0..pages));
        let _ = unsafe { raw::advise(start, pages * PAGE, libc::MADV_HUGEPAGE) };
        region
    }

    fn create_block(&mut self, pages: usize) -> Box<Region> {
        let zeroed = self.random.percent(50);
        let bytes = pages * PAGE;
        let at = unsafe { if zeroed { libc::calloc(1, bytes) } else { libc::malloc(bytes) } };
        let id = self.world.new_id();
        let mut region = Box::new(Region::new(id, at.expose_provenance(), pages, Home::Block));
        region.whole = Whole::No;
        assert!(!at.is_null(), "malloc has no memory");
        self.note(&mut region, if zeroed { "calloc" } else { "malloc" }, &(0..pages));
        if !zeroed {
            // The bytes of the block are unknown before they are written.
            self.write(&mut region, 0..pages);
        }
        region
    }

    /// Calls `realloc`, which moves large blocks by `mremap` inside libc; or writes.
    pub fn operate_block(&mut self, mut region: Box<Region>) -> Box<Region> {
        let old = region.pages.len();
        let new = if self.random.percent(50) {
            old + self.random.between(1, old.min(self.region_pages_max))
        } else {
            old - self.random.below(old)
        };
        let at = unsafe { libc::realloc(raw::pointer(region.addr).cast(), new * PAGE) };
        assert!(!at.is_null(), "realloc has no memory");
        region.addr = at.expose_provenance();
        region.pages.resize(new, State::default());
        self.note(&mut region, "realloc", &(0..new));
        if new > old {
            self.write(&mut region, old..new);
        }
        self.verify(&mut region);
        region
    }

    /// Gives a region's memory back.
    pub fn destroy(&mut self, region: Box<Region>) {
        self.world.live.fetch_sub(region.accounted_live, Ordering::Relaxed);
        self.world.mapped.fetch_sub(region.accounted_mapped, Ordering::Relaxed);
        self.release_pages(&region);
    }

    /// Unmaps or frees a region's memory, without the totals.
    pub fn release_pages(&mut self, region: &Region) {
        if region.pages.is_empty() {
            return;
        }
        match region.home {
            Home::Mapping => {
                self.world.released(region.addr, region.pages.len(), self.thread);
                let result = unsafe { raw::unmap(region.addr, region.length()) };
                self.must(region, "munmap", result);
            }
            Home::Block => unsafe { libc::free(raw::pointer(region.addr).cast()) },
            Home::Break => {}
        }
    }
}
