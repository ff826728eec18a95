//! The orders in which pages are touched.

use crate::random::Random;

/// The number of pages from one touch of a stride to the next: 64 KiB.
const STRIDE: usize = 16;
/// The skew of YCSB (Cooper et al. 2010).
const THETA: f64 = 0.99;
/// A prime above any number of pages: a multiple of it gives the place of a rank, so that popular
/// pages are not neighbours.
const SCATTER: u64 = 2_654_435_761;

/// An order of touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Any page, each as likely as the others.
    Uniform,
    /// Zipf with exponent 0.99: some pages all the time, most hardly ever.
    Zipf,
    /// Four touches of five go to a fifth of the pages.
    Hot,
    /// Page after page.
    Sequential,
    /// Every 16th page, one page further after each pass.
    Strided,
}

impl Pattern {
    /// All patterns.
    pub(crate) const ALL: [Self; 5] =
        [Self::Uniform, Self::Zipf, Self::Hot, Self::Sequential, Self::Strided];

    /// Returns the name of the pattern.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::Hot => "80/20",
            Self::Sequential => "sequential",
            Self::Strided => "strided",
        }
    }
}

/// An endless sequence of page numbers, in the order of a pattern.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    pattern: Pattern,
    pages: usize,
    random: Random,
    zipf: Zipf,
    at: usize,
}

impl Walk {
    /// Makes a walk over the pages below `pages`, which is not 0; the same for the same seed.
    pub(crate) fn new(pattern: Pattern, pages: usize, seed: u64) -> Self {
        assert!(pages > 0, "there is nothing to touch");
        let zipf = if pattern == Pattern::Zipf { Zipf::new(pages) } else { Zipf::default() };
        Self { pattern, pages, random: Random::new(seed), zipf, at: pages - 1 }
    }

    /// Returns the page that is touched next.
    #[inline]
    pub(crate) fn next_page(&mut self) -> usize {
        match self.pattern {
            Pattern::Uniform => self.random.below(self.pages),
            Pattern::Zipf => scatter(self.zipf.rank(self.random.next()), self.pages),
            Pattern::Hot => {
                let hot = self.pages.div_ceil(5);
                let rank = if self.random.happens(800) {
                    self.random.below(hot)
                } else {
                    // With a single page, all pages are hot.
                    (hot + self.random.below(self.pages - hot)).min(self.pages - 1)
                };
                scatter(rank, self.pages)
            }
            Pattern::Sequential => self.step(1),
            Pattern::Strided => self.step(STRIDE),
        }
    }

    fn step(&mut self, stride: usize) -> usize {
        let next = self.at + stride;
        let column = (self.at % stride + 1) % stride.min(self.pages);
        self.at = if next < self.pages { next } else { column };
        self.at
    }
}

/// Returns the place of the page of a rank; each rank has a place of its own.
fn scatter(rank: usize, pages: usize) -> usize {
    (rank as u64 * SCATTER % pages as u64) as usize
}

/// A source of ranks by Zipf's law. Source: Gray et al., "Quickly generating billion-record
/// synthetic databases", SIGMOD 1994, as in YCSB.
#[derive(Clone, Debug, Default)]
struct Zipf {
    ranks: f64,
    /// The sum of all weights.
    sum: f64,
    eta: f64,
}

impl Zipf {
    fn new(ranks: usize) -> Self {
        let sum: f64 = (1..=ranks).map(|rank| (rank as f64).powf(-THETA)).sum();
        let ranks = ranks as f64;
        let two = 1.0 + 0.5_f64.powf(THETA);
        Self { ranks, sum, eta: (1.0 - (2.0 / ranks).powf(1.0 - THETA)) / (1.0 - two / sum) }
    }

    /// Returns the rank, from 0, of a number of any 64 bits.
    fn rank(&self, number: u64) -> usize {
        let share = number as f64 / 2.0_f64.powi(64);
        let weight = share * self.sum;
        if weight < 1.0 {
            return 0;
        }
        if weight < 1.0 + 0.5_f64.powf(THETA) {
            return 1.min(self.ranks as usize - 1);
        }
        let rank = self.ranks * (self.eta * (share - 1.0) + 1.0).powf(1.0 / (1.0 - THETA));
        (rank as usize).min(self.ranks as usize - 1)
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a pattern that is not what its name says.
    use super::*;

    const PAGES: usize = 1000;

    fn counts(pattern: Pattern, pages: usize, touches: usize) -> Vec<usize> {
        let mut walk = Walk::new(pattern, pages, 7);
        let mut counts = vec![0; pages];
        (0..touches).for_each(|_| counts[walk.next_page()] += 1);
        counts
    }

    #[test]
    fn scans_touch_every_page_once_before_any_again() {
        for pages in [1, 2, 15, 16, 17, 31, 32, 33, PAGES] {
            for pattern in [Pattern::Sequential, Pattern::Strided] {
                let counts = counts(pattern, pages, pages);
                assert!(counts.iter().all(|count| *count == 1), "{pattern:?} {pages}: {counts:?}");
            }
        }
        let first = |pattern| {
            let mut walk = Walk::new(pattern, PAGES, 7);
            [(); 3].map(|()| walk.next_page())
        };
        assert_eq!(first(Pattern::Sequential), [0, 1, 2]);
        let [one, two, three] = first(Pattern::Strided);
        assert_eq!([two - one, three - two], [16, 16]);
    }

    #[test]
    fn shares_are_as_said() {
        let mut hot = counts(Pattern::Hot, PAGES, 100_000);
        hot.sort_unstable();
        let most: usize = hot[4 * PAGES / 5..].iter().sum();
        assert!((79_000..81_000).contains(&most), "{most}");
        let uniform = counts(Pattern::Uniform, PAGES, 100_000);
        assert!(uniform.iter().all(|count| (50..160).contains(count)), "{uniform:?}");
    }

    #[test]
    fn zipf_follows_its_law() {
        let mut found = counts(Pattern::Zipf, PAGES, 1_000_000);
        found.sort_unstable_by(|one, two| two.cmp(one));
        let sum: f64 = (1..=PAGES).map(|rank| (rank as f64).powf(-THETA)).sum();
        for (rank, within) in [(1_usize, 0.05), (2, 0.05), (10, 0.15), (100, 0.3)] {
            let wanted = 1e6 * (rank as f64).powf(-THETA) / sum;
            let ratio = found[rank - 1] as f64 / wanted;
            assert!((ratio - 1.0).abs() < within, "{rank}: {ratio}");
        }
    }

    #[test]
    fn every_pattern_stays_within_few_pages() {
        for pattern in Pattern::ALL {
            for pages in 1..20 {
                assert_eq!(counts(pattern, pages, 1000).iter().sum::<usize>(), 1000);
            }
        }
    }
}
