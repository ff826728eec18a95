//! Processes of a run that hold much without being managed: which they are, and why.
//!
//! A process that can be managed takes a seat when it has grown to two MiB. One without the library
//! gets it at four (`late`). A process that holds more without a seat may have said why. Otherwise
//! the launcher examines which program it is, and whose. If that gives no reason, the process has
//! some time to join, because that may take long on a busy machine. A process that ends before that
//! time is over is reported at the end, unless it came and went between two looks.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use coldpress_common::size::show;
use coldpress_sys::{Bytes, PageCount};
use serde_json::{Value, json};

use super::late::WORTH_IT;
use crate::elf::{self, Image};
use crate::proc::{self, Life};
use crate::text::printable;

/// The time for which a process may hold that much when no reason is found.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time of holding much after which a process that ends counts as one that did not join. In
/// less, it may have been about to join: two looks are at least 50 ms apart.
const ENDED_PATIENCE: Duration = Duration::from_millis(100);
/// The set-user-id and set-group-id bits of a mode (inode(7)).
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
/// The most processes that are named, those that held most; all are counted.
const NAMED_MAX: usize = 16;

/// A process that is not managed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unmanaged {
    process: u32,
    name: String,
    why: String,
    /// The most anonymous memory that the process was seen to hold.
    most: PageCount,
}

impl fmt::Display for Unmanaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, name, why, most } = self;
        write!(f, "process {process} ({name}) held up to {}: it {why}", show(most.bytes()))
    }
}

/// The state of a process without a seat.
#[derive(Debug)]
enum Open {
    /// The process holds much, for no known reason.
    Waiting(Waiting),
    Known(Unmanaged),
}

/// A process that may be about to join.
#[derive(Clone, Debug)]
struct Waiting {
    since: Instant,
    seen: Instant,
    one: Unmanaged,
}

impl Open {
    /// Makes the state of a process that was seen for the first time.
    fn waiting(process: u32, now: Instant) -> Self {
        let why = "ended before it had joined the run".to_owned();
        let one = Unmanaged { process, name: name_of(process), why, most: PageCount(0) };
        Self::Waiting(Waiting { since: now, seen: now, one })
    }

    fn known(&self) -> Option<&Unmanaged> {
        match self {
            Self::Known(one) => Some(one),
            Self::Waiting(_) => None,
        }
    }

    /// Returns the report on a process that has ended without a seat, if there is one.
    fn ended(self) -> Option<Unmanaged> {
        match self {
            Self::Known(one) => Some(one),
            Self::Waiting(Waiting { since, seen, one }) => {
                (seen.duration_since(since) >= ENDED_PATIENCE).then_some(one)
            }
        }
    }
}

/// All unmanaged processes that were found in a run.
#[derive(Debug, Default)]
pub(crate) struct UnmanagedOfRun {
    open: HashMap<u32, Open>,
    /// The reasons that processes without a seat have given themselves.
    told: HashMap<u32, String>,
    /// The processes that have ended or taken a seat, those that held most first.
    past: Vec<Unmanaged>,
    count: usize,
}

impl UnmanagedOfRun {
    /// Notes why `process` is not managed, as it said itself.
    pub(crate) fn tell(&mut self, process: u32, why: String) {
        self.told.insert(process, why);
    }

    /// Notes that `process` has taken a seat.
    pub(crate) fn sit(&mut self, process: u32) {
        // Another process may have had this number before.
        self.told.remove(&process);
        if let Some(Open::Waiting(_)) = self.open.get(&process) {
            self.open.remove(&process);
        }
    }

