//! A trace made of what valgrind's lackey prints of a program.
//!
//! `--trace-mem=yes` prints a line for each instruction (`I`), load (`L`), store (`S`) and
//! modification (`M`, a load and a store): kind, address in hexadecimal, bytes. Loads and stores
//! count, instructions do not. What the kernel reads or writes for the program is not printed.
//!
//! A program touches few pages very often, so touches are collapsed by windows. A window ends when
//! [`WINDOW_PAGES`] different pages were touched in it and another page is touched. A page has one
//! touch in a window, at the place of its first, and that touch is a write if any was. So a page in
//! steady use has a touch in every window, and recency is true except among the pages of one
//! window. (It would be shorter to keep only touches that a small LRU list would miss. But then the
//! pages that are used most look as if they were never used again.)

use std::io::{self, BufRead};

use super::trace::Touch;

/// The number of pages in a window: far fewer than any budget, so that no page touched in a window
/// should have left.
pub(crate) const WINDOW_PAGES: usize = 64;
const PAGE_SHIFT: u32 = 12;
const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;

/// Touches from which repeats are left out.
#[derive(Debug, Default)]
pub(crate) struct Collapse {
    window: Vec<Touch>,
    done: Vec<Touch>,
}

impl Collapse {
    /// Adds the next touch.
    pub(crate) fn touch(&mut self, touch: Touch) {
        // The search goes backwards, because the last page touched is likely to be touched again.
        if let Some(seen) = self.window.iter_mut().rev().find(|seen| seen.page == touch.page) {
            seen.is_write |= touch.is_write;
            return;
        }
        if self.window.len() == WINDOW_PAGES {
            self.done.append(&mut self.window);
        }
        self.window.push(touch);
    }

    /// Returns the touches that are left.
    pub(crate) fn finish(mut self) -> Vec<Touch> {
        self.done.append(&mut self.window);
        self.done
    }

    /// Returns whether more than `count` touches are left.
    pub(crate) fn is_longer(&self, count: usize) -> bool {
        self.done.len() > count
    }
}

/// Reads the touches in lackey's output, collapsed, at most `most` (and the rest of a window).
/// Skips other lines.
pub(crate) fn touches(output: &mut impl BufRead, most: usize) -> io::Result<Vec<Touch>> {
    let (mut collapse, mut line) = (Collapse::default(), Vec::with_capacity(64));
    while !collapse.is_longer(most) {
        line.clear();
        if output.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let Some((address, bytes, is_write)) = parse(&line) else { continue };
        let last = address.saturating_add(bytes.clamp(1, PAGE_BYTES) - 1) >> PAGE_SHIFT;
        for page in address >> PAGE_SHIFT..=last {
            collapse.touch(Touch { page, is_write });
        }
    }
    Ok(collapse.finish())
}

/// Returns address, bytes and whether the access is a write.
fn parse(line: &[u8]) -> Option<(u64, u64, bool)> {
    let (kind, rest) = line.trim_ascii_end().split_at_checked(3)?;
    let is_write = match kind {
        b" L " => false,
        b" S " | b" M " => true,
        _ => return None,
    };
    let text = std::str::from_utf8(rest).ok()?;
    let (address, bytes) = text.split_once(',')?;
    Some((u64::from_str_radix(address, 16).ok()?, bytes.parse().ok()?, is_write))
}

#[cfg(test)]
mod tests {
    //! The risk: a trace that does not show the pages that a program uses all the time.

    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const fn touch(page: u64, is_write: bool) -> Touch {
        Touch { page, is_write }
    }

    #[test]
    fn loads_and_stores_are_read_and_nothing_else() {
        let text = "==12== lackey\nI  04000100,3\n L 1ffeffe,4\n S 1fff000,8\n M 5000,1\n\
                    words of the program\n L xyz,4\n L 6000\n S 7000,\n L";
        let found = touches(&mut text.as_bytes(), usize::MAX).unwrap();
        assert_eq!(found, [touch(0x1ffe, false), touch(0x1fff, true), touch(5, true)]);
    }

    #[test]
    fn a_page_has_one_touch_in_each_window() {
        let mut collapse = Collapse::default();
        let wide = WINDOW_PAGES as u64;
        // Page 0 is used all the time; only its last use in the first window is a write.
        for page in 1..=3 * wide {
            collapse.touch(touch(0, page + 1 == wide));
            collapse.touch(touch(page, false));
        }
        let found = collapse.finish();
        let zeros: Vec<usize> =
            found.iter().enumerate().filter(|(_, found)| found.page == 0).map(|at| at.0).collect();
        assert_eq!(zeros, [0, 65, 129, 193]);
        assert!(found[0].is_write && !found[65].is_write);
        assert_eq!(found.len(), 4 + 3 * WINDOW_PAGES);
    }

    #[test]
    fn recording_ends_where_it_should() {
        let text: String = (1..1000).map(|page| format!(" L {page}000,1\n")).collect();
        let found = touches(&mut text.as_bytes(), 100).unwrap();
        // Two windows and the beginning of the third.
        assert_eq!(found.len(), 2 * WINDOW_PAGES + 1);
    }

    proptest! {
        #[test]
        fn first_touches_stay_in_order_and_writes_are_kept(
            all in prop::collection::vec((0_u64..100, any::<bool>()), 0..500),
        ) {
            let mut collapse = Collapse::default();
            all.iter().for_each(|(page, is_write)| collapse.touch(touch(*page, *is_write)));
            let found = collapse.finish();
            prop_assert!(found.len() <= all.len());
            let firsts = |pages: &mut dyn Iterator<Item = u64>| {
                let mut seen = Vec::new();
                pages.for_each(|page| if !seen.contains(&page) { seen.push(page) });
                seen
            };
            let wanted = firsts(&mut all.iter().map(|touch| touch.0));
            prop_assert_eq!(firsts(&mut found.iter().map(|touch| touch.page)), wanted);
            let written = |touches: &mut dyn Iterator<Item = (u64, bool)>| {
                let mut written = HashMap::new();
                touches.for_each(|(page, is)| *written.entry(page).or_insert(false) |= is);
                written
            };
            let wanted = written(&mut all.iter().copied());
            let found = written(&mut found.iter().map(|touch| (touch.page, touch.is_write)));
            prop_assert_eq!(found, wanted);
        }
    }
}
