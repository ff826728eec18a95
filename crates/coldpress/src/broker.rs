//! The broker: the launcher's side of a run. It opens what the program may not, keeps the ledger,
//! gives out seats, prints what processes report, answers `coldpress ctl`, and watches the tree for
//! unmanaged memory.
//!
//! One thread does all of this, except helping processes compress (`helper`). The thread waits for
//! a socket, for the processes that joined, and for a clock, which hardly ticks while nothing in
//! the tree runs. The connection of a process lasts as long as the process: when it closes, the
//! broker adds the process's counts to the retired ones, and frees its seat.
//!
//! What the thread works with is in [`state`]. Above that stand, from below, its [`sampling`] and
//! its [`looks`] at the run, the [`settings`] that change, the packets that it can [`hear`], the
//! processes that it can [`admit`], and the thread itself, [`serve`]. Each other file has one part
//! of the state.

mod account;
mod admit;
mod along;
mod claims;
mod door;
mod exporter;
mod figures;
mod grid;
mod hear;
pub(crate) mod late;
mod looks;
mod member;
mod metrics;
mod notice;
mod outliving;
mod parts;
mod processes;
mod psi;
mod reports;
mod required;
mod sampling;
mod seating;
mod series;
mod serve;
mod settings;
mod shared;
mod sizing;
mod standing;
mod state;
pub(crate) mod stats;
mod supplies;
pub(crate) mod timeline;
pub(crate) mod totals;
mod unmanaged;
mod unseated;
mod voice;

use std::ffi::OsString;
use std::io::{self, PipeWriter, Write};
use std::sync::Arc;
use std::thread::JoinHandle;

use coldpress_common::cgroup;
use coldpress_common::failure::{Failure, Result};
use coldpress_runtime::ledger::Keeper;
use coldpress_runtime::wire::{BUDGET_VARIABLE, SOCKET_VARIABLE};
use coldpress_sys::Bytes;

use crate::config::RunConfig;
use crate::control::Changeable;
use crate::inject::Injector;
use crate::preload::Preload;
use crate::record::Records;
use crate::supervise::{self, ExitReport};
use crate::view::View;
use account::{Account, InPlace};
use along::Along;
use door::Door;
use late::Late;
use outliving::Outliving;
use psi::Pressure;
use reports::Reports;
use required::Required;
use serve::{Retired, start_thread};
use shared::Shared;
use sizing::Sizing;
use standing::Standing;
use state::Serving;
use stats::Summary;
use supplies::Supplies;
use timeline::Timeline;
use totals::Totals;
use unmanaged::UnmanagedOfRun;
use unseated::Unseated;
use voice::Voice;

/// The launcher's side of a run.
pub(crate) struct Broker {
    thread: JoinHandle<(Retired, Serving)>,
    /// The pipe for the number of the program's process. Closing the pipe ends the thread.
    commands: PipeWriter,
    environment: Vec<(OsString, OsString)>,
    at_start: Changeable,
    ledger: Arc<Keeper>,
    injector: Arc<Injector>,
}

