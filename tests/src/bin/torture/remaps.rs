//! Operations that change the addresses of a region: `mremap` in its forms, `munmap` in the middle,
//! `MAP_FIXED` over live pages, and a new tenant at once.

use std::io;
use std::sync::atomic::Ordering;

use crate::program::PAGE;
use crate::program::raw;

use crate::ops::Worker;
use crate::region::{Home, Region, State, Whole};

impl Worker<'_> {
    /// Does one such operation, chosen by `lot`. Returns the region if it still exists.
    pub fn remap_by_lot(&mut self, lot: usize, region: Box<Region>) -> Option<Box<Region>> {
        match lot {
            75..=78 => Some(self.grow(region)),
            79..=81 => Some(self.shrink(region)),
            82..=84 => Some(self.move_part(region)),
            85..=87 => self.move_over(region),
            88..=90 => Some(self.move_but_keep(region)),
            91..=93 => Some(self.unmap_middle(region)),
            94..=95 => Some(self.map_over(region)),
            96..=97 => Some(self.new_tenant(region)),
            _ => {
                self.destroy(region);
                None
            }
        }
    }

    /// Calls `mremap` for one mapping. `None` if the kernel sees several mappings, as it may.
    fn remap(
        &mut self,
        region: &Region,
        from: (usize, usize),
        new: usize,
        flags: i32,
        to: usize,
    ) -> Option<usize> {
        if region.whole == Whole::No {
            return None;
        }
        let result = unsafe { raw::remap(from.0, from.1 * PAGE, new * PAGE, flags, to) };
        match result {
            Err(error) if refused(&error) && region.whole == Whole::Perhaps => {
                self.world.remap_refused.fetch_add(1, Ordering::Relaxed);
                None
            }
            other => Some(self.must(region, "mremap", other)),
        }
    }

    fn grow(&mut self, mut region: Box<Region>) -> Box<Region> {
        let old = region.pages.len();
        let new = old + self.random.between(1, old.min(self.region_pages_max));
        let place = (region.addr, old);
        if let Some(addr) = self.remap(&region, place, new, libc::MREMAP_MAYMOVE, 0) {
            region.addr = addr;
            region.pages.resize(new, State::default());
            self.note(&mut region, "mremap grow", &(old..new));
            self.verify(&mut region);
        }
        region
    }

    fn shrink(&mut self, mut region: Box<Region>) -> Box<Region> {
        let old = region.pages.len();
        let new = old - self.random.below(old / 2 + 1);
        let place = (region.addr, old);
        if let Some(addr) = self.remap(&region, place, new, 0, 0) {
            region.addr = addr;
            region.pages.truncate(new);
            self.note(&mut region, "mremap shrink", &(0..new));
            self.verify(&mut region);
        }
        region
    }

    /// Moves some pages to addresses that the kernel or this program chooses; the rest stays in two
    /// parts.
    fn move_part(&mut self, mut region: Box<Region>) -> Box<Region> {
        let span = self.span(&region);
        let fixed = self.random.percent(50);
        let place = (region.page_addr(span.start), span.len());
        let to = if fixed { self.reserve(&region, span.len()) } else { 0 };
        let flags = libc::MREMAP_MAYMOVE | if fixed { libc::MREMAP_FIXED } else { 0 };
        // Without FIXED the kernel leaves equal sizes where they are: a move needs growth.
        let new = if fixed { span.len() } else { span.len() + 1 };
        let Some(addr) = self.remap(&region, place, new, flags, to) else {
            if fixed {
                let result = unsafe { raw::unmap(to, span.len() * PAGE) };
                self.must(&region, "munmap of a reservation", result);
            }
            return region;
        };
        let name = if fixed { "mremap FIXED" } else { "mremap move" };
        let tail = region.split_off(self.world.new_id(), span.end);
        let mut middle = region.split_off(self.world.new_id(), span.start);
        middle.addr = addr;
        middle.pages.resize(new, State::default());
        let pages = middle.pages.len();
        self.note(&mut middle, name, &(0..pages));
        self.put_if_any(region);
        self.put_if_any(Box::new(tail));
        let mut middle = Box::new(middle);
        self.verify(&mut middle);
        middle
    }

    /// Reserves addresses that `MREMAP_FIXED` may then take over.
    fn reserve(&self, region: &Region, pages: usize) -> usize {
        let flags = libc::MAP_NORESERVE;
        let result = unsafe { raw::map_at(0, pages * PAGE, libc::PROT_NONE, flags) };
        self.must(region, "mmap of a reservation", result)
    }

    /// Moves a region over the start of another one, which thereby loses those pages.
    fn move_over(&mut self, region: Box<Region>) -> Option<Box<Region>> {
        let Some(mut other) = self.world.take_oldest() else { return Some(region) };
        self.unprotect(&mut other);
        self.verify(&mut other);
        if other.home != Home::Mapping {
            self.world.put(other);
            return Some(region);
        }
        let (mut from, mut over) =
            if region.pages.len() <= other.pages.len() { (region, other) } else { (other, region) };
        let pages = from.pages.len();
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let place = (from.addr, pages);
        if let Some(addr) = self.remap(&from, place, pages, flags, over.addr) {
            let mut tail = over.split_off(self.world.new_id(), pages);
            self.world.live.fetch_sub(over.accounted_live, Ordering::Relaxed);
            self.world.mapped.fetch_sub(over.accounted_mapped, Ordering::Relaxed);
            from.addr = addr;
            self.note(&mut from, "mremap over another", &(0..pages));
            self.note(&mut tail, "lost its head to mremap", &(0..0));
            self.put_if_any(Box::new(tail));
        } else {
            self.world.put(over);
        }
        self.verify(&mut from);
        Some(from)
    }

    /// Calls `mremap` with `MREMAP_DONTUNMAP`: the bytes move, zeros stay behind.
    fn move_but_keep(&mut self, mut region: Box<Region>) -> Box<Region> {
        let pages = region.pages.len();
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        let place = (region.addr, pages);
        let Some(addr) = self.remap(&region, place, pages, flags, 0) else { return region };
        self.note(&mut region, "mremap DONTUNMAP", &(0..pages));
        let mut moved = Box::new(region.split_off(self.world.new_id(), 0));
        moved.addr = addr;
        region.pages = vec![State::default(); pages];
        self.verify(&mut moved);
        if self.random.percent(50) {
            self.verify(&mut region);
            let written = self.span(&region);
            self.write(&mut region, written);
            self.world.put(region);
        } else {
            self.destroy(region);
        }
        moved
    }

    fn unmap_middle(&mut self, mut region: Box<Region>) -> Box<Region> {
        let pages = region.pages.len();
        if pages < 3 {
            return region;
        }
        let hole = self.random.between(1, (pages / 4).clamp(1, 64));
        let first = self.random.between(1, pages - hole - 1);
        let tail = region.split_off(self.world.new_id(), first + hole);
        let addr = region.page_addr(first);
        self.note(&mut region, "munmap middle", &(first..first + hole));
        self.world.released(addr, hole, self.thread);
        let result = unsafe { raw::unmap(addr, hole * PAGE) };
        self.must(&region, "munmap in the middle", result);
        region.pages.truncate(first);
        self.world.put(Box::new(tail));
        region
    }

    /// Maps with `MAP_FIXED` over some of our own pages: no moment without a mapping, then zeros.
    fn map_over(&mut self, mut region: Box<Region>) -> Box<Region> {
        let span = self.span(&region);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let addr = region.page_addr(span.start);
        self.note(&mut region, "mmap FIXED", &span);
        let result = unsafe { raw::map_at(addr, span.len() * PAGE, prot, libc::MAP_FIXED) };
        self.must(&region, "mmap over live pages", result);
        if span.len() < region.pages.len() {
            region.whole = Whole::No;
        }
        region.pages[span.clone()].fill(State::default());
        self.verify(&mut region);
        self.write(&mut region, span);
        region
    }

    /// Unmaps and maps the same length at once: usually at the same addresses, and never with old
    /// bytes.
    fn new_tenant(&mut self, mut region: Box<Region>) -> Box<Region> {
        let pages = region.pages.len();
        self.release_pages(&region);
        let mut fresh = self.create_mapping(pages);
        (fresh.accounted_live, fresh.accounted_mapped) =
            (region.accounted_live, region.accounted_mapped);
        region.pages.clear();
        if self.random.percent(50) {
            self.verify(&mut fresh);
        }
        let written = self.span(&fresh);
        self.write(&mut fresh, written);
        self.verify(&mut fresh);
        fresh
    }

    /// Hands a part to all threads, unless nothing is left of it.
    fn put_if_any(&mut self, region: Box<Region>) {
        if region.pages.is_empty() { self.destroy(region) } else { self.world.put(region) }
    }
}

/// Returns whether `mremap` refused a range in several mappings (EFAULT; EINVAL for a move since
/// 6.17).
fn refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EFAULT | libc::EINVAL))
}
