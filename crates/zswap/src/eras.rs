//! Eras: how old a page is, without a clock in its entry.
//!
//! A page that comes to the pool belongs to the era of that moment: a number that grows with the
//! pages that come. Its low 16 bits are in the entry, for LRU order (`lru`). A caller with a clock
//! passes the time ([`crate::Zswap::note_time`]). For each class of ages ([`AGE_CLASSES`]) the
//! store remembers which era it was that time ago: a page of that era or a later one is in the
//! class, unless it is in a lower one.
//!
//! ```text
//! class      < 16 ms   < 32 ms   < 64 ms   ...   < 70 min   longer
//! eras then   912       911       905             17
//! ```
//!
//! Past eras are remembered in steps of a quarter of a class, so a page older than three quarters
//! of its class may be counted one class too high. All pages of an era, 64 pages or those of a
//! second, are taken to be as old as its youngest.

use core::sync::atomic::{AtomicU32, Ordering};

use coldpress_sys::sync::SpinLock;

use crate::stats::{AGE_CLASS_MS, AGE_CLASSES};

/// Steps of the past remembered for each class.
const STEPS: usize = 4;
/// Milliseconds after which another era begins, if pages came. The 16 bits of an entry then last
/// for 18 hours.
const ERA_MS: u64 = 1000;

/// The present era, and those of some times ago.
#[derive(Debug, Default)]
pub(crate) struct Eras {
    now: AtomicU32,
    /// For each class of ages the era at that time ago, or a little later.
    then: [AtomicU32; AGE_CLASSES],
    past: SpinLock<PastEras>,
}

/// The times and page counts of past calls.
#[derive(Debug, Default)]
struct PastEras {
    /// The time at the last call, in milliseconds.
    told_at: u64,
    /// For each class the era at its last steps, the latest first.
    steps: [[u32; STEPS]; AGE_CLASSES],
    /// The time at which arrivals of pages were last checked, and how many pages had come, ever.
    looked_at: u64,
    came: u32,
}

impl Eras {
    /// Returns the era of a page that comes to the pool now.
    pub(crate) fn now(&self) -> u16 {
        // Relaxed: the era orders and counts pages, and publishes nothing else. The low bits are
        // wanted.
        self.now.load(Ordering::Relaxed) as u16
    }

    /// Begins another era.
    pub(crate) fn begin(&self) {
        // Relaxed: as in `now`.
        self.now.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the time is `now_ms`, and that `came` pages have come to the pool, ever; the
    /// count wraps.
    pub(crate) fn note_time(&self, now_ms: u64, came: u32) {
        let past = &mut *self.past.lock();
        if now_ms >= past.looked_at + ERA_MS {
            if came != past.came {
                self.begin();
            }
            (past.looked_at, past.came) = (now_ms, came);
        }
        // Relaxed: as in `now`.
        let now = self.now.load(Ordering::Relaxed);
        for (class, (steps, then)) in past.steps.iter_mut().zip(&self.then).enumerate() {
            let number = |ms: u64| (ms / (AGE_CLASS_MS / STEPS as u64)) >> class;
            let begun = number(now_ms).saturating_sub(number(past.told_at));
            for _ in 0..begun.min(STEPS as u64) {
                steps.rotate_right(1);
                steps[0] = now;
            }
            // Relaxed: as in `now`.
            then.store(steps[STEPS - 1], Ordering::Relaxed);
        }
        past.told_at = now_ms;
    }

    /// Returns the class of ages for a page of `era`.
    pub(crate) fn class(&self, era: u16) -> usize {
        // Relaxed, all: as in `now`. An era read a moment late changes a page's class at its border
        // only.
        let now = self.now.load(Ordering::Relaxed);
        let age = (now as u16).wrapping_sub(era);
        let is_in = |then: &AtomicU32| {
            // Relaxed: as above.
            u32::from(age) <= now.wrapping_sub(then.load(Ordering::Relaxed))
        };
        self.then.iter().position(is_in).unwrap_or(AGE_CLASSES - 1)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    //! The risk: an age that is wrong by more than the head of this file says.

    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Returns where a class begins and ends, in milliseconds.
    fn bounds(class: usize) -> (u64, u64) {
        let end = if class + 1 < AGE_CLASSES { AGE_CLASS_MS << class } else { u64::MAX };
        (if class > 0 { AGE_CLASS_MS << (class - 1) } else { 0 }, end)
    }

    #[test]
    fn without_a_clock_everything_is_young() {
        let eras = Eras::default();
        (0..1000).for_each(|_| eras.begin());
        assert_eq!((eras.class(0), eras.class(eras.now())), (0, 0));
    }

    #[test]
    fn a_page_becomes_older_while_no_other_comes() {
        let eras = Eras::default();
        eras.note_time(5_000, 0);
        let era = eras.now();
        for tick in 0..2_000_000 {
            let age = 5 * tick;
            eras.note_time(5_000 + age, 1);
            // Noticing a new era takes up to a second.
            let (begin, end) = bounds(eras.class(era));
            assert!(
                age + 5 >= begin * 3 / 4 && age < end.saturating_add(ERA_MS + 5),
                "{age} in {begin}..{end}"
            );
        }
        assert_eq!(eras.class(era), AGE_CLASSES - 1);
    }

    #[test]
    fn more_eras_than_an_entry_can_tell_do_not_make_young_pages_old() {
        let eras = Eras::default();
        for tick in 0..3_000_u32 {
            (0..100).for_each(|_| eras.begin());
            eras.note_time(u64::from(tick) * 4, tick);
            let era = eras.now();
            assert_eq!((eras.class(era), eras.class(era.wrapping_sub(50))), (0, 0), "{tick}");
        }
    }

    proptest! {
        /// Compares with a list of the pages and the times they came at.
        #[test]
        fn ages_are_those_of_a_list_with_times(
            ticks in prop::collection::vec((1_u64..40, 0_usize..150), 1..1500),
        ) {
            let (eras, mut now, mut came) = (Eras::default(), 100_000, 0_u32);
            let mut pages = Vec::new();
            for (ms, new) in ticks {
                eras.note_time(now, came);
                for _ in 0..new {
                    came += 1;
                    if came.is_multiple_of(64) {
                        eras.begin();
                    }
                    pages.push((eras.now(), now));
                }
                now += ms;
            }
            eras.note_time(now, came);
            for &(era, at) in pages.iter().rev().step_by(7) {
                let (age, (begin, end)) = (now - at, bounds(eras.class(era)));
                let last = end.saturating_add(ERA_MS + 80);
                prop_assert!(age + 80 >= begin * 3 / 4, "{} in {}..{}", age, begin, end);
                prop_assert!(age < last, "{} in {}..{}", age, begin, end);
            }
        }
    }
}
