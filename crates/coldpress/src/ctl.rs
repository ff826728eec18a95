//! `coldpress ctl`: sees and turns the knobs of a run, and thaws it, through the socket of its
//! keeper.
//!
//! The socket's path has the keeper's number in it and is listed in /proc, so the number of any
//! process of a run leads to its keeper. The kernel says which process really listens there. The
//! keeper decides whether the caller may control the run.

mod interrupt;
mod thaw;

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use coldpress_cli::failure::{Failure, Result};
use coldpress_sys::net;
use coldpress_sys::{AsFd, SysError};
use serde_json::Value;

use crate::args::{CtlArgs, CtlVerb};
use crate::broker::timeline;
use crate::control::{self, REQUEST_MAX};
use crate::directory::{SOCKET_NAME, directory_prefix};
use crate::proc;
use crate::text::printable;
use crate::{print, say, tree};
use interrupt::Interrupt;

/// Does what `args` ask for. Exit status 1 when that fails; a signal that gave it up ends it.
pub(crate) fn ctl(args: &CtlArgs) -> ExitCode {
    let interrupt = matches!(args.verb, CtlVerb::Thaw { .. }).then(Interrupt::heed);
    match try_ctl(args, interrupt.as_ref()) {
        Ok(text) if print(&text) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => {
            say(failure);
            interrupt.iter().for_each(Interrupt::pass_on);
            ExitCode::FAILURE
        }
    }
}

/// Does what `args` ask for, and returns the text to print.
fn try_ctl(args: &CtlArgs, interrupt: Option<&Interrupt>) -> Result<String> {
    let keeper = find_keeper(args.process)?;
    let ask = |settings: &[String]| ask(&keeper, args.process, settings);
    match &args.verb {
        CtlVerb::Get { name: Some(name) } => one(&ask(&[])?, name, args.json),
        CtlVerb::Get { name: None } if args.json => Ok(format!("{:#}\n", ask(&[])?)),
        CtlVerb::Get { name: None } => Ok(lines(&ask(&[])?)),
        CtlVerb::Set { settings } if args.json => Ok(format!("{:#}\n", ask(settings)?["knobs"])),
        CtlVerb::Set { settings } => {
            let document = ask(settings)?;
            // The keeper has accepted the settings, so it knows the name of each.
            let names = settings.iter().filter_map(|setting| setting.split_once('='));
            names.map(|(name, _)| Ok(format!("{name} {}", one(&document, name, false)?))).collect()
        }
        CtlVerb::Timeline => {
            let timeline = ask(&[control::TIMELINE.to_owned()])?;
            Ok(format!("{}\n", timeline::text_of(&timeline)))
        }
        CtlVerb::Metrics => {
            let document = ask(&[control::METRICS.to_owned()])?;
            let lines = document["metrics"].as_array().into_iter().flatten();
            Ok(lines.filter_map(Value::as_str).map(|line| format!("{line}\n")).collect())
        }
        CtlVerb::Thaw { force } => {
            let is_given_up = || interrupt.is_some_and(Interrupt::has_come);
            let done = thaw::thaw(args.process, *force, ask, is_given_up)?;
            Ok(if args.json { format!("{done:#}\n") } else { thaw::line(args.process, &done) })
        }
    }
}

/// A keeper that listens.
struct Keeper {
    process: u32,
    socket: PathBuf,
}

/// Finds the keeper of the run that `process` belongs to: the process itself, the nearest one above
/// it, or the child of a launcher.
fn find_keeper(process: u32) -> Result<Keeper> {
    let Ok(sockets) = fs::read_to_string(format!("/proc/{process}/net/unix")) else {
        let cause = format!("there is no process {process}");
        return Err(Failure::ours(cause, "`pgrep -a coldpress` lists the runs"));
    };
    let mut candidates = tree::lineage(process).chain(proc::children(process));
    let found = candidates.find_map(|candidate| {
        let socket = socket_of(&sockets, candidate)?;
        Some(Keeper { process: candidate, socket })
    });
    found.ok_or_else(|| {
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        Failure::ours(
            format!("process {process} ({}) is in no coldpress run", name.trim_end()),
            "give the number of a `coldpress run`, which `pgrep -a coldpress` lists, or of a \
             program under one",
        )
    })
}

/// Finds the socket of the run that `keeper` leads in the text of a /proc/net/unix, where the path
/// is the last field (unix(7)).
fn socket_of(sockets: &str, keeper: u32) -> Option<PathBuf> {
    let prefix = directory_prefix(keeper);
    sockets.lines().find_map(|line| {
        // The names of abstract sockets begin with "@".
        let path = Path::new(line.get(line.find(" /")? + 1..)?);
        let directory = path.parent()?.file_name()?.to_str()?;
        (path.ends_with(SOCKET_NAME) && directory.starts_with(&prefix)).then(|| path.to_owned())
    })
}

