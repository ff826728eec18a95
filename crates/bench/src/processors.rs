//! The time on processors of everything that runs for a program, while it runs.
//!
//! A program over coldpress is several processes: the launcher, the keeper with broker and helper,
//! the program, and a service for it. All of them stand below the benchmark that started the run,
//! so a walk of the parents finds them all. The kernel's threads work for programs too: they write
//! pages out, and bring order into memory. Nobody knows for which program, so all of them count.
//!
//! Sources: proc_pid_stat(5), and Linux, Documentation/scheduler/sched-stats.rst.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Sub;
use std::{fs, io};

/// The process above all threads of the kernel: kthreadd, in every Linux.
const KERNEL: u32 = 2;
/// The place of the parent in `/proc/PID/stat`, behind the name.
const PARENT: usize = 1;
/// The nanoseconds of a second.
const SECOND_NS: f64 = 1e9;

/// The nanoseconds that each of some threads ran, since its start or between two looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Times(BTreeMap<u32, u64>);

impl Times {
    /// Looks at the kernel's threads.
    pub(crate) fn of_kernel() -> io::Result<Self> {
        Ok(Self::of(below(&parents()?, KERNEL)))
    }

    /// Looks at the kernel's threads, and at those of all processes below `top` but `except`.
    pub(crate) fn of_run(top: u32, except: u32) -> io::Result<Self> {
        let parents = parents()?;
        let mut processes = below(&parents, top);
        processes.extend(below(&parents, KERNEL));
        processes.remove(&except);
        Ok(Self::of(processes))
    }

    /// Looks at the living threads of processes. One that has ended meanwhile does not matter.
    fn of(processes: BTreeSet<u32>) -> Self {
        let threads = processes
            .into_iter()
            .filter_map(|process| fs::read_dir(format!("/proc/{process}/task")).ok())
            .flat_map(Iterator::flatten);
        let time = |thread: fs::DirEntry| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            // The first number of the file is the nanoseconds on a processor.
            let ns = text.split(' ').next()?.parse().ok()?;
            Some((thread.file_name().to_str()?.parse().ok()?, ns))
        };
        Self(threads.filter_map(time).collect())
    }

    /// Returns the sum, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.0.values().sum::<u64>() as f64 / SECOND_NS
    }
}

impl Sub for Times {
    type Output = Self;

    /// Returns what each thread ran since the look `before`. A thread that ended meanwhile is
    /// missing; the kernel ends workers that have nothing to do.
    fn sub(mut self, before: Self) -> Self {
        for (thread, ns) in &mut self.0 {
            // A thread with less time than before is another one, with the same number.
            *ns = ns.checked_sub(before.0.get(thread).copied().unwrap_or(0)).unwrap_or(*ns);
        }
        self
    }
}

/// Returns the parent of each process.
fn parents() -> io::Result<BTreeMap<u32, u32>> {
    let names = fs::read_dir("/proc")?.flatten();
    let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // A process that has ended meanwhile has no file, and no matter.
    let parent = |process: u32| {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        Some((process, field_of(&text, PARENT)?.try_into().ok()?))
    };
    Ok(numbers.filter_map(parent).collect())
}

/// Returns the processes below `top`.
fn below(parents: &BTreeMap<u32, u32>, top: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut last = vec![top];
    while let Some(parent) = last.pop() {
        let children = parents.iter().filter(|(_, its)| **its == parent).map(|(child, _)| *child);
        last.extend(children.filter(|child| found.insert(*child)));
    }
    found
}

/// Returns a field of a text like `/proc/PID/stat`, behind the name, which may hold anything.
pub(crate) fn field_of(text: &str, field: usize) -> Option<u64> {
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(field)?.parse().ok()
}

#[cfg(test)]
mod tests {
    //! The risk: a process that works for a program is not counted, and coldpress looks cheap.
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn all_below_a_process_are_found_whatever_their_order() {
        let parents = BTreeMap::from([(9, 5), (5, 3), (3, 1), (4, 3), (7, 2), (8, 7), (1, 0)]);
        assert_eq!(below(&parents, 3), BTreeSet::from([4, 5, 9]));
        assert_eq!(below(&parents, KERNEL), BTreeSet::from([7, 8]));
        assert!(below(&parents, 9).is_empty());
    }

    #[test]
    fn a_child_of_a_child_counts_while_it_lives() {
        let text = "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; echo; read i'; :";
        let mut child = Command::new("sh");
        child.args(["-c", text]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let top = child.id();
        let found = Times::of(below(&parents().unwrap(), top));
        let grandchild = *found.0.first_key_value().expect("it waits for input").0;
        let with = Times::of_run(top, 0).unwrap();
        let without = Times::of_run(top, grandchild).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(found.seconds() > 0.0);
        // It may have run on between the looks.
        assert!(with.0.get(&grandchild) >= found.0.get(&grandchild));
        assert!(!with.0.contains_key(&top) && !without.0.contains_key(&grandchild));
    }

    #[test]
    fn the_kernels_threads_count_where_they_are_shown() {
        let is_shown = std::path::Path::new("/proc/2/task").exists();
        assert_eq!(!Times::of_kernel().unwrap().0.is_empty(), is_shown);
    }

    #[test]
    fn threads_that_end_or_begin_take_nothing_from_others() {
        let times = |of: &[(u32, u64)]| Times(of.iter().copied().collect());
        let (before, after) =
            (times(&[(1, 10), (2, 90), (3, 50)]), times(&[(1, 15), (3, 20), (4, 7)]));
        assert_eq!(after - before, times(&[(1, 5), (3, 20), (4, 7)]));
    }

    #[test]
    fn fields_are_told_apart_whatever_the_name() {
        let text = "7 (a) b) S 1 8 9";
        assert_eq!([PARENT, 2].map(|field| field_of(text, field)), [Some(1), Some(8)]);
        assert_eq!(field_of("7 (a)", PARENT), None);
    }
}
