//! A range of memory and what each of its pages must hold.
//!
//! 1. A region is one `mmap`ped range, one `malloc` block or one stretch of the break; "pages" of a
//!    block start where the block starts, aligned or not.
//! 2. `pages[i]` alone says what page i holds; moving memory moves the states along.

use std::ops::Range;

use crate::program::PAGE;
use crate::program::pattern::{Kind, Tag};

/// Operations a region remembers for a report.
pub const HISTORY: usize = 16;

/// The origin of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// `mmap`.
    Mapping,
    /// `malloc`, `calloc` or `realloc`.
    Block,
    /// `sbrk`.
    Break,
}

/// The mappings that the kernel may make of a range: decides whether `mremap` of all of it must
/// succeed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Whole {
    /// One mapping for certain.
    Yes,
    /// Parts were protected for a while; the kernel need not have merged them again.
    Perhaps,
    /// Parts differ: the range is never handed to `mremap` as one.
    No,
}

/// The contents of a page.
#[derive(Clone, Copy, Default, Debug)]
pub struct State {
    /// The page's last writer.
    pub tag: Tag,
    /// `MADV_FREE` was called after the last write: zeros are right as well.
    pub maybe_zero: bool,
}

/// One remembered operation.
#[derive(Clone, Copy)]
pub struct Event {
    pub name: &'static str,
    pub addr: usize,
    pub first: usize,
    pub count: usize,
    pub thread: usize,
    pub number: u64,
}

/// A range of memory with one owner.
pub struct Region {
    pub id: u32,
    pub addr: usize,
    pub home: Home,
    pub whole: Whole,
    pub pages: Vec<State>,
    /// Pages under `PROT_NONE` or `PROT_READ`, with that protection.
    pub protected: Option<(Range<usize>, i32)>,
    pub accounted_live: i64,
    pub accounted_mapped: i64,
    version: u32,
    events: Vec<Event>,
    recorded: usize,
}

impl Region {
    /// Makes a region of pages that must read as zeros.
    pub fn new(id: u32, addr: usize, pages: usize, home: Home) -> Self {
        Self {
            id,
            addr,
            home,
            whole: Whole::Yes,
            pages: vec![State::default(); pages],
            protected: None,
            accounted_live: 0,
            accounted_mapped: 0,
            version: 0,
            events: Vec::with_capacity(HISTORY),
            recorded: 0,
        }
    }

    pub fn page_addr(&self, page: usize) -> usize {
        self.addr + page * PAGE
    }

    pub fn length(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// Returns the number of pages that were written and not dropped.
    pub fn live_pages(&self) -> i64 {
        let live = |state: &&State| state.tag.kind != Kind::Zero || state.tag.patches > 0;
        self.pages.iter().filter(live).count() as i64
    }

    /// Returns the tag of the page that this region writes next.
    pub fn next_tag(&mut self, page: usize, kind: Kind) -> Tag {
        self.version += 1;
        Tag { owner: self.id, index: page as u32, version: self.version, kind, patches: 0 }
    }

    /// Returns whether a page cannot be read now.
    pub fn is_hidden(&self, page: usize) -> bool {
        matches!(&self.protected, Some((span, libc::PROT_NONE)) if span.contains(&page))
    }

    /// Takes all pages from `page` on out, as a region of their own.
    pub fn split_off(&mut self, id: u32, page: usize) -> Self {
        let mut tail = Self::new(id, self.page_addr(page), 0, self.home);
        tail.pages = self.pages.split_off(page);
        tail.whole = self.whole;
        tail.events.clone_from(&self.events);
        tail.recorded = self.recorded;
        tail
    }

    /// Notes an operation for a report.
    pub fn record(&mut self, event: Event) {
        if self.events.len() < HISTORY {
            self.events.push(event);
        } else {
            self.events[self.recorded % HISTORY] = event;
        }
        self.recorded += 1;
    }

    /// Returns the last operations, oldest first.
    pub fn history(&self) -> impl Iterator<Item = &Event> {
        let oldest = if self.events.len() < HISTORY { 0 } else { self.recorded % HISTORY };
        self.events[oldest..].iter().chain(&self.events[..oldest])
    }
}
