//! Whether a program waits for pages most of the time, which means that its budget is too small for
//! what it does.
//!
//! The service warns of a minute in which the program's threads waited for half of it at least, and
//! for longer than they ran. It does not warn of a thread that sleeps most of the time and now and
//! then waits, nor of many threads that run and wait a little each. The warning names the budget
//! within which everything that the process has would be in place: less may do.

/// Length of the period that is judged.
const PERIOD_NS: u64 = 60_000_000_000;

/// The numbers at which a period began. The first period begins with the machine, so no process has
/// waited for half of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    began_ns: u64,
    stalled_ns: u64,
    ran_ns: u64,
}

impl Waits {
    /// Returns whether a period is over.
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.began_ns) >= PERIOD_NS
    }

    /// Begins the next period; threads have waited for `stalled_ns` and run for `ran_ns`
    /// altogether. If the program waited most of the last period, returns its percentage of the
    /// time that threads either waited or ran.
    pub(crate) fn end(&mut self, now_ns: u64, stalled_ns: u64, ran_ns: u64) -> Option<u64> {
        let before = core::mem::replace(self, Self { began_ns: now_ns, stalled_ns, ran_ns });
        let passed = now_ns.saturating_sub(before.began_ns);
        let stalled = stalled_ns.saturating_sub(before.stalled_ns);
        let ran = ran_ns.saturating_sub(before.ran_ns);
        let mostly_waits = stalled >= passed / 2 && stalled > ran;
        mostly_waits.then(|| stalled.saturating_mul(100) / (stalled + ran))
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a program that thrashes for hours without a word, or a warning about one that does
    //! well.

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Returns what is said of a minute in which threads waited and ran for these seconds.
    fn said(stalled: u64, ran: u64) -> Option<u64> {
        let mut waits = Waits { began_ns: 5 * SECOND, stalled_ns: 7 * SECOND, ran_ns: 9 * SECOND };
        assert!(!waits.is_over(64 * SECOND) && waits.is_over(65 * SECOND));
        let percent = waits.end(65 * SECOND, (7 + stalled) * SECOND, (9 + ran) * SECOND);
        assert!(!waits.is_over(66 * SECOND), "the next has begun");
        percent
    }

    #[test]
    fn who_waits_for_most_of_a_minute_is_told_of_and_nobody_else_is() {
        assert_eq!(said(45, 15), Some(75));
        assert_eq!(said(30, 10), Some(75));
        // The program sleeps for most of it.
        assert_eq!(said(29, 1), None);
        assert_eq!(said(0, 0), None);
        // Eight threads that run most of the time.
        assert_eq!(said(100, 380), None);
        assert_eq!(said(300, 100), Some(75));
    }
}