/// Asks `keeper` to turn knobs of the run of `asked_about` as `settings` say. Returns the figures
/// after the change.
fn ask(keeper: &Keeper, asked_about: u32, settings: &[String]) -> Result<Value> {
    let process = keeper.process;
    let failed = |error: SysError| {
        let cause = format!("cannot talk to the keeper, process {process}: {error}");
        Failure::ours(cause, "run this as the user who started it, or as root, in its container")
    };
    let request = control::request(settings);
    if request.len() > REQUEST_MAX {
        let cause = format!("{} bytes of settings, {REQUEST_MAX} are possible", request.len());
        return Err(Failure::ours(cause, "name each knob once"));
    }
    let path = CString::new(keeper.socket.as_os_str().as_encoded_bytes())
        .expect("a line of text holds no zero");
    let socket = net::connect(&path).map_err(failed)?;
    // Any user could have made a directory of that name.
    let peer = net::peer(socket.as_fd()).map_err(failed)?;
    let path = printable(&keeper.socket.to_string_lossy());
    if peer.process != process {
        let cause = format!("{path} is not of process {process}");
        return Err(Failure::ours(cause, "run this where that process sees the same numbers"));
    }
    if !may_lead(peer.user, proc::user(asked_about)) {
        let cause = format!(
            "{path} is of user {}, who could not have started process {asked_about}",
            peer.user
        );
        return Err(Failure::ours(cause, "give the number of the `coldpress run` that is meant"));
    }
    control::exchange(&socket, &request, control::PATIENCE).map_err(failed)?.unwrap_or_else(|| {
        let cause = format!("the keeper, process {process}, gives no answer that is understood");
        Err(Failure::ours(cause, "try again; or it is of another version of coldpress"))
    })
}

/// Returns whether a keeper of user `leads` may report on a process of `user`: root's may report on
/// all, and another user's on what that user started. Any other listener there is an impostor.
fn may_lead(leads: u32, user: Option<u32>) -> bool {
    leads == 0 || leads == rustix::process::geteuid().as_raw() || user == Some(leads)
}

/// Returns the value of `name` alone.
fn one(document: &Value, name: &str, is_json: bool) -> Result<String> {
    let found = flat(document).into_iter().find(|(known, _)| known == name);
    match found {
        Some((_, value)) if is_json => Ok(format!("{value}\n")),
        Some((_, value)) => Ok(format!("{}\n", plain(value))),
        None => Err(Failure::ours(
            format!("there is no knob or counter \"{name}\" in this run"),
            "`coldpress ctl PID get` lists them all",
        )),
    }
}

/// Formats the document as lines.
fn lines(document: &Value) -> String {
    flat(document).iter().map(|(name, value)| format!("{name} {}\n", plain(value))).collect()
}

/// Returns every figure by name: the knobs, what is held, what the run counts, what zswap counts,
/// and the classes of the histograms that are not empty.
fn flat(document: &Value) -> Vec<(String, &Value)> {
    let members = |name: &str| document.get(name).and_then(Value::as_object).into_iter().flatten();
    let of_run = document.as_object().into_iter().flatten();
    let of_run = of_run.filter(|(_, value)| !value.is_object());
    let named = members("knobs").chain(members("held")).chain(of_run).chain(members("zswap"));
    let classes = members("histograms").flat_map(|(name, classes)| {
        let classes = classes.as_array().into_iter().flatten();
        classes.map(move |class| (format!("{name}_below_{}", class["below"]), &class["count"]))
    });
    named.map(|(name, value)| (name.clone(), value)).chain(classes).collect()
}

/// Formats a value without the quotes of JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_is_found_by_the_number_in_its_path() {
        let sockets = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 11 /run/user/1/x/socket\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 12 @/coldpress-7-x/socket\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 13 /tmp/coldpress-77-Ab/socket\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 14\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 15 /a b/coldpress-7-Ab/socket\n";
        assert_eq!(socket_of(sockets, 77), Some("/tmp/coldpress-77-Ab/socket".into()));
        assert_eq!(socket_of(sockets, 7), Some("/a b/coldpress-7-Ab/socket".into()));
        assert_eq!(socket_of(sockets, 8), None);
    }

    #[test]
    fn a_keeper_tells_of_processes_of_its_user() {
        let own = rustix::process::geteuid().as_raw();
        assert!(may_lead(0, Some(4_711)) && may_lead(own, Some(4_711)) && may_lead(9, Some(9)));
        assert!(!may_lead(own + 1, Some(own)) && !may_lead(own + 1, None));
    }

    #[test]
    fn values_are_printed_one_a_line_or_alone() {
        let document = json!({
            "budget_bytes": 5,
            "knobs": { "codec": "zstd:3" },
            "held": { "pool_pages": 9 },
            "zswap": { "renamed": 4 },
            "histograms": { "load_ns": [{ "below": 4096, "count": 2 }] },
        });
        let text = "codec zstd:3\npool_pages 9\nbudget_bytes 5\nrenamed 4\nload_ns_below_4096 2\n";
        assert_eq!(lines(&document), text);
        let some = [("codec", "zstd:3"), ("pool_pages", "9"), ("load_ns_below_4096", "2")];
        for (name, value) in some {
            assert_eq!(one(&document, name, false), Ok(format!("{value}\n")), "{name}");
        }
        assert_eq!(one(&document, "codec", true), Ok("\"zstd:3\"\n".to_owned()));
        let failure = one(&document, "absent", false).unwrap_err();
        assert!(failure.cause.contains("\"absent\""), "{failure}");
    }
}
