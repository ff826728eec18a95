//! The risk: a fault that waits for ever, pages that leave although they are to stay, or a program
//! that is searched again and again for pages that cannot go.

use std::vec::Vec;

use coldpress_sys::PageCount;
use coldpress_zswap::StoreError;
use proptest::prelude::*;

use super::*;
use crate::pages::{RUN_PAGES, RunNumber};

/// A process of which the policy decides: pages of a program, a limbo of one run, a store.
struct Fake {
    policy: Policy,
    pages: PageTable,
    limbo: Vec<PageNumber>,
    used: PageCount,
    hard: PageCount,
    now_ns: u64,
    relatives: Relatives,
    keeps_all: bool,
    /// What the store answers.
    refusal: Option<StoreError>,
    /// Waits for the disk until it has taken what is on its way.
    behind: usize,
    waits: usize,
    /// Runs that relatives share.
    shared: bool,
}

impl Fake {
    /// Makes a process with so many runs, of which so many pages may stay.
    fn new(runs: usize, hard: usize) -> Self {
        let mut fake = Self {
            policy: Policy::default(),
            pages: PageTable::new(PageCount(hard)),
            limbo: Vec::new(),
            used: PageCount(0),
            hard: PageCount(hard),
            now_ns: 1_000_000_000,
            relatives: Relatives::default(),
            keeps_all: false,
            refusal: None,
            behind: 0,
            waits: 0,
            shared: false,
        };
        for page in (0..runs * RUN_PAGES).map(PageNumber) {
            fake.policy.arrive(&mut fake.pages, page, Origin::FirstTouch, Way::Alone);
            fake.policy.tick();
            fake.used += PageCount(1);
        }
        fake
    }

    fn count(&self, state: PageState, runs: usize) -> usize {
        let pages = (0..runs * RUN_PAGES).map(PageNumber);
        pages.filter(|page| self.pages.state(*page) == state).count()
    }
}

impl Effects for Fake {
    fn policy(&mut self) -> (&mut Policy, &mut PageTable) {
        (&mut self.policy, &mut self.pages)
    }

