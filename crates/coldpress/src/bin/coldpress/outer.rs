//! A run inside another: one budget holds for both, the outer one's.
//!
//! The environment names the socket of the outer launcher. As long as that listens, its library
//! manages what is started below it, so an inner `coldpress run` only starts its program: a budget
//! and a library of its own would have two services move the same pages. What the outer run has
//! decided cannot be decided again, and is told. When nobody listens there any more, the inner run
//! is one of its own, and leaves the library of the former one out.

use std::env;
use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use coldpress_runtime::wire::{BUDGET_VARIABLE, SOCKET_VARIABLE, View};
use coldpress_sys::Bytes;
use coldpress_sys::net;
use serde_json::Value;

use crate::control;
use crate::preload::{LD_PRELOAD, LIBRARY_NAME, listed};
use crate::size::show;

/// The run that this process is in.
pub(crate) struct Outer {
    library: PathBuf,
    budget: Option<Bytes>,
}

impl Outer {
    /// The run that this process is in, while its launcher lives.
    pub(crate) fn find() -> Option<Self> {
        let socket = PathBuf::from(given(SOCKET_VARIABLE)?);
        let connection = net::connect(&CString::new(socket.as_os_str().as_bytes()).ok()?).ok()?;
        // One that is about to end takes connections, and says nothing any more.
        let answer = control::exchange(&connection, &control::request(&[])).ok().flatten()?;
        // One of another user tells nothing; the budget it began with is known.
        let told =
            answer.ok().and_then(|document| document.get("budget_bytes").and_then(Value::as_u64));
        let began_with = || Some(View::after_budget(given(BUDGET_VARIABLE)?.to_str()?)?.0);
        let budget = told.map(|bytes| Bytes(bytes as usize)).or_else(began_with);
        Some(Self { library: library_beside(&socket)?, budget })
    }

    /// All memory that the run may hold, as far as is known.
    pub(crate) fn budget(&self) -> Option<Bytes> {
        self.budget
    }

    /// What is said when an inner run begins that was given the options `given`.
    pub(crate) fn line(&self, given: &[String]) -> String {
        let budget = self.budget.map_or_else(String::new, |budget| format!(" of {}", show(budget)));
        let ignored = match given {
            [] => String::new(),
            given => format!("; ignored: {}", given.join(", ")),
        };
        format!("this is inside another run, whose budget{budget} holds here too{ignored}")
    }

    /// LD_PRELOAD for a program inside: the outer run's library is in it, whoever took it out.
    pub(crate) fn ld_preload(&self) -> OsString {
        let mut value = self.library.clone().into_os_string();
        match env::var_os(LD_PRELOAD) {
            Some(existing) if listed(&existing).any(|entry| entry == value) => existing,
            Some(existing) => {
                value.push(":");
                value.push(existing);
                value
            }
            None => value,
        }
    }
}

/// The library of the run that this process was started in, whose launcher may have ended.
pub(crate) fn former_library() -> Option<PathBuf> {
    library_beside(Path::new(&given(SOCKET_VARIABLE)?))
}

/// A variable that this process was given at its start: a library of the outer run has taken it out
/// of the environment, which is the program's user's.
fn given(name: &str) -> Option<OsString> {
    let all = fs::read("/proc/self/environ").ok()?;
    let mut entries = all.split(|byte| *byte == 0);
    let value =
        |entry: &[u8]| Some(entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
    entries.find_map(value).map(OsString::from_vec)
}

fn library_beside(socket: &Path) -> Option<PathBuf> {
    socket.parent().map(|directory| directory.join(LIBRARY_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_the_budget_and_what_is_ignored() {
        let outer = |budget| Outer { library: PathBuf::new(), budget };
        let line = outer(Some(Bytes::mib(512))).line(&["--memory".into(), "--stats".into()]);
        assert!(line.contains("512 MiB") && line.ends_with("ignored: --memory, --stats"), "{line}");
        assert!(!outer(None).line(&[]).contains("ignored"));
    }
}
