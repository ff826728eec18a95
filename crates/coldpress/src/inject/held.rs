//! A program that ran, and stands still: the thread that is made to make calls, and the others
//! where its code is to be changed.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use coldpress_runtime::wire::BESIDE_STACKS_MAX;
use coldpress_sys::PAGE_BYTES;
use coldpress_sys::trace::Tracee;

use super::Refusal;
use super::sites::Site;
use crate::mappings::{self, Mapping};
use crate::proc;

/// The time for which threads are stopped again and again until none is in the way.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);
/// The pause after a thread did not stop, while all others stood still.
const LONG_PAUSE: Duration = Duration::from_millis(200);
/// The most threads to stop: each takes some 20 us.
const THREADS_MAX: usize = 4096;

/// A program whose threads stand still. Dropping it lets them go on.
#[derive(Debug)]
pub(super) struct Held {
    /// All threads that were stopped; the first may make calls.
    threads: Vec<Tracee>,
}

impl Held {
    /// Stops `process`: one thread of it, or all where there are `sites` to change.
    pub(super) fn stop(process: u32, sites: &[Site]) -> Result<Self, Refusal> {
        Self::stop_where(process, sites, !sites.is_empty(), |_| Ok(true))
    }

    /// Stops all threads of `process` where none of them is in the code at `library`, comes back to
    /// it from a signal handler, or is in what that has called: the code counts such threads at
    /// `inside`.
    pub(super) fn stop_outside(
        process: u32,
        sites: &[Site],
        library: Range<usize>,
        inside: usize,
    ) -> Result<Self, Refusal> {
        Self::stop_where(process, sites, true, |held| {
            let mut count = [0; size_of::<usize>()];
            let bytes = super::code::read(process, inside, count.len())?;
            count.copy_from_slice(&bytes);
            let is_in = |it: &Tracee| it.goes_on_in(&library);
            Ok(usize::from_le_bytes(count) == 0 && !held.threads.iter().any(is_in))
        })
    }

    /// Stops all threads of `process`, or one, until they are where `is_fine` wants them.
    fn stop_where(
        process: u32,
        sites: &[Site],
        all: bool,
        is_fine: impl Fn(&Self) -> Result<bool, Refusal>,
    ) -> Result<Self, Refusal> {
        check_state(process)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let pause = match Self::stop_once(process, sites, all) {
                Ok(Some(held)) if is_fine(&held)? => return Ok(held),
                Ok(_) => PAUSE,
                Err(Refusal::NotNow(_)) if Instant::now() < until => LONG_PAUSE,
                Err(refusal) => return Err(refusal),
            };
            if Instant::now() >= until {
                return Err(Refusal::NotNow("its threads are never where they can be stopped"));
            }
            sleep(pause);
        }
    }

    /// Returns the part of each mapping that lies above the stack of a thread. A stack has its
    /// thread's descriptor at its upper end, and the kernel may have merged it with what was mapped
    /// above it. The library would leave the whole mapping alone.
    pub(super) fn beside_stacks(&self, process: u32) -> io::Result<Vec<Range<usize>>> {
        let descriptors: Vec<_> = self.threads.iter().map(Tracee::thread_pointer).collect();
        let mappings = mappings::of(process)?;
        let plain = mappings.iter().filter(|it| is_plain(it));
        let above = plain.filter_map(|it| above_stack(&descriptors, &it.range));
        Ok(above.take(BESIDE_STACKS_MAX).collect())
    }

    /// Returns the thread that makes calls.
    pub(super) fn caller(&mut self) -> &mut Tracee {
        &mut self.threads[0]
    }

    /// Stops threads. Returns nothing if one of them is where it must not be.
    fn stop_once(process: u32, sites: &[Site], all: bool) -> Result<Option<Self>, Refusal> {
        let (mut stopped, mut threads) = (Vec::new(), Vec::new());
        let mut caller = None;
        // Threads may start others until all are stopped.
        loop {
            let mut news = proc::threads(process);
            news.retain(|thread| !stopped.contains(thread));
            if news.is_empty() {
                break;
            }
            if stopped.len() > THREADS_MAX {
                return Err(Refusal::State("it has too many threads"));
            }
            for thread in news {
                stopped.push(thread);
                check_filters(process, thread)?;
                let tracee = match Tracee::hold(process, thread) {
                    Ok(tracee) => tracee,
                    // The thread has ended meanwhile.
                    Err(_) if !is_there(process, thread) => continue,
                    Err(error) => return Err(error.into()),
                };
                if sites.iter().any(|site| site.is_within(tracee.goes_on_at())) {
                    return Ok(None);
                }
                if caller.is_none() && tracee.may_make_calls() {
                    caller = Some(threads.len());
                }
                threads.push(tracee);
                if caller.is_some() && !all {
                    break;
                }
            }
            if caller.is_some() && !all {
                break;
            }
        }
        let Some(caller) = caller else { return Ok(None) };
        threads.swap(0, caller);
        Ok(Some(Self { threads }))
    }
}