    fn level(&self) -> Level {
        Level { used: self.used, soft: self.hard.saturating_sub(PageCount(8)), hard: self.hard }
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn relatives(&self) -> Relatives {
        self.relatives
    }

    fn keeps_all(&self) -> bool {
        self.keeps_all
    }

    fn is_worth_taking(&self) -> bool {
        true
    }

    fn limbo_has_room(&mut self) -> bool {
        self.limbo.len() < RUN_PAGES
    }

    fn is_behind(&self) -> bool {
        self.behind > 0
    }

    fn look_around(&mut self) {}

    fn move_run(&mut self, run: RunNumber) -> PageCount {
        let may = !self.shared || self.policy.may_take_shared(self.relatives, self.now_ns);
        let wanted = self.pages.sweep_run(run);
        let pages = run.pages().zip(wanted).filter(|(_, is_wanted)| *is_wanted && may);
        let pages: Vec<_> = pages.map(|(page, _)| page).collect();
        pages.iter().for_each(|page| self.pages.set_state(*page, PageState::Limbo));
        self.limbo.extend(&pages);
        PageCount(pages.len())
    }

    fn drain(&mut self) -> Drained {
        let Some(page) = self.limbo.first().copied() else { return Drained::Nothing };
        self.limbo.remove(0);
        if let Some(error) = self.refusal {
            self.policy.arrive(&mut self.pages, page, Origin::Limbo, Way::Alone);
            return Drained::Refused(error);
        }
        self.pages.note_stored(page);
        self.used -= PageCount(1);
        Drained::Stored
    }

    fn drop_copies(&mut self) -> bool {
        false
    }

    fn wait_for_others(&mut self) {
        self.waits += 1;
        self.now_ns += 1_000_000;
        self.behind = self.behind.saturating_sub(1);
    }
}

#[test]
fn what_is_kept_for_a_fork_stays() {
    let mut fake = Fake::new(8, 100);
    fake.keeps_all = true;
    assert_eq!(reclaim_step(&mut fake), Step::Nothing);
    make_room(&mut fake, PageCount(1));
    assert_eq!(fake.count(PageState::Resident, 8), 8 * RUN_PAGES);
}

#[test]
fn a_full_pool_is_waited_for_while_the_disk_takes_pages() {
    let mut fake = Fake::new(8, 100);
    fake.behind = 7;
    make_room(&mut fake, PageCount(1));
    assert_eq!((fake.waits, fake.behind), (7, 0));
    assert!(fake.used < fake.hard);
}

#[test]
fn reclaim_rests_when_no_page_is_wanted_and_tries_again() {
    let mut fake = Fake::new(8, 100);
    fake.refusal = Some(StoreError::Incompressible);
    make_room(&mut fake, PageCount(1));
    assert!(fake.used > fake.hard, "the budget is passed rather than a fault kept waiting");
    assert_eq!(fake.policy.last_refusal, Some(StoreError::Incompressible));
    (fake.refusal, fake.now_ns) = (None, fake.now_ns + STUCK_NS - 1);
    assert_eq!(reclaim_step(&mut fake), Step::Nothing, "too early");
    fake.now_ns += 1;
    make_room(&mut fake, PageCount(1));
    assert!(fake.used < fake.hard);
    assert_eq!(fake.policy.last_refusal, None);
}

#[test]
fn what_relatives_share_goes_last_and_slowly_while_they_are_to_take_it_first() {
    let mut fake = Fake::new(4, 20);
    fake.shared = true;
    make_room(&mut fake, PageCount(1));
    assert_eq!(fake.count(PageState::Resident, 4), 4 * RUN_PAGES, "it is not worth it");
    fake.relatives = Relatives {
        shares_much: true,
        is_worth_unsharing: true,
        leads: true,
        is_waited_for: false,
    };
    fake.now_ns += STUCK_NS;
    let begun = fake.now_ns;
    make_room(&mut fake, PageCount(1));
    // One run at once, one every 10 ms, and no more waiting after a second.
    assert!(fake.used < fake.hard && fake.now_ns - begun >= 2 * SLOWLY_NS, "{}", fake.waits);
    assert!(fake.now_ns - begun <= LEAD_NS_MAX + STUCK_NS);
}

proptest! {
    /// Holds whatever is needed, and however much there is.
    #[test]
    fn room_is_made_as_far_as_there_are_pages(
        runs in 1_usize..40, hard in 1_usize..900, need in 1_usize..64,
    ) {
        let mut fake = Fake::new(runs, hard);
        make_room(&mut fake, PageCount(need));
        let fits = fake.used.0 + need <= hard;
        prop_assert!(fits || fake.count(PageState::Resident, runs) == 0);
        let away = fake.count(PageState::Stored, runs);
        prop_assert_eq!(fake.used.0 + away, runs * RUN_PAGES);
        // No more was compressed than was asked for.
        let is_least = fake.used.0 + need + 1 > hard.min(runs * RUN_PAGES);
        prop_assert!(away == 0 || is_least || need > hard);
    }

    /// Along with faults, no more leaves than came, and twice as much where the pool grows.
    #[test]
    fn as_much_goes_along_as_has_come(runs in 4_usize..20, above in 0_usize..40) {
        let mut fake = Fake::new(runs, 1);
        fake.hard = PageCount(runs * RUN_PAGES + 8).saturating_sub(PageCount(above));
        let before = fake.used;
        reclaim_along(&mut fake);
        let left = before.0 - fake.used.0;
        prop_assert!(left <= 2 * runs * RUN_PAGES && (above > 0 || left == 0), "{}", left);
        let after = fake.used;
        reclaim_along(&mut fake);
        prop_assert_eq!(fake.used, after, "nothing came meanwhile");
    }
}
