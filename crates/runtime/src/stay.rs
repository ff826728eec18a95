//! Threads that fault often stay on their processor.
//!
//! A thread that waits for a page is woken while the service thread is busy on the same processor,
//! so Linux moves it to an idle one (`select_idle_sibling`). Its next fault then crosses processors
//! twice, which takes 100 us instead of 13 (two virtual processors). So for as long as a thread
//! faults often it is allowed one processor only. The program must not see that, nor may anything
//! it starts inherit it:
//!
//! 1. A thread that is about to start a thread or a process, or to ask for or change what
//!    processors are allowed, is let go first, and nobody is kept for `LOOSE_NS` (`loosen`).
//! 2. Whoever lets go restores the set that was allowed before; what the program sets meanwhile
//!    stays. Only system calls made around libc can come in between.
//!
//! The proof of 1: the service thread marks a place as busy, then reads `loose_until`; who loosens
//! writes `loose_until`, then looks at the places and waits for a busy one. All four are
//! sequentially consistent, so at least one of them sees the other.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use coldpress_sys::cpu::{self, Allowed};
use coldpress_sys::raw;

/// Threads that can be kept at a time; more stay where the kernel puts them.
pub const PLACES: usize = 16;
/// How long nobody is kept after a thread has loosened: time for it to start what it wants.
const LOOSE_NS: u64 = 20_000_000;

/// No thread.
const FREE: u32 = 0;
/// Beside the thread's id: the service thread is changing what it is allowed. Ids have 22 bits.
const BUSY: u32 = 1 << 31;

/// The threads that are kept, and what they were allowed before.
pub struct Stay {
    loose_until: AtomicU64,
    places: [Place; PLACES],
}

struct Place {
    /// `FREE`, a thread's id, or that and `BUSY`.
    state: AtomicU32,
    allowed: [AtomicU64; Allowed::WORDS],
}

impl Place {
    const fn new() -> Self {
        Self { state: AtomicU32::new(FREE), allowed: [const { AtomicU64::new(0) }; Allowed::WORDS] }
    }

    /// What the thread was allowed, if the state was this all the while.
    fn allowed(&self, state: u32) -> Option<Allowed> {
        // Relaxed: between two looks at the state, of which the caller has had the first.
        let word = |index: usize| self.allowed[index].load(Ordering::Relaxed);
        let allowed = Allowed(core::array::from_fn(word));
        // Acquire pairs with the Release fence in `narrow`: who reads a word of the next thread
        // finds the place busy.
        fence(Ordering::Acquire);
        (self.state.load(Ordering::Relaxed) == state).then_some(allowed)
    }
}

impl Stay {
    /// Nobody is kept.
    pub const fn new() -> Self {
        Self { loose_until: AtomicU64::new(0), places: [const { Place::new() }; PLACES] }
    }

    /// Forgets everybody. For the child of `fork`, which has loosened before.
    pub fn reset(&self) {
        for place in &self.places {
            // Relaxed: there is no other thread.
            place.state.store(FREE, Ordering::Relaxed);
        }
    }

    // For the program's threads.

    /// Lets `thread` go, and keeps nobody for a while. May be called in a signal handler.
    pub fn loosen(&self, thread: u32) {
        self.stop_keeping();
        for place in &self.places {
            Self::free(place, |kept| kept == thread);
        }
    }

    /// Lets everybody go, and keeps nobody for a while.
    pub fn loosen_all(&self) {
        self.stop_keeping();
        for place in &self.places {
            Self::free(place, |_| true);
        }
    }

    fn stop_keeping(&self) {
        // SeqCst: see the proof at the head of this file; pairs with `keep`.
        self.loose_until.fetch_max(cpu::monotonic_ns() + LOOSE_NS, Ordering::SeqCst);
    }

    /// Frees the place of a thread that is `wanted`. The same may be done by others at once, as
    /// all of them restore the same.
    fn free(place: &Place, wanted: impl Fn(u32) -> bool) {
        loop {
            // SeqCst: see the proof at the head of this file; pairs with `keep`.
            let state = place.state.load(Ordering::SeqCst);
            let thread = state & !BUSY;
            if thread == FREE || !wanted(thread) {
                return;
            }
            if state & BUSY == 0 {
                let Some(allowed) = place.allowed(state) else { continue };
                // A thread that has ended needs nothing.
                let _ = allowed.give_to(thread);
                // SeqCst pairs with `let_go`. A failure is looked at again: the service thread is
                // at it, or has been.
                let _ =
                    place.state.compare_exchange(thread, FREE, Ordering::SeqCst, Ordering::SeqCst);
            } else {
                // The service thread may wait for this processor.
                cpu::yield_now();
            }
        }
    }

    /// What `thread` is allowed in truth, if it is kept.
    pub fn allowed(&self, thread: u32) -> Option<Allowed> {
        // Acquire pairs with the last store in `keep`.
        let kept = |place: &&Place| place.state.load(Ordering::Acquire) == thread;
        self.places.iter().find(kept)?.allowed(thread)
    }

    // For the service thread.

