//! Shared memory of the tree: what its processes have mapped of it, each page once.
//!
//! A memory cgroup is charged with a page of shared memory, or of a file in tmpfs, once, however
//! many processes map it. /proc tells how much of it a process maps (RssShmem of status), and what
//! falls to the process when each page is divided by its mappings (Pss_Shmem of smaps_rollup, Linux
//! 5.3), which `parts` adds up.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use coldpress_sys::{Bytes, PageCount};

use crate::parts::{Asked, Parts, kib_of};
use crate::size::show;
use crate::text::printable;
use crate::tree;

/// A process that maps less has none: so much may be ours, the ledger and the helper's desk.
const IGNORED: PageCount = Bytes::mib(1).pages_down();
/// Shared memory takes too much when it leaves less than this part of the budget; or half, where
/// nothing private can be moved any more.
const ROOM_PART: usize = 8;
const ROOM_PART_WHEN_STUCK: usize = 2;
/// Of what is too large it is told when it has grown no more for so long.
const TOLD_AFTER: Duration = Duration::from_millis(500);

/// How processes are asked for what they map of it.
struct OfShared;

impl Asked for OfShared {
    fn all(&self, process: u32) -> Option<PageCount> {
        kib_of(process, "status", "RssShmem:")
    }

    fn part(&self, process: u32) -> Option<PageCount> {
        kib_of(process, "smaps_rollup", "Pss_Shmem:")
    }
}

/// What the tree has mapped, as last seen.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Pages of files and of shared memory that a process had when it was last asked how many are
    /// of the second, and how many were.
    seen: HashMap<u32, (PageCount, PageCount)>,
    parts: Parts,
    complaint: Complaint,
}

/// Whether the user is to hear of it.
#[derive(Debug, Default)]
struct Complaint {
    /// The most there was, since when.
    most: Option<(PageCount, Instant)>,
    /// The most that was in use then, shared or not.
    used: Bytes,
    is_told: bool,
}

impl Shared {
    /// Looks at these processes, each of which has memory of its own.
    pub(crate) fn look(&mut self, processes: impl Iterator<Item = u32>, now: Instant) {
        let before = std::mem::take(&mut self.seen);
        for process in processes {
            let Some(of_both) = tree::files_and_shared(process) else { continue };
            let known = before.get(&process).copied().filter(|(then, _)| *then == of_both);
            let ask = || (of_both, OfShared.all(process).unwrap_or_default());
            self.seen.insert(process, known.unwrap_or_else(ask));
        }
        let mapped = self.seen.iter().map(|(process, (_, shared))| (*process, *shared));
        self.parts.note(mapped.filter(|(_, shared)| *shared >= IGNORED), now, &OfShared);
    }

    /// All of it, each page once.
    pub(crate) fn pages(&self) -> PageCount {
        self.parts.sum_of_own()
    }

    /// What to tell the user of it, once, when so much is in use and it takes what the budget has:
    /// when it grows no more, or `is_last`. `is_stuck`: the budget was passed, and nothing private
    /// could be moved any more.
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

    /// What most of it is.
    fn largest(&self) -> Option<String> {
        let process = self.parts.largest()?;
        let smaps = fs::read_to_string(format!("/proc/{process}/smaps")).ok()?;
        let (name, kib) = largest_of(&smaps)?;
        let comm = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        let (name, comm) = (kind_of(&name), printable(comm.trim_end()));
        Some(format!("most of it {name}, {} in process {process}, {comm}", show(Bytes::kib(kib))))
    }
}

/// The mapping of shared memory of which most is in memory, by its name, and how many KiB are: as
/// `smaps` has them.
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

/// What a mapping of this name is.
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
    //! The risk: a user who does not hear of what takes the budget, or hears of it all the time.

    use super::*;

    /// A process that maps this much and tells no more of it.
    struct Hides(PageCount);

    impl Asked for Hides {
        fn all(&self, _process: u32) -> Option<PageCount> {
            Some(self.0)
        }

        fn part(&self, _process: u32) -> Option<PageCount> {
            None
        }
    }

    /// As if a process that is not there had mapped so many MiB.
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
        // It was passed between two looks.
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
