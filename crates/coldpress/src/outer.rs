//! A run inside another: one budget holds for both, the outer one's.
//!
//! The environment names the socket of the outer launcher. As long as that launcher listens, its
//! library manages whatever starts below it, so an inner `coldpress run` only starts its program:
//! with a budget and a library of its own, two services would move the same pages. Options that the
//! outer run has decided cannot be decided again, and the inner run says so. When no launcher
//! listens there any more, the inner run is one of its own, and leaves out the library of the
//! former run.

use std::env;
use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use coldpress_common::size::show;
use coldpress_runtime::wire::{BUDGET_VARIABLE, SOCKET_VARIABLE, View};
use coldpress_sys::Bytes;
use coldpress_sys::net;
use serde_json::Value;

use crate::control;
use crate::directory::LIBRARY_NAME;
use crate::preload::{LD_PRELOAD, listed};

/// The run that this process is in.
pub(crate) struct Outer {
    library: PathBuf,
    budget: Option<Bytes>,
}

impl Outer {
    /// Finds the run that this process is in, while its launcher lives.
    pub(crate) fn find() -> Option<Self> {
        let socket = PathBuf::from(given(SOCKET_VARIABLE)?);
        let connection = net::connect(&CString::new(socket.as_os_str().as_bytes()).ok()?).ok()?;
        // A launcher that is about to end takes connections, but no longer answers.
        let answer = control::exchange(&connection, &control::request(&[]), control::PATIENCE)
            .ok()
            .flatten()?;
        // A launcher of another user reveals nothing, but the budget it began with is known.
        let told =
            answer.ok().and_then(|document| document.get("budget_bytes").and_then(Value::as_u64));
        let began_with = || Some(View::after_budget(given(BUDGET_VARIABLE)?.to_str()?)?.0);
        let budget = told.map(|bytes| Bytes(bytes as usize)).or_else(began_with);
        Some(Self { library: library_beside(&socket)?, budget })
    }

    /// Returns the memory that the whole run may hold, as far as it is known.
    pub(crate) fn budget(&self) -> Option<Bytes> {
        self.budget
    }

    /// Returns the line printed when an inner run begins that was given the options `given`.
    pub(crate) fn line(&self, given: &[String]) -> String {
        let budget = self.budget.map_or_else(String::new, |budget| format!(" of {}", show(budget)));
        let ignored = match given {
            [] => String::new(),
            given => format!("; ignored: {}", given.join(", ")),
        };
        format!("this is inside another run, whose budget{budget} holds here too{ignored}")
    }

    /// Returns LD_PRELOAD for a program inside: it has the outer run's library, even if that was
    /// taken out.
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

/// Returns the library of the run that this process was started in, whose launcher may have ended.
pub(crate) fn former_library() -> Option<PathBuf> {
    library_beside(Path::new(&given(SOCKET_VARIABLE)?))
}

/// Returns a variable that this process was given at its start. A library of the outer run has
/// taken it out of the environment, which belongs to the user of the program.
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
