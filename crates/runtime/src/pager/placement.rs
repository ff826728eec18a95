//! Placement: the service and the threads that fault often share a processor.
//!
//! On one processor a fault costs a switch of threads (13 us in all). Across two, idle ones have to
//! be woken, which alone takes 40 to 60 us each way. So the service goes where faults come from,
//! and a thread that faults often is kept from being moved away (`stay`). Where several threads
//! fault often and there are two processors, they are gathered on the processor of the first,
//! because the service can be on one only. With more processors, gathered threads would have too
//! little of the machine, so the other threads are left alone.
//!
//! For a thread with real-time priority the service goes nowhere: while that thread, or another
//! like it, runs, nothing else runs on its processor. When other such threads have all processors,
//! only they can end the service's wait for one, so the user is warned once.
//!
//! The main thread's processor is read from its rseq area. A process without rights cannot find out
//! where other threads are, so another thread that faults often is kept where the service is.

use coldpress_sys::cpu::{self, Allowed, RseqArea};

use crate::stay::{Give, LOOSE_NS, PLACES, Stay, Wish};

/// Faults within `OFTEN_NS` after which a thread is kept: being moved at each of them would take 40
/// % of its time.
const OFTEN: u32 = 8;
const OFTEN_NS: u64 = 2_000_000;
/// Faults within `OFTEN_NS` after which a thread is kept that would have to leave its processor for
/// the others': as many as it can have across processors. Such a thread shares one processor from
/// then on, so fewer would not pay for that.
const OFTEN_TO_GATHER: u32 = 16;
/// Most processors with which threads are gathered on one of them.
const GATHER_MAX: u32 = 2;
/// Time without a fault after which a thread is let go.
const REST_NS: u64 = 2_000_000;
/// Interval at which threads that are kept are let go for a fault, so that they can leave a
/// processor that others have come to use. When they are moved in vain, that is a fault or two
/// across processors, and the helper has to leave the other one (`coldpress`, helper.rs).
const BREATH_NS: u64 = 1_000_000_000;

/// What is known of a thread that faulted lately.
#[derive(Clone, Copy, Default)]
struct Thread {
    id: u32,
    /// Faults since `since_ns`.
    faults: u32,
    since_ns: u64,
    last_ns: u64,
    /// When it was last kept.
    kept_ns: u64,
    /// Until when the service does not try again to keep the thread, which it could not.
    refused_until_ns: u64,
    is_real_time: bool,
}

/// The state that follows the faulting threads.
pub(crate) struct Placement {
    main_thread: u32,
    main_area: Option<RseqArea>,
    current: Option<usize>,
    migrations: u64,
    /// The threads, in the places of `stay`.
    threads: [Thread; PLACES],
    stay: &'static Stay,
    /// What a thread that may run anywhere is allowed.
    unrestricted: Option<Allowed>,
    /// Whether threads are gathered on one processor.
    gathers: bool,
    /// The first thread with real-time priority that faulted, until the user is warned of it.
    real_time: Option<u32>,
    has_seen_real_time: bool,
}

impl Placement {
    /// Begins to follow the threads. `main_area` is the area of the program's main thread, whose
    /// number is the number of its process.
    pub(crate) fn new(main_thread: u32, main_area: Option<RseqArea>, stay: &'static Stay) -> Self {
        // This process has inherited the processors of the thread that started it, and has not
        // restricted itself yet.
        let unrestricted = Allowed::unrestricted();
        let processors = Allowed::of(0).map_or(1, |allowed| allowed.count());
        Self {
            main_thread,
            main_area,
            current: None,
            migrations: 0,
            threads: [Thread::default(); PLACES],
            stay,
            unrestricted,
            gathers: processors <= GATHER_MAX,
            real_time: None,
            has_seen_real_time: false,
        }
    }

