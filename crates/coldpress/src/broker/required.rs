//! `--require-managed`: ends a run when a process of it that holds much is not managed.
//!
//! The launcher asks the processes of the run to end (SIGTERM), and kills those that do not. They
//! are the descendants of the program, and of its orphans, which are children of the launcher; none
//! of them was there before the program. The launcher opens a descriptor of each process before it
//! examines the process once more, so that no signal goes to another process with the same number.

use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::pause::pause;
use crate::proc;
use crate::tree;

/// The time in which a process must end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time that a killed process may take to go: it writes a core, or waits for a disk.
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// The interval between two looks at the processes that are left.
const INTERVAL: Duration = Duration::from_millis(20);

/// The state of a run whose processes must be managed: whether it is to be ended, and why.
#[derive(Debug, Default)]
pub(crate) struct Required {
    /// The time when the program began, in ticks.
    began: Option<u64>,
    reason: Option<String>,
    /// The time when the processes that are left are killed.
    kill_at: Option<Instant>,
}

impl Required {
    /// Notes when the program began, which runs as `root`.
    pub(crate) fn begin(&mut self, root: u32) {
        self.began = proc::began(root);
    }

    /// Ends the run, for the first reason that is given.
    pub(crate) fn end_for(&mut self, reason: String) {
        if self.reason.is_none() {
            self.reason = Some(reason);
            self.kill_at = Some(Instant::now() + PATIENCE);
            self.signal(Signal::TERM);
        }
    }

    /// Returns whether the run is being ended.
    pub(crate) fn is_ending(&self) -> bool {
        self.reason.is_some()
    }

    /// Kills the processes that have not ended in time.
    pub(crate) fn end_on(&mut self) {
        if self.kill_at.is_some_and(|at| Instant::now() >= at) {
            self.signal(Signal::KILL);
        }
    }

    /// Waits for the rest of a run that is being ended, after its program has ended.
    pub(crate) fn finish(&mut self) {
        let Some(kill_at) = self.kill_at else { return };
        while !self.processes().is_empty() && Instant::now() < kill_at + KILL_PATIENCE {
            self.end_on();
            pause(INTERVAL);
        }
    }

    /// Returns why the run was ended, if it was.
    pub(crate) fn into_reason(self) -> Option<String> {
        self.reason
    }

    fn processes(&self) -> Vec<u32> {
        self.began.map_or_else(Vec::new, tree::of_run)
    }

    fn signal(&self, signal: Signal) {
        for process in self.processes() {
            let Some(pid) = Pid::from_raw(process.cast_signed()) else { continue };
            let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if tree::is_below(process, std::process::id()) {
                // A process that has ended needs no signal.
                let _ = rustix::process::pidfd_send_signal(&pidfd, signal);
            }
        }
    }
}
