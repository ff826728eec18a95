//! The parts that the tests of the command share: the command, without settings from outside, and
//! its output.
#![allow(dead_code, reason = "each test program uses its part")]

use std::process::{Command, Output};

/// The uid and gid of nobody on Debian and most other systems; any id that is not ours does.
pub(crate) const NOBODY: u32 = 65534;

/// The command under test.
pub(crate) const COLDPRESS: &str = env!("CARGO_BIN_EXE_coldpress");

/// Returns `coldpress` with `args` and no setting from outside.
pub(crate) fn coldpress(args: &[&str]) -> Command {
    let mut command = Command::new(COLDPRESS);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("COLDPRESS_") {
            command.env_remove(name);
        }
    }
    command.args(args);
    command
}

/// Returns the standard output.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts an exit status and that standard error holds all of `parts`.
pub(crate) fn assert_fails(output: &Output, code: i32, parts: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

/// Returns whether programs can be managed here. Prints a note when they cannot.
pub(crate) fn can_manage() -> bool {
    let doctor = coldpress(&["doctor"]).output().expect("the command is built");
    let works = doctor.status.success();
    if !works {
        eprintln!("skipped: this machine cannot run coldpress:\n{}", stdout(&doctor));
    }
    works
}
