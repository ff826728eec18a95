//! Shared memory of the tree: what its processes have mapped of it, each page once.
//!
//! A memory cgroup is charged with a page of shared memory, or of a file in tmpfs, once, however
//! many processes map it. /proc tells how much of it a process maps (RssShmem of status), and what
//! falls to the process when each page is divided by its mappings (Pss_Shmem of smaps_rollup, Linux
//! 5.3): the sum over the tree has each page once. The kernel looks at every page for the second,
//! so it is asked when the first has changed, and for 2 % of the time; in between, a process's part
//! grows and shrinks with what it maps.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use coldpress_sys::{Bytes, PageCount};

use crate::size::show;
use crate::text::printable;
use crate::tree;

/// A process that maps less has none: so much may be ours, the ledger and the helper's desk.
const IGNORED: PageCount = Bytes::mib(1).pages_down();
/// What a process maps has changed when it did by this part, and this much.
const CHANGED_PART: usize = 64;
const CHANGED: PageCount = Bytes::kib(256).pages_down();
/// Between two askings of the kernel, so many times what one took.
const ASK_COST_FACTOR: u32 = 50;
/// The budget is left alone by this part of it when it is said to be too small.
const ROOM_PART: usize = 8;
/// Of what is too large it is told when it has grown no more for so long.
const TOLD_AFTER: Duration = Duration::from_millis(500);

/// What one process maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mapped {
    /// Pages of files and of shared memory, when it was last asked how many are of the second.
    of_both: PageCount,
    shared: PageCount,
    /// The process's part of them, and what it had mapped of them when it was asked for.
    part: PageCount,
    of: PageCount,
}

impl Mapped {
    /// Its part now, as far as that is known.
    fn part_now(self) -> PageCount {
        PageCount(self.part.0 * self.shared.0 / self.of.0.max(1))
    }

    fn has_changed(self) -> bool {
        let by = self.shared.0.abs_diff(self.of.0);
        self.shared >= IGNORED && by > CHANGED.0.max(self.of.0 / CHANGED_PART)
    }
}

/// What the tree has mapped, as last seen.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    seen: HashMap<u32, Mapped>,
    /// Somebody that maps some has come or gone: so others' parts are not what they were.
    is_stale: bool,
    ask_at: Option<Instant>,
    complaint: Complaint,
}

/// Whether the user is to hear of it.
#[derive(Debug, Default)]
struct Complaint {
    /// The most there was, since when.
    most: Option<(PageCount, Instant)>,
    is_told: bool,
}

impl Shared {
    /// Looks at these processes, each of which has memory of its own.
    pub(crate) fn look(&mut self, processes: impl Iterator<Item = u32>, now: Instant) {
        let before = std::mem::take(&mut self.seen);
        for process in processes {
            let Some(of_both) = tree::files_and_shared(process) else { continue };
            let mut mapped = before.get(&process).copied().unwrap_or_default();
            if mapped.of_both != of_both {
                mapped.of_both = of_both;
                mapped.shared = of_status(process).unwrap_or_default();
            }
            self.seen.insert(process, mapped);
        }
        let has_gone = |(process, mapped): (&u32, &Mapped)| {
            mapped.of >= IGNORED && !self.seen.contains_key(process)
        };
        self.is_stale |= before.iter().any(has_gone);
        self.is_stale |= self.seen.values().any(|mapped| mapped.has_changed());
        if self.is_stale && self.ask_at.is_none_or(|at| at <= now) {
            self.ask();
        }
    }

    /// Asks for every process's part.
    fn ask(&mut self) {
        let begun = Instant::now();
        for (process, mapped) in &mut self.seen {
            let is_some = mapped.shared >= IGNORED;
            // Where the kernel does not tell, as of who hides itself, all of it counts.
            let part = || part_of(*process).unwrap_or(mapped.shared).min(mapped.shared);
            mapped.part = if is_some { part() } else { PageCount(0) };
            mapped.of = if is_some { mapped.shared } else { PageCount(0) };
        }
        self.is_stale = false;
        self.ask_at = Some(Instant::now() + ASK_COST_FACTOR * begun.elapsed());
    }

    /// All of it, each page once.
    pub(crate) fn pages(&self) -> PageCount {
        let parts = self.seen.values().map(|mapped| mapped.part_now());
        parts.fold(PageCount(0), |sum, part| sum + part)
    }

