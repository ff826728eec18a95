//! What ended programs took, as the kernel counted: processors, major faults, and pages and bytes
//! that were read from disks and written to them; and what others took of the processors meanwhile.
//! Sources: proc_pid_stat(5), proc_pid_io(5), proc_stat(5), and Linux, mm/vmstat.c and
//! mm/page_io.c.

use std::ops::Sub;
use std::path::Path;
use std::{fs, io};

use crate::processors::{Times, field_of};

/// The places in `/proc/PID/stat`, behind the name, of major faults of reaped children and of their
/// children, of user time and system time, and of both times of these children.
const CMAJFLT: usize = 10;
const UTIME: usize = 11;
const STIME: usize = 12;
const CUTIME: usize = 13;
const CSTIME: usize = 14;
/// The number of different times in `/proc/stat`, guests' left out, which are part of user time;
/// and the places of those of idle processors.
const TIMES: usize = 8;
const IDLE: usize = 3;
const IOWAIT: usize = 4;
/// The ticks of those times in a second: USER_HZ, the same on every x86-64.
const TICKS: f64 = 100.0;

/// Counts since the start of this process, or of the machine; or between two looks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Usage {
    /// The seconds that children ran, with the kernel's work for them.
    pub cpu_seconds: f64,
    /// The seconds that this process ran.
    bench_seconds: f64,
    /// What the kernel's threads ran.
    kernel: Times,
    /// What all processors of the machine did.
    machine: Machine,
    /// The faults of children that waited for a page.
    pub major_faults: u64,
    /// The bytes fetched from disks for this process and its children.
    pub read_bytes: u64,
    /// The pages that came from swap on a disk, of any process.
    pub swapped_in: u64,
    /// The pages that went to swap on a disk. Pages that zswap keeps are not among them; pages that
    /// it writes back are.
    pub swapped_out: u64,
}

impl Usage {
    /// Reads the counts. Fails when the kernel does not report them.
    pub(crate) fn now() -> io::Result<Self> {
        let [stat, io, vmstat, machine] =
            ["/proc/self/stat", "/proc/self/io", "/proc/vmstat", "/proc/stat"].map(Path::new);
        let stat_text = fs::read_to_string(stat)?;
        let of_stat = |field| field_of(&stat_text, field).ok_or_else(|| untold(stat));
        let named = |file: &Path, name: &str| {
            let text = fs::read_to_string(file)?;
            named_in(&text, name).ok_or_else(|| untold(file))
        };
        Ok(Self {
            cpu_seconds: (of_stat(CUTIME)? + of_stat(CSTIME)?) as f64 / TICKS,
            bench_seconds: (of_stat(UTIME)? + of_stat(STIME)?) as f64 / TICKS,
            kernel: Times::of_kernel()?,
            machine: machine_in(&fs::read_to_string(machine)?).ok_or_else(|| untold(machine))?,
            major_faults: of_stat(CMAJFLT)?,
            read_bytes: named(io, "read_bytes:")?,
            swapped_in: named(vmstat, "pswpin")?,
            swapped_out: named(vmstat, "pswpout")?,
        })
    }

    /// Returns the share of the machine's processors that others had between two looks: neither
    /// children that have ended, nor this process, nor the kernel.
    pub(crate) fn others(&self) -> f64 {
        let ours = self.cpu_seconds + self.bench_seconds + self.kernel.seconds();
        // Looks take time themselves, and ticks are rough.
        ((self.machine.busy_seconds - ours) / self.machine.all_seconds).clamp(0.0, 1.0)
    }
}

/// What all processors did together.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Machine {
    /// The seconds that they were not idle: a hypervisor that ran other machines counts.
    busy_seconds: f64,
    /// The seconds that there were.
    all_seconds: f64,
}

impl Sub for Usage {
    type Output = Self;

    /// Returns what was counted since the look `before`.
    fn sub(self, before: Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            bench_seconds: self.bench_seconds - before.bench_seconds,
            kernel: self.kernel - before.kernel,
            machine: Machine {
                busy_seconds: self.machine.busy_seconds - before.machine.busy_seconds,
                all_seconds: self.machine.all_seconds - before.machine.all_seconds,
            },
            major_faults: self.major_faults - before.major_faults,
            read_bytes: self.read_bytes - before.read_bytes,
            swapped_in: self.swapped_in - before.swapped_in,
            swapped_out: self.swapped_out - before.swapped_out,
        }
    }
}

fn untold(file: &Path) -> io::Error {
    io::Error::other(format!("{} does not tell what was expected", file.display()))
}

/// Returns the sums of a text like `/proc/stat`.
fn machine_in(text: &str) -> Option<Machine> {
    let times = text.strip_prefix("cpu ")?.lines().next()?.split_ascii_whitespace().take(TIMES);
    let times: Vec<f64> = times.map(str::parse).collect::<Result<_, _>>().ok()?;
    let all: f64 = times.iter().sum();
    let idle = times.get(IDLE)? + times.get(IOWAIT)?;
    Some(Machine { busy_seconds: (all - idle) / TICKS, all_seconds: all / TICKS })
}

/// Returns the number behind a name at the start of a line.
fn named_in(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (first, number) = line.split_once(' ')?;
        if first == name { number.trim().parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    //! The risk: one figure is taken for another.
    use super::*;
    use std::process::Command;

    #[test]
    fn fields_are_told_apart() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194560 900 800 11 22 30 31 32 33 20";
        assert_eq!([CMAJFLT, CUTIME, CSTIME].map(|it| field_of(text, it)), [22, 32, 33].map(Some));
        let text = "zswpin 4\npswpin 12\npswpout 13\nread_bytes: 9\n";
        assert_eq!(named_in(text, "pswpin"), Some(12));
        assert_eq!(named_in(text, "read_bytes:"), Some(9));
        assert_eq!(named_in(text, "swpin"), None);
    }

    #[test]
    fn busy_is_what_is_not_idle_and_guests_count_once() {
        let text = "cpu  100 20 30 400 50 6 7 8 90 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        let wanted = Machine { busy_seconds: 1.71, all_seconds: 6.21 };
        assert_eq!(machine_in(text), Some(wanted));
        assert_eq!(machine_in("cpu  1 2 3"), None);
        assert_eq!(machine_in("intr 5"), None);
    }

    #[test]
    fn others_had_what_neither_programs_nor_bench_nor_kernel_had() {
        let machine = Machine { busy_seconds: 5.0, all_seconds: 20.0 };
        let now = Usage::now().unwrap();
        let kernel = now.kernel.clone() - now.kernel.clone();
        let used = Usage { cpu_seconds: 2.5, bench_seconds: 0.5, kernel, machine, ..now };
        assert_eq!(used.others(), 0.1);
        assert_eq!(Usage { cpu_seconds: 6.0, ..used }.others(), 0.0);
    }

    #[test]
    fn a_child_that_has_ended_counts() {
        let before = Usage::now().unwrap();
        let text = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        assert!(Command::new("sh").args(["-c", text]).status().unwrap().success());
        assert!((Usage::now().unwrap() - before).cpu_seconds > 0.0);
    }
}
