//! A clock for the fault path: the processor's counter, held against the system's clock now and
//! then.

use coldpress_sys::cpu;

/// Nanoseconds of the monotonic clock, at the price of reading a register (about 10 ns).
#[derive(Debug)]
pub struct Clock {
    ticks_base: u64,
    ns_base: u64,
    /// Nanoseconds per tick, times 2^32.
    scale: u64,
}

impl Clock {
    /// A clock that knows its rate only after [`Clock::adjust`]; until then a tick counts as a
    /// nanosecond.
    pub fn start() -> Self {
        Self { ticks_base: cpu::ticks(), ns_base: cpu::monotonic_ns(), scale: 1 << 32 }
    }

    /// When it was started, in nanoseconds.
    pub fn started_ns(&self) -> u64 {
        self.ns_base
    }

    /// Learns the rate from the time since the start.
    pub fn adjust(&mut self) {
        let ticks = cpu::ticks().wrapping_sub(self.ticks_base).max(1);
        let ns = cpu::monotonic_ns().saturating_sub(self.ns_base);
        self.scale = ((u128::from(ns) << 32) / u128::from(ticks)) as u64;
    }

    /// Nanoseconds now.
    pub fn now_ns(&self) -> u64 {
        self.ns_base + self.span_ns(cpu::ticks().wrapping_sub(self.ticks_base))
    }

    /// How long `ticks` are.
    pub fn span_ns(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adjusted_clock_agrees_with_the_system() {
        let mut clock = Clock::start();
        cpu::sleep_ns(5_000_000);
        clock.adjust();
        let (ours, theirs) = (clock.now_ns(), cpu::monotonic_ns());
        assert!(ours.abs_diff(theirs) < 1_000_000, "{ours} against {theirs}");
    }
}
