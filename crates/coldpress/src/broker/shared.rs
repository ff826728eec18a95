//! Shared memory of the tree: what its processes have mapped of it, each page once.
//!
//! A memory cgroup is charged once for a page of shared memory, or of a file in tmpfs, however many
//! processes map it. /proc shows how much of it a process maps (RssShmem of status), and the part
//! of the process when each page is divided by its mappings (Pss_Shmem of smaps_rollup, Linux 5.3),
//! which `parts` adds up.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use coldpress_common::size::show;
use coldpress_sys::{Bytes, PageCount};

use super::parts::{Asked, Parts, kib_of};
use crate::proc;
use crate::text::printable;

/// The size below which a process's shared memory is ignored: it may be ours, the ledger and the
/// helper's desk.
const IGNORED: PageCount = Bytes::mib(1).pages_down();
/// The part of the budget that shared memory must leave, or it takes too much: an eighth, or half
/// where no private memory can be moved any more.
const ROOM_PART: usize = 8;
const ROOM_PART_WHEN_STUCK: usize = 2;
/// The time without growth after which the user hears of shared memory that takes too much.
const TOLD_AFTER: Duration = Duration::from_millis(500);

/// The way to ask processes how much shared memory they map.
struct OfShared;

impl Asked for OfShared {
    fn all(&self, process: u32) -> Option<PageCount> {
        kib_of(process, "status", "RssShmem:")
    }

    fn part(&self, process: u32) -> Option<PageCount> {
        kib_of(process, "smaps_rollup", "Pss_Shmem:")
    }
}

/// The shared memory that the tree has mapped, at the last look.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// For each process: its pages of files and of shared memory when it was last asked how many of
    /// them are shared memory, and the answer.
    seen: HashMap<u32, (PageCount, PageCount)>,
    parts: Parts,
    complaint: Complaint,
}

/// The state of the warning about shared memory.
#[derive(Debug, Default)]
struct Complaint {
    /// The most shared memory there was, and since when.
    most: Option<(PageCount, Instant)>,
    /// The most memory in use then, shared or not.
    used: Bytes,
    is_told: bool,
}

impl Shared {
    /// Looks at these processes, each of which has memory of its own.
    pub(crate) fn look(&mut self, processes: impl Iterator<Item = u32>, now: Instant) {
        let before = std::mem::take(&mut self.seen);
        for process in processes {
            let Some(of_both) = proc::files_and_shared(process) else { continue };
            let known = before.get(&process).copied().filter(|(then, _)| *then == of_both);
            let ask = || (of_both, OfShared.all(process).unwrap_or_default());
            self.seen.insert(process, known.unwrap_or_else(ask));
        }
        let mapped = self.seen.iter().map(|(process, (_, shared))| (*process, *shared));
        self.parts.note(mapped.filter(|(_, shared)| *shared >= IGNORED), now, &OfShared);
    }

    /// Returns all shared memory, each page once.
    pub(crate) fn pages(&self) -> PageCount {
        self.parts.sum_of_own()
    }

    /// Returns the warning for the user, once, when `used` memory passes the budget because shared
    /// memory takes it up: when shared memory stops growing, or `is_last`. `is_stuck` says that the
    /// budget was passed, and no private memory could be moved any more.
    pub(crate) fn complaint(
        &mut self,
        used: Bytes,
        budget: Bytes,
        is_stuck: bool,
        is_last: bool,
        now: Instant,
    ) -> Option<String> {
        let pages = self.pages();
        let most = &mut self.complaint.most;
        let room_part = if is_stuck { ROOM_PART_WHEN_STUCK } else { ROOM_PART };
        let is_passed = is_stuck || used > budget;
        let is_too_much = is_passed && pages.bytes().0 > budget.0 - budget.0 / room_part;
        if is_too_much && most.is_none_or(|(before, _)| pages > before) {
            *most = Some((pages, now));
            self.complaint.used = self.complaint.used.max(used);
        }
        let (most, since) = self.complaint.most?;
        let is_time = is_last || is_too_much && now.duration_since(since) >= TOLD_AFTER;
        if self.complaint.is_told || !is_time {
            return None;
        }
        self.complaint.is_told = true;
        let enough = Bytes(self.complaint.used.max(budget).0 / 100 * 110);
        Some(format!(
            "the budget of {} cannot be kept: {} of shared memory are in use, which stays in \
             place{}; raise --memory to {}M, or have less of it shared",
            show(budget),
            show(most.bytes()),
            self.largest().map(|one| format!(" ({one})")).unwrap_or_default(),
            enough.0.div_ceil(1 << 20)
        ))
    }

    /// Returns what most of the shared memory is.
    fn largest(&self) -> Option<String> {
        let process = self.parts.largest()?;
        let smaps = fs::read_to_string(format!("/proc/{process}/smaps")).ok()?;
        let (name, kib) = largest_of(&smaps)?;
        let comm = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        let (name, comm) = (kind_of(&name), printable(comm.trim_end()));
        Some(format!("most of it {name}, {} in process {process}, {comm}", show(Bytes::kib(kib))))
    }
}

