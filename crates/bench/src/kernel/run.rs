//! Runs a program to its end, watches its cgroup and pool meanwhile, and heeds signals.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use coldpress_sys::Bytes;
use rustix::process::{Pid, Signal, kill_process_group};

use super::{Group, Swap};
use crate::interrupt::{self, Signals};
use crate::progress;

/// The interval between two looks at cgroup and pool. Without a reader of `memory.stat`, kernel
/// 6.18 ends programs in groups of version 1 while swap is nearly empty.
const LOOK: Duration = Duration::from_millis(100);
/// The number of looks at a program between SIGTERM and SIGKILL.
const PATIENCE: u32 = 10;

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
pub(crate) fn run(plain: Command, place: Option<(&Group, &Swap)>) -> io::Result<Ran> {
    let _signals = Signals::keep();
    interrupt::check()?;
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
    let watched = watcher(&child, place, has_ended);
    let (output, time, pool) = thread::scope(|scope| {
        let pool = scope.spawn(watched);
        let output = child.wait_with_output();
        let time = started.elapsed();
        drop(ended);
        let pool = pool.join().unwrap_or(Ok(Bytes(0)));
        (output, time, pool)
    });
    let (output, pool) = (output?, pool?);
    interrupt::check()?;
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
    has_ended: Receiver<()>,
) -> impl FnOnce() -> io::Result<Bytes> + Send + use<'a> {
    let program = Pid::from_child(child);
    move || {
        let mut most = Ok(Bytes(0));
        let mut told = 0;
        loop {
            if interrupt::has_come() {
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
                Err(RecvTimeoutError::Timeout) => progress::turn(),
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
