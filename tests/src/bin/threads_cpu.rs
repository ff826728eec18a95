//! `threads_cpu`: shows on which CPU the service of this process runs.
//!
//!     threads_cpu [--bytes TOTAL] [--seconds S]
//!
//! The program pins itself to one CPU after the other, S seconds each. It walks its memory all the
//! time, so that it must fault when memory is short. Every 100 ms it reads its siblings in /proc.
//! At the end it prints for each CPU: the share of samples in which the process named `coldpress`
//! had run there last.
#![allow(clippy::undocumented_unsafe_blocks, reason = "one thread walks its own mapping")]
#![allow(unreachable_pub, reason = "the shared modules serve several programs")]

#[path = "../program/mod.rs"]
mod program;

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use program::args::Args;
use program::random::mix;
use program::{PAGE, raw};

/// Name of the process that the samples look for.
const SERVICE: &str = "coldpress";
/// Time between two samples.
const PERIOD: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let args = Args::parse(&[], &["bytes", "seconds"]);
    let bytes = args.bytes("bytes", 128 << 20).next_multiple_of(PAGE);
    let time = Duration::from_secs_f64(args.value("seconds", 2.0));
    let addr = raw::map(bytes).expect("cannot map");
    let mut walk = Walk { addr, pages: bytes / PAGE, next: 0, pass: 0 };
    let mut lines = Vec::new();
    for cpu in allowed_cpus() {
        pin(cpu);
        let (mut seen, mut here) = (0, 0);
        let start = Instant::now();
        let mut due = start + PERIOD;
        while start.elapsed() < time {
            if !walk.step() {
                return ExitCode::FAILURE;
            }
            if Instant::now() >= due {
                due += PERIOD;
                if let Some(processor) = service_cpu() {
                    println!("pinned {cpu}: {SERVICE} on {processor}");
                    seen += 1;
                    here += usize::from(processor == cpu);
                }
            }
        }
        if seen > 0 {
            let share = here as f64 / f64::from(seen);
            lines.push(format!("cpu {cpu}: {share:.2} of {seen} samples"));
        }
    }
    if lines.is_empty() {
        println!("no service");
    }
    lines.iter().for_each(|line| println!("{line}"));
    println!("threads_cpu: OK");
    ExitCode::SUCCESS
}

/// A walk over the arena, again and again. Each page holds the pass that wrote it.
struct Walk {
    addr: usize,
    pages: usize,
    next: usize,
    pass: u64,
}

impl Walk {
    /// Checks and rewrites one page. Returns whether the page was right; a mismatch has been
    /// reported.
    fn step(&mut self) -> bool {
        let page = unsafe { raw::bytes_mut(self.addr + self.next * PAGE, PAGE) };
        let old = if self.pass == 0 { 0 } else { mix(self.pass ^ self.next as u64) };
        let new = mix((self.pass + 1) ^ self.next as u64);
        for half in page.chunks_exact_mut(PAGE / 2) {
            let word = &mut half[..8];
            if *word != old.to_le_bytes() {
                eprintln!("threads_cpu: page {} is not of pass {}", self.next, self.pass);
                return false;
            }
            word.copy_from_slice(&new.to_le_bytes());
        }
        self.next += 1;
        if self.next == self.pages {
            (self.next, self.pass) = (0, self.pass + 1);
        }
        true
    }
}

/// Returns the CPUs that this process may use.
fn allowed_cpus() -> Vec<usize> {
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::cpu_set_t>();
    raw::checked(unsafe { libc::sched_getaffinity(0, size, &raw mut set) }).expect("no affinity");
    let limit = libc::CPU_SETSIZE as usize;
    (0..limit).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Pins the calling thread to `cpu`.
fn pin(cpu: usize) {
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    unsafe { libc::CPU_SET(cpu, &mut set) };
    let size = size_of::<libc::cpu_set_t>();
    raw::checked(unsafe { libc::sched_setaffinity(0, size, &raw const set) }).expect("cannot pin");
}

/// Returns the CPU on which the service ran last, if there is a service: a child of the launcher,
/// like this process.
fn service_cpu() -> Option<usize> {
    let launcher = std::os::unix::process::parent_id();
    for thread in fs::read_dir(format!("/proc/{launcher}/task")).ok()?.flatten() {
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            if name.trim_end() == SERVICE {
                let stat = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
                // The name may hold spaces: count from its end. Field 39 is `processor` (proc(5)).
                let rest = stat.rsplit_once(')')?.1;
                return rest.split_whitespace().nth(39 - 3)?.parse().ok();
            }
        }
    }
    None
}
