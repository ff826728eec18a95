//! Our policy: the runtime's own, replayed on the pages of a trace.

use coldpress_runtime::replay::Replay;
use coldpress_sys::PageCount;

use crate::policy::trace::Trace;
use crate::policy::{Policy, TouchOutcome};

/// The runtime's policy, on the pages of one trace.
pub(super) struct Ours<'a> {
    trace: &'a Trace,
    replay: Replay,
}

impl<'a> Ours<'a> {
    /// Makes the policy with room for `room` pages; with `ahead`, walks get readahead.
    pub(super) fn new(trace: &'a Trace, room: usize, ahead: bool) -> Self {
        Self { trace, replay: Replay::new(PageCount(room), ahead) }
    }
}

impl Policy for Ours<'_> {
    fn touch(&mut self, rank: usize) -> TouchOutcome {
        self.replay.touch(self.trace.page(rank) as usize)
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a model that beats the optimum because it holds more than its room.

    use proptest::prelude::*;

    use super::*;
    use crate::policy::trace::Touch;
    use crate::policy::{Peer, replay};

    fn trace(pages: impl IntoIterator<Item = u64>) -> Trace {
        let touch = |page| Touch { page, is_write: false };
        Trace::new(&pages.into_iter().map(touch).collect::<Vec<_>>()).unwrap()
    }

    /// Makes runs of some pages: runs that are close to each other, and runs that are not.
    fn touches() -> impl Strategy<Value = Vec<u64>> {
        let start = prop_oneof![0_u64..64, 0_u64..2000];
        prop::collection::vec((start, 1_u64..24), 1..120).prop_map(|walks| {
            walks.into_iter().flat_map(|(start, length)| start..start + length).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn it_never_beats_the_optimum_and_has_what_fits(
            pages in touches(), room in 400_usize..900,
        ) {
            let trace = trace(pages);
            let optimum = replay(&trace, &mut *Peer::Belady.policy(&trace, room));
            let ours = replay(&trace, &mut Ours::new(&trace, room, false));
            prop_assert!(ours.major >= optimum.major, "{ours:?} {optimum:?}");
            prop_assert_eq!(ours.first, trace.distinct() as u64);
            let all = replay(&trace, &mut Ours::new(&trace, 2 * trace.distinct(), false));
            prop_assert_eq!((all.major, all.minor), (0, 0));
        }
    }
}
