//! Placement: the service and the threads that fault often share a processor.
//!
//! On the same processor a fault costs a switch of threads (13 us in all); across two, idle ones
//! have to be woken, which alone takes 40 to 60 us each way. So the service goes where
//! faults come from, and a thread that faults often is kept from being moved away (`stay`). Where
//! several do and there are two processors, they are gathered on that of the first, as the service
//! can be on one only. With more processors they would share too little, so the others are
//! left alone.
//!
//! Where a thread has real-time priority the service goes nowhere: while that thread, or another
//! like it, runs, nothing else does on its processor. What it has to wait for when others like it
//! have all processors is theirs to end, so the user is told once.
//!
//! The main thread's processor is read from its rseq area. Where others are nobody tells a process
//! without rights, so one of them that faults often is kept where the service is.

use coldpress_sys::cpu::{self, Allowed, RseqArea};

use crate::stay::{Give, LOOSE_NS, PLACES, Stay, Wish};

/// A thread is kept once it has faulted `OFTEN` times within `OFTEN_NS`: being moved at each of
/// them would take 40 % of its time.
const OFTEN: u32 = 8;
const OFTEN_NS: u64 = 2_000_000;
/// One that would have to leave its processor for that of others: as often as it can fault across
/// processors. It shares one processor from then on, so less would not pay.
const OFTEN_TO_GATHER: u32 = 16;
/// Most processors with which threads are gathered.
const GATHER_MAX: u32 = 2;
/// A thread that has not faulted for this long is let go.
const REST_NS: u64 = 2_000_000;
/// Threads that are kept are let go for a fault this often, so that they can leave a processor that
/// others have come to use. When they are moved in vain, that is a fault or two across processors,
/// and the helper has to leave the other one (`coldpress`, helper.rs).
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
    /// It could not be kept, and is not asked again before.
    refused_until_ns: u64,
    is_real_time: bool,
}

/// Follows the faulting threads.
pub struct Placement {
    main_thread: u32,
    main_area: Option<RseqArea>,
    current: Option<usize>,
    migrations: u64,
    /// In the places of `stay`.
    threads: [Thread; PLACES],
    stay: &'static Stay,
    /// What a thread is allowed that may run anywhere.
    unrestricted: Option<Allowed>,
    /// Whether threads are gathered on one processor.
    gathers: bool,
    /// The first thread with real-time priority that faulted, and has not been told of.
    real_time: Option<u32>,
    has_seen_real_time: bool,
}

impl Placement {
    /// Follows from now on. `main_area` is that of the program's main thread, whose number is that
    /// of its process.
    pub fn new(main_thread: u32, main_area: Option<RseqArea>, stay: &'static Stay) -> Self {
        // This process has inherited what the thread was allowed that started it, and goes nowhere
        // before now.
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

    /// Before `thread` is woken, which has faulted: keeps it on its processor if it does so often.
    /// `now_ns` is the monotonic clock, `give` changes what a thread is allowed.
    pub fn attend(&mut self, thread: u32, now_ns: u64, give: Give<'_>) {
        let index = self.note(thread, now_ns, give);
        let noted = self.threads[index];
        if noted.is_real_time {
            return self.leave();
        }
        if self.stay.is_kept(index, thread) {
            if now_ns > noted.kept_ns + BREATH_NS {
                self.let_all_go(give);
                // To be kept again at its next fault, where it is then.
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

    /// After `thread` has been woken: goes to its processor if that is known, unless others are
    /// kept here.
    pub fn follow(&mut self, thread: u32) {
        let is_real_time = |other: &Thread| other.id == thread && other.is_real_time;
        if self.anybody_kept() || self.threads.iter().any(is_real_time) {
            return;
        }
        if let Some(processor) = self.processor_of(thread) {
            self.go_to(processor);
        }
    }

    /// Lets threads go that fault no longer.
    pub fn let_rest(&mut self, now_ns: u64, give: Give<'_>) {
        for (index, thread) in self.threads.iter().enumerate() {
            if now_ns > thread.last_ns + REST_NS {
                self.stay.let_go(index, give);
            }
        }
    }

    /// Lets all threads go.
    pub fn let_all_go(&mut self, give: Give<'_>) {
        for index in 0..PLACES {
            self.stay.let_go(index, give);
        }
    }

    /// A thread with real-time priority has faulted, for the first time that any has: which.
    pub fn take_real_time(&mut self) -> Option<u32> {
        self.real_time.take()
    }

    /// The processor that the service runs on, once it has gone to one.
    pub fn current(&self) -> Option<usize> {
        self.current
    }

    /// How often the processor changed.
    pub fn migrations(&self) -> u64 {
        self.migrations
    }

    /// Counts a fault of `thread`; its place.
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

    /// Runs wherever there is room: beside a thread of real-time priority there may be none.
    fn leave(&mut self) {
        if self.current.take().is_some() {
            // Its cpuset still holds; a refusal leaves it where it is.
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
