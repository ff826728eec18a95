//! Runs a program to its end, watches its cgroup and pool meanwhile, and heeds signals.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{io, thread};

use coldpress_sys::Bytes;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::{Group, Swap};

/// The interval between two looks at cgroup and pool. Without a reader of `memory.stat`, kernel
/// 6.18 ends programs in groups of version 1 while swap is nearly empty.
const LOOK: Duration = Duration::from_millis(100);
/// The number of looks at a program between SIGTERM and SIGKILL.
const PATIENCE: u32 = 10;

/// The marks that signal handlers set; the process has them until it ends.
struct Marks {
    /// Whether one of the signals has come.
    stop: Arc<AtomicBool>,
    /// Whether signals have their default effect, because no [`Signals`] lives.
    is_default: Arc<AtomicBool>,
}

static MARKS: OnceLock<Marks> = OnceLock::new();

/// A guard: while it lives, SIGHUP, SIGINT and SIGTERM end the running program, and [`run`] fails,
/// so that everything is put back. There is one guard at a time.
pub(crate) struct Signals(&'static Marks);

impl Signals {
    /// Heeds signals from now on.
    pub(crate) fn keep() -> io::Result<Self> {
        if MARKS.get().is_none() {
            let marks = Marks {
                stop: Arc::new(AtomicBool::new(false)),
                is_default: Arc::new(AtomicBool::new(false)),
            };
            for signal in [SIGHUP, SIGINT, SIGTERM] {
                flag::register_conditional_default(signal, Arc::clone(&marks.is_default))?;
                flag::register(signal, Arc::clone(&marks.stop))?;
            }
            // If another thread was first, it has set the same handlers.
            let _ = MARKS.set(marks);
        }
        let marks = MARKS.get().ok_or_else(|| io::Error::other("no marks"))?;
        // SeqCst pairs with the handlers' load and store, which are SeqCst too.
        marks.is_default.store(false, Ordering::SeqCst);
        marks.stop.store(false, Ordering::SeqCst);
        Ok(Self(marks))
    }

    fn has_come(&self) -> bool {
        // SeqCst pairs with the handlers' store.
        self.0.stop.load(Ordering::SeqCst)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SeqCst pairs with the handlers' load.
        self.0.is_default.store(true, Ordering::SeqCst);
    }
}

/// The outcome of a program.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The exit status of the program.
    pub status: ExitStatus,
    /// The standard output of the program.
    pub output: Vec<u8>,
    /// The time from before the start of the program to its end.
    pub time: Duration,
    /// The most that the pool of the swap held.
    pub pool: Bytes,
    /// The number of processes that the kernel killed for lack of memory.
    pub kills: u64,
}

/// Runs a program to its end, in a cgroup with swap or without both. Processes that the program
/// leaves in the group end with it. Fails when the program cannot be started, and when a signal
/// came.
pub(crate) fn run(
    plain: Command,
    place: Option<(&Group, &Swap)>,
    signals: &Signals,
) -> io::Result<Ran> {
    let mut command = match place {
        Some((group, _)) => group.command(&plain),
        None => plain,
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    // A signal to this group reaches the program's children, too.
    command.process_group(0);
    let started = Instant::now();
    let child = command.spawn()?;
    let (ended, has_ended) = channel::<()>();
    let watched = watcher(&child, place, signals, has_ended);
    let (output, time, pool) = thread::scope(|scope| {
        let pool = scope.spawn(watched);
        let output = child.wait_with_output();
        let time = started.elapsed();
        drop(ended);
        let pool = pool.join().unwrap_or(Ok(Bytes(0)));
        (output, time, pool)
    });
    let (output, pool) = (output?, pool?);
    if signals.has_come() {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "ended by a signal"));
    }
    let kills = match place {
        Some((group, _)) => {
            group.end()?;
            group.kills()?
        }
        None => 0,
    };
    Ok(Ran { status: output.status, output: output.stdout, time, pool, kills })
}

/// Returns a function that looks at cgroup and pool until the other end of `has_ended` is gone, and
/// returns the most that the pool held. It reports a failed look at the end, because it heeds
/// signals all the time.
fn watcher<'a>(
    child: &Child,
    place: Option<(&'a Group, &'a Swap)>,
    signals: &'a Signals,
    has_ended: Receiver<()>,
) -> impl FnOnce() -> io::Result<Bytes> + Send + use<'a> {
    let program = Pid::from_child(child);
    move || {
        let mut most = Ok(Bytes(0));
        let mut told = 0;
        loop {
            if signals.has_come() {
                told += 1;
                // The child is reaped after its last writer is gone, and then this loop is over;
                // until then the process number is the child's own. A child that has ended
                // meanwhile needs no signal.
                let signal = if told > PATIENCE { Signal::KILL } else { Signal::TERM };
                let _ = kill_process_group(program, signal);
            }
            if let Some((group, swap)) = place {
                let found = look(group, swap, told > PATIENCE);
                most = most.and_then(|most| Ok(most.max(found?)));
            }
            match has_ended.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return most,
            }
        }
    }
}

/// Returns what the pool holds. Ends all processes of the group if `is_ending`, or if the kernel
/// has killed one of them: the rest may wait for that one forever.
fn look(group: &Group, swap: &Swap, is_ending: bool) -> io::Result<Bytes> {
    if is_ending || group.kills()? > 0 {
        group.end()?;
    }
    group.sum_up()?;
    swap.pool()
}
