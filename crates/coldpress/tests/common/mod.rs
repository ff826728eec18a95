//! What the tests of the command share: it, without settings from outside, and what it says.
#![allow(dead_code, reason = "each test program uses its part")]

use std::process::{Command, Output};

/// Uid and gid of nobody on Debian and most others; any that is not ours does.
pub(crate) const NOBODY: u32 = 65534;

/// The command under test.
pub(crate) const COLDPRESS: &str = env!("CARGO_BIN_EXE_coldpress");

/// `coldpress` with `args` and no setting from outside.
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

/// What it printed.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it had to say.
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

/// Whether programs can be managed here; says so when not.
pub(crate) fn can_manage() -> bool {
    let doctor = coldpress(&["doctor"]).output().expect("the command is built");
    let works = doctor.status.success();
    if !works {
        eprintln!("skipped: this machine cannot run coldpress:\n{}", stdout(&doctor));
    }
    works
}