    /// Keeps `thread` on `processor` from now on, in a free place. False when it may not be kept
    /// there, or not now.
    pub fn keep(&self, index: usize, thread: u32, processor: usize) -> bool {
        let place = &self.places[index];
        // SeqCst here and below: see the proof at the head of this file; pairs with `loosen`.
        place.state.store(thread | BUSY, Ordering::SeqCst);
        let may = self.loose_until.load(Ordering::SeqCst) <= cpu::monotonic_ns();
        let kept = may && Self::narrow(place, thread, processor);
        // Releases what `narrow` has written to those who find the thread here.
        place.state.store(if kept { thread } else { FREE }, Ordering::SeqCst);
        kept
    }

    fn narrow(place: &Place, thread: u32, processor: usize) -> bool {
        let Ok(allowed) = Allowed::of(thread) else { return false };
        if !allowed.has(processor) || allowed.is_one() {
            return false;
        }
        // Release pairs with the Acquire fence in `Place::allowed`.
        fence(Ordering::Release);
        for (word, bits) in place.allowed.iter().zip(allowed.0) {
            // Relaxed: published by the state.
            word.store(bits, Ordering::Relaxed);
        }
        // A child by `vfork` faults in our memory too.
        raw::is_own_thread(thread) && Allowed::only(processor).give_to(thread).is_ok()
    }

    /// Whether `thread` is kept, in this place.
    pub fn is_kept(&self, index: usize, thread: u32) -> bool {
        // Relaxed: a stale answer is as good.
        self.places[index].state.load(Ordering::Relaxed) == thread
    }

    /// Lets the thread in this place go, if there is one.
    pub fn let_go(&self, index: usize) {
        let place = &self.places[index];
        // Relaxed: looked at again below.
        let thread = place.state.load(Ordering::Relaxed);
        if thread == FREE {
            return;
        }
        // SeqCst pairs with `free`: who loosens waits until the set is restored. On failure the
        // thread has been let go.
        let busy =
            place.state.compare_exchange(thread, thread | BUSY, Ordering::SeqCst, Ordering::SeqCst);
        if busy.is_ok() {
            if let Some(allowed) = place.allowed(thread | BUSY) {
                // A thread that has ended needs nothing.
                let _ = allowed.give_to(thread);
            }
            // SeqCst pairs with `free`.
            place.state.store(FREE, Ordering::SeqCst);
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

    /// What this thread is allowed, if that is more than one processor.
    fn all() -> Option<Allowed> {
        let all = Allowed::of(raw::thread_id()).expect("it lives");
        if all.is_one() {
            eprintln!("skipped: one processor");
        }
        (!all.is_one()).then_some(all)
    }

    fn is_kept(thread: u32) -> bool {
        Allowed::of(thread).expect("it lives").is_one()
    }

    #[test]
    fn a_thread_that_is_let_go_may_run_where_it_might_before() {
        let Some(all) = all() else { return };
        let (stay, thread) = (Stay::new(), raw::thread_id());
        assert!(stay.keep(3, thread, cpu::current()));
        assert!(stay.is_kept(3, thread) && is_kept(thread));
        assert_eq!(stay.allowed(thread), Some(all));
        stay.let_go(3);
        assert_eq!(Allowed::of(thread), Ok(all));
        assert_eq!(stay.allowed(thread), None);
        assert!(stay.keep(3, thread, cpu::current()));
        stay.loosen(thread);
        assert_eq!(Allowed::of(thread), Ok(all));
        assert!(!stay.is_kept(3, thread));
    }

    #[test]
    fn who_may_not_be_there_or_is_nobody_is_not_kept() {
        let Some(all) = all() else { return };
        let (stay, thread) = (Stay::new(), raw::thread_id());
        let outside = (0..1024).find(|processor| !all.has(*processor));
        assert!(outside.is_none_or(|outside| !stay.keep(0, thread, outside)));
        // The first process is no thread of ours.
        assert!(!stay.keep(0, 1, cpu::current()));
        assert!(!stay.is_kept(0, 1) && !stay.is_kept(0, thread));
        assert_eq!(Allowed::of(thread), Ok(all));
    }

    #[test]
    fn what_the_program_sets_is_not_undone() {
        let Some(all) = all() else { return };
        let (stay, thread) = (Stay::new(), raw::thread_id());
        assert!(stay.keep(0, thread, cpu::current()));
        stay.loosen_all();
        let chosen = Allowed::only((0..1024).find(|one| all.has(*one)).expect("it runs"));
        chosen.give_to(thread).expect("it may");
        stay.let_go(0);
        assert!(!stay.keep(0, thread, cpu::current()));
        assert_eq!(Allowed::of(thread), Ok(chosen));
    }

    #[test]
    fn a_thread_is_free_as_soon_as_it_has_loosened_whatever_the_service_thread_does() {
        let Some(all) = all() else { return };
        let (stay, done) = (Stay::new(), AtomicBool::new(false));
        let thread = raw::thread_id();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: a flag of its own.
                while !done.load(Ordering::Relaxed) {
                    let kept = stay.is_kept(2, thread) || stay.keep(2, thread, cpu::current());
                    // Now and then, so that both let go at once.
                    if kept && cpu::ticks().is_multiple_of(4) {
                        stay.let_go(2);
                    }
                    cpu::yield_now();
                }
            });
            for _ in 0..20 {
                while stay.allowed(thread).is_none() {
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