    /// What to tell the user of it, once, when so much is in use and it takes what the budget has:
    /// when it grows no more, or `is_last`.
    pub(crate) fn complaint(
        &mut self,
        used: Bytes,
        budget: Bytes,
        is_last: bool,
        now: Instant,
    ) -> Option<String> {
        let pages = self.pages();
        let most = &mut self.complaint.most;
        let is_too_much = used > budget && pages.bytes().0 > budget.0 - budget.0 / ROOM_PART;
        if is_too_much && most.is_none_or(|(before, _)| pages > before) {
            *most = Some((pages, now));
        }
        let (most, since) = self.complaint.most?;
        let is_time = is_last || now.duration_since(since) >= TOLD_AFTER;
        if self.complaint.is_told || !is_time {
            return None;
        }
        self.complaint.is_told = true;
        let enough = Bytes(used.0.max(most.bytes().0) / 100 * 110);
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
        let (process, _) = self.seen.iter().max_by_key(|(_, mapped)| mapped.shared)?;
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
            name = permissions.ends_with('s').then(|| path.trim_start().to_owned());
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

/// Shared memory that a process maps.
fn of_status(process: u32) -> Option<PageCount> {
    kib_in(&format!("/proc/{process}/status"), "RssShmem:")
}

/// What of it falls to the process.
fn part_of(process: u32) -> Option<PageCount> {
    kib_in(&format!("/proc/{process}/smaps_rollup"), "Pss_Shmem:")
}

fn kib_in(file: &str, name: &str) -> Option<PageCount> {
    let text = fs::read_to_string(file).ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: usize = kib.split_whitespace().next()?.parse().ok()?;
    Some(Bytes::kib(kib).pages_up())
}

#[cfg(test)]
mod tests {
    //! The risk: shared memory that is counted more than once, or not at all.

    use super::*;

    /// As if a process that is not there had mapped so many MiB.
    fn mapped(mib: usize) -> Shared {
        let pages = Bytes::mib(mib).pages_up();
        let mapped = Mapped { of_both: pages, shared: pages, part: pages, of: pages };
        Shared { seen: HashMap::from([(u32::MAX, mapped)]), ..Shared::default() }
    }

    #[test]
    fn what_takes_the_budget_is_told_once_when_it_grows_no_more() {
        let mut shared = mapped(8);
        let now = Instant::now();
        let mut complain =
            |budget, at| shared.complaint(Bytes::mib(20), Bytes::mib(budget), false, at);
        assert_eq!(complain(21, now), None);
        // Private memory can give way.
        assert_eq!(complain(19, now + TOLD_AFTER), None);
        assert_eq!(complain(8, now), None);
        let told = complain(8, now + TOLD_AFTER).expect("it has not grown");
        assert!(told.contains("8 MiB of shared memory") && told.contains("to 22M"), "{told}");
        assert_eq!(complain(8, now + TOLD_AFTER), None);
        let mut last = mapped(8);
        assert_eq!(last.complaint(Bytes::mib(9), Bytes::mib(10), true, now), None);
        assert!(last.complaint(Bytes::mib(9), Bytes::mib(8), true, now).is_some());
    }

    #[test]
    fn who_has_gone_counts_no_more() {
        let mut shared = mapped(8);
        assert_eq!(shared.pages(), Bytes::mib(8).pages_up());
        shared.look([std::process::id(), u32::MAX].into_iter(), Instant::now());
        assert!(shared.pages() < IGNORED);
        assert_eq!(shared.seen.len(), 1);
    }

    #[test]
    fn parts_follow_what_is_mapped_until_the_kernel_is_asked_again() {
        let of = PageCount(1_000);
        let mapped = Mapped { shared: of, of, part: PageCount(250), ..Mapped::default() };
        assert_eq!(mapped.part_now(), PageCount(250));
        assert_eq!(Mapped { shared: PageCount(2_000), ..mapped }.part_now(), PageCount(500));
        assert_eq!(Mapped::default().part_now(), PageCount(0));
        assert!(!mapped.has_changed());
        assert!(Mapped { shared: PageCount(1_200), ..mapped }.has_changed());
    }

    #[test]
    fn the_largest_mapping_is_of_shared_memory() {
        let smaps = "1-2 rw-p 0 00:01 9 /bin/x\nRss: 900 kB\n\
                     2-3 rw-s 0 00:01 9    /dev/zero (deleted)\nSize: 9 kB\nRss: 40 kB\n\
                     3-4 rw-s 0 00:01 9    /memfd:a b (deleted)\nRss: 70 kB\n\
                     4-5 rw-p 00000 00:00 0 \nRss: 99 kB\n";
        assert_eq!(largest_of(smaps), Some(("/memfd:a b (deleted)".to_owned(), 70)));
        assert_eq!(kind_of("/memfd:a b (deleted)"), "the memfd a b");
        assert_eq!(kind_of("/dev/zero (deleted)"), "without a name");
    }
}