/// Returns the part of a mapping above the highest of the threads' `descriptors` in it: within two
/// pages each (glibc's has 2.3 KiB, musl's and what it keeps for the thread 1.3 KiB).
fn above_stack(descriptors: &[usize], mapping: &Range<usize>) -> Option<Range<usize>> {
    let highest = descriptors.iter().filter(|at| mapping.contains(at)).max()?;
    let end = highest.next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
    (end < mapping.end).then_some(end..mapping.end)
}

/// Returns whether a stack can be in a mapping.
fn is_plain(mapping: &Mapping) -> bool {
    mapping.access == "rw-p" && mapping.name.is_empty()
}

fn is_there(process: u32, thread: u32) -> bool {
    Path::new(&format!("/proc/{process}/task/{thread}")).exists()
}

/// Checks that `process` can be stopped unnoticed, and served.
fn check_state(process: u32) -> Result<(), Refusal> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    if field(&status, "TracerPid:") != "0" {
        return Err(Refusal::NotNow("another process traces it"));
    }
    if field(&status, "State:").starts_with(['T', 't', 'Z', 'X']) {
        return Err(Refusal::NotNow("it is stopped, or has ended"));
    }
    if field(&status, "NSpid:").split_ascii_whitespace().last() == Some("1") {
        return Err(Refusal::State("it is the first process of its name space"));
    }
    let space = |name| fs::read_link(format!("/proc/{process}/ns/{name}")).ok();
    if space("pid") != space("pid_for_children") {
        return Err(Refusal::State("its children are in a name space of their own"));
    }
    Ok(())
}

/// Checks that a thread has no other seccomp filters than this process, whose filters hold for
/// everything that it starts: a filter may end a thread that is stopped in a call.
fn check_filters(process: u32, thread: u32) -> Result<(), Refusal> {
    let filters = |file: &str| {
        let status = fs::read_to_string(file).unwrap_or_default();
        ["Seccomp:", "Seccomp_filters:"].map(|name| field(&status, name))
    };
    if filters(&format!("/proc/{process}/task/{thread}/status")) != filters("/proc/self/status")
        && is_there(process, thread)
    {
        return Err(Refusal::State("it has a seccomp filter of its own"));
    }
    Ok(())
}

fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    //! The risk: a program is stopped where that shows, or where it cannot be served.

    use std::process::Command;

    use super::*;

    #[test]
    fn memory_above_stacks_begins_above_the_highest_of_a_mapping() {
        const PAGE: usize = PAGE_BYTES;
        let mapping = 0x7000_0000..0x7010_0000;
        // The last one is the highest, and of a mapping that begins where this ends.
        let descriptors = [0x7000_1080, 0x7000_2123, 0x6fff_ff00, 0x7010_0000];
        let end = 0x7000_2000 + 2 * PAGE;
        assert_eq!(above_stack(&descriptors, &mapping), Some(end..mapping.end));
        assert_eq!(above_stack(&descriptors, &(mapping.start..end)), None);
        assert_eq!(above_stack(&descriptors[2..], &mapping), None);
    }

    #[test]
    fn stacks_are_in_plain_memory() {
        let is_plain = |line: &str| is_plain(&Mapping::parse(line).expect("it is one"));
        let line = "7f00-8000 rw-p 00000000 00:00 0 ";
        assert!(is_plain(line) && !is_plain(&line.replace("rw-p", "r--p")));
        assert!(!is_plain("7f00-8000 rw-p 00000000 08:01 9    /usr/lib/libc.so.6"));
        assert!(!is_plain("7f00-8000 rw-p 00000000 00:00 0    [heap]"));
    }

    #[test]
    fn a_program_that_waits_is_held_and_goes_on() {
        let mut child = Command::new("sleep").arg("0.3").spawn().unwrap();
        // The program has begun to sleep.
        sleep(Duration::from_millis(100));
        drop(Held::stop(child.id(), &[]).unwrap());
        assert!(child.wait().unwrap().success());
        assert!(Held::stop(child.id(), &[]).is_err(), "it has ended");
    }

    #[test]
    fn a_stopped_program_is_refused_and_stays_stopped() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let is_stopped = || {
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            status.contains("State:\tT")
        };
        while !is_stopped() {
            sleep(PAUSE);
        }
        let refusal = Held::stop(child.id(), &[]).unwrap_err();
        assert!(refusal.to_string().contains("stopped"), "{refusal}");
        assert!(is_stopped());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
