//! A watcher outside the process: samples the memory of a process tree.
//!
//! A thread walks `/proc/PID/task/*/children` from a root at a fixed rate, adds up the memory of
//! the processes it finds, and keeps the peak. The watcher touches nothing inside the processes,
//! and takes no lock of theirs but the brief ones of /proc. So it sees what the kernel's own
//! accounting would see.
//!
//! Invariants:
//! 1. An address space counts once: a vfork child that has not called exec yet borrows its
//!    parent's, and a service has its program's; both are left out.
//! 2. The root's own memory is in `total` and never in `below`: under `coldpress run` the root is
//!    the launcher, whose keeper counts as it does, and `below` is the managed tree.
//! 3. A process that ends between being listed and being read counts nothing and is no error.
//! 4. A sample is of one moment. When the watcher is stopped while it reads, memory that moves from
//!    one process to another meanwhile would count twice, so that reading is left out.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_sys::proc::share_memory;

/// Samples a second unless a test asks otherwise.
pub const RATE_HZ: u32 = 100;
/// The same for [`Measure::Shares`], where the kernel walks the whole page table for each sample.
pub const RATE_SHARES_HZ: u32 = 20;
/// Time limit of a reading: a longer one is not of one moment. A busy machine stops processes for
/// 100 ms.
const READING_MAX: Duration = Duration::from_millis(50);
/// Samples over the limit that are kept one by one; later ones are only counted.
const OVER_KEPT_MAX: usize = 1000;
/// `PF_FORKNOEXEC` of linux/sched.h, in the flags word of /proc/PID/stat: forked, no exec yet.
const FORKED_WITHOUT_EXEC: u64 = 0x40;
/// Numbers of vfork, clone and clone3, as /proc/PID/task/TID/syscall prints them.
#[cfg(target_arch = "x86_64")]
const CLONE_CALLS: [&str; 3] = ["58", "56", "435"];
#[cfg(target_arch = "aarch64")]
const CLONE_CALLS: [&str; 2] = ["220", "435"];

/// The figure that is read of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// `RssAnon` of /proc/PID/status: cheap. A page that processes share counts in each of them.
    Resident,
    /// `Pss_Anon` and `Pss_Shmem` of /proc/PID/smaps_rollup: shared memory counts too, and a page
    /// shared by n processes 1/n in each.
    Shares,
}

impl Measure {
    /// Returns the memory of one process; zero when the process is gone or has no memory left.
    pub fn read(self, pid: u32) -> Bytes {
        let (file, fields): (_, &[&str]) = match self {
            Self::Resident => ("status", &["RssAnon:"]),
            Self::Shares => ("smaps_rollup", &["Pss_Anon:", "Pss_Shmem:"]),
        };
        let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let kib = |field: &&str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(field))?;
            rest.trim().strip_suffix(" kB")?.parse::<usize>().ok()
        };
        Bytes::kib(fields.iter().filter_map(kib).sum())
    }
}

/// One reading of a tree.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Time since the watch began.
    pub at: Duration,
    /// Resident anonymous memory of all descendants of the root.
    pub below: Bytes,
    /// The same with the root's own memory.
    pub total: Bytes,
}

/// The results of a watch.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Largest `below` of any sample.
    pub peak_below: Bytes,
    /// Largest `total` of any sample.
    pub peak_total: Bytes,
    /// Samples taken.
    pub samples: usize,
    /// Longest time between two samples: how much the watch can have missed.
    pub gap_max: Duration,
    /// Samples whose `below` was over the limit.
    pub over_count: usize,
    /// The first samples over the limit.
    pub over: Vec<Sample>,
}

/// A running watch; ends with [`Watch::stop`].
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Memory>,
}

impl Watch {
    /// Watches the tree below `root`, `rate_hz` times a second. Samples over `limit` are kept.
    pub fn start(root: u32, measure: Measure, rate_hz: u32, limit: Option<Bytes>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let period = Duration::from_secs(1) / rate_hz;
        let thread = thread::spawn(move || sample_until(&seen, (root, measure), period, limit));
        Self { stop, thread }
    }

    /// Ends the watch and returns what it saw.
    pub fn stop(self) -> Memory {
        // Relaxed: nothing is published by the flag; the join below orders the result.
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the sampler has no panic of its own")
    }
}

