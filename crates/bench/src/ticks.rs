//! Times of single calls, by the processor's counter.

use std::hint::black_box;
use std::time::{Duration, Instant};

use coldpress_sys::cpu;

use crate::statistics::Sample;

/// The time for which the counter is compared with the system's clock.
const CALIBRATION: Duration = Duration::from_millis(20);
/// The number of empty measurements that show what a measurement costs by itself.
const EMPTY: usize = 10_001;

/// A stopwatch for calls, which knows what a tick is, and what a measurement costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch {
    ns_per_tick: f64,
    /// The ticks of a measurement of nothing.
    empty: f64,
}

impl Stopwatch {
    /// Makes a stopwatch; calibrates it for 20 ms.
    pub(crate) fn learn() -> Self {
        let (started, first) = (Instant::now(), cpu::ticks());
        let empty = Sample::new((0..EMPTY).map(|_| ticks_of(|| ()).0 as f64));
        let empty = empty.map_or(0.0, |sample| sample.median());
        while started.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        let ticks = cpu::ticks().wrapping_sub(first).max(1);
        Self { ns_per_tick: started.elapsed().as_nanos() as f64 / ticks as f64, empty }
    }

    /// Times one call. Returns its nanoseconds, without those of the measurement, and its result.
    #[inline]
    pub(crate) fn time<R>(&self, call: impl FnOnce() -> R) -> (f64, R) {
        let (ticks, result) = ticks_of(call);
        ((ticks as f64 - self.empty).max(0.0) * self.ns_per_tick, result)
    }
}

#[inline]
fn ticks_of<R>(call: impl FnOnce() -> R) -> (u64, R) {
    let before = cpu::ticks();
    let result = black_box(call());
    (cpu::ticks().wrapping_sub(before), result)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a wrong unit would be far off: the machine may be busy, and the counter's rate is
    /// measured.
    #[test]
    fn a_call_takes_about_as_long_as_by_the_clock() {
        let watch = Stopwatch::learn();
        let started = Instant::now();
        let (ns, ()) = watch.time(|| cpu::sleep_ns(3_000_000));
        let most = started.elapsed().as_nanos() as f64 * 2.0;
        assert!((1_500_000.0..most).contains(&ns), "{ns} against {most}");
    }
}
