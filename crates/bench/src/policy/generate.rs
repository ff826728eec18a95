//! Traces by models, the same in every run: orders of touches whose best policies differ.
//!
//! Each trace begins with all pages in the order of their addresses, as programs fill their memory.
//! Pages that are touched often are not neighbours.

use super::trace::{Touch, Trace};
use crate::random::Random;
use crate::touch::pattern::{Pattern, Walk};

/// The first page of a trace; any address will do.
const FIRST_PAGE: u64 = 0x7_f123_4000;
/// The number of touches for each page, after the first.
const ROUNDS: usize = 12;
/// The number of phases of a program that does one thing after another.
const PHASES: usize = 8;

/// A model of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Model {
    /// Touches of any page: no policy is better than another, except the optimum.
    Uniform,
    /// Zipf with exponent 0.99.
    Zipf,
    /// Four touches of five go to a fifth of the pages.
    Hot,
    /// A loop over 60 % of the pages: LRU is the worst policy where they do not fit.
    Loop,
    /// Zipf, and after each thousand touches a scan of an eighth of all pages.
    Scans,
    /// 80/20, with another fifth of the pages in each of eight phases.
    Phases,
}

impl Model {
    /// All models.
    pub(crate) const ALL: [Self; 6] =
        [Self::Uniform, Self::Zipf, Self::Hot, Self::Loop, Self::Scans, Self::Phases];

    /// Returns the name of the model.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::Hot => "80/20",
            Self::Loop => "loop",
            Self::Scans => "zipf, scans",
            Self::Phases => "phases",
        }
    }

    /// Makes the touches of `pages` pages, at least one.
    pub(crate) fn trace(self, pages: usize) -> Trace {
        let mut random = Random::new(11);
        let count = ROUNDS * pages;
        let mut order: Vec<usize> = (0..pages).collect();
        match self {
            Self::Uniform => order.extend(walk(Pattern::Uniform, pages, 1).take(count)),
            Self::Zipf => order.extend(walk(Pattern::Zipf, pages, 2).take(count)),
            Self::Hot => order.extend(walk(Pattern::Hot, pages, 3).take(count)),
            Self::Loop => order.extend((0..(pages * 3).div_ceil(5)).cycle().take(count)),
            Self::Scans => order.extend(scans(pages).take(count)),
            Self::Phases => {
                for phase in 0..PHASES {
                    let walk = walk(Pattern::Hot, pages, 4 + phase as u64);
                    let shift = phase * pages / PHASES;
                    let shifted = walk.map(|page| (page + shift) % pages);
                    order.extend(shifted.take(count / PHASES));
                }
            }
        }
        let touch =
            |page: &usize| Touch { page: FIRST_PAGE + *page as u64, is_write: random.happens(300) };
        Trace::new(&order.iter().map(touch).collect::<Vec<_>>()).expect("pages of one range")
    }
}

fn walk(pattern: Pattern, pages: usize, seed: u64) -> impl Iterator<Item = usize> {
    let mut walk = Walk::new(pattern, pages, seed);
    std::iter::repeat_with(move || walk.next_page())
}

fn scans(pages: usize) -> impl Iterator<Item = usize> {
    let mut zipf = Walk::new(Pattern::Zipf, pages, 5);
    let length = (pages / 8).max(1);
    (0..).flat_map(move |round: usize| {
        let points: Vec<usize> = (0..1000).map(|_| zipf.next_page()).collect();
        points.into_iter().chain((0..length).map(move |at| (round * length + at) % pages))
    })
}
