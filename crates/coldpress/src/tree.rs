//! The processes of a run, as /proc shows them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;

use coldpress_sys::PageCount;
use coldpress_sys::proc::share_memory;
use rustix::process::{Resource, Rlimit};

use crate::member;

/// The name of services, and of launchers, which may be among the orphans of a run.
const SERVICE_NAME: &str = "coldpress";
/// The longest chain of parents to follow: a deeper tree is a loop, and not ours.
const DEPTH_MAX: usize = 1000;
/// The number of looks at a chain that changes meanwhile.
const TRIES: usize = 5;
/// The most bytes that a file of /proc gives at once.
const TEXT_BYTES: usize = 4096;

/// Bits of fields 9 (flags of linux/sched.h) and 31 (pending signals) of stat.
const PF_EXITING: u64 = 0x4;
const PF_FORKNOEXEC: u64 = 0x40;
const PENDING_SIGKILL: u64 = 1 << (9 - 1);

/// Returns whether `process` descends from `ancestor`.
pub(crate) fn is_below(process: u32, ancestor: u32) -> bool {
    for _ in 0..TRIES {
        let mut last = process;
        for other in lineage(process).skip(1) {
            if other == ancestor {
                return true;
            }
            last = other;
        }
        if parent(last) == Some(0) {
            return false;
        }
        // A process in between has ended since its child was asked, and the child has another
        // parent now. Services begin that way.
    }
    false
}

/// Returns `process`, its parent, the parent of that, and so on, as far as they exist.
pub(crate) fn lineage(process: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(process), |child| parent(*child).filter(|parent| *parent > 0))
        .take(DEPTH_MAX)
}

/// Returns whether a process has the name of a service.
pub(crate) fn is_named_service(process: u32) -> bool {
    text(process, "comm").is_some_and(|name| name.trim_end() == SERVICE_NAME)
}

/// Returns all processes of the run that have memory of their own now, except the `services` of
/// those that are `seated`. Services that have not joined yet are recognized by having their
/// programs' memory. The name is not enough: any program may have it, and a service that has just
/// begun has its program's.
pub(crate) fn holders_of_run(seated: &HashSet<u32>, services: &HashSet<u32>) -> Vec<u32> {
    let is_forked = |child| Life::of(child).is_some_and(|life| life.is_forked);
    let may_be_service =
        |child: &u32| !seated.contains(child) && (is_named_service(*child) || is_forked(*child));
    let (doubted, roots): (Vec<u32>, Vec<u32>) =
        children_here().filter(|it| !services.contains(it)).partition(may_be_service);
    let relatives = relatives_below(roots, services);
    let (orphans, others): (Vec<_>, Vec<_>) = relatives.partition(|(one, parent)| {
        // A service is made by a process that ends at once: that process lets its memory go before
        // its child has another parent.
        may_be_service(one) && parent.is_some_and(|parent| size(parent).is_none_or(|it| it.0 == 0))
    });
    let mut holders: Vec<u32> = others.into_iter().map(|(one, _)| one).collect();
    let is_new = |holders: &[u32], one| !holders.iter().any(|it| member::have_one(one, *it));
    for (one, _) in orphans {
        if is_new(&holders, one) {
            holders.push(one);
        }
    }
    for one in doubted {
        if is_new(&holders, one) {
            holders.extend(relatives_below(vec![one], services).map(|(process, _)| process));
        }
    }
    holders
}

/// Returns `roots` and all that descend from them now, each with its parent except for the roots.
/// Leaves out `services`, and processes whose memory is their parent's: a child of `vfork` that has
/// not called `exec` yet holds nothing of its own. Processes that end meanwhile are left out too.
fn relatives_below(
    roots: Vec<u32>,
    services: &HashSet<u32>,
) -> impl Iterator<Item = (u32, Option<u32>)> {
    let mut open: Vec<_> = roots.into_iter().map(|root| (root, None)).collect();
    let all = std::iter::from_fn(move || {
        let (process, parent) = open.pop()?;
        let children = children(process).filter(|child| !services.contains(child));
        open.extend(children.map(|child| (child, Some(process))));
        Some((process, parent))
    });
    // A process that cannot be compared is counted: better too much than too little.
    let borrows = |process, parent| share_memory(process, parent).unwrap_or(false);
    all.filter(move |(process, parent)| !parent.is_some_and(|parent| borrows(*process, parent)))
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
fn parent(process: u32) -> Option<u32> {
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

/// Returns the processes of the run whose program started at the tick `began_at`, without those
/// that have ended: all below us that did not begin before it. Children that an `exec` of this
/// launcher brought along are not of the run.
pub(crate) fn of_run(began_at: u64) -> Vec<u32> {
    let is_of_run = |child: &u32| began(*child).is_some_and(|tick| tick >= began_at);
    let mut open: Vec<u32> = children(std::process::id()).filter(is_of_run).collect();
    let mut all = Vec::new();
    while let Some(process) = open.pop() {
        open.extend(children(process));
        if Life::of(process).is_some_and(|life| !life.is_ending) {
            all.push(process);
        }
    }
    all
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

/// Lists the children of the keeper's first thread, whichever thread calls this. The first thread
/// has made all of them, or got them from the kernel, which gives orphans to the first thread that
/// lives.
fn children_here() -> impl Iterator<Item = u32> {
    children_of(std::process::id(), std::process::id()).into_iter()
}

/// Lists the children of a thread.
fn children_of(process: u32, thread: u32) -> Vec<u32> {
    let list = text(process, &format!("task/{thread}/children")).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Raises the limit of open files as far as it goes: each managed process takes four.
pub(crate) fn allow_many_descriptors() {
    let limits = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, ..limits };
    // Without that, some processes of a large tree stay unmanaged.
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_is_found_below_us_and_only_there() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("cat is everywhere");
        let (ours, theirs) = (std::process::id(), child.id());
        assert!(is_below(theirs, ours));
        assert!(!is_below(ours, theirs));
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