    /// Looks at the processes without a seat and what they hold; `why` finds a reason. Returns the
    /// processes that were found now.
    pub(crate) fn look(
        &mut self,
        unseated: impl Fn(u32) -> PageCount,
        processes: impl Iterator<Item = u32>,
        now: Instant,
        why: impl Fn(u32) -> Option<String>,
    ) -> Vec<Unmanaged> {
        let mut found = Vec::new();
        let over: Vec<_> =
            self.open.extract_if(|process, _| unseated(*process) == PageCount(0)).collect();
        for (process, open) in over {
            if open.known().is_some() {
                self.told.remove(&process);
                self.count -= 1;
            }
            if let Some(one) = open.ended() {
                self.count += 1;
                self.past.push(one);
            }
        }
        self.past.sort_by_key(|one| std::cmp::Reverse(one.most));
        self.past.truncate(NAMED_MAX);
        for process in processes {
            let held = unseated(process);
            if held < WORTH_IT {
                continue;
            }
            let open = self.open.entry(process).or_insert_with(|| Open::waiting(process, now));
            match open {
                Open::Known(one) => one.most = one.most.max(held),
                Open::Waiting(Waiting { since, seen, one }) => {
                    one.most = one.most.max(held);
                    *seen = now;
                    let told = self.told.get(&process).cloned();
                    let late = || late(process, now.duration_since(*since));
                    if let Some(why) = told.or_else(|| why(process)).or_else(late) {
                        one.why = why;
                        let one = one.clone();
                        found.push(one.clone());
                        *open = Open::Known(one);
                        self.count += 1;
                    }
                }
            }
        }
        found
    }

    /// Returns the processes that were found, those that held most first.
    fn all(&self) -> Vec<&Unmanaged> {
        let open = self.open.values().filter_map(Open::known);
        let mut all: Vec<_> = self.past.iter().chain(open).collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.most));
        all.truncate(NAMED_MAX);
        all
    }

    /// Returns the warning for the user when `used` passes `budget`, if unmanaged processes that
    /// are there now hold any of it.
    pub(crate) fn complaint(
        &self,
        unseated: impl Fn(u32) -> PageCount,
        used: Bytes,
        budget: Bytes,
    ) -> Option<String> {
        let known = || self.open.values().filter_map(Open::known);
        let largest = known().max_by_key(|one| unseated(one.process)).filter(|_| used > budget)?;
        let theirs = known().fold(PageCount(0), |sum, one| sum + unseated(one.process));
        Some(format!(
            "the budget of {} cannot be kept: {} are in use, {} of them in processes that are not \
             managed; {largest}; raise --memory",
            show(budget),
            show(used),
            show(theirs.bytes())
        ))
    }

    /// Returns why `process` is not managed, as far as that is known.
    pub(super) fn reason_of(&self, process: u32) -> Option<&str> {
        let told = self.told.get(&process).map(String::as_str);
        let known = || self.open.get(&process)?.known().map(|one| one.why.as_str());
        told.or_else(known)
    }

    /// Returns the reason that some process has given itself, if any has.
    pub(crate) fn told(&self) -> Option<String> {
        self.told.values().next().cloned()
    }

    /// Returns the number of unmanaged processes.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the list for programs: the processes that held most.
    pub(crate) fn document(&self) -> Value {
        let one = |one: &&Unmanaged| {
            let Unmanaged { process, name, why, most } = one;
            json!({ "process": process, "name": name, "why": why, "most_bytes": most.bytes().0 })
        };
        self.all().iter().map(one).collect()
    }
}

/// The text for people; empty when there was no unmanaged process.
impl fmt::Display for UnmanagedOfRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.all();
        let Some(largest) = all.first() else { return Ok(()) };
        match self.count {
            1 => write!(f, "not managed: {largest}"),
            count => write!(f, "not managed: {count} processes, of which {largest}"),
        }
    }
}

/// Returns why `process` cannot be managed, if its user or its program shows that.
/// `takes_others` says that programs of other users are managed too.
pub(crate) fn reason(process: u32, takes_others: bool) -> Option<String> {
    let ours = rustix::process::geteuid().as_raw();
    if let Some(user) = proc::user(process).filter(|user| *user != ours && !takes_others) {
        return Some(match ours {
            0 => format!("is of user {user}, and --no-lend leaves such programs alone"),
            _ => format!("is of user {user}, and only a run of root manages programs of others"),
        });
    }
    let folder = Path::new("/proc").join(process.to_string());
    if let Ok(Image::Closed(closed)) = elf::examine(&folder.join("exe")) {
        return Some(closed.to_string());
    }
    let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
    is_setuid(&folder.join("exe"), &status)
        .then(|| "is setuid, so its loader leaves the library out".to_owned())
}

