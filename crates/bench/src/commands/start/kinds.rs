//! Programs of each kind, made from one source for a language: dynamic ones of glibc get the
//! library from their loader, all others from coldpress itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use tempfile::TempDir;

use super::super::launch::{absent, fixture};
use super::super::say;
use crate::interrupt;

/// A kind of program, and what makes it.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Kind {
    pub(in crate::commands) name: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
    source: Source,
}

/// A file to make a program from: its name and text.
type Source = (&'static str, &'static str);

const C: Source = ("kind.c", fixture!("kind.c"));
const GO: Source = ("kind.go", fixture!("kind.go"));
const RUST: Source = ("kind.rs", fixture!("kind.rs"));
const MUSL: &[&str] = &["-O", "--edition=2024", "--target=x86_64-unknown-linux-musl", "-o"];

/// The kind whose programs get the library from their loader.
pub(in crate::commands) const PRELOADED: Kind =
    Kind { name: "dynamic, glibc", compiler: "gcc", flags: &["-O2", "-o"], source: C };
/// The kind of small programs that anything may start.
pub(in crate::commands) const STATIC: Kind =
    Kind { name: "static, glibc", flags: &["-O2", "-static", "-o"], ..PRELOADED };

/// All kinds, the preloaded one first.
pub(super) const ALL: [Kind; 8] = [
    PRELOADED,
    STATIC,
    Kind { name: "static-PIE, glibc", flags: &["-O2", "-static-pie", "-o"], ..PRELOADED },
    Kind { name: "static, musl", compiler: "musl-gcc", ..STATIC },
    Kind { name: "dynamic, musl", compiler: "musl-gcc", ..PRELOADED },
    Kind { name: "Rust, musl", compiler: "rustc", flags: MUSL, source: RUST },
    Kind { name: "Go", compiler: "go", flags: &["build", "-o"], source: GO },
    Kind { name: "Go, PIE", compiler: "go", flags: &["build", "-buildmode=pie", "-o"], source: GO },
];

impl Kind {
    /// Returns whether it was made from C, whose programs can do more.
    pub(super) fn is_c(&self) -> bool {
        self.source == C
    }

    /// Makes the program in `directory`.
    pub(in crate::commands) fn make(&self, directory: &Path) -> io::Result<PathBuf> {
        let program = directory.join(self.name.replace([' ', ','], "-"));
        let source = directory.join(self.source.0);
        fs::write(&source, self.source.1)?;
        let mut command = Command::new(self.compiler);
        command.args(self.flags).arg(&program).arg(&source).current_dir(directory);
        command.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=mod");
        let output = interrupt::output(command.stderr(std::process::Stdio::piped()))?;
        if output.status.success() {
            return Ok(program);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().next().unwrap_or("it failed, and does not say why");
        Err(io::Error::other(first.to_owned()))
    }
}

/// A program of a kind.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) kind: Kind,
    pub(super) file: PathBuf,
}

impl Program {
    /// Returns the command that runs it with `words`.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.file);
        command.args(words);
        command
    }
}

/// The programs that this machine can make, in a directory that goes with them.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) all: Vec<Program>,
    /// The kinds that are missing, and why.
    pub(super) missing: Vec<String>,
    _directory: TempDir,
}

impl Programs {
    /// Makes a program of each kind.
    pub(super) fn make() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("coldpress-bench-").tempdir()?;
        let (mut all, mut missing) = (Vec::new(), Vec::new());
        for kind in ALL {
            let made = match absent(&[kind.compiler]) {
                Some(name) => Err(format!("there is no {name}")),
                None => kind.make(directory.path()).map_err(|error| error.to_string()),
            };
            match made {
                Ok(file) => all.push(Program { kind, file }),
                Err(why) => {
                    say(format!("start: left out: {}: {why}", kind.name));
                    missing.push(format!("{}: {why}", kind.name));
                }
            }
        }
        Ok(Self { all, missing, _directory: directory })
    }
}

#[cfg(test)]
mod tests {
    //! The risk: programs differ in more than their kind.

    use super::*;

    #[test]
    fn programs_begin_and_touch_and_grow() {
        let directory = tempfile::tempdir().unwrap();
        for kind in [PRELOADED, STATIC] {
            let file = kind.make(directory.path()).unwrap();
            let run = |words: &[&str]| Command::new(&file).args(words).output().unwrap();
            let said = |words: &[&str]| {
                let text = run(words).stdout;
                serde_json::from_slice::<serde_json::Value>(&text).unwrap()
            };
            assert!(said(&["begin"])["began_ns"].as_f64() > Some(0.0));
            assert!(said(&["touch", "1"])["seconds"].as_f64() > Some(0.0));
            assert!(run(&["grow", "1", "1"]).status.success());
            let bare = run(&["bare", "sh", "-c", "echo \"${LD_PRELOAD-none}\""]);
            assert_eq!(bare.stdout, b"none\n");
        }
        let wrong = Kind { flags: &["-no-such-option", "-o"], ..PRELOADED };
        assert!(wrong.make(directory.path()).is_err());
    }
}
