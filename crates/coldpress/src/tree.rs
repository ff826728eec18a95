//! The processes of a run: their descent, and those of them that hold memory of their own.

use std::collections::HashSet;
use std::sync::Mutex;

use coldpress_sys::proc::share_memory;
use rustix::process::{Resource, Rlimit};

use crate::proc::{self, Life};

/// The longest chain of parents to follow: a deeper tree is a loop, and not ours.
const DEPTH_MAX: usize = 1000;
/// The number of looks at a chain that changes meanwhile.
const TRIES: usize = 5;

/// The programs that this run has attached to, which descend from others.
/// Each has the tick at which it began, as numbers are used again.
static ADOPTED: Mutex<Vec<(u32, u64)>> = Mutex::new(Vec::new());

/// Makes a process that runs already, and all below it, part of the run.
pub(crate) fn adopt(process: u32) {
    if let (Some(began), Ok(mut adopted)) = (proc::began(process), ADOPTED.lock()) {
        adopted.retain(|(other, tick)| proc::began(*other) == Some(*tick));
        if !adopted.contains(&(process, began)) {
            adopted.push((process, began));
        }
    }
}

/// Returns the programs that this run has attached to, as far as they are there.
pub(crate) fn adopted() -> Vec<u32> {
    let all = ADOPTED.lock().map(|adopted| adopted.clone()).unwrap_or_default();
    let is_there = |(process, began): &(u32, u64)| proc::began(*process) == Some(*began);
    all.into_iter().filter(is_there).map(|(process, _)| process).collect()
}

/// Returns the programs that this run has attached to, and all that descend from them now.
pub(crate) fn adopted_and_below() -> Vec<u32> {
    let mut open = adopted();
    let mut all = Vec::new();
    while let Some(process) = open.pop() {
        open.extend(proc::children(process));
        all.push(process);
    }
    all
}

/// Returns whether `process` is of the run that this process leads.
pub(crate) fn is_of_run(process: u32) -> bool {
    let adopted = adopted();
    is_below(process, std::process::id())
        || adopted.iter().any(|root| *root == process || is_below(process, *root))
}

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
        if proc::parent(last) == Some(0) {
            return false;
        }
        // A process in between has ended since its child was asked, and the child has another
        // parent now. Services begin that way.
    }
    false
}

/// Returns `process`, its parent, the parent of that, and so on, as far as they exist.
pub(crate) fn lineage(process: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(process), |child| proc::parent(*child).filter(|parent| *parent > 0))
        .take(DEPTH_MAX)
}

/// Returns all processes of the run that have memory of their own now, except the `services` of
/// those that are `seated`. Services that have not joined yet are recognized by having their
/// programs' memory. The name is not enough: any program may have it, and a service that has just
/// begun has its program's.
pub(crate) fn holders_of_run(seated: &HashSet<u32>, services: &HashSet<u32>) -> Vec<u32> {
    let is_forked = |child| Life::of(child).is_some_and(|life| life.is_forked);
    let may_be_service = |child: &u32| {
        !seated.contains(child) && (proc::is_named_service(*child) || is_forked(*child))
    };
    let (doubted, roots): (Vec<u32>, Vec<u32>) =
        children_here().filter(|it| !services.contains(it)).partition(may_be_service);
    let relatives = relatives_below(roots, services);
    let (orphans, others): (Vec<_>, Vec<_>) = relatives.partition(|(one, parent)| {
        // A service is made by a process that ends at once: that process lets its memory go before
        // its child has another parent.
        may_be_service(one)
            && parent.is_some_and(|parent| proc::size(parent).is_none_or(|it| it.0 == 0))
    });
    let mut holders: Vec<u32> = others.into_iter().map(|(one, _)| one).collect();
    let is_new = |holders: &[u32], one| !holders.iter().any(|it| proc::have_one_memory(one, *it));
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
        let children = proc::children(process).filter(|child| !services.contains(child));
        open.extend(children.map(|child| (child, Some(process))));
        Some((process, parent))
    });
    // A process that cannot be compared is counted: better too much than too little.
    let borrows = |process, parent| share_memory(process, parent).unwrap_or(false);
    all.filter(move |(process, parent)| !parent.is_some_and(|parent| borrows(*process, parent)))
}

/// Returns the processes of the run whose program started at the tick `began_at`, without those
/// that have ended: all below us that did not begin before it. Children that an `exec` of this
/// launcher brought along are not of the run.
pub(crate) fn of_run(began_at: u64) -> Vec<u32> {
    let is_of_run = |child: &u32| proc::began(*child).is_some_and(|tick| tick >= began_at);
    let mut open: Vec<u32> = proc::children(std::process::id()).filter(is_of_run).collect();
    let mut all = Vec::new();
    while let Some(process) = open.pop() {
        open.extend(proc::children(process));
        if Life::of(process).is_some_and(|life| !life.is_ending) {
            all.push(process);
        }
    }
    all
}

/// Lists the children of the keeper's first thread, whichever thread calls this. The first thread
/// has made all of them, or got them from the kernel, which gives orphans to the first thread that
/// lives.
fn children_here() -> impl Iterator<Item = u32> {
    let own = proc::children_of(std::process::id(), std::process::id());
    let adopted = adopted();
    // One that descends from another is found below that.
    let is_root = {
        let all = adopted.clone();
        move |one: &u32| !all.iter().any(|other| other != one && is_below(*one, *other))
    };
    own.into_iter().chain(adopted.into_iter().filter(is_root))
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
        drop(child.stdin.take());
        child.wait().expect("cat ends with its input");
    }
}