/// Finds the mapping of shared memory with the most resident memory. Returns its name and its KiB,
/// as `smaps` has them.
fn largest_of(smaps: &str) -> Option<(String, usize)> {
    let (mut name, mut largest) = (None, None::<(String, usize)>);
    for line in smaps.lines() {
        let fields: Vec<_> = line.splitn(6, ' ').collect();
        if let [_, permissions, .., path] = fields[..]
            && fields[0].contains('-')
        {
            let path = path.trim_start();
            let is_ours = path.starts_with("/memfd:coldpress-");
            name = (permissions.ends_with('s') && !is_ours).then(|| path.to_owned());
        } else if let Some(kib) = line.strip_prefix("Rss:")
            && let Some(name) = name.take()
        {
            let kib = kib.split_whitespace().next()?.parse().ok()?;
            if largest.as_ref().is_none_or(|(_, most)| kib > *most) {
                largest = Some((name, kib));
            }
        }
    }
    largest
}

/// Describes a mapping by its name.
fn kind_of(name: &str) -> String {
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    match name.strip_prefix("/memfd:") {
        Some(name) => format!("the memfd {}", printable(name)),
        None if name == "/dev/zero" => "without a name".to_owned(),
        None if name.starts_with("/SYSV") => "System V shared memory".to_owned(),
        None => format!("the file {}", printable(name)),
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a user does not hear what takes up the budget, or hears it all the time.

    use super::*;

    /// A process that maps this much and reveals nothing more.
    struct Hides(PageCount);

    impl Asked for Hides {
        fn all(&self, _process: u32) -> Option<PageCount> {
            Some(self.0)
        }

        fn part(&self, _process: u32) -> Option<PageCount> {
            None
        }
    }

    /// Returns the state as if a process that does not exist had mapped `mib` MiB.
    fn mapped(mib: usize) -> Shared {
        let mut shared = Shared::default();
        let all = [(u32::MAX, Bytes::mib(mib).pages_up())];
        shared.parts.note(all.into_iter(), Instant::now(), &Hides(Bytes::mib(mib).pages_up()));
        shared
    }

    #[test]
    fn what_takes_the_budget_is_told_once_when_it_grows_no_more() {
        let mut shared = mapped(8);
        let now = Instant::now();
        let mut complain =
            |budget, at| shared.complaint(Bytes::mib(20), Bytes::mib(budget), false, false, at);
        assert_eq!(complain(21, now), None);
        // Private memory can give way.
        assert_eq!(complain(19, now + TOLD_AFTER), None);
        assert_eq!(complain(8, now), None);
        let told = complain(8, now + TOLD_AFTER).expect("it has not grown");
        assert!(told.contains("8 MiB of shared memory") && told.contains("to 22M"), "{told}");
        assert_eq!(complain(8, now + TOLD_AFTER), None);
        let mut last = mapped(8);
        assert_eq!(last.complaint(Bytes::mib(9), Bytes::mib(10), false, true, now), None);
        assert!(last.complaint(Bytes::mib(9), Bytes::mib(8), false, true, now).is_some());
    }

    #[test]
    fn where_nothing_private_can_be_moved_half_of_the_budget_is_too_much() {
        let now = Instant::now();
        let complain = |is_stuck, budget| {
            mapped(8).complaint(Bytes::mib(15), Bytes::mib(budget), is_stuck, true, now)
        };
        assert_eq!(complain(false, 14), None);
        assert!(complain(true, 14).is_some());
        // The budget was passed between two looks.
        assert!(complain(true, 15).is_some_and(|told| told.contains("to 17M")));
        assert_eq!(complain(true, 17), None);
    }

    #[test]
    fn who_has_gone_counts_no_more() {
        let mut shared = mapped(8);
        assert_eq!(shared.pages(), Bytes::mib(8).pages_up());
        shared.look([std::process::id(), u32::MAX].into_iter(), Instant::now());
        assert_eq!(shared.pages(), PageCount(0));
    }

    #[test]
    fn the_largest_mapping_is_of_shared_memory() {
        let smaps = "1-2 rw-p 0 00:01 9 /bin/x\nRss: 900 kB\n\
                     2-3 rw-s 0 00:01 9    /dev/zero (deleted)\nSize: 9 kB\nRss: 40 kB\n\
                     3-4 rw-s 0 00:01 9    /memfd:a b (deleted)\nRss: 70 kB\n\
                     4-5 rw-p 00000 00:00 0 \nRss: 99 kB\n\
                     5-6 rw-s 0 00:01 9    /memfd:coldpress-desk (deleted)\nRss: 80 kB\n";
        assert_eq!(largest_of(smaps), Some(("/memfd:a b (deleted)".to_owned(), 70)));
        assert_eq!(kind_of("/memfd:a b (deleted)"), "the memfd a b");
        assert_eq!(kind_of("/dev/zero (deleted)"), "without a name");
    }
}
