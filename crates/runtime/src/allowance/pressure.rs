//! Pressure: how much a program waits for memory that was taken although the budget did not ask for
//! it, and what follows: whether more may be taken, and from what age on a page counts as idle.
//!
//! The set point is the stall, not the size, as in TMO (ASPLOS 2022): how much memory a program can
//! do without cannot be known beforehand.
//!
//! - The *allowance* grows as time passes, by half of the share that the user gives, and every
//!   stall is subtracted. When nothing is left, nothing is taken until time has made up for it. So
//!   the share holds over the whole run; the other half is for pages that are away by then.
//! - The *age* doubles as soon as more is stalled in a period than that half allows, and falls by
//!   an eighth after a period with less. A period is as long as the age, because the effect of
//!   taking a page shows only after that time.

use coldpress_sys::costs;

/// Divisor that turns a share, which is in hundredths of a per cent, into half of that part of the
/// time.
const PARTS: i64 = 2 * 10_000;
/// The youngest age: the value to which MGLRU's `min_ttl_ms` is set against thrashing
/// (Documentation/admin-guide/mm/multigen_lru.rst).
const AGE_NS_MIN: u64 = 1_000_000_000;
/// The first age: two rounds of looks show what a program touches all the time.
const AGE_NS_FIRST: u64 = 2 * AGE_NS_MIN;
/// The oldest age: what Google's far memory begins with (ASPLOS 2019).
const AGE_NS_MAX: u64 = 120_000_000_000;
/// Largest allowance that is kept unused: what this much time gives.
const KEPT_NS: u64 = 10_000_000_000;
/// Assumed length of a stall until one was seen: a fault whose bytes are in memory.
const STALL_NS_FIRST: i64 = costs::FAULT_NS.cast_signed();
/// Divisor of the step by which the mean follows what is seen.
const MEAN_PART: i64 = 8;

/// What a program's stalls allow.
#[derive(Debug)]
pub(crate) struct Pressure {
    allowance_ns: i64,
    age_ns: u64,
    /// The current period: how long it has lasted, and what was stalled in it.
    period_ns: u64,
    stalled_ns: u64,
    /// The mean length of a stall lately.
    mean_ns: i64,
}

impl Default for Pressure {
    /// Returns the state before anything was seen.
    fn default() -> Self {
        Self {
            allowance_ns: 0,
            age_ns: AGE_NS_FIRST,
            period_ns: 0,
            stalled_ns: 0,
            mean_ns: STALL_NS_FIRST,
        }
    }
}

impl Pressure {
    /// Records that `passed_ns` have passed, of which `stalled_ns` were stalled, in `stalls`
    /// stalls. `share` of the time is allowed, in hundredths of a per cent.
    pub(crate) fn note(&mut self, share: u64, passed_ns: u64, stalled_ns: u64, stalls: u64) {
        if let Some(mean) = stalled_ns.checked_div(stalls) {
            self.mean_ns += (mean.cast_signed() - self.mean_ns) / MEAN_PART;
        }
        let of = |ns: u64| ns.saturating_mul(share).min(i64::MAX as u64).cast_signed() / PARTS;
        let most = of(KEPT_NS).max(self.allowance_ns);
        let grown = self.allowance_ns.saturating_add(of(passed_ns)).min(most);
        self.allowance_ns = grown.saturating_sub(stalled_ns.cast_signed());
        self.period_ns += passed_ns;
        self.stalled_ns += stalled_ns;
        let before = self.age_ns;
        // Stalls that come at once count as if they came one after the other.
        while self.stalled_ns.cast_signed() > of(self.age_ns) && self.age_ns < AGE_NS_MAX {
            self.stalled_ns -= of(self.age_ns).cast_unsigned();
            self.age_ns = (self.age_ns * 2).min(AGE_NS_MAX);
        }
        if self.age_ns != before {
            (self.period_ns, self.stalled_ns) = (0, 0);
        } else if self.period_ns >= self.age_ns {
            if self.stalled_ns.cast_signed() <= of(self.age_ns) {
                self.age_ns = (self.age_ns - self.age_ns / 8).max(AGE_NS_MIN);
            }
            (self.period_ns, self.stalled_ns) = (0, 0);
        }
    }

    /// Returns whether more may be taken, while it is not known of `samples` samples whether they
    /// are touched.
    pub(crate) fn allows(&self, samples: usize) -> bool {
        self.allowance_ns > samples as i64 * self.mean_ns
    }

    /// Returns the age: a page that was not touched for this time is idle.
    pub(crate) fn age_ns(&self) -> u64 {
        self.age_ns
    }
}

#[cfg(test)]
mod tests {
    //! Risk: a program that waits for more than its user allows, or a program that would not wait
    //! and of which nothing is taken.

    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    use super::*;

    const SHARE: u64 = 50;
    const TICK_NS: u64 = 50_000_000;
    /// Time that a page from the pool takes.
    const LOAD_NS: u64 = 15_000;
    /// Pages taken in a tick at most.
    const TAKEN_TOGETHER: usize = 64;

    /// A program that touches each page again and again, each at its own interval in ticks.
    struct Program {
        pressure: Pressure,
        now: u64,
        intervals: Vec<u64>,
        touched_at: Vec<u64>,
        is_away: Vec<bool>,
        stalled_ns: u64,
        worst_tick_ns: u64,
    }

