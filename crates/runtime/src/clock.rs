//! A clock for the fault path: the processor's counter, compared with the system's clock now and
//! then.

use coldpress_sys::cpu;

/// The most that the two clocks are apart at any look, unless the machine has slept.
const APART_MAX_NS: u64 = 10_000_000;
/// The ticks between two readings of the counter that show that the thread was interrupted: some
/// 0.3 ms.
const INTERRUPTED_TICKS: u64 = 1 << 20;

/// A clock that gives the nanoseconds of the monotonic clock for the price of reading a register
/// (about 10 ns).
#[derive(Debug)]
pub(crate) struct Clock {
    ticks_base: u64,
    ns_base: u64,
    /// Nanoseconds per tick, times 2^32.
    scale: u64,
    knows_rate: bool,
}

impl Clock {
    /// Starts a clock that knows its rate only after [`Clock::adjust`]; until then a tick counts as
    /// a nanosecond.
    pub(crate) fn start() -> Self {
        let (ticks_base, ns_base) = (cpu::ticks(), cpu::monotonic_ns());
        Self { ticks_base, ns_base, scale: 1 << 32, knows_rate: false }
    }

    /// Returns when the clock was started, in nanoseconds.
    pub(crate) fn started_ns(&self) -> u64 {
        self.ns_base
    }

    /// Returns whether the machine has slept, after learning the rate from the time since the
    /// start. While it sleeps, the system's clock stands still, and the processor's counter goes on
    /// or begins anew: then this clock starts anew, at the rate that it knows.
    pub(crate) fn adjust(&mut self) -> bool {
        let (ticks, ns) = (cpu::ticks(), cpu::monotonic_ns());
        if cpu::ticks().wrapping_sub(ticks) > INTERRUPTED_TICKS {
            // The two readings are not of the same moment. The next look will do.
            return false;
        }
        self.hold_against(ticks, ns)
    }

    fn hold_against(&mut self, ticks: u64, ns: u64) -> bool {
        let has_slept = self.knows_rate && self.ns_at(ticks).abs_diff(ns) > APART_MAX_NS;
        if has_slept {
            (self.ticks_base, self.ns_base) = (ticks, ns);
            // The rate may have been learned over such a sleep.
            self.knows_rate = false;
        } else {
            let ticks = ticks.wrapping_sub(self.ticks_base).max(1);
            let ns = ns.saturating_sub(self.ns_base);
            self.scale = ((u128::from(ns) << 32) / u128::from(ticks)) as u64;
            self.knows_rate = true;
        }
        has_slept
    }

    /// Returns the current time in nanoseconds.
    pub(crate) fn now_ns(&self) -> u64 {
        self.ns_at(cpu::ticks())
    }

    fn ns_at(&self, ticks: u64) -> u64 {
        self.ns_base.wrapping_add(self.span_ns(ticks.wrapping_sub(self.ticks_base)))
    }

    /// Returns the length of `ticks` in nanoseconds.
    pub(crate) fn span_ns(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a clock that stands still, or is ahead, after the machine has slept.

    use super::*;

    #[test]
    fn an_adjusted_clock_agrees_with_the_system() {
        let mut clock = Clock::start();
        cpu::sleep_ns(5_000_000);
        clock.adjust();
        let (ours, theirs) = (clock.now_ns(), cpu::monotonic_ns());
        assert!(ours.abs_diff(theirs) < 1_000_000, "{ours} against {theirs}");
    }

    #[test]
    fn a_sleep_of_the_machine_moves_it_and_leaves_its_rate() {
        // Three ticks a nanosecond.
        let (second, ticks) = (1_000_000_000, 3_000_000_000);
        for after_sleep in [7_000 * ticks, 5] {
            let mut clock = Clock {
                ticks_base: 1_000,
                ns_base: 50 * second,
                scale: 1 << 32,
                knows_rate: false,
            };
            assert!(!clock.hold_against(1_000 + ticks, 51 * second));
            // The counter went on for two hours, or began anew.
            assert!(clock.hold_against(after_sleep, 52 * second));
            assert_eq!(clock.ns_at(after_sleep), 52 * second);
            let later = clock.ns_at(after_sleep + ticks);
            assert!(later.abs_diff(53 * second) < 10, "{later}");
            assert!(!clock.hold_against(after_sleep + ticks, 53 * second));
        }
    }
}
