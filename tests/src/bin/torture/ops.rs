//! A worker: picks regions, checks them, and does to them what programs do to memory.

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::program::PAGE;
use crate::program::pattern::{Kind, PATCHES_MAX, PageImage, Tag};
use crate::program::random::{Random, mix};
use crate::program::raw;

use crate::region::{Event, Home, Region, State, Whole};
use crate::report;
use crate::world::World;

/// Most pages that go through a pipe at once: the default capacity of a pipe.
const PIPE_PAGES: usize = 16;

pub struct Worker<'a> {
    pub world: &'a World,
    pub random: Random,
    pub thread: usize,
    pub region_pages_max: usize,
    pipe: [i32; 2],
    operations: u64,
    checked: u64,
    expected: PageImage,
}

impl<'a> Worker<'a> {
    pub fn new(world: &'a World, thread: usize) -> Self {
        let mut pipe = [0; 2];
        raw::checked(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) })
            .expect("cannot make a pipe");
        let share = world.target_pages as usize / (world.threads * 16);
        Self {
            world,
            random: Random::new(world.seed, thread as u64),
            thread,
            region_pages_max: share.clamp(16, 4096),
            pipe,
            operations: 0,
            checked: 0,
            expected: PageImage::zero(),
        }
    }

    /// Works until the end of the run. Returns this thread's increments of the shared counters.
    pub fn run(mut self) -> Vec<u64> {
        let mut tally = self.world.shared.new_tally();
        let mut visits = 0;
        while !self.world.over(visits) {
            visits += 1;
            let live = self.world.live.load(Ordering::Relaxed);
            let mapped = self.world.mapped.load(Ordering::Relaxed);
            let target = self.world.target_pages;
            if live * 100 > target * 103 || mapped * 2 > target * 3 {
                self.dispose_one();
            } else if live < target && self.random.percent(if live * 2 < target { 90 } else { 50 })
            {
                self.create();
            } else {
                self.visit_one(visits);
            }
            if self.random.percent(20) {
                self.world.shared.visit(self.world, &mut self.random, &mut tally);
            }
        }
        self.world.workers_done.fetch_add(1, Ordering::Relaxed);
        self.flush();
        tally
    }

    fn dispose_one(&mut self) {
        if let Some(mut region) = self.world.take_skewed(&mut self.random) {
            self.verify(&mut region);
            self.destroy(region);
        }
    }

    fn visit_one(&mut self, visits: u64) {
        let region = if self.random.percent(35) {
            self.world.take_oldest()
        } else {
            self.world.take_skewed(&mut self.random)
        };
        let Some(mut region) = region else { return self.create() };
        self.verify(&mut region);
        for _ in 0..self.random.between(1, 3) {
            match self.operate(region) {
                Some(left) => region = left,
                None => return self.flush(),
            }
        }
        if self.world.may_plant(visits) {
            self.plant(&mut region);
        }
        self.flush();
        self.world.put(region);
    }

    /// Flips one byte behind the program's back, for `--self-test`.
    fn plant(&mut self, region: &mut Region) {
        self.unprotect(region);
        let page = self.random.below(region.pages.len());
        if region.pages[page].maybe_zero {
            return;
        }
        let addr = region.page_addr(page) + self.random.below(PAGE);
        if self.world.planted.swap(addr, Ordering::Relaxed) == 0 {
            unsafe { *raw::pointer(addr) ^= 1 << self.random.below(8) };
        }
    }

    fn flush(&mut self) {
        self.world.operations.fetch_add(self.operations, Ordering::Relaxed);
        self.world.bytes_checked.fetch_add(self.checked, Ordering::Relaxed);
        (self.operations, self.checked) = (0, 0);
    }

    /// Does one random operation. Returns the region if it still exists.
    fn operate(&mut self, mut region: Box<Region>) -> Option<Box<Region>> {
        if region.protected.is_some() {
            if self.random.percent(40) {
                self.harmless_advice(&mut region);
                self.dont_need(&mut region);
                self.verify(&mut region);
                return Some(region);
            }
            self.unprotect(&mut region);
            self.verify(&mut region);
        }
        let lot = self.random.below(100);
        match lot {
            0..=19 => self.write_span(&mut region),
            20..=36 => self.patch_span(&mut region),
            37..=46 => self.fill_zeros(&mut region),
            47..=53 => self.pipe_copy(&mut region),
            _ if region.home == Home::Block => return Some(self.operate_block(region)),
            54..=58 => self.dont_need(&mut region),
            59..=62 => self.free_lazily(&mut region),
            63..=66 => self.harmless_advice(&mut region),
            67..=68 => self.huge_advice(&mut region),
            69..=74 => self.protect(&mut region),
            _ => return self.remap_by_lot(lot, region),
        }
        Some(region)
    }

    /// Notes an operation in the region's history.
    pub fn note(&mut self, region: &mut Region, name: &'static str, span: &Range<usize>) {
        self.operations += 1;
        let (addr, thread) = (region.addr, self.thread);
        let number = self.world.operations.load(Ordering::Relaxed) + self.operations;
        let (first, count) = (span.start, span.len());
        region.record(Event { name, addr, first, count, thread, number });
    }

    /// Ends the program when a call that must succeed did not.
    pub fn must<T>(&self, region: &Region, call: &str, result: io::Result<T>) -> T {
        result.unwrap_or_else(|error| {
            report::failed(self.world, Some(region), call, &error.to_string())
        })
    }

    /// Checks every byte of every page that can be read.
    pub fn verify(&mut self, region: &mut Region) {
        for page in 0..region.pages.len() {
            if !region.is_hidden(page) {
                self.verify_page(region, page);
            }
        }
    }

    fn verify_page(&mut self, region: &mut Region, page: usize) {
        let state = region.pages[page];
        state.tag.expected(self.world.seed, &mut self.expected);
        let addr = region.page_addr(page);
        self.checked += PAGE as u64;
        if unsafe { raw::bytes(addr, PAGE) } == self.expected.bytes() {
            return;
        }
        // A page once seen as zeros must stay zero: the old bytes may not come back.
        if state.maybe_zero && unsafe { raw::bytes(addr, PAGE) }.iter().all(|byte| *byte == 0) {
            region.pages[page] = State::default();
            return;
        }
        report::mismatch(self.world, Some(region), page, addr, &self.expected);
    }

    /// Writes whole pages anew.
    pub fn write(&mut self, region: &mut Region, span: Range<usize>) {
        self.note(region, "write", &span);
        for page in span {
            let kind = Kind::by_lot(self.random.word());
            self.write_page(region, page, kind);
        }
    }

    fn write_page(&mut self, region: &mut Region, page: usize, kind: Kind) {
        let tag = region.next_tag(page, kind);
        tag.expected(self.world.seed, &mut self.expected);
        let to = unsafe { raw::bytes_mut(region.page_addr(page), PAGE) };
        to.copy_from_slice(self.expected.bytes());
        region.pages[page] = State { tag, maybe_zero: false };
    }

    /// Replaces one word of a page.
    fn patch_page(&mut self, region: &mut Region, page: usize) {
        let mut state = region.pages[page];
        if state.tag.patches == PATCHES_MAX {
            return self.write_page(region, page, state.tag.kind);
        }
        if state.tag == Tag::default() {
            state.tag = region.next_tag(page, Kind::Zero);
        }
        state.tag.patches += 1;
        let (word, value) = state.tag.patch(self.world.seed, state.tag.patches);
        let to = raw::pointer(region.page_addr(page)).cast::<u64>().wrapping_add(word);
        unsafe { to.write_unaligned(value) };
        if state.maybe_zero {
            // The write has settled whether the old bytes or zeros lie below the word.
            state.tag.expected(self.world.seed, &mut self.expected);
            let now = unsafe { raw::bytes(region.page_addr(page), PAGE) };
            let rest_is_zero = now
                .chunks_exact(8)
                .enumerate()
                .all(|(index, bytes)| index == word || bytes.iter().all(|byte| *byte == 0));
            if now != self.expected.bytes() && rest_is_zero {
                return self.write_page(region, page, Kind::Text);
            }
            state.maybe_zero = false;
        }
        region.pages[page] = state;
    }

    /// Chooses a random span of pages: often a few, sometimes all.
    pub fn span(&mut self, region: &Region) -> Range<usize> {
        let pages = region.pages.len();
        let count = self.random.skewed(pages);
        let first = self.random.below(pages - count + 1);
        first..first + count
    }

    fn small_span(&mut self, region: &Region, most: usize) -> Range<usize> {
        let count = self.random.between(1, most.min(region.pages.len()));
        let first = self.random.below(region.pages.len() - count + 1);
        first..first + count
    }

    fn write_span(&mut self, region: &mut Region) {
        let span = self.span(region);
        self.write(region, span);
    }

    fn patch_span(&mut self, region: &mut Region) {
        let span = self.span(region);
        self.note(region, "patch", &span);
        for page in span {
            self.patch_page(region, page);
        }
    }

    /// Writes the pages that are zero, so that the live bytes stay near their target.
    fn fill_zeros(&mut self, region: &mut Region) {
        self.note(region, "fill", &(0..region.pages.len()));
        for page in 0..region.pages.len() {
            if region.pages[page].tag.kind == Kind::Zero {
                self.write_page(region, page, Kind::by_lot(mix(page as u64) % 80));
            }
        }
    }

    /// Copies pages through a pipe: `write` reads them in the kernel, `read` fills others.
    fn pipe_copy(&mut self, region: &mut Region) {
        let mut other = if self.random.percent(50) { self.world.take_oldest() } else { None };
        if let Some(other) = &mut other {
            self.unprotect(other);
            self.verify(other);
        }
        let source = other.as_deref().unwrap_or(region);
        let from = self.small_span(source, PIPE_PAGES.min(region.pages.len()));
        let first = self.random.below(region.pages.len() - from.len() + 1);
        let to = first..first + from.len();
        let (from_addr, states) =
            (source.page_addr(from.start), source.pages[from.clone()].to_vec());
        let bytes = from.len() * PAGE;
        let cut = self.random.between(1, bytes);
        self.note(region, "pipe copy", &to);
        for (start, length) in [(0, cut), (cut, bytes - cut)] {
            let at = raw::pointer(from_addr + start);
            let count = unsafe { libc::write(self.pipe[1], at.cast(), length) };
            self.exactly(region, "write to a pipe", count, length);
        }
        let at = raw::pointer(region.page_addr(to.start));
        let count = unsafe { libc::read(self.pipe[0], at.cast(), bytes) };
        self.exactly(region, "read from a pipe", count, bytes);
        region.pages[to].copy_from_slice(&states);
        if let Some(other) = other {
            self.world.put(other);
        }
    }

    fn exactly(&self, region: &Region, call: &str, count: isize, wanted: usize) {
        let count = self.must(region, call, raw::counted(count));
        if count != wanted {
            let text = format!("{count} of {wanted} bytes");
            report::failed(self.world, Some(region), call, &text);
        }
    }

    pub fn dont_need(&mut self, region: &mut Region) {
        let span = self.small_span(region, 64);
        self.note(region, "DONTNEED", &span);
        let addr = region.page_addr(span.start);
        let result = unsafe { raw::advise(addr, span.len() * PAGE, libc::MADV_DONTNEED) };
        self.must(region, "MADV_DONTNEED", result);
        region.pages[span].fill(State::default());
    }

    fn free_lazily(&mut self, region: &mut Region) {
        let span = self.small_span(region, 64);
        if !self.world.lazy_free {
            return;
        }
        self.note(region, "FREE", &span);
        let addr = region.page_addr(span.start);
        let result = unsafe { raw::advise(addr, span.len() * PAGE, libc::MADV_FREE) };
        self.must(region, "MADV_FREE", result);
        region.pages[span].iter_mut().for_each(|state| state.maybe_zero = true);
    }

    /// Gives advice that changes no byte. A kernel built without that advice may refuse it.
    fn harmless_advice(&mut self, region: &mut Region) {
        let (advice, name) = if self.random.percent(50) {
            (libc::MADV_WILLNEED, "WILLNEED")
        } else {
            (libc::MADV_COLD, "COLD")
        };
        let span = self.span(region);
        self.note(region, name, &span);
        let _ = unsafe { raw::advise(region.page_addr(span.start), span.len() * PAGE, advice) };
    }

    /// Asks for huge pages or against them. Advice on a part leaves the region in several mappings.
    fn huge_advice(&mut self, region: &mut Region) {
        let huge = self.random.percent(60);
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        let all = region.whole == Whole::No || self.random.percent(70);
        let span = if all { 0..region.pages.len() } else { self.span(region) };
        self.note(region, if huge { "HUGEPAGE" } else { "NOHUGEPAGE" }, &span);
        if span.len() < region.pages.len() {
            region.whole = Whole::No;
        }
        let _ = unsafe { raw::advise(region.page_addr(span.start), span.len() * PAGE, advice) };
    }

    fn protect(&mut self, region: &mut Region) {
        let span = self.span(region);
        let none = self.random.percent(50);
        let prot = if none { libc::PROT_NONE } else { libc::PROT_READ };
        self.note(region, if none { "protect NONE" } else { "protect READ" }, &span);
        let addr = region.page_addr(span.start);
        let result = unsafe { raw::protect(addr, span.len() * PAGE, prot) };
        self.must(region, "mprotect", result);
        region.whole = region.whole.max(Whole::Perhaps);
        region.protected = Some((span, prot));
        self.verify(region);
    }

    /// Makes all of the region readable and writable again.
    pub fn unprotect(&mut self, region: &mut Region) {
        if let Some((span, _)) = region.protected.take() {
            self.note(region, "unprotect", &span);
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let addr = region.page_addr(span.start);
            let result = unsafe { raw::protect(addr, span.len() * PAGE, prot) };
            self.must(region, "mprotect back", result);
        }
    }

    /// Returns a hash of the bytes that the region holds.
    pub fn digest(&mut self, region: &Region) -> u64 {
        let mut hash = mix(u64::from(region.id));
        for page in (0..region.pages.len()).filter(|page| !region.is_hidden(*page)) {
            for bytes in unsafe { raw::bytes(region.page_addr(page), PAGE) }.chunks_exact(8) {
                let word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
            }
        }
        mix(hash)
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.flush();
        self.pipe.iter().for_each(|end| unsafe {
            libc::close(*end);
        });
    }
}