    impl Program {
        fn new(intervals: Vec<u64>) -> Self {
            let count = intervals.len();
            Self {
                pressure: Pressure::default(),
                now: 0,
                intervals,
                touched_at: vec![0; count],
                is_away: vec![false; count],
                stalled_ns: 0,
                worst_tick_ns: 0,
            }
        }

        fn run(&mut self, ticks: u64) {
            for _ in 0..ticks {
                self.now += 1;
                let mut stalled = 0;
                for page in 0..self.intervals.len() {
                    if (self.now + page as u64).is_multiple_of(self.intervals[page]) {
                        self.touched_at[page] = self.now;
                        stalled += u64::from(core::mem::take(&mut self.is_away[page])) * LOAD_NS;
                    }
                }
                self.stalled_ns += stalled;
                self.worst_tick_ns = self.worst_tick_ns.max(stalled);
                self.pressure.note(SHARE, TICK_NS, stalled, stalled / LOAD_NS);
                if !self.pressure.allows(0) {
                    continue;
                }
                let age = self.pressure.age_ns() / TICK_NS;
                let idle = (0..self.intervals.len()).filter(|page| {
                    !self.is_away[*page] && self.now - self.touched_at[*page] >= age
                });
                let idle: Vec<_> = idle.take(TAKEN_TOGETHER).collect();
                idle.into_iter().for_each(|page| self.is_away[page] = true);
            }
        }

        fn away(&self) -> usize {
            self.is_away.iter().filter(|away| **away).count()
        }

        /// Returns the part of all time so far that is allowed.
        fn allowed_ns(&self) -> u64 {
            self.now * TICK_NS * SHARE / 10_000
        }
    }

    #[test]
    fn what_is_never_touched_goes_and_what_is_touched_all_the_time_stays() {
        let mut intervals = vec![3; 500];
        intervals.extend([u64::MAX; 1500]);
        let mut program = Program::new(intervals);
        program.run(400);
        assert_eq!((program.away(), program.stalled_ns), (1500, 0));
        assert_eq!(program.pressure.age_ns(), AGE_NS_MIN);
    }

    #[test]
    fn pages_that_come_back_too_often_are_let_alone() {
        // Every 1.5 seconds 2000 pages: at the youngest age they would stall for 2 % of the time.
        let mut program = Program::new(vec![30; 2000]);
        program.run(4_000);
        assert!(program.stalled_ns <= program.allowed_ns(), "{} ns", program.stalled_ns);
        // But trying again uses up some of it.
        assert!(program.stalled_ns > program.allowed_ns() / 100, "{} ns", program.stalled_ns);
    }

    #[test]
    fn another_phase_is_paid_for_before_more_is_taken() {
        let mut program = Program::new(vec![u64::MAX; 4000]);
        program.run(1_000);
        assert_eq!(program.away(), 4000);
        // All of it at once: 60 ms, of which 25 ms had been saved up.
        program.intervals.fill(1);
        program.run(1);
        program.intervals.fill(u64::MAX);
        assert!(!program.pressure.allows(0));
        assert!(program.pressure.age_ns() >= 4 * AGE_NS_MIN, "{:?}", program.pressure);
        program.run(2_400);
        assert_eq!(program.away(), 4000);
        assert!(program.stalled_ns <= program.allowed_ns());
    }

    #[test]
    fn any_length_of_time_allows_more() {
        let mut pressure = Pressure::default();
        pressure.note(5_000, u64::MAX / 5_000, 0, 0);
        assert!(pressure.allows(0));
    }

    #[test]
    fn samples_are_taken_as_if_all_were_touched() {
        let mut pressure = Pressure::default();
        assert!(!pressure.allows(0));
        // Half of 0.5 % of a second is 2.5 ms.
        pressure.note(SHARE, 1_000_000_000, 0, 0);
        assert!(pressure.allows(347) && !pressure.allows(348));
        // Stalls of 24 us.
        for _ in 0..100 {
            pressure.note(SHARE, 4_800_000 * 2, 24_000, 1);
        }
        assert!(pressure.allows(104) && !pressure.allows(105), "{pressure:?}");
    }

    proptest! {
        /// Holds whatever a program stalls, as long as it stalls only while that is allowed.
        #[test]
        fn no_more_is_allowed_than_the_share_of_all_time(
            steps in prop::collection::vec((0_u64..2_000_000_000, 0_u64..30_000_000), 1..300),
        ) {
            let (mut pressure, mut passed, mut stalled) = (Pressure::default(), 0, 0);
            for (passes, stalls) in steps {
                passed += passes;
                let stalls = if pressure.allows(0) { stalls } else { 0 };
                stalled += stalls;
                pressure.note(SHARE, passes, stalls, 1);
                if pressure.allows(0) {
                    prop_assert!(stalled * PARTS as u64 <= passed * SHARE);
                }
                prop_assert!((AGE_NS_MIN..=AGE_NS_MAX).contains(&pressure.age_ns()));
            }
        }

        #[test]
        fn programs_of_all_kinds_stall_for_their_share(
            intervals in prop::collection::vec(1_u64..400, 1..100),
        ) {
            let mut program = Program::new(intervals);
            program.run(1_000);
            // Pages that are away when the allowance is used up come back all the same, once.
            let late = program.worst_tick_ns + program.intervals.len() as u64 * LOAD_NS;
            prop_assert!(program.stalled_ns <= program.allowed_ns() + late);
        }
    }
}