    /// Keeps `thread`, which has faulted, on its processor if it faults often. Call this before the
    /// thread is woken. `now_ns` is the monotonic clock; `give` changes what a thread is allowed.
    pub(crate) fn attend(&mut self, thread: u32, now_ns: u64, give: Give<'_>) {
        let index = self.note(thread, now_ns, give);
        let noted = self.threads[index];
        if noted.is_real_time {
            return self.leave();
        }
        if self.stay.is_kept(index, thread) {
            if now_ns > noted.kept_ns + BREATH_NS {
                self.let_all_go(give);
                // The thread is kept again at its next fault, where it is then.
                let thread = &mut self.threads[index];
                (thread.faults, thread.since_ns) = (OFTEN, now_ns);
            }
            return;
        }
        let others = self.anybody_kept();
        let enough = if others { OFTEN_TO_GATHER } else { OFTEN };
        if noted.faults < enough || others && !self.gathers || now_ns < noted.refused_until_ns {
            return;
        }
        let here = || Some(cpu::current());
        let place = if others { self.current } else { self.processor_of(thread).or_else(here) };
        let kept = place.is_some_and(|processor| {
            let wish = Wish { process: self.main_thread, thread, processor };
            let kept = self.stay.keep(index, wish, self.unrestricted, give);
            if kept {
                self.go_to(processor);
            }
            kept
        });
        let thread = &mut self.threads[index];
        if kept {
            thread.kept_ns = now_ns;
        } else {
            thread.refused_until_ns = now_ns + LOOSE_NS;
        }
    }

    /// Moves the service to the processor of `thread` if that is known, unless other threads are
    /// kept here. Call this after the thread has been woken.
    pub(crate) fn follow(&mut self, thread: u32) {
        let is_real_time = |other: &Thread| other.id == thread && other.is_real_time;
        if self.anybody_kept() || self.threads.iter().any(is_real_time) {
            return;
        }
        if let Some(processor) = self.processor_of(thread) {
            self.go_to(processor);
        }
    }

    /// Lets threads go that no longer fault.
    pub(crate) fn let_rest(&mut self, now_ns: u64, give: Give<'_>) {
        for (index, thread) in self.threads.iter().enumerate() {
            if now_ns > thread.last_ns + REST_NS {
                self.stay.let_go(index, give);
            }
        }
    }

    /// Lets all threads go.
    pub(crate) fn let_all_go(&mut self, give: Give<'_>) {
        for index in 0..PLACES {
            self.stay.let_go(index, give);
        }
    }

    /// Returns the first thread with real-time priority that has faulted, and only once.
    pub(crate) fn take_real_time(&mut self) -> Option<u32> {
        self.real_time.take()
    }

    /// Returns the processor that the service runs on, once it has gone to one.
    pub(crate) fn current(&self) -> Option<usize> {
        self.current
    }

    /// Returns how often the service has changed its processor.
    pub(crate) fn migrations(&self) -> u64 {
        self.migrations
    }

    /// Counts a fault of the thread `id`, and returns the thread's place.
    fn note(&mut self, id: u32, now_ns: u64, give: Give<'_>) -> usize {
        let known = self.threads.iter().position(|thread| thread.id == id);
        let index = known.unwrap_or_else(|| {
            let oldest = (0..PLACES).min_by_key(|index| self.threads[*index].last_ns).unwrap_or(0);
            self.stay.let_go(oldest, give);
            let is_real_time = cpu::is_real_time(id);
            if is_real_time && !self.has_seen_real_time {
                (self.real_time, self.has_seen_real_time) = (Some(id), true);
            }
            self.threads[oldest] =
                Thread { id, since_ns: now_ns, is_real_time, ..Thread::default() };
            oldest
        });
        let thread = &mut self.threads[index];
        if now_ns > thread.since_ns + OFTEN_NS {
            (thread.since_ns, thread.faults) = (now_ns, 0);
        }
        thread.faults += 1;
        thread.last_ns = now_ns;
        index
    }

    /// Lets the service run wherever there is room: beside a thread of real-time priority there may
    /// be none.
    fn leave(&mut self) {
        if self.current.take().is_some() {
            // The service's cpuset still holds; a refusal leaves the service where it is.
            let _ = Allowed::ALL.give_to(0);
        }
    }

    fn anybody_kept(&self) -> bool {
        let mut threads = self.threads.iter().enumerate();
        threads.any(|(index, thread)| thread.id != 0 && self.stay.is_kept(index, thread.id))
    }

    fn processor_of(&self, thread: u32) -> Option<usize> {
        self.main_area.filter(|_| thread == self.main_thread).and_then(RseqArea::cpu)
    }

    fn go_to(&mut self, processor: usize) {
        if self.current != Some(processor) && cpu::run_on(processor).is_ok() {
            self.current = Some(processor);
            self.migrations += 1;
        }
    }
}