impl Broker {
    /// Opens access, creates the ledger and listens as `name` in the directory of `preload`.
    pub(crate) fn start(
        config: &RunConfig,
        preload: &Preload,
        records: Option<Records>,
        name: &str,
    ) -> Result<Self> {
        let path = preload.directory().join(name);
        let takes_others = config.manages_others();
        let door = Door::open(&path, takes_others)?;
        let terms = config.terms();
        let (ledger_fds, ledger) = Keeper::create(terms, &config.knobs).map_err(|error| {
            let cause = format!("cannot make the ledger: {error}");
            Failure::ours(cause, "run `coldpress doctor`")
        })?;
        let ledger = Arc::new(ledger);
        let (receiver, commands) = io::pipe().map_err(|error| {
            Failure::ours(format!("cannot make a pipe: {error}"), "raise ulimit -n")
        })?;
        let disk = config.disk.as_deref().filter(|_| terms.spill_max > Bytes(0));
        let environment = vec![
            (SOCKET_VARIABLE.into(), path.into_os_string()),
            (BUDGET_VARIABLE.into(), config.budget_and_view().into()),
        ];
        let injector = Arc::new(Injector::new(preload.names(), &environment, config.forks));
        let late = Late::new(Arc::clone(&injector));
        let supplies = Supplies::open(&ledger, ledger_fds, disk, records, late);
        let at_start = config.changeable();
        let broker_ledger = Arc::clone(&ledger);
        let serving = Serving {
            door,
            takes_others,
            ledger,
            supplies,
            members: Vec::new(),
            unseated: Unseated::new(),
            shared: Shared::default(),
            in_place: InPlace::default(),
            sizing: Sizing::default(),
            at_peak: Account::default(),
            unmanaged: UnmanagedOfRun::default(),
            memory: cgroup::most_of_machine(),
            totals: Totals::default(),
            now: at_start.clone(),
            pressure: Pressure::default(),
            view: View::create(config.show_memory, config.budget.bytes, preload.directory())?,
            voice: Voice::new(config.quiet, config.verbose),
            has_started: false,
            is_trial: config.is_trial,
            reports: Reports::begin(config)?,
            outliving: Outliving::default(),
            along: Along::default(),
            services: Vec::new(),
            required: config.require_managed.then(Required::default),
        };
        let thread = start_thread(serving, receiver).map_err(|error| {
            Failure::ours(format!("cannot start a thread: {error}"), "raise ulimit -u")
        })?;
        Ok(Self { thread, commands, environment, at_start, ledger: broker_ledger, injector })
    }

    /// Returns the variables for the program.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        self.environment.clone()
    }

    /// Returns what puts the library into programs.
    pub(crate) fn injector(&self) -> &Injector {
        &self.injector
    }

    /// Returns the ledger of the run.
    pub(crate) fn ledger(&self) -> &Keeper {
        &self.ledger
    }

    /// Starts watching the tree of the program, which runs as `pid`.
    pub(crate) fn child_started(&self, pid: u32) {
        // The thread reads until `finish`.
        let _ = (&self.commands).write_all(&pid.to_le_bytes());
    }

    /// Ends a run of our own. Returns why a process of the run was not managed, if one said so.
    pub(crate) fn into_unmanaged(self) -> Option<String> {
        drop(self.commands);
        let (retired, _) = self.thread.join().ok()?;
        supervise::reap(&retired.services);
        retired.unmanaged.told()
    }

    /// Ends the run of a program that has ended. Returns the sum of what its processes counted, and
    /// what serves the processes that are left.
    pub(crate) fn finish(self, program: &str, exit: ExitReport) -> (Summary, Option<Serving>) {
        drop(self.commands);
        let none = Retired {
            standing: Standing::at_start(self.at_start),
            at_peak: Account::default(),
            timeline: Timeline::begin(),
            left: 0,
            unmanaged: UnmanagedOfRun::default(),
            services: Vec::new(),
            ended_for: None,
            hint: None,
        };
        let (retired, serving) = match self.thread.join() {
            Ok((retired, serving)) => (retired, Some(serving)),
            Err(_) => (none, None),
        };
        supervise::reap(&retired.services);
        if supervise::has_rest() {
            supervise::reap_unknown();
        }
        let summary = Summary {
            program: program.to_owned(),
            standing: retired.standing,
            at_peak: retired.at_peak,
            timeline: retired.timeline,
            left: retired.left,
            unmanaged: retired.unmanaged,
            ended_for: retired.ended_for,
            hint: retired.hint,
            exit,
        };
        (summary, serving)
    }
}

/// Serves the rest of a run while `wait` waits for it.
pub(crate) fn go_on(serving: Serving, wait: impl FnOnce()) {
    let Ok((receiver, commands)) = io::pipe() else { return wait() };
    let Ok(thread) = start_thread(serving, receiver) else { return wait() };
    wait();
    drop(commands);
    // The thread's panic has already been printed.
    let _ = thread.join();
}
