//! Pressure stall information (PSI): the part of the time for which tasks wait for memory, and the
//! part of a budget by `auto` that is given up for them.
//!
//! The kernel counts the time for which some task waits: for a page of a file that was dropped a
//! moment ago, for swap, for reclaim. It does not count waits for our own services. So where others
//! wait, memory is worth more to them, or as a cache of the program's own files, than here, where
//! it is compressed. The part given up grows while they wait and goes back slowly, so that it stays
//! near what is needed. A cgroup of version 1 does not report its pressure. Source:
//! Documentation/accounting/psi.rst.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::budget::Origin;

/// The part of the time, in percent, above which waiting tasks want more memory. The trigger that
/// psi.rst shows is at 15.
const SHORT_PERCENT: u128 = 10;
/// The part of the time, in percent, up to which waiting tasks have enough memory.
const ENOUGH_PERCENT: u128 = 1;
/// The steps by which the part given up grows while tasks wait, and shrinks when they have enough:
/// percent of the budget at each look.
const STEP_UP: u32 = 5;
const STEP_DOWN: u32 = 2;
/// The most that is given up, in percent: tasks may be waiting for memory that we do not have.
const GIVEN_MAX: u32 = 50;

/// The part of a budget given up for others, by how long they waited since the last look.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    last: Option<Look>,
    given_percent: u32,
}

/// The time for which some task had waited, at one look.
#[derive(Debug)]
struct Look {
    file: PathBuf,
    at: Instant,
    waited: Duration,
}

impl Pressure {
    /// Returns the part to give up of a budget of this `origin` from now on, in percent. Returns 0
    /// where the kernel does not report pressure.
    pub(crate) fn look(&mut self, origin: &Origin) -> u32 {
        let look = file_of(origin).and_then(|file| {
            let waited = parse(&fs::read_to_string(&file).ok()?)?;
            Some(Look { file, at: Instant::now(), waited })
        });
        self.given_percent = match (&self.last, &look) {
            (Some(last), Some(now)) if last.file == now.file => {
                let waited = now.waited.saturating_sub(last.waited);
                next(self.given_percent, waited, now.at - last.at)
            }
            _ => 0,
        };
        self.last = look;
        self.given_percent
    }
}

/// Returns the file that reports the pressure on the tasks that share the memory of which the
/// budget is a part.
fn file_of(origin: &Origin) -> Option<PathBuf> {
    match origin {
        Origin::Asked => None,
        Origin::Cgroup(limit) => Some(limit.file.with_file_name("memory.pressure")),
        Origin::Machine(_) => Some(Path::new("/proc/pressure/memory").to_owned()),
    }
}

/// Parses the time for which some task has waited: `some avg10=0.00 ... total=MICROSECONDS`.
fn parse(text: &str) -> Option<Duration> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some.split(' ').find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

/// Returns the part to give up after `given`, when tasks `waited` for that much of `time`.
fn next(given: u32, waited: Duration, time: Duration) -> u32 {
    let part = |percent: u128| time.as_micros() * percent / 100;
    if waited.as_micros() > part(SHORT_PERCENT) {
        (given + STEP_UP).min(GIVEN_MAX)
    } else if waited.as_micros() <= part(ENOUGH_PERCENT) {
        given.saturating_sub(STEP_DOWN)
    } else {
        given
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a part of the budget is given up for good, or for nobody.

    use coldpress_sys::Bytes;

    use super::*;
    use coldpress_common::cgroup::Limit;

    #[test]
    fn it_is_given_up_while_tasks_wait_and_taken_back_when_they_do_not() {
        let second = Duration::from_secs(1);
        let after = |seconds: u32, given, percent| {
            (0..seconds).fold(given, |given, _| next(given, second * percent / 100, second))
        };
        assert_eq!((after(1, 0, 11), after(3, 0, 80), after(100, 0, 100)), (5, 15, 50));
        assert_eq!((after(1, 50, 0), after(25, 50, 1), after(100, 0, 0)), (48, 0, 0));
        assert_eq!(after(100, 30, 5), 30);
    }

    #[test]
    fn the_time_of_some_is_read() {
        let text = "some avg10=0.00 avg60=0.05 avg300=0.62 total=337422687\n\
                    full avg10=0.00 avg60=0.04 avg300=0.45 total=194970873\n";
        assert_eq!(parse(text), Some(Duration::from_micros(337_422_687)));
        assert_eq!((parse(""), parse("some avg10=0.00 total=x\n")), (None, None));
    }

    #[test]
    fn what_was_asked_is_kept_and_another_limit_begins_anew() {
        let file = tempfile::tempdir().unwrap();
        let limit = file.path().join("memory.max");
        let origin = Origin::Cgroup(Limit { bytes: Bytes::mib(64), file: limit });
        let tell = |micros: u64| {
            let text = format!("some avg10=0 avg60=0 avg300=0 total={micros}\nfull total=0\n");
            fs::write(file.path().join("memory.pressure"), text).unwrap();
        };
        let mut pressure = Pressure::default();
        assert_eq!(pressure.look(&origin), 0, "there is no such file");
        tell(0);
        assert_eq!(pressure.look(&origin), 0);
        tell(1 << 40);
        assert_eq!(pressure.look(&origin), STEP_UP);
        assert_eq!(pressure.look(&Origin::Asked), 0);
        assert_eq!(pressure.look(&origin), 0);
    }
}
