//! The account of a run: the memory it holds, by kind.

use std::cmp::Reverse;
use std::fs;
use std::time::Instant;

use coldpress_common::size::show;
use coldpress_runtime::ledger::Ledger;
use coldpress_runtime::tally::Figures;
use coldpress_sys::{Bytes, PageCount};
use rustix::process::getppid;
use serde_json::{Value, json};

use super::parts::ASK_COST_FACTOR;
use crate::proc;

/// The part by which the sum must grow before the kernel is asked again. To report what mappings
/// hold, the kernel looks at every page, so asking may take 2 % of the time.
const GROWN_PART: usize = 8;
/// The number of processes to ask, those that hold most: each may take milliseconds.
const ASKED_MAX: usize = 16;

/// The memory that a run holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// Private memory of processes that have joined, including what they have stored, compressed.
    pub(crate) managed: PageCount,
    /// Private memory of other processes.
    pub(crate) unmanaged: PageCount,
    /// Shared memory, each page once.
    pub(crate) shared: PageCount,
    within: Within,
}

/// The parts of the memory of joined processes that are not the program's own pages, the pages that
/// may stay in place, and what coldpress holds elsewhere.
#[derive(Clone, Copy, Debug, Default)]
struct Within {
    pool: PageCount,
    tables: Bytes,
    kept: Kept,
    /// Memory of the launcher and its keeper, which is in no sum.
    launcher: PageCount,
}

/// Private memory of mappings that may stay in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kept {
    locked: PageCount,
    executable: PageCount,
}

/// The memory that may stay in place, and that of the launcher and its keeper, at the last look.
#[derive(Debug, Default)]
pub(crate) struct InPlace {
    kept: Kept,
    launcher: PageCount,
    /// The memory held in all at that look.
    held: PageCount,
    ask_at: Option<Instant>,
}

impl InPlace {
    /// Looks again if the figures may have changed, now that `held` pages are held in all.
    /// `members` are the programs that have joined, each with what it holds.
    pub(crate) fn look(
        &mut self,
        held: PageCount,
        members: impl Iterator<Item = (u32, PageCount)>,
        now: Instant,
    ) {
        let has_grown = held.0 > self.held.0 + self.held.0 / GROWN_PART;
        if !has_grown || self.ask_at.is_some_and(|at| now < at) {
            return;
        }
        let mut members: Vec<_> = members.collect();
        members.sort_by_key(|(_, holds)| Reverse(*holds));
        self.kept = Kept::default();
        for (program, _) in members.into_iter().take(ASKED_MAX) {
            self.kept.add(Kept::of(&proc::text(program, "smaps").unwrap_or_default()));
        }
        let own = own_processes().filter_map(proc::anonymous);
        self.launcher = own.fold(PageCount(0), |sum, pages| sum + pages);
        self.held = held;
        self.ask_at = Some(now + ASK_COST_FACTOR * now.elapsed());
    }
}

impl Account {
    /// Makes an account of these figures.
    pub(crate) fn of(managed: PageCount, unmanaged: PageCount, shared: PageCount) -> Self {
        Self { managed, unmanaged, shared, ..Self::default() }
    }

    /// Returns the sum of all kinds.
    pub(crate) fn sum(self) -> PageCount {
        self.managed + self.unmanaged + self.shared
    }

    /// Returns the account with its parts as they are now, for the processes in these seats.
    pub(crate) fn with_parts(
        self,
        ledger: &Ledger,
        seats: impl Iterator<Item = usize>,
        in_place: &InPlace,
    ) -> Self {
        let mut figures = Figures::default();
        seats.for_each(|seat| figures.add(ledger.tally(seat)));
        // Whatever processes report, the parts are no more than all that they hold.
        let within = Within {
            pool: PageCount(figures.held("pool_pages") as usize).min(self.managed),
            tables: Bytes(figures.held("table_bytes") as usize).min(self.managed.bytes()),
            kept: in_place.kept,
            launcher: in_place.launcher,
        };
        Self { within, ..self }
    }

    /// Returns what most of the memory is, when memory that stays in place is why a budget was
    /// passed.
    pub(crate) fn largest(&self) -> Option<String> {
        let Self { managed, unmanaged, shared, within, .. } = self;
        let locked = within.kept.locked;
        let (what, pages) = if *shared > *managed.max(unmanaged) {
            ("shared memory", *shared)
        } else if locked.0 > managed.0 / 2 && locked > *unmanaged {
            ("locked", locked)
        } else {
            return None;
        };
        Some(format!("{} of it {what}, which stays in place", show(pages.bytes())))
    }

