//! One process at a time, as /proc and its descriptor show it.

use std::fs::{self, File};
use std::io::Read;

use coldpress_sys::proc::share_memory;
use coldpress_sys::{OwnedFd, PageCount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};
use rustix::thread::CapabilitySet;

/// The name of services, and of launchers, which may be among the orphans of a run.
const SERVICE_NAME: &str = "coldpress";
/// The number of times that the sizes of two processes are compared, which may change meanwhile.
const TRIES: usize = 16;
/// The most bytes that a file of /proc gives at once.
const TEXT_BYTES: usize = 4096;

/// Bits of fields 9 (flags of linux/sched.h) and 31 (pending signals) of stat.
const PF_EXITING: u64 = 0x4;
const PF_FORKNOEXEC: u64 = 0x40;
const PENDING_SIGKILL: u64 = 1 << (9 - 1);

/// Returns whether a process has the name of a service.
pub(crate) fn is_named_service(process: u32) -> bool {
    text(process, "comm").is_some_and(|name| name.trim_end() == SERVICE_NAME)
}

/// Returns whether a process runs the same program as this one.
pub(crate) fn is_this_command(process: u32) -> bool {
    let image = |process| fs::read_link(format!("/proc/{process}/exe")).ok();
    image(process.to_string()).is_some_and(|found| image("self".to_owned()) == Some(found))
}

/// Returns the resident anonymous memory of a process: resident less shared of its statm.
pub(crate) fn anonymous(process: u32) -> Option<PageCount> {
    let text = text(process, "statm")?;
    let mut fields = text.split_ascii_whitespace().skip(1).map(|field| field.parse().ok());
    let (resident, shared): (usize, usize) = (fields.next()??, fields.next()??);
    Some(PageCount(resident).saturating_sub(PageCount(shared)))
}

/// Returns the pages of files and of shared memory that a process has in memory: the third number
/// of its statm.
pub(crate) fn files_and_shared(process: u32) -> Option<PageCount> {
    let text = text(process, "statm")?;
    text.split_ascii_whitespace().nth(2)?.parse().ok().map(PageCount)
}

/// Returns all that a process has mapped.
pub(crate) fn size(process: u32) -> Option<PageCount> {
    let text = text(process, "statm")?;
    text.split_ascii_whitespace().next()?.parse().ok().map(PageCount)
}

/// Returns the effective user of a process, which may differ from the owner of its folder in /proc.
pub(crate) fn user(process: u32) -> Option<u32> {
    let text = text(process, "status")?;
    let ids = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The state of a process, from its stat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    /// The time that the process has run, in ticks of 10 ms.
    pub(crate) ticks: u64,
    /// Whether the process is about to end: it exits, or has been killed. Its memory goes, though
    /// some may still be there.
    pub(crate) is_ending: bool,
    /// Whether the process comes from a fork and has not called exec: what it has is its parent's
    /// too.
    pub(crate) is_forked: bool,
}

impl Life {
    pub(crate) fn of(process: u32) -> Option<Self> {
        let text = stat(process)?;
        // The numbers are those of proc_pid_stat(5).
        let field = |number: usize| fields_of(&text)?.nth(number - 3)?.parse::<u64>().ok();
        let (flags, user, kernel, pending) = (field(9)?, field(14)?, field(15)?, field(31)?);
        let is_ending = flags & PF_EXITING != 0 || pending & PENDING_SIGKILL != 0;
        let is_forked = flags & PF_FORKNOEXEC != 0;
        Some(Self { ticks: user + kernel, is_ending, is_forked })
    }
}

/// Returns the parent of a process: field 4 of stat.
pub(crate) fn parent(process: u32) -> Option<u32> {
    fields_of(&stat(process)?)?.nth(1)?.parse().ok()
}

fn stat(process: u32) -> Option<String> {
    text(process, "stat")
}

