//! `cases FOLDER [NAME...]`: runs programs that coldpress once treated wrongly, plain and under
//! coldpress.
//!
//! FOLDER has the folders `review`, with programs that its `build.sh` builds, and `public`. The
//! table of cases is `fixtures/cases.txt`. Each case prints one line: its name, whether the output
//! was the same, the memory held and the budget, and the verdict. The exit status is 1 when a case
//! is not right, unless the table says that it is for a later change.
#![allow(unreachable_pub, reason = "modules of one program")]

mod run;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use coldpress_sys::Bytes;
use coldpress_tests::harness::SLACK;
use coldpress_tests::machine::{self, Scratch, find};

use run::{Ended, Places};
use table::{Case, Right};

/// A library that a case asks for in place of a program.
const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, names @ ..] = words.as_slice() else {
        eprintln!("usage: cases FOLDER [NAME...]");
        return ExitCode::from(2);
    };
    let cases = table::parse(include_str!("../../../fixtures/cases.txt")).expect("a test has it");
    let (review, public) = (Path::new(folder).join("review"), Path::new(folder).join("public"));
    if !review.is_dir() || !public.is_dir() {
        println!("skipped: no cases in {folder}");
        return ExitCode::SUCCESS;
    }
    let absolute = |path: PathBuf| path.canonicalize().expect("it is there");
    let scratch = Scratch::new("cases");
    let places = Places {
        coldpress: absolute(machine::coldpress()),
        out: scratch.path("out"),
        review: absolute(review),
        public: absolute(public),
    };
    let build = places.review.join("build.sh");
    let built = Command::new("sh").arg(build).env("OUT", &places.out).status();
    if !built.is_ok_and(|status| status.success()) || !run::adopt() {
        eprintln!("cases: the programs cannot be built");
        return ExitCode::FAILURE;
    }
    let wanted = cases.iter().filter(|case| names.is_empty() || names.contains(&case.name));
    let wrong = wanted.filter(|case| !is_fine(case, &places)).count();
    println!("{wrong} are wrong and not expected to be");
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a case and prints its line. Returns whether the case is right, skipped, or expected to be
/// wrong.
fn is_fine(case: &Case, places: &Places) -> bool {
    let lacks = case.needs.as_deref().filter(|name| match *name {
        "jemalloc" => !Path::new(JEMALLOC).exists(),
        name => find(name).is_none(),
    });
    let title = format!("{:<14} {}", case.name, case.about);
    if let Some(name) = lacks {
        println!("{title}: skipped: {name} is not installed");
        return true;
    }
    let plain = (!case.is_alone).then(|| run::run(case, places, false));
    let managed = run::run(case, places, true);
    let faults = faults(case, plain.as_ref(), &managed);
    let same = match &plain {
        None => "-",
        Some(plain) if is_same(plain, &managed, "") => "same",
        Some(_) => "differs",
    };
    let held = format!("held {} of {}", mib(managed.held), case.budget);
    let verdict = match (faults.is_empty(), case.is_next) {
        (true, false) => "right".to_owned(),
        (true, true) => "right, and no longer for the next change".to_owned(),
        (false, true) => format!("expected: next: {}", faults.join("; ")),
        (false, false) => format!("WRONG: {}", faults.join("; ")),
    };
    println!("{title}: {same}, {held}, {verdict}");
    faults.is_empty() || case.is_next
}

/// Returns what is not as it must be, in words.
fn faults(case: &Case, plain: Option<&Ended>, managed: &Ended) -> Vec<String> {
    let Some(code) = managed.code else {
        return vec![format!("hangs: not done after {} s", case.limit.as_secs())];
    };
    let is_wrong = |right: &&Right| !is_right(right, case, plain, managed);
    let last = |text: &str| text.lines().last().unwrap_or_default().to_owned();
    let wrong: Vec<_> = case.rights.iter().filter(is_wrong).collect();
    if wrong.is_empty() {
        return Vec::new();
    }
    let mut words: Vec<_> = wrong.iter().map(|right| format!("not {right:?}")).collect();
    words.push(format!("status {code}, {:?}", last(&managed.stdout)));
    words.extend(plain.map(|plain| {
        let code = plain.code.map_or("hangs".to_owned(), |code| format!("status {code}"));
        format!("plain {code}, {:?}", last(&plain.stdout))
    }));
    words.push(format!("said {:?}", last(&managed.stderr)));
    words
}

