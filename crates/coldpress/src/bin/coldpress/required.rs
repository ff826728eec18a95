//! `--require-managed`: a run is ended when a process of it that holds much is not managed.
//!
//! Its processes are asked to end (SIGTERM), and killed when they do not. They are those that
//! descend from the program, or from an orphan of it, which are children of the launcher: none that
//! was there before. Each is held by a descriptor before it is looked at once more, so that no
//! signal goes to another with the same number.

use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::tree;
use crate::trial::pause;

/// How long a process has to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one may take to go that was killed: it writes a core, or waits for a disk.
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at who is left.
const INTERVAL: Duration = Duration::from_millis(20);

/// Whether and why a run is to be ended.
#[derive(Debug, Default)]
pub(crate) struct Required {
    /// When the program began, in ticks.
    began: Option<u64>,
    reason: Option<String>,
    /// When those that are left are killed.
    kill_at: Option<Instant>,
}

impl Required {
    /// The program runs as `root`.
    pub(crate) fn begin(&mut self, root: u32) {
        self.began = tree::began(root);
    }

    /// Ends the run, for the first reason there is.
    pub(crate) fn end_for(&mut self, reason: String) {
        if self.reason.is_none() {
            self.reason = Some(reason);
            self.kill_at = Some(Instant::now() + PATIENCE);
            self.signal(Signal::TERM);
        }
    }

    /// Whether it is being ended.
    pub(crate) fn is_ending(&self) -> bool {
        self.reason.is_some()
    }

    /// Kills who has not ended in time.
    pub(crate) fn end_on(&mut self) {
        if self.kill_at.is_some_and(|at| Instant::now() >= at) {
            self.signal(Signal::KILL);
        }
    }

    /// The program has ended: waits for the rest to end, if it is being ended.
    pub(crate) fn finish(&mut self) {
        let Some(kill_at) = self.kill_at else { return };
        while !self.processes().is_empty() && Instant::now() < kill_at + KILL_PATIENCE {
            self.end_on();
            pause(INTERVAL);
        }
    }

    /// Why it was ended.
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
                // One that has ended needs no signal.
                let _ = rustix::process::pidfd_send_signal(&pidfd, signal);
            }
        }
    }
}