/// Returns why a process that has not joined after it `waited` that long may be unable to.
fn late(process: u32, waited: Duration) -> Option<String> {
    (waited >= PATIENCE).then(|| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let is_forked = Life::of(process).is_some_and(|life| life.is_forked);
        format!("has not joined the run: {}", hint(&status, is_forked))
    })
}

/// Returns what may keep a process from joining, by its `status` (proc_pid_status(5)) and by
/// whether it comes from a fork and has not called exec.
fn hint(status: &str, is_forked: bool) -> String {
    let own = rustix::process::geteuid().as_raw();
    match (number(status, "Seccomp"), number(status, "Uid")) {
        _ if is_forked => "it comes from a fork that coldpress cannot follow, by clone or by the \
            bare system call; in the second case it lacks what its parent had away, and ends by \
            SIGSEGV where it touches that"
            .to_owned(),
        (Some(1..), _) => "a seccomp filter is in force for it, and may refuse what that takes; \
            `coldpress doctor` under the same filter says which call"
            .to_owned(),
        (_, Some(user)) if user != own => format!("it runs as user {user}, with other rights"),
        _ => "it may have dropped its rights, or lack descriptors (ulimit -n) or processes \
            (ulimit -u)"
            .to_owned(),
    }
}

/// Returns the first number after `name` in a status.
fn number(status: &str, name: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns whether a process with this `status` has the rights of another user or group from its
/// program `file`, so that its loader leaves the library out.
fn is_setuid(file: &Path, status: &str) -> bool {
    let Ok(file) = fs::metadata(file) else { return false };
    // The first of the ids is the real one: the user that started the process.
    let is_others = |name, id| number(status, name).is_some_and(|real| real != id);
    let is = |bit| file.mode() & bit != 0;
    is(SETUID) && is_others("Uid", file.uid()) || is(SETGID) && is_others("Gid", file.gid())
}

/// Returns the name of a process, fit to be printed.
pub(super) fn name_of(process: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    printable(name.trim_end())
}

#[cfg(test)]
mod tests {
    //! The risk: a program outside the budget goes unnoticed, or a program that is about to join is
    //! called unmanaged.

    use super::*;

    /// Looks at process 7, which holds `mib` MiB without a seat.
    fn look(found: &mut UnmanagedOfRun, mib: usize, now: Instant, why: Option<&str>) -> usize {
        let held = Bytes::mib(mib).pages_down();
        found.look(|_| held, [7].into_iter(), now, |_| why.map(str::to_owned)).len()
    }

    #[test]
    fn who_holds_much_for_a_reason_is_named_with_the_most_that_it_held() {
        let (mut found, now) = (UnmanagedOfRun::default(), Instant::now());
        assert_eq!(look(&mut found, 3, now, Some("is static")), 0);
        assert_eq!(found.to_string(), "");
        let held = [10, 30, 20].map(|mib| look(&mut found, mib, now, Some("is static")));
        assert_eq!(held, [1, 0, 0]);
        let complaint = |used| {
            let held = Bytes::mib(20).pages_down();
            found.complaint(|_| held, Bytes::mib(used), Bytes::mib(32))
        };
        assert_eq!(complaint(32), None);
        let told = complaint(33).expect("it is more than the budget");
        assert!(told.contains("33 MiB are in use, 20 MiB of them"), "{told}");
        for _ in 0..2 {
            let text = found.to_string();
            assert!(text.starts_with("not managed: process 7 (") && text.contains("30 MiB"));
            assert!(text.ends_with("it is static"), "{text}");
            assert_eq!((found.count(), &found.document()[0]["why"]), (1, &json!("is static")));
            // The process ends.
            look(&mut found, 0, now, None);
            assert_eq!(found.complaint(|_| PageCount(1), Bytes(2), Bytes(1)), None);
        }
        look(&mut found, 40, now, Some("is another"));
        let text = found.to_string();
        assert!(text.contains("2 processes, of which process 7") && text.contains("40 MiB"));
    }

    #[test]
    fn who_may_be_about_to_join_has_time_to() {
        let (mut found, now) = (UnmanagedOfRun::default(), Instant::now());
        assert_eq!(look(&mut found, 10, now, None), 0);
        assert_eq!(look(&mut found, 10, now + PATIENCE / 2, None), 0);
        // The process has joined, and left again.
        found.sit(7);
        assert_eq!(look(&mut found, 0, now + PATIENCE, None), 0);
        assert_eq!(look(&mut found, 10, now + PATIENCE, None), 0);
        assert_eq!(found.count(), 0);
        assert_eq!(look(&mut found, 10, now + 2 * PATIENCE, None), 1);
        assert!(found.to_string().contains("has not joined"), "{found}");
    }

    #[test]
    fn who_ends_before_it_has_joined_is_told_of_and_who_comes_and_goes_is_not() {
        let now = Instant::now();
        for (held_for, count) in [(Duration::ZERO, 0), (ENDED_PATIENCE, 1)] {
            let mut found = UnmanagedOfRun::default();
            look(&mut found, 10, now, None);
            look(&mut found, 30, now + held_for, None);
            look(&mut found, 0, now + held_for, None);
            assert_eq!(found.count(), count, "{held_for:?}");
            let is_told =
                found.to_string().ends_with("30 MiB: it ended before it had joined the run");
            assert_eq!(is_told, count == 1, "{found}");
        }
    }

    #[test]
    fn who_says_itself_why_is_found_at_once() {
        let (mut found, now) = (UnmanagedOfRun::default(), Instant::now());
        found.tell(7, "is refused close_range".to_owned());
        assert_eq!(look(&mut found, 3, now, None), 0);
        assert_eq!(look(&mut found, 10, now, Some("is another")), 1);
        assert!(found.to_string().ends_with("it is refused close_range"), "{found}");
    }

    #[test]
    fn what_may_keep_a_process_from_joining_is_read_from_its_status() {
        let own = rustix::process::geteuid().as_raw();
        let status =
            |user: u32, seccomp| format!("Name:\tx\nUid:\t{user}\t7\nSeccomp:\t{seccomp}\n");
        assert!(hint(&status(own, 2), false).contains("seccomp"));
        assert!(hint(&status(own + 1, 0), false).contains(&format!("user {}", own + 1)));
        assert!(hint(&status(own, 0), false).contains("dropped"));
        assert!(hint("", false).contains("dropped"));
        assert!(hint(&status(own, 2), true).contains("bare system call"));
        assert!(!is_setuid(Path::new("/proc/self/exe"), &status(own, 0)));
        if let Ok(su) = fs::metadata("/bin/su")
            && su.mode() & SETUID != 0
        {
            assert!(is_setuid(Path::new("/bin/su"), &status(su.uid() + 1, 0)));
            assert!(!is_setuid(Path::new("/bin/su"), &status(su.uid(), 0)));
        }
    }

    #[test]
    fn of_many_those_that_held_most_are_named() {
        let (mut found, now) = (UnmanagedOfRun::default(), Instant::now());
        let held = |process: u32| Bytes::mib(process as usize).pages_down();
        for _ in 0..2 {
            found.look(held, 5..45, now, |_| Some("is static".to_owned()));
            found.look(|_| PageCount(0), 0..0, now, |_| None);
        }
        assert_eq!(found.count(), 80);
        let document = found.document();
        assert_eq!(document.as_array().map(Vec::len), Some(NAMED_MAX));
        assert_eq!(document[0]["most_bytes"], 44 << 20);
    }
}
