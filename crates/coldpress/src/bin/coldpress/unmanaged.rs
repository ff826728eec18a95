//! Processes of a run that nobody manages although they hold much: who they are, and why.
//!
//! A process that can be managed takes a seat when it has grown to two MiB. One that holds more and
//! has none is asked why: what program it is, and whether our library was named to its loader. What
//! neither tells has some time to join, as that may take long on a busy machine.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use coldpress_sys::{Bytes, PageCount};
use serde_json::{Value, json};

use crate::elf::{self, Image};
use crate::preload::{LD_PRELOAD, LIBRARY_NAME};
use crate::size::show;
use crate::text::printable;
use crate::tree;

/// Who holds so much without a seat is looked at.
const LOOKED_AT: PageCount = Bytes::mib(4).pages_down();
/// How long one may do so for which no reason is found.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most that are named, those that held most; all are counted.
const NAMED_MAX: usize = 16;

/// A process that is not managed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unmanaged {
    process: u32,
    name: String,
    why: String,
    /// The most anonymous memory it was seen to hold.
    most: PageCount,
}

impl fmt::Display for Unmanaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, name, why, most } = self;
        write!(f, "process {process} ({name}) held up to {}: it {why}", show(most.bytes()))
    }
}

/// What is known of a process without a seat.
#[derive(Debug)]
enum Open {
    /// Since when it holds much, for no reason that is known.
    Waiting(Instant),
    Known(Unmanaged),
}

impl Open {
    fn known(&self) -> Option<&Unmanaged> {
        match self {
            Self::Known(one) => Some(one),
            Self::Waiting(_) => None,
        }
    }
}

/// All that were found in a run.
#[derive(Debug, Default)]
pub(crate) struct Found {
    open: HashMap<u32, Open>,
    /// Those that have ended, or taken a seat, who held most first.
    past: Vec<Unmanaged>,
    count: usize,
}

impl Found {
    /// Looks at the processes without a seat and what they hold, of which `why` tells a reason.
    /// Those that were found now.
    pub(crate) fn look(
        &mut self,
        unseated: impl Fn(u32) -> PageCount,
        processes: impl Iterator<Item = u32>,
        now: Instant,
        why: impl Fn(u32) -> Option<String>,
    ) -> Vec<Unmanaged> {
        let mut found = Vec::new();
        let over = self.open.extract_if(|process, _| unseated(*process) == PageCount(0));
        self.past.extend(over.filter_map(|(_, open)| open.known().cloned()));
        self.past.sort_by_key(|one| std::cmp::Reverse(one.most));
        self.past.truncate(NAMED_MAX);
        for process in processes {
            let held = unseated(process);
            if held < LOOKED_AT {
                continue;
            }
            let open = self.open.entry(process).or_insert(Open::Waiting(now));
            if let Open::Known(one) = open {
                one.most = one.most.max(held);
            } else if let Open::Waiting(since) = *open
                && let Some(why) = why(process).or_else(|| late(now.duration_since(since)))
            {
                let one = Unmanaged { process, name: name_of(process), why, most: held };
                found.push(one.clone());
                *open = Open::Known(one);
                self.count += 1;
            }
        }
        found
    }

    /// Those that were found, who held most first.
    fn all(&self) -> Vec<&Unmanaged> {
        let open = self.open.values().filter_map(Open::known);
        let mut all: Vec<_> = self.past.iter().chain(open).collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.most));
        all.truncate(NAMED_MAX);
        all
    }

    /// What to tell the user when so much is in use of `budget`, if any of it is in those that are
    /// there now.
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

    /// How many there were.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// For programs: those that held most.
    pub(crate) fn document(&self) -> Value {
        let one = |one: &&Unmanaged| {
            let Unmanaged { process, name, why, most } = one;
            json!({ "process": process, "name": name, "why": why, "most_bytes": most.bytes().0 })
        };
        self.all().iter().map(one).collect()
    }
}

