//! Threads that fault often stay on their processor.
//!
//! A thread that waits for a page is woken while the service is busy on the same processor, so
//! Linux moves it to an idle one (`select_idle_sibling`). Its next fault then crosses processors
//! twice, which takes 100 us instead of 13 (two virtual processors). So while a thread faults
//! often, it is allowed one processor only. The program must not see that, nor may anything it
//! starts inherit it:
//!
//! 1. A thread that is about to start a thread or a process, or to ask for or change what
//!    processors are allowed, is let go first, and no thread is kept for `LOOSE_NS` (`loosen`).
//! 2. Letting a thread go begins with a claim on its place. Then the set that was allowed before is
//!    restored, if the one in force is still ours: what the program sets meanwhile stays.
//!
//! The proof of 1: the service marks a place as busy, then reads `loose_until`; the thread that
//! loosens writes `loose_until`, then looks at the places and waits for a busy one. All four are
//! sequentially consistent, so at least one of them sees the other. System calls that are made
//! around libc are not covered.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use coldpress_sys::cpu::{self, Allowed};
use coldpress_sys::{SysResult, raw};

/// Threads that can be kept at a time; more stay where the kernel puts them.
pub(crate) const PLACES: usize = 16;
/// Time after a thread has loosened in which no thread is kept: enough for it to start what it
/// wants.
pub(crate) const LOOSE_NS: u64 = 20_000_000;

/// The state without a thread.
const FREE: u32 = 0;
/// Flag beside the thread's id: what the thread is allowed is being changed. Ids have 22 bits.
const BUSY: u32 = 1 << 31;
/// How often a thread that waits for a busy place yields before it sleeps: a real-time thread
/// yields to no other.
const YIELDS: u32 = 16;
const WAIT_NS: u64 = 50_000;

/// A thread of the program, and where it is to stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// The program's process.
    pub(crate) process: u32,
    /// The thread.
    pub(crate) thread: u32,
    /// The processor.
    pub(crate) processor: usize,
}

/// A function that allows a thread these processors, as [`Allowed::give_to`] does.
pub(crate) type Give<'a> = &'a dyn Fn(&Allowed, u32) -> SysResult<()>;

/// The threads that are kept, and what they were allowed before.
pub(crate) struct Stay {
    loose_until: AtomicU64,
    places: [PinnedPlace; PLACES],
}

/// The place of a thread that is kept. Only the thread that has set `BUSY` uses what lies beside
/// the state.
struct PinnedPlace {
    /// `FREE`, a thread's id, or that and `BUSY`.
    state: AtomicU32,
    /// The processor on which the thread is kept.
    processor: AtomicU32,
    /// What the thread was allowed before.
    allowed: [AtomicU64; Allowed::WORDS],
}