    pub(crate) fn document(self) -> Value {
        let Within { pool, tables, kept, launcher } = self.within;
        json!({
            "managed_bytes": self.managed.bytes().0,
            "unmanaged_bytes": self.unmanaged.bytes().0,
            "shared_bytes": self.shared.bytes().0,
            "managed": {
                "pool_bytes": pool.bytes().0,
                "table_bytes": tables.0,
                "locked_bytes": kept.locked.bytes().0,
                "executable_bytes": kept.executable.bytes().0,
            },
            "launcher_bytes": launcher.bytes().0,
        })
    }
}

/// Returns this process, the keeper, and the launcher while it is there.
fn own_processes() -> impl Iterator<Item = u32> {
    let image = |process| fs::read_link(format!("/proc/{process}/exe")).ok();
    let keeper = std::process::id();
    let launcher = getppid().map(|process| process.as_raw_nonzero().get().cast_unsigned());
    let launcher = launcher.filter(|launcher| image(*launcher) == image(keeper));
    launcher.into_iter().chain([keeper])
}

impl Kept {
    /// Sums up what /proc's `smaps` reports of a process.
    fn of(smaps: &str) -> Self {
        let (mut kept, mut is_executable, mut anonymous) = (Self::default(), false, PageCount(0));
        for line in smaps.lines() {
            let mut fields = line.split_ascii_whitespace();
            let (name, value) = (fields.next().unwrap_or_default(), fields.next());
            let kib = || value.and_then(|kib| kib.parse().ok()).unwrap_or_default();
            match name {
                "Anonymous:" => {
                    anonymous = Bytes::kib(kib()).pages_up();
                    kept.executable += if is_executable { anonymous } else { PageCount(0) };
                }
                // This line counts pages of files too. It comes after the `Anonymous:` line.
                "Locked:" => kept.locked += Bytes::kib(kib()).pages_up().min(anonymous),
                _ if !name.ends_with(':') => {
                    is_executable =
                        value.is_some_and(|access| access.as_bytes().get(2) == Some(&b'x'));
                }
                _ => {}
            }
        }
        kept
    }

    fn add(&mut self, other: Self) {
        self.locked += other.locked;
        self.executable += other.executable;
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a line blames memory that is not to blame.

    use coldpress_mem::frames::FrameStats;
    use coldpress_runtime::knobs::Knobs;
    use coldpress_runtime::ledger::{Keeper, Terms};
    use coldpress_zswap::Stats;

    use super::*;

    #[test]
    fn what_stays_in_place_is_named_where_it_is_most() {
        let pages = |mib| Bytes::mib(mib).pages_up();
        let mut account = Account::of(pages(20), pages(5), pages(19));
        assert_eq!(account.largest(), None);
        account.within.kept.locked = pages(11);
        assert!(account.largest().is_some_and(|text| text.starts_with("11 MiB of it locked")));
        account.shared = pages(21);
        assert!(account.largest().is_some_and(|text| text.contains("21 MiB of it shared")));
    }

    /// The risk: a process may write any word to its seat, and the launcher must not end because of
    /// it.
    #[test]
    fn what_processes_tell_is_no_more_than_they_hold() {
        let terms =
            Terms { budget: PageCount(9), spill_max: Bytes(0), verbose: false, processors: 1 };
        let (_fds, ledger) = Keeper::create(terms, &Knobs::default()).unwrap();
        let most = usize::MAX / 2;
        let stats = Stats { pool_pages: PageCount(most), memory: Bytes(most), ..Stats::default() };
        ledger.tally(0).set_zswap(&stats, &FrameStats::default(), PageCount(0), Bytes(0));
        let account = Account::of(PageCount(2), PageCount(0), PageCount(0));
        let told = &account.with_parts(&ledger, 0..1, &InPlace::default()).document()["managed"];
        assert_eq!((&told["pool_bytes"], &told["table_bytes"]), (&json!(8192), &json!(8192)));
    }

    #[test]
    fn private_memory_of_mappings_is_told_by_what_they_are() {
        let smaps = "1-2 r-xp 0 00:01 9 /bin/x\nRss: 900 kB\nAnonymous: 0 kB\nLocked: 90 kB\n\
                     2-3 rwxp 0 00:00 0\nRss: 64 kB\nAnonymous: 64 kB\nLocked: 12 kB\n\
                     3-4 rw-p 0 00:00 0 [heap]\nAnonymous: 40 kB\nLocked: 40 kB\n\
                     4-5 --xp 0 00:00 0\nAnonymous: 8 kB\n";
        let kept = Kept { locked: PageCount(13), executable: PageCount(18) };
        assert_eq!(Kept::of(smaps), kept);
    }
}