/// Reads a file of `process` in /proc. Such files have no size to ask for, and most are read at
/// once.
pub(crate) fn text(process: u32, file: &str) -> Option<String> {
    let mut text = String::with_capacity(TEXT_BYTES);
    let file = File::open(format!("/proc/{process}/{file}")).ok()?;
    file.take(u64::MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns the fields of a stat from the third on: the second, the name, may hold anything.
fn fields_of(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
}

/// Returns when `process` began, in ticks of the kernel's clock: field 22 of stat.
pub(crate) fn began(process: u32) -> Option<u64> {
    fields_of(&stat(process)?)?.nth(22 - 3)?.parse().ok()
}

/// Lists the threads of a process.
pub(crate) fn threads(process: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse().ok()).collect()
}

/// Lists the children of a process.
pub(crate) fn children(process: u32) -> impl Iterator<Item = u32> {
    threads(process).into_iter().flat_map(move |thread| children_of(process, thread))
}

/// Lists the children of a thread.
pub(crate) fn children_of(process: u32, thread: u32) -> Vec<u32> {
    let list = text(process, &format!("task/{thread}/children")).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Opens a descriptor of a process, if the process has not been reaped.
pub(crate) fn pidfd_of(process: u32) -> Option<OwnedFd> {
    rustix::process::pidfd_open(Pid::from_raw(process.cast_signed())?, PidfdFlags::empty()).ok()
}

/// Returns whether the process of a descriptor has ended.
pub(crate) fn is_over(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    // The descriptor of an ended process stays readable (pidfd_open(2)).
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}

/// Returns whether any other process has the memory of `service`, as far as the kernel reports it.
pub(crate) fn is_memory_shared(service: u32) -> bool {
    let Ok(entries) = fs::read_dir("/proc") else { return false };
    let processes = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // Processes without memory, such as the kernel's own, compare equal to a service that has just
    // ended.
    processes
        .filter(|process| *process != service)
        .filter(|process| share_memory(service, *process).unwrap_or(false))
        .any(|process| size(process).is_some_and(|size| size.0 > 0))
}

/// Returns whether two processes have one memory. Where the kernel does not compare memories, as in
/// most containers, this compares their sizes. Two memories rarely have the same size, and those of
/// a service and another program never do, because a service has reserved much for itself.
pub(crate) fn have_one_memory(service: u32, program: u32) -> bool {
    let has = |thread| {
        share_memory(service, thread).unwrap_or_else(|_| {
            (0..TRIES).any(|_| {
                let sizes = [service, thread, service].map(size);
                let [before, theirs, after] = sizes;
                theirs.is_some() && (theirs == before || theirs == after)
            })
        })
    };
    // The program's first thread, which has its number, may have ended, and has no memory then.
    has(program) || threads(program).into_iter().any(has)
}

/// Returns whether this process may trace every other.
pub(crate) fn may_trace() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

/// Returns the rule of Yama's for who may trace whom, if there is one.
pub(crate) fn ptrace_scope() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_is_found_as_it_lives_and_ends() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("cat is everywhere");
        let (ours, theirs) = (std::process::id(), child.id());
        assert!(children(ours).any(|process| process == theirs));
        // Some sandboxes forbid the question.
        if let Ok(is_same) = share_memory(ours, ours) {
            assert!(is_same && share_memory(ours, theirs).is_ok_and(|is_same| !is_same));
        }
        assert_eq!(user(ours), Some(rustix::process::geteuid().as_raw()));
        assert!(anonymous(ours).is_some_and(|pages| pages.0 > 10));
        let ticks = |process| Life::of(process).map(|life| life.ticks);
        let is_ending = |process| Life::of(process).expect("it is there").is_ending;
        let before = ticks(ours).expect("we run");
        // The kernel's clock must tick first, however busy the machine is.
        while ticks(ours) == Some(before) {}
        assert!(!is_ending(ours) && !is_ending(theirs));
        drop(child.stdin.take());
        // The child ends, and stays until it is waited for.
        while !is_ending(theirs) {}
        child.wait().expect("cat ends with its input");
        assert_eq!(anonymous(theirs), None);
    }
}