impl PinnedPlace {
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            processor: AtomicU32::new(0),
            allowed: [const { AtomicU64::new(0) }; Allowed::WORDS],
        }
    }

    /// Returns whether the place could be claimed from `state`; `false` when it is in another one.
    fn claim(&self, state: u32, thread: u32) -> bool {
        // SeqCst: see the proof at the head of this file; pairs with `loosen`, and with the store
        // in `leave`, which releases what lies in the place.
        self.state
            .compare_exchange(state, thread | BUSY, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Ends a claim.
    fn leave(&self, state: u32) {
        // SeqCst pairs with `claim`.
        self.state.store(state, Ordering::SeqCst);
    }

    /// Restores what the thread was allowed, unless others have changed that. The place must be
    /// claimed.
    fn restore(&self, thread: u32, give: Give<'_>) {
        // Relaxed, both: the claim orders them.
        let kept = Allowed::only(self.processor.load(Ordering::Relaxed) as usize);
        let word = |index: usize| self.allowed[index].load(Ordering::Relaxed);
        if Allowed::of(thread) == Ok(kept) {
            // The thread may have ended meanwhile.
            let _ = give(&Allowed(core::array::from_fn(word)), thread);
        }
    }
}

impl Stay {
    /// Creates the state in which no thread is kept.
    pub(crate) const fn new() -> Self {
        Self { loose_until: AtomicU64::new(0), places: [const { PinnedPlace::new() }; PLACES] }
    }

    /// Forgets all threads. Called in the child of `fork`, which has loosened before.
    pub(crate) fn reset(&self) {
        for place in &self.places {
            // Relaxed: there is no other thread.
            place.state.store(FREE, Ordering::Relaxed);
        }
    }

    /// Keeps no thread ever: nothing lets threads go in this program before they start others.
    #[cfg(any(test, feature = "preload"))]
    pub(crate) fn keep_none(&self) {
        // SeqCst: see the proof at the head of this file; pairs with `keep`.
        self.loose_until.store(u64::MAX, Ordering::SeqCst);
    }

    // For the program's threads.

    /// Lets `thread` go, and keeps no thread for a while. May be called in a signal handler.
    pub(crate) fn loosen(&self, thread: u32) {
        self.loosen_those(|kept| kept == thread);
    }

    /// Lets all threads go, and keeps none for a while.
    pub(crate) fn loosen_all(&self) {
        self.loosen_those(|_| true);
    }

    fn loosen_those(&self, wanted: impl Fn(u32) -> bool) {
        // SeqCst: see the proof at the head of this file; pairs with `keep`.
        self.loose_until.fetch_max(cpu::monotonic_ns() + LOOSE_NS, Ordering::SeqCst);
        for place in &self.places {
            let mut waits = 0_u32;
            loop {
                // SeqCst: see the proof at the head of this file; pairs with `claim`.
                let state = place.state.load(Ordering::SeqCst);
                let thread = state & !BUSY;
                if thread == FREE || !wanted(thread) {
                    break;
                }
                if state & BUSY == 0 {
                    // A signal handler that ran meanwhile would wait for its own thread.
                    let mask = raw::block_signals();
                    if place.claim(thread, thread) {
                        place.restore(thread, &Allowed::give_to);
                        place.leave(FREE);
                    }
                    raw::set_signal_mask(mask);
                    continue;
                }
                waits += 1;
                if waits < YIELDS { cpu::yield_now() } else { cpu::sleep_ns(WAIT_NS) }
            }
        }
    }

    // For the service.

    /// Returns whether the thread is kept from now on where it is to stay, in a free place; `false`
    /// when it may not be kept there, or not now. `unrestricted` is what a thread that may run
    /// anywhere is allowed: such a thread gets all processors back, including those that come
    /// later.
    pub(crate) fn keep(
        &self,
        index: usize,
        wish: Wish,
        unrestricted: Option<Allowed>,
        give: Give<'_>,
    ) -> bool {
        let (place, thread) = (&self.places[index], wish.thread);
        if !place.claim(FREE, thread) {
            return false;
        }
        // SeqCst: see the proof at the head of this file; pairs with `loosen_those`.
        let may = self.loose_until.load(Ordering::SeqCst) <= cpu::monotonic_ns();
        let kept = may && Self::narrow(place, wish, unrestricted, give);
        place.leave(if kept { thread } else { FREE });
        kept
    }

    fn narrow(
        place: &PinnedPlace,
        wish: Wish,
        unrestricted: Option<Allowed>,
        give: Give<'_>,
    ) -> bool {
        let Wish { process, thread, processor } = wish;
        let Ok(allowed) = Allowed::of(thread) else { return false };
        if !allowed.has(processor) || allowed.is_one() {
            return false;
        }
        let before = if unrestricted == Some(allowed) { Allowed::ALL } else { allowed };
        // Relaxed, both: the claim orders them.
        place.processor.store(processor as u32, Ordering::Relaxed);
        for (word, bits) in place.allowed.iter().zip(before.0) {
            word.store(bits, Ordering::Relaxed);
        }
        // A child by `vfork` faults in our memory too.
        raw::is_thread_of(process, thread) && give(&Allowed::only(processor), thread).is_ok()
    }

    /// Returns whether `thread` is kept, in this place.
    pub(crate) fn is_kept(&self, index: usize, thread: u32) -> bool {
        // Relaxed: a stale answer is as good.
        self.places[index].state.load(Ordering::Relaxed) == thread
    }

    /// Lets the thread in this place go, if there is one.
    pub(crate) fn let_go(&self, index: usize, give: Give<'_>) {
        let place = &self.places[index];
        // Relaxed: the claim looks again, and fails when another thread lets this one go.
        let thread = place.state.load(Ordering::Relaxed);
        if thread & BUSY == 0 && thread != FREE && place.claim(thread, thread) {
            place.restore(thread, give);
            place.leave(FREE);
        }
    }
}

impl Default for Stay {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    //! Risk: a thread stays bound to one processor after it was let go, or is bound again while it
    //! starts a child, or loses what the program has set.

    use core::sync::atomic::AtomicBool;

    use super::*;

    const GIVE: Give<'static> = &Allowed::give_to;

    /// Returns what this thread is allowed, if that is more than one processor.
    fn all() -> Option<Allowed> {
        let all = Allowed::of(raw::thread_id()).expect("it lives");
        if all.is_one() {
            eprintln!("skipped: one processor");
        }
        (!all.is_one()).then_some(all)
    }

    fn wish(thread: u32, processor: usize) -> Wish {
        Wish { process: raw::process_id(), thread, processor }
    }

    fn is_kept(thread: u32) -> bool {
        Allowed::of(thread).expect("it lives").is_one()
    }

    #[test]
    fn a_thread_that_is_let_go_may_run_where_it_might_before() {
        let Some(all) = all() else { return };
        let (stay, thread) = (Stay::new(), raw::thread_id());
        assert!(stay.keep(3, wish(thread, cpu::current()), None, GIVE));
        assert!(stay.is_kept(3, thread) && is_kept(thread));
        assert!(!stay.keep(3, wish(1 + thread, cpu::current()), None, GIVE), "the place is taken");
        stay.let_go(3, GIVE);
        assert_eq!(Allowed::of(thread), Ok(all));
        assert!(stay.keep(3, wish(thread, cpu::current()), Some(all), GIVE));
        stay.loosen(thread);
        assert_eq!(Allowed::of(thread), Ok(all));
        assert!(!stay.is_kept(3, thread));
    }

    #[test]
    fn who_may_not_be_there_or_is_nobody_is_not_kept() {
        let Some(all) = all() else { return };
        let (stay, thread) = (Stay::new(), raw::thread_id());
        let outside = (0..1024).find(|processor| !all.has(*processor));
        assert!(outside.is_none_or(|outside| !stay.keep(0, wish(thread, outside), None, GIVE)));
        // The first process is no thread of ours.
        assert!(!stay.keep(0, wish(1, cpu::current()), None, GIVE));
        assert!(!stay.is_kept(0, 1) && !stay.is_kept(0, thread));
        assert_eq!(Allowed::of(thread), Ok(all));
    }

    #[test]
    fn where_none_is_to_be_kept_none_is() {
        let Some(all) = all() else { return };
        let (stay, thread) = (Stay::new(), raw::thread_id());
        stay.keep_none();
        stay.loosen(thread);
        assert!(!stay.keep(0, wish(thread, cpu::current()), None, GIVE));
        assert_eq!(Allowed::of(thread), Ok(all));
    }

    #[test]
    fn what_the_program_sets_is_not_undone() {
        let Some(all) = all() else { return };
        let (stay, thread) = (Stay::new(), raw::thread_id());
        let mut processors = (0..1024).filter(|one| all.has(*one));
        let [first, second] = [0, 1].map(|_| processors.next().expect("it may run on two"));
        assert!(stay.keep(0, wish(thread, first), None, GIVE));
        stay.loosen_all();
        Allowed::only(first).give_to(thread).expect("it may");
        stay.let_go(0, GIVE);
        assert!(!stay.keep(0, wish(thread, first), None, GIVE), "not so soon");
        assert_eq!(Allowed::of(thread), Ok(Allowed::only(first)));
        // By a call around libc, while it is kept.
        let stay = Stay::new();
        all.give_to(thread).expect("it may");
        assert!(stay.keep(0, wish(thread, first), None, GIVE));
        Allowed::only(second).give_to(thread).expect("it may");
        stay.let_go(0, GIVE);
        assert_eq!(Allowed::of(thread), Ok(Allowed::only(second)));
    }

    #[test]
    fn a_thread_is_free_as_soon_as_it_has_loosened_whatever_the_service_does() {
        let Some(all) = all() else { return };
        let (stay, done) = (Stay::new(), AtomicBool::new(false));
        let thread = raw::thread_id();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: a flag of its own.
                while !done.load(Ordering::Relaxed) {
                    let kept = stay.is_kept(2, thread)
                        || stay.keep(2, wish(thread, cpu::current()), None, GIVE);
                    // Now and then, so that both let go at once.
                    if kept && cpu::ticks().is_multiple_of(4) {
                        stay.let_go(2, GIVE);
                    }
                    cpu::yield_now();
                }
            });
            for _ in 0..20 {
                while !stay.is_kept(2, thread) {
                    cpu::yield_now();
                }
                stay.loosen(thread);
                assert_eq!(Allowed::of(thread), Ok(all));
            }
            // Relaxed: a flag of its own.
            done.store(true, Ordering::Relaxed);
        });
    }
}
