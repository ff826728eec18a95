//! Counts cache misses with valgrind's cachegrind: a virtual machine has no hardware counters.

use std::fs;
use std::process::{Command, Stdio};

use coldpress_common::failure::Result;

use crate::commands::launch::failed;
use crate::interrupt;

/// The caches of every count, so that counts agree between machines. The second level has the size
/// of a core's own cache on servers of 2023; it is to the model's 64 MiB what 32 MiB are to 2 GiB.
const CACHES: [&str; 3] = ["--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64"];

/// The counts of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Misses {
    /// The reads and writes of data that missed the first level: references to the last level.
    pub(super) d1: u64,
    /// The reads and writes of data that missed the last level too.
    pub(super) ll: u64,
    /// The instructions.
    pub(super) instructions: u64,
}

impl Misses {
    /// Returns the counts less those of `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            d1: self.d1.saturating_sub(before.d1),
            ll: self.ll.saturating_sub(before.ll),
            instructions: self.instructions.saturating_sub(before.instructions),
        }
    }
}

/// Runs a program to its end and counts its misses.
pub(super) fn count(program: &Command) -> Result<Misses> {
    let file = tempfile::NamedTempFile::new()
        .map_err(|error| failed(format!("no file for cachegrind: {error}")))?;
    let mut out = std::ffi::OsString::from("--cachegrind-out-file=");
    out.push(file.path());
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--tool=cachegrind", "--cache-sim=yes"]).args(CACHES).arg(out);
    valgrind.arg(program.get_program()).args(program.get_args());
    let output = interrupt::output(valgrind.stdin(Stdio::null()).stderr(Stdio::piped()));
    let output = output.map_err(|error| failed(format!("cannot start valgrind: {error}")))?;
    let read = fs::read_to_string(file.path());
    let found = read.ok().filter(|_| output.status.success()).and_then(|text| parse(&text));
    found.ok_or_else(|| {
        let words = String::from_utf8_lossy(&output.stderr);
        failed(format!("cachegrind ended with {}: {}", output.status, words.trim()))
    })
}

/// Reads the totals of cachegrind's file: a line of names and a line of numbers.
fn parse(text: &str) -> Option<Misses> {
    let line = |name| text.lines().find_map(|line| line.strip_prefix(name));
    let names: Vec<&str> = line("events:")?.split_whitespace().collect();
    let numbers: Vec<&str> = line("summary:")?.split_whitespace().collect();
    let number = |name| -> Option<u64> {
        numbers.get(names.iter().position(|other| *other == name)?)?.parse().ok()
    };
    Some(Misses {
        d1: number("D1mr")? + number("D1mw")?,
        ll: number("DLmr")? + number("DLmw")?,
        instructions: number("Ir")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_found_by_name() {
        let text = "desc: D1 cache\ncmd: x\nevents: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\n\
                    fl=a\n1 2\nsummary: 100 1 2 50 7 3 20 5 4\n";
        assert_eq!(parse(text), Some(Misses { d1: 12, ll: 7, instructions: 100 }));
        assert_eq!(parse("events: Ir\nsummary: 1\n"), None);
        assert_eq!(parse(""), None);
        let whole = Misses { d1: 12, ll: 7, instructions: 100 };
        let before = Misses { d1: 2, ll: 8, instructions: 1 };
        assert_eq!(whole.since(before), Misses { d1: 10, ll: 0, instructions: 99 });
    }
}
