//! Moments of a run of any length, in a bounded number: when there are too many, every second one
//! is dropped, and from then on they are taken at half the rate.

use std::time::Duration;

/// The shortest interval between two moments.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Returns a time as reports have it.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What a run was at moments that lie apart by one interval.
#[derive(Clone, Debug)]
pub(super) struct Grid<T> {
    most: usize,
    interval: Duration,
    /// The age of the run from which the next moment may be taken.
    due: Duration,
    pub(super) moments: Vec<T>,
}

impl<T> Grid<T> {
    /// Makes the grid of a run that begins, for so many moments at most.
    pub(super) fn new(most: usize) -> Self {
        Self { most, interval: INTERVAL_MIN, due: Duration::ZERO, moments: Vec::new() }
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns whether a moment may be taken in a run of this age.
    pub(super) fn is_due(&self, age: Duration) -> bool {
        age >= self.due
    }

    /// Adds the moment of a run of this age.
    pub(super) fn add(&mut self, age: Duration, moment: T) {
        if self.moments.len() == self.most {
            let mut is_even = false;
            self.moments.retain(|_| {
                is_even = !is_even;
                is_even
            });
            self.interval *= 2;
        }
        self.moments.push(moment);
        // Moments keep to a grid, however late a look is.
        let steps = age.as_nanos() / self.interval.as_nanos() + 1;
        self.due = self.interval * u32::try_from(steps).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a long run fills memory, or loses its beginning or its end.

    use super::*;

    const MOST: usize = 2000;

    /// Takes moments of a run of so many seconds, at looks 50 ms apart.
    fn of_seconds(seconds: u32) -> Grid<u64> {
        let mut grid = Grid::new(MOST);
        for look in 0..=20 * seconds {
            let age = Duration::from_millis(50) * look;
            if grid.is_due(age) {
                grid.add(age, age.as_millis() as u64);
            }
        }
        grid
    }

    #[test]
    fn ten_moments_a_second_become_fewer_in_a_long_run() {
        assert_eq!(of_seconds(3).moments, (0..=30).map(|tenth| 100 * tenth).collect::<Vec<_>>());
        for (seconds, interval) in [(199, 100), (201, 200), (401, 400), (10_000, 6400)] {
            let grid = of_seconds(seconds);
            let found = &grid.moments;
            assert!(found.len() <= MOST && found.len() > MOST / 3, "{seconds}");
            assert_eq!(grid.interval.as_millis(), interval);
            let even: Vec<_> = (0..found.len() as u64).map(|step| step * interval as u64).collect();
            assert_eq!(found, &even, "{seconds} s");
        }
    }

    #[test]
    fn a_late_look_does_not_shift_the_moments_after_it() {
        let mut grid = Grid::new(MOST);
        grid.add(Duration::from_millis(130), 0);
        assert_eq!(grid.due, Duration::from_millis(200));
        grid.add(Duration::from_millis(1999), 0);
        assert_eq!(grid.due, Duration::from_millis(2000));
    }
}
