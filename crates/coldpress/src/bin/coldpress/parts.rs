//! Parts: what falls to a process of memory that it has in common with others, each page divided by
//! how many map it, so that the sum over a tree has each page once.
//!
//! The kernel looks at every page to tell that (`smaps_rollup`), so it is asked when a figure that
//! is cheap has changed, and for 2 % of the time. In between the part of a process that is the only
//! one grows with that figure; of several, what one comes to map another mostly has already.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use coldpress_sys::{Bytes, PageCount};

/// What a process has in common with others has changed when it did by this part, and this much.
const CHANGED_PART: usize = 64;
const CHANGED: PageCount = Bytes::kib(256).pages_down();
/// Between two askings of the kernel, so many times what one took.
const ASK_COST_FACTOR: u32 = 50;

/// What one process has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    /// All that it has now.
    all: PageCount,
    /// What fell to it when the kernel was asked, and what it had then; nothing before.
    part: PageCount,
    of: PageCount,
}

impl Part {
    fn now(self, is_only: bool) -> PageCount {
        let scaled = PageCount(self.part.0 * self.all.0 / self.of.0.max(1));
        if is_only { scaled } else { scaled.min(self.part) }
    }

    fn has_changed(self) -> bool {
        self.all.0.abs_diff(self.of.0) > CHANGED.0.max(self.of.0 / CHANGED_PART)
    }
}

/// The parts of several processes, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    seen: HashMap<u32, Part>,
    /// Somebody has come or gone, so others' parts are not what they were.
    is_stale: bool,
    ask_at: Option<Instant>,
}

impl Parts {
    /// These processes have so much in common with others, all in all; `ask` asks for the part of
    /// one. One that has not been asked for yet has none.
    pub(crate) fn note(
        &mut self,
        all: impl Iterator<Item = (u32, PageCount)>,
        now: Instant,
        ask: impl Fn(u32) -> Option<PageCount>,
    ) {
        let before = std::mem::take(&mut self.seen);
        self.seen.extend(all.map(|(process, all)| {
            let known = before.get(&process).copied().unwrap_or_default();
            (process, Part { all, ..known })
        }));
        let has_gone = before.keys().any(|process| !self.seen.contains_key(process));
        self.is_stale |= has_gone || self.seen.values().any(|part| part.has_changed());
        if !self.is_stale || self.ask_at.is_some_and(|at| now < at) {
            return;
        }
        let begun = Instant::now();
        for (process, part) in &mut self.seen {
            // Where the kernel does not tell, as of who hides itself, all of it counts.
            part.part = ask(*process).unwrap_or(part.all).min(part.all);
            part.of = part.all;
        }
        self.is_stale = false;
        self.ask_at = Some(now + ASK_COST_FACTOR * begun.elapsed().max(Duration::from_micros(100)));
    }

    /// What falls to one.
    pub(crate) fn of(&self, process: u32) -> PageCount {
        let is_only = self.seen.len() == 1;
        self.seen.get(&process).map_or(PageCount(0), |part| part.now(is_only))
    }

    /// What falls to all.
    pub(crate) fn sum(&self) -> PageCount {
        self.seen.keys().fold(PageCount(0), |sum, process| sum + self.of(*process))
    }

    /// The process that has most, all in all.
    pub(crate) fn largest(&self) -> Option<u32> {
        self.seen.iter().max_by_key(|(_, part)| part.all).map(|(process, _)| *process)
    }
}

/// A figure of a file of `process` in /proc, of KiB.
pub(crate) fn kib_of(process: u32, file: &str, name: &str) -> Option<PageCount> {
    let text = fs::read_to_string(format!("/proc/{process}/{file}")).ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: usize = kib.split_whitespace().next()?.parse().ok()?;
    Some(Bytes::kib(kib).pages_up())
}

#[cfg(test)]
mod tests {
    //! The risk: memory that is counted more than once, or not at all.

    use super::*;

    #[test]
    fn parts_follow_what_there_is_until_the_kernel_is_asked_again() {
        let (mut parts, now) = (Parts::default(), Instant::now());
        let note = |parts: &mut Parts, all: &[(u32, usize)], ms, part| {
            let all = all.iter().map(|(process, pages)| (*process, PageCount(*pages)));
            parts.note(all, now + Duration::from_millis(ms), |_| part);
            parts.sum().0
        };
        assert_eq!(note(&mut parts, &[(1, 1_000), (2, 1_000)], 0, Some(PageCount(500))), 1_000);
        // Too soon to ask, then nothing to ask for.
        assert_eq!(note(&mut parts, &[(1, 2_000), (2, 1_000)], 1, None), 1_000);
        assert_eq!(note(&mut parts, &[(1, 2_000), (2, 1_000)], 900, None), 3_000);
        assert_eq!(note(&mut parts, &[(1, 2_000), (2, 1_000)], 1_900, Some(PageCount(1))), 3_000);
        assert_eq!((parts.of(1).0, parts.of(3).0, parts.largest()), (2_000, 0, Some(1)));
        // One has gone, so the other's part may be another; and a part is no more than all.
        assert_eq!(note(&mut parts, &[(2, 1_000)], 3_000, Some(PageCount(900))), 900);
        assert_eq!(note(&mut parts, &[(2, 2_000)], 3_001, None), 1_800);
        assert_eq!(note(&mut parts, &[(2, 1_000)], 3_900, Some(PageCount(9_000))), 1_000);
    }
}