/// Runs the sampler's loop.
fn sample_until(
    stop: &AtomicBool,
    (root, measure): (u32, Measure),
    period: Duration,
    limit: Option<Bytes>,
) -> Memory {
    let begin = Instant::now();
    let mut memory = Memory::default();
    let mut last = begin;
    // Relaxed: pairs with the store in `stop`; a late look costs one more sample.
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let is_over = |sample: &Sample| limit.is_some_and(|limit| sample.below > limit);
        let Some(mut read) = read_in_time(root, measure) else { continue };
        if is_over(&read) {
            // A page that one process gives up meanwhile, so that another has it alone, counts in
            // both; that does not happen twice in a row.
            let again = read_in_time(root, measure);
            read = again.filter(|again| again.below < read.below).unwrap_or(read);
        }
        let sample = Sample { at: now - begin, ..read };
        memory.samples += 1;
        memory.gap_max = memory.gap_max.max(now - last);
        memory.peak_below = memory.peak_below.max(sample.below);
        memory.peak_total = memory.peak_total.max(sample.total);
        if is_over(&sample) {
            memory.over_count += 1;
            if memory.over.len() < OVER_KEPT_MAX {
                memory.over.push(sample);
            }
        }
        last = now;
        thread::sleep(period.saturating_sub(now.elapsed()));
    }
    memory
}

/// Takes one reading, unless it takes too long to be of one moment.
fn read_in_time(root: u32, measure: Measure) -> Option<Sample> {
    let begin = Instant::now();
    let sample = read_tree(root, measure);
    (begin.elapsed() <= READING_MAX).then_some(sample)
}

/// Takes one reading of the tree at `root`; `at` is left zero.
pub fn read_tree(root: u32, measure: Measure) -> Sample {
    let mut below = Bytes(0);
    for pid in descendants(root) {
        below += measure.read(pid);
    }
    let keeper = keeper(root).map_or(Bytes(0), |keeper| measure.read(keeper));
    Sample { at: Duration::ZERO, below, total: below + measure.read(root) + keeper }
}

/// Returns every process below `root` that has an address space of its own, parents before
/// children; but not the keeper of a run.
pub fn descendants(root: u32) -> Vec<u32> {
    let keeper = keeper(root);
    let mut found = Vec::new();
    let mut waiting = vec![root];
    while let Some(parent) = waiting.pop() {
        for thread in threads(parent) {
            let path = format!("/proc/{parent}/task/{thread}/children");
            let children = fs::read_to_string(path).unwrap_or_default();
            for child in children.split_ascii_whitespace().filter_map(|word| word.parse().ok()) {
                let is_keeper = Some(child) == keeper;
                if !is_keeper && !borrows_memory(child, parent, thread) && !is_service(child) {
                    found.push(child);
                }
                waiting.push(child);
            }
        }
    }
    // A service that has just begun still has its program's name; it is the keeper's child.
    let is_kept = |pid: u32| keeper.is_some_and(|keeper| is_child_of(pid, keeper));
    let is_program = |other: u32, pid: u32| {
        other != pid && share_memory(other, pid) == Ok(true) && (!is_kept(other) || other < pid)
    };
    let begins = |pid: &u32| is_kept(*pid) && found.iter().any(|other| is_program(*other, *pid));
    found.iter().copied().filter(|pid| !begins(pid)).collect()
}

/// Returns whether `pid` is a child of `parent`.
fn is_child_of(pid: u32, parent: u32) -> bool {
    stat_of(pid, 4) == Some(parent.into())
}

/// Returns a field of a process's stat, by its number in proc(5). The name, field 2, may hold
/// spaces and ends at the last ')'.
fn stat_of(pid: u32, field: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(field - 3)?.parse().ok()
}

/// Returns the thread numbers of `pid`; none when the process is gone.
pub fn threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the keeper of the run that `launcher` has started.
pub fn keeper(launcher: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).ok()?;
    let mut children = children.split_ascii_whitespace().filter_map(|word| word.parse().ok());
    children.find(|child: &u32| {
        let name = fs::read_to_string(format!("/proc/{child}/comm"));
        name.is_ok_and(|name| name.trim_end() == "coldpress-keep")
    })
}

/// Finds a managed program below `root`, and its service.
pub fn find_service(root: u32) -> Option<(u32, u32)> {
    let programs = descendants(root);
    services().into_iter().find_map(|service| {
        let serves = |program: &u32| share_memory(*program, service).is_ok_and(|is_same| is_same);
        programs.iter().copied().find(serves).map(|program| (program, service))
    })
}

/// Returns all services of all runs.
pub fn services() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.flatten().filter_map(number).filter(|pid| is_service(*pid)).collect()
}

/// Returns whether a process is a service: its name is a service's, and its file is the program's.
pub fn is_service(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    let is_launcher = || {
        let file = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        file.file_name().is_none_or(|name| name.to_string_lossy().starts_with("coldpress"))
    };
    name.is_ok_and(|name| name.trim_end() == "coldpress") && !is_launcher()
}

