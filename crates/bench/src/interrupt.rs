//! What SIGHUP, SIGINT and SIGTERM do: they end the running program, and then the benchmark, after
//! everything is put back. A benchmark that runs no program ends at once.
//!
//! 1. As long as a [`Signals`] lives, a signal is noted, and the program that [`output`] runs is
//!    told to end. Without one, the signal ends this process.
//! 2. A signal that was noted is not forgotten: no further program is run.
//! 3. No thread is made, because with a second one malloc takes its locks, and is measured slower.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::progress;

/// The interval at which [`output`] shows that it still waits. A signal that comes right before it
/// begins to wait is heeded after this time.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// The bytes that one read of a program's output takes.
const READ_BYTES: usize = 64 << 10;

/// The marks that signal handlers set; the process has them until it ends.
struct Marks {
    /// The signal that has come last; 0 for none.
    came: Arc<AtomicUsize>,
    /// Whether signals have their default effect, because no [`Signals`] lives.
    is_default: Arc<AtomicBool>,
}

static MARKS: OnceLock<Marks> = OnceLock::new();
/// The number of living [`Signals`].
static GUARDS: AtomicU32 = AtomicU32::new(0);

/// A guard: while one lives, signals are noted, and programs and the benchmark end in order.
#[derive(Debug)]
pub(crate) struct Signals(());

impl Signals {
    /// Notes signals from now on. A signal that cannot be noted ends this process.
    pub(crate) fn keep() -> Self {
        let marks = MARKS.get_or_init(|| {
            let is_default = Arc::new(AtomicBool::new(false));
            let came = Arc::new(AtomicUsize::new(0));
            for signal in [SIGHUP, SIGINT, SIGTERM] {
                let _ = flag::register_conditional_default(signal, Arc::clone(&is_default))
                    .and_then(|_| flag::register_usize(signal, Arc::clone(&came), signal as usize));
            }
            Marks { came, is_default }
        });
        // SeqCst pairs with the subtraction of `drop`.
        GUARDS.fetch_add(1, Ordering::SeqCst);
        // SeqCst pairs with the handlers' load, which is SeqCst too.
        marks.is_default.store(false, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SeqCst pairs with the addition of `keep`.
        if GUARDS.fetch_sub(1, Ordering::SeqCst) == 1
            && let Some(marks) = MARKS.get()
        {
            // SeqCst pairs with the handlers' load.
            marks.is_default.store(true, Ordering::SeqCst);
        }
    }
}

fn came() -> usize {
    // SeqCst pairs with the handlers' store.
    MARKS.get().map_or(0, |marks| marks.came.load(Ordering::SeqCst))
}

/// Returns whether a signal was noted.
pub(crate) fn has_come() -> bool {
    came() != 0
}

/// Fails when a signal was noted.
pub(crate) fn check() -> io::Result<()> {
    match has_come() {
        true => Err(io::Error::new(io::ErrorKind::Interrupted, "ended by a signal")),
        false => Ok(()),
    }
}

/// Ends this process by the signal that was noted, if any: whoever started it is to know.
pub(crate) fn pass_on() {
    if has_come() {
        let _ = low_level::emulate_default_handler(came() as i32);
    }
}

/// Runs a program to its end, with its standard output in a pipe. Fails when the program cannot be
/// started, and when a signal has come.
pub(crate) fn output(command: &mut Command) -> io::Result<Output> {
    let _signals = Signals::keep();
    check()?;
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut output = [Vec::new(), Vec::new()];
    let read = read(&mut child, &mut output);
    let status = child.wait()?;
    check()?;
    read?;
    let [stdout, stderr] = output;
    Ok(Output { status, stdout, stderr })
}

/// Reads what a program writes into its pipes until it has closed them. When a signal comes, tells
/// it to end.
fn read(child: &mut Child, output: &mut [Vec<u8>; 2]) -> io::Result<()> {
    let program = Pid::from_child(child);
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let mut is_told = false;
    let mut buffer = vec![0; READ_BYTES];
    while out.is_some() || err.is_some() {
        let pipes = [out.as_ref().map(|it| it.as_fd()), err.as_ref().map(|it| it.as_fd())];
        let mut waits: Vec<_> = pipes
            .into_iter()
            .flatten()
            .map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN))
            .collect();
        let found = poll(&mut waits, Some(&LOOK));
        if has_come() && !is_told {
            is_told = true;
            // It is reaped after this loop, so the number is its own.
            let _ = kill_process(program, Signal::TERM);
        }
        match found {
            Ok(0) => progress::turn(),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<_> = waits
            .iter()
            .filter(|wait| !wait.revents().is_empty())
            .map(|wait| wait.as_fd().as_raw_fd())
            .collect();
        if out.as_ref().is_some_and(|pipe| ready.contains(&pipe.as_raw_fd())) {
            take(&mut out, &mut buffer, &mut output[0])?;
        }
        if err.as_ref().is_some_and(|pipe| ready.contains(&pipe.as_raw_fd())) {
            take(&mut err, &mut buffer, &mut output[1])?;
        }
    }
    Ok(())
}

/// Takes what a pipe has into `into`, and closes the pipe at its end.
fn take(pipe: &mut Option<impl io::Read>, buffer: &mut [u8], into: &mut Vec<u8>) -> io::Result<()> {
    let Some(open) = pipe else { return Ok(()) };
    let count = open.read(buffer)?;
    into.extend_from_slice(&buffer[..count]);
    if count == 0 {
        *pipe = None;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! The risk: output is lost, or a program that writes much is never over.

    use super::*;

    #[test]
    fn all_output_is_read_from_both_pipes() {
        let mut command = Command::new("sh");
        command.args(["-c", "yes | head -c 300000; yes n | head -c 200000 >&2; exit 3"]);
        let output = output(command.stderr(Stdio::piped())).unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 200_000));
        assert!(output.stdout.starts_with(b"y\n") && output.stderr.starts_with(b"n\n"));
        assert_eq!(output.status.code(), Some(3));
        assert!(super::output(&mut Command::new("/nonexistent")).is_err());
    }
}
