//! Reclaim: taking cold pages out of the program, in small steps.
//!
//! A step either moves one run into limbo or compresses one page out of it, so a fault never waits
//! for a burst unless the hard limit (the min watermark) is reached. The queue says which run is
//! next.

use coldpress_sys::PageCount;

use super::Policy;
use super::queue::Evicted;
use super::refusals::Drained;
use crate::pages::{PageState, PageTable, RunNumber};

/// Leaves to look at in one step for what relatives share: 0.1 ms, while a fault waits.
const LEAVES_MAX: usize = 8;

/// What a step of reclaim did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something was done.
    Done,
    /// Nothing can be reclaimed now.
    Nothing,
    /// Nothing, because the pool is full until the disk has taken what is on its way.
    Disk,
    /// Nothing, until relatives have taken what they share.
    Relatives,
}

/// What is used, and the limits below which it is to stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    /// Pages used.
    pub(crate) used: PageCount,
    /// The low watermark: above it, reclaim goes along with faults.
    pub(crate) soft: PageCount,
    /// The min watermark: above it, reclaim comes before anything else.
    pub(crate) hard: PageCount,
}

/// How this process stands to the relatives with which it shares memory since a fork.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Relatives {
    /// Whether it shares much.
    pub(crate) shares_much: bool,
    /// Whether what it shares is worth taking when nothing else can go.
    pub(crate) is_worth_unsharing: bool,
    /// Whether it has so much less in memory than a relative that the relative is to take first.
    pub(crate) leads: bool,
    /// Whether a fork, a stop, or a thread that has mapped something waits for the service.
    pub(crate) is_waited_for: bool,
}

/// What the policy knows of the process, and has done to it.
pub(crate) trait Effects {
    /// Returns the policy, and the pages that it decides on.
    fn policy(&mut self) -> (&mut Policy, &mut PageTable);
    /// Returns what is used.
    fn level(&self) -> Level;
    /// Returns the time in nanoseconds. The clock may go back after a sleep of the machine:
    /// [`Policy::forget_times`] comes then.
    fn now_ns(&self) -> u64;
    /// Returns how the process stands to its relatives.
    fn relatives(&self) -> Relatives;
    /// Returns whether every page is to stay, or to come back: for a fork, or for a debugger.
    fn keeps_all(&self) -> bool;
    /// Returns whether taking pages frees any memory, on the whole.
    fn is_worth_taking(&self) -> bool;
    /// Returns whether another run fits into limbo.
    fn limbo_has_room(&mut self) -> bool;
    /// Returns whether the pool is full until the disk has taken what is on its way.
    fn is_behind(&self) -> bool;
    /// Looks at what is due, such as the gauges.
    fn look_around(&mut self);
    /// Moves what may be moved of a run into limbo, and returns the number of pages.
    fn move_run(&mut self, run: RunNumber) -> PageCount;
    /// Stores one page of limbo's oldest slot, or ends the slot.
    fn drain(&mut self) -> Drained;
    /// Returns whether there were any copies of resident pages in the pool, after dropping some.
    fn drop_copies(&mut self) -> bool;
    /// Waits for the disk, or for relatives.
    fn wait_for_others(&mut self);
}

/// Reclaims until `need` more pages fit under the hard limit, or nothing can be reclaimed.
pub(crate) fn make_room(on: &mut impl Effects, need: PageCount) {
    loop {
        // Memory that is not managed may grow meanwhile, so use is read as often as ever.
        on.look_around();
        let Level { used, hard, .. } = on.level();
        if used + need <= hard {
            return;
        }
        match reclaim_step(on) {
            Step::Done => {}
            Step::Nothing => return,
            Step::Disk | Step::Relatives => on.wait_for_others(),
        }
    }
}

/// Reclaims about as much as has come in, when use is above soft (the low watermark).
pub(crate) fn reclaim_along(on: &mut impl Effects) {
    let Level { used, soft, hard } = on.level();
    let (policy, _) = on.policy();
    if used <= soft {
        policy.arrivals = 0;
        return;
    }
    // In the upper half of the band the pool is growing: what goes in takes room too.
    let twice = used - soft > hard.saturating_sub(used);
    let steps = if twice { 2 * policy.arrivals } else { policy.arrivals };
    policy.arrivals = 0;
    for _ in 0..steps {
        if reclaim_step(on) != Step::Done {
            return;
        }
    }
}

/// Does one step of reclaim.
pub(crate) fn reclaim_step(on: &mut impl Effects) -> Step {
    if !may_reclaim(on) {
        return Step::Nothing;
    }
    // Relatives are to take first what is shared. The line stands still meanwhile: a process that
    // takes in another order than they do takes what they keep, and nothing becomes free.
    let rests = on.policy().0.takes_shared() && waits_for_relatives(on) && {
        let now_ns = on.now_ns();
        !on.policy().0.may_take_another(now_ns)
    };
    let evicted = if on.limbo_has_room() && !rests { evict_run(on) } else { Evicted::Nothing };
    if evicted == Evicted::Run {
        return Step::Done;
    }
    if on.is_behind() {
        return Step::Disk;
    }
    let drained = on.drain();
    let now_ns = on.now_ns();
    on.policy().0.note_drained(drained, now_ns);
    if drained != Drained::Nothing || evicted == Evicted::NothingYet {
        return Step::Done;
    }
    // Copies of resident pages are all that can still go.
    let Level { used, hard, .. } = on.level();
    if used > hard && on.drop_copies() {
        return Step::Done;
    }
    let Relatives { shares_much, is_worth_unsharing, .. } = on.relatives();
    let (policy, pages) = on.policy();
    if shares_much && is_worth_unsharing && !policy.stuck.takes_shared {
        policy.stuck.takes_shared = true;
        policy.queue.put_in_order(pages, policy.clock);
        return Step::Done;
    }
    if policy.stuck.takes_shared && waits_for_relatives(on) {
        return Step::Relatives;
    }
    let now_ns = on.now_ns();
    on.policy().0.get_stuck(now_ns);
    Step::Nothing
}

/// Returns whether pages may be taken out, and it is not too early to try again.
pub(crate) fn may_reclaim(on: &mut impl Effects) -> bool {
    if on.keeps_all() {
        return false;
    }
    if !on.is_worth_taking() {
        on.policy().0.stuck.since_look = true;
        return false;
    }
    if on.policy().0.stuck.until_ns == 0 {
        return true;
    }
    let now_ns = on.now_ns();
    !on.policy().0.is_stuck(now_ns)
}

fn waits_for_relatives(on: &mut impl Effects) -> bool {
    let (relatives, now_ns) = (on.relatives(), on.now_ns());
    on.policy().0.waits_for_relatives(relatives, now_ns)
}

/// Moves the pages of the next cold run into limbo, if there is one among the next few.
fn evict_run(on: &mut impl Effects) -> Evicted {
    on.policy().0.stuck.leaves_looked_at = 0;
    for _ in 0..on.policy().0.queue.step() {
        let (policy, pages) = on.policy();
        if policy.stuck.leaves_looked_at >= LEAVES_MAX {
            break;
        }
        let next = policy.queue.next_if_cold(pages, policy.clock);
        let Some(number) = next else { continue };
        let moved = on.move_run(number);
        let (policy, pages) = on.policy();
        if pages.run_has(number, PageState::Resident) {
            policy.queue.enqueue(pages, number, policy.clock);
        }
        if moved > PageCount(0) {
            return policy.queue.note_moved();
        }
    }
    on.policy().0.queue.note_nothing_moved()
}