/// Returns whether `child` still runs in its parent's address space: it has not called exec, and
/// the thread that made it waits in the call, which only a vfork does.
fn borrows_memory(child: u32, parent: u32, thread: u32) -> bool {
    let flags = stat_of(child, 9).unwrap_or(0);
    if flags & FORKED_WITHOUT_EXEC == 0 {
        return false;
    }
    let call = fs::read_to_string(format!("/proc/{parent}/task/{thread}/syscall"));
    let call = call.unwrap_or_default();
    CLONE_CALLS.contains(&call.split_ascii_whitespace().next().unwrap_or(""))
}

#[cfg(test)]
mod tests {
    //! Risk: a watcher that misses a process, or counts one twice, proves nothing about a budget.

    use super::*;
    use std::process::{Child, Command, Stdio};

    /// Ends the child at the end of a test, passed or failed.
    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            for pid in descendants(self.0.id()) {
                drop(Command::new("sh").args(["-c", &format!("kill -KILL {pid}")]).status());
            }
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    fn shell(script: &str) -> Ended {
        let mut command = Command::new("sh");
        Ended(command.args(["-c", script]).stdin(Stdio::null()).spawn().unwrap())
    }

    /// Waits until `done` holds: the processes need a moment to get there.
    fn eventually(mut done: impl FnMut() -> bool) {
        for _ in 0..500 {
            if done() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("did not happen within 10 s");
    }

    #[test]
    fn grandchildren_are_found_and_the_root_is_not_among_them() {
        let child = shell("sh -c 'sleep 30; true' & sh -c 'sleep 31; true'; wait");
        eventually(|| descendants(child.0.id()).len() == 4);
        assert!(!descendants(child.0.id()).contains(&child.0.id()));
    }

    #[test]
    fn own_memory_is_seen_when_it_grows() {
        let read = || [Measure::Resident, Measure::Shares].map(|m| m.read(std::process::id()));
        let before = read();
        // Without the box the compiler may allocate it after the second reading.
        let grown = std::hint::black_box(vec![1_u8; 64 << 20]);
        for (before, after) in before.into_iter().zip(read()) {
            assert!(after.0 >= before.0 + (60 << 20), "{before:?} {after:?} {}", grown.len());
        }
    }

    #[test]
    fn a_vfork_child_before_exec_is_not_counted() {
        // glibc's posix_spawn is a vfork whose child opens a pipe without a writer: the child waits
        // there.
        let place = crate::machine::Scratch::new("vfork");
        let pipe = place.path("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let script = "import os,sys\nhold=bytearray(64<<20)\nos.posix_spawn('/bin/true',['true'],\
                      {},file_actions=[(os.POSIX_SPAWN_OPEN,0,sys.argv[1],os.O_RDONLY,0)])\n";
        let Some(python) = crate::machine::require("python3") else { return };
        let mut command = Command::new(python);
        let child = Ended(command.args(["-c", script]).arg(&pipe).spawn().unwrap());
        let borrower = |pid: u32| {
            let mut found = false;
            for thread in threads(pid) {
                let path = format!("/proc/{pid}/task/{thread}/children");
                for word in fs::read_to_string(path).unwrap_or_default().split_whitespace() {
                    found |= borrows_memory(word.parse().unwrap(), pid, thread);
                }
            }
            found
        };
        let tree = || [vec![child.0.id()], descendants(child.0.id())].concat();
        eventually(|| tree().into_iter().any(borrower));
        let total = read_tree(child.0.id(), Measure::Resident).total;
        assert!(total < Bytes::mib(110), "counted twice: {total:?}");
        drop(fs::OpenOptions::new().write(true).open(&pipe));
    }

    #[test]
    fn a_page_shared_after_a_fork_counts_once_in_shares() {
        let Some(python) = crate::machine::require("python3") else { return };
        let script = "import os,time\nhold=bytearray(b'x')*(64<<20)\nos.fork()\ntime.sleep(30)";
        let child = Ended(Command::new(python).args(["-c", script]).spawn().unwrap());
        let total = |measure| read_tree(child.0.id(), measure).total;
        eventually(|| total(Measure::Resident) > Bytes::mib(128));
        assert!(total(Measure::Shares) < Bytes::mib(96), "{:?}", total(Measure::Shares));
    }

    #[test]
    fn samples_over_the_limit_are_kept() {
        let child = shell("sleep 30; true");
        let watch = Watch::start(child.0.id(), Measure::Resident, RATE_HZ, Some(Bytes(0)));
        thread::sleep(Duration::from_millis(300));
        let memory = watch.stop();
        assert!(memory.over_count > 0 && !memory.over.is_empty(), "{memory:?}");
        assert!(memory.peak_below <= memory.peak_total);
    }
}