/// For people; nothing when there was none.
impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.all();
        let Some(largest) = all.first() else { return Ok(()) };
        match self.count {
            1 => write!(f, "not managed: {largest}"),
            count => write!(f, "not managed: {count} processes, of which {largest}"),
        }
    }
}

/// Why `process` cannot be managed, if its user, its program or its environment tells.
/// `takes_others`: programs of other users are managed too.
pub(crate) fn reason(process: u32, takes_others: bool) -> Option<String> {
    let ours = rustix::process::geteuid().as_raw();
    if let Some(user) = tree::user(process).filter(|user| *user != ours && !takes_others) {
        return Some(match ours {
            0 => format!("is of user {user}, and --no-lend leaves such programs alone"),
            _ => format!("is of user {user}, and only a run of root manages programs of others"),
        });
    }
    let folder = Path::new("/proc").join(process.to_string());
    if let Ok(Image::Closed(closed)) = elf::examine(&folder.join("exe")) {
        return Some(closed.to_string());
    }
    let environment = fs::read(folder.join("environ")).ok()?;
    let is_named = environment.split(|byte| *byte == 0).any(|entry| {
        let entry = String::from_utf8_lossy(entry);
        entry
            .split_once('=')
            .is_some_and(|(name, value)| name == LD_PRELOAD && value.contains(LIBRARY_NAME))
    });
    (!is_named).then(|| format!("was started without {LD_PRELOAD}"))
}

fn late(waited: Duration) -> Option<String> {
    let why = "has not joined the run, or has left it: unless a warning says why, it may be \
               setuid, have dropped its rights, or lack descriptors (ulimit -n) or calls (seccomp)";
    (waited >= PATIENCE).then(|| why.to_owned())
}

fn name_of(process: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    printable(name.trim_end())
}

#[cfg(test)]
mod tests {
    //! The risk: a program outside of the budget that nobody hears of, or one that is about to join
    //! and is called unmanaged.

    use super::*;

    /// A look at process 7, which holds so many MiB without a seat.
    fn look(found: &mut Found, mib: usize, now: Instant, why: Option<&str>) -> usize {
        let held = Bytes::mib(mib).pages_down();
        found.look(|_| held, [7].into_iter(), now, |_| why.map(str::to_owned)).len()
    }

    #[test]
    fn who_holds_much_for_a_reason_is_named_with_the_most_that_it_held() {
        let (mut found, now) = (Found::default(), Instant::now());
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
            // It ends.
            look(&mut found, 0, now, None);
            assert_eq!(found.complaint(|_| PageCount(1), Bytes(2), Bytes(1)), None);
        }
        look(&mut found, 40, now, Some("is another"));
        let text = found.to_string();
        assert!(text.contains("2 processes, of which process 7") && text.contains("40 MiB"));
    }

    #[test]
    fn who_may_be_about_to_join_has_time_to() {
        let (mut found, now) = (Found::default(), Instant::now());
        assert_eq!(look(&mut found, 10, now, None), 0);
        assert_eq!(look(&mut found, 10, now + PATIENCE / 2, None), 0);
        // It has joined, and left again.
        assert_eq!(look(&mut found, 0, now + PATIENCE, None), 0);
        assert_eq!(look(&mut found, 10, now + PATIENCE, None), 0);
        assert_eq!(found.count(), 0);
        assert_eq!(look(&mut found, 10, now + 2 * PATIENCE, None), 1);
        assert!(found.to_string().contains("has not joined"), "{found}");
    }

    #[test]
    fn of_many_those_that_held_most_are_named() {
        let (mut found, now) = (Found::default(), Instant::now());
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

    #[test]
    fn this_test_was_started_without_the_library() {
        let why = reason(std::process::id(), true).expect("it has no library of ours");
        assert!(why.contains("LD_PRELOAD"), "{why}");
    }
}