/// Returns whether `right` holds for a run that has ended.
fn is_right(right: &Right, case: &Case, plain: Option<&Ended>, managed: &Ended) -> bool {
    let is_held = managed.held <= most(case);
    match right {
        Right::Same(word) => plain.is_some_and(|plain| is_same(plain, managed, word)),
        Right::Status(status) => managed.code == Some(*status),
        Right::Prints(text) => managed.stdout.contains(text),
        Right::Never(text) => !managed.stdout.contains(text),
        Right::Says(text) => managed.stderr.contains(text),
        Right::Managed => managed.stored > 0,
        Right::Held => is_held,
        Right::Told => is_held || is_told(&managed.stderr),
    }
}

/// Returns whether the status and the output are equal; of the output, only lines that hold `word`
/// count.
fn is_same(plain: &Ended, managed: &Ended, word: &str) -> bool {
    let lines = |run: &Ended| -> Vec<String> {
        run.stdout.lines().filter(|line| line.contains(word)).map(str::to_owned).collect()
    };
    plain.code == managed.code && plain.code.is_some() && lines(plain) == lines(managed)
}

/// Returns whether coldpress said that something is not managed, or that the budget is not kept.
fn is_told(stderr: &str) -> bool {
    let words = ["not managed", "cannot be kept"];
    let is_ours = |line: &str| {
        line.starts_with("coldpress: ") && words.iter().any(|word| line.contains(word))
    };
    stderr.lines().any(is_ours)
}

/// Returns the most that a case may hold.
fn most(case: &Case) -> Bytes {
    budget(&case.budget) + SLACK
}

/// Parses a size of the table: a number of MiB or GiB.
fn budget(text: &str) -> Bytes {
    let number = |unit| text.strip_suffix(unit).and_then(|digits| digits.parse::<usize>().ok());
    let mib = number('M').or_else(|| number('G').map(|gib| gib << 10));
    Bytes::mib(mib.expect("the table has whole sizes"))
}

fn mib(bytes: Bytes) -> String {
    format!("{:.1} MiB", bytes.0 as f64 / 1_048_576.0)
}

#[cfg(test)]
mod tests {
    //! Risk: a run that is wrong is called right.

    use super::*;

    fn ended(code: Option<i32>, stdout: &str, stderr: &str) -> Ended {
        let (stdout, stderr) = (stdout.to_owned(), stderr.to_owned());
        Ended { code, stdout, stderr, held: Bytes::mib(37), stored: 0 }
    }

    #[test]
    fn each_right_is_judged() {
        let text = "A\nbudget 32M\nrun x\nheld\n";
        let case = table::parse(text).expect("it is right").remove(0);
        let plain = ended(Some(0), "wrong 0\nresident 5\n", "");
        let managed = ended(Some(0), "wrong 0\nresident 7\n", "coldpress: peak 1 MiB\n");
        let is_right = |right: &Right, run: &Ended| is_right(right, &case, Some(&plain), run);
        let words = |text: &str| text.to_owned();
        for (right, wanted) in [
            (Right::Same(words("")), false),
            (Right::Same(words("wrong")), true),
            (Right::Status(0), true),
            (Right::Status(1), false),
            (Right::Prints(words("wrong 0")), true),
            (Right::Prints(words("right")), false),
            (Right::Never(words("wrong 0")), false),
            (Right::Says(words("peak 1")), true),
            (Right::Says(words("peak 2")), false),
            (Right::Managed, false),
            (Right::Held, false),
            (Right::Told, false),
        ] {
            assert_eq!(is_right(&right, &managed), wanted, "{right:?}");
        }
        let hung = faults(&case, Some(&plain), &ended(None, "", ""));
        assert_eq!(hung, ["hangs: not done after 60 s"]);
        let over = faults(&case, Some(&plain), &managed).join("; ");
        assert!(over.starts_with("not Held; status 0, \"resident 7\"; plain"), "{over}");
        let told = ended(Some(0), "", "coldpress: not managed: process 7 (a)\n");
        assert!(is_right(&Right::Told, &told));
        assert!(!is_right(&Right::Told, &ended(Some(0), "", "it is not managed\n")));
        let stored = Ended { stored: 1, held: Bytes::mib(36), ..ended(Some(0), "", "") };
        for right in [Right::Managed, Right::Held, Right::Told] {
            assert!(is_right(&right, &stored), "{right:?}");
        }
        assert_eq!(budget("4G"), Bytes::mib(4096));
    }
}
