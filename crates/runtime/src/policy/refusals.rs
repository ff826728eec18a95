//! Refusals: pages that zswap does not take, and how many of them show that others would fare no
//! better. Draining limbo for the budget has a count of its own, and so has draining it of idle
//! pages: what idle pages are like says nothing of the pages that the budget takes.

use coldpress_zswap::StoreError;

/// Pages that zswap may refuse in a row, each for what is in it, before reclaim rests. A fault
/// waits less than a millisecond for such a row, and a program of which no page is wanted costs
/// some 5 % of a processor.
const REFUSED_IN_ROW_MAX: usize = 64;

/// The outcome of a step of draining limbo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// Limbo is empty.
    Nothing,
    /// A slot was ended, or room made.
    Slot,
    /// A page was stored.
    Stored,
    /// A page was refused.
    Refused(StoreError),
}

/// Pages in a row that zswap refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    in_row: usize,
}

impl Refusals {
    /// Returns whether, with this step, enough was refused that other pages would fare no better.
    /// The count begins anew then.
    pub(crate) fn are_enough(&mut self, drained: Drained) -> bool {
        match drained {
            Drained::Nothing | Drained::Slot => return false,
            Drained::Stored => self.in_row = 0,
            Drained::Refused(error) if error.is_of_the_page() => self.in_row += 1,
            Drained::Refused(_) => self.in_row = REFUSED_IN_ROW_MAX,
        }
        let are_enough = self.in_row >= REFUSED_IN_ROW_MAX;
        if are_enough {
            self.in_row = 0;
        }
        are_enough
    }
}

#[cfg(test)]
mod tests {
    //! Risk: a program that waits for page after page that zswap refuses.

    use std::vec::Vec;

    use super::*;

    #[test]
    fn pages_are_refused_in_a_row_or_all_at_once() {
        let mut refusals = Refusals::default();
        let mut are_enough = |drained| refusals.are_enough(drained);
        let one = Drained::Refused(StoreError::Incompressible);
        assert_eq!((0..200).filter(|_| are_enough(one)).collect::<Vec<_>>(), [63, 127, 191]);
        for _ in 0..100 {
            assert!(!are_enough(one) && !are_enough(Drained::Slot) && !are_enough(Drained::Stored));
        }
        assert!(are_enough(Drained::Refused(StoreError::PoolFull)));
        assert!(!are_enough(one));
    }
}
