//! `coldpress attach` and `coldpress detach`: a run of programs that are there already.
//!
//! The run lasts until its programs have ended, or until it is told to leave them: by a signal, or
//! by `detach`, which sends one. Then every service brings all pages back and ends, and the library
//! is taken out again. When this process is killed instead, the programs go on as they are, and
//! their services serve them.

use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use coldpress_common::failure::{Failure, Result};
use coldpress_runtime::ledger::SEATS;
use coldpress_sys::OwnedFd;
use rustix::process::{Pid, Signal};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};

use crate::args::{AttachArgs, DetachArgs};
use crate::broker::Broker;
use crate::config::RunConfig;
use crate::directory::{SOCKET_NAME, leader_in, library_in};
use crate::pause::pause;
use crate::preload::Preload;
use crate::supervise::{Ending, ExitReport};
use crate::{args, doctor, proc, run, say, tree};

/// The interval at which this looks whether the run is over.
const INTERVAL: Duration = Duration::from_millis(20);
/// The longest time that services take to bring all pages back: from a slow disk, a GiB in seconds.
const LEAVE_MAX: Duration = Duration::from_secs(600);

/// Attaches to programs, and returns when the run is over: 0, or 125 where none was attached to.
pub(crate) fn attach(args: &AttachArgs) -> ExitCode {
    code(try_attach(args))
}

/// Ends the run that a program was attached to.
pub(crate) fn detach(args: &DetachArgs) -> ExitCode {
    code(try_detach(args.process))
}

fn code(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&failure);
            ExitCode::from(failure.code)
        }
    }
}

fn try_attach(args: &AttachArgs) -> Result<()> {
    let of_run = args::as_run(args);
    let mut config = RunConfig::from_args(&of_run)?;
    doctor::access().map_err(run::of_finding)?;
    run::check_disk(&mut config, of_run.disk.is_some())?;
    let programs = args.processes.iter().map(|process| Target::find(*process));
    let programs = programs.collect::<Result<Vec<_>>>()?;
    let outputs = run::Outputs::create(of_run.stats.as_deref(), of_run.report.as_deref())?;
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_over))
            .map_err(|error| Failure::ours(format!("cannot keep signals: {error}"), "try again"))?;
    }
    let preload = Preload::lay_out()?;
    let names: Vec<_> = programs.iter().map(|program| program.name.as_str()).collect();
    config.program = names.join(" ");
    let broker = Broker::start(&config, &preload, None, SOCKET_NAME)?;
    let started = Instant::now();
    let attached = match put_into(&broker, &programs) {
        Ok(attached) => attached,
        Err(failure) => {
            // What the broker has opened goes with its thread.
            broker.into_unmanaged();
            return Err(failure);
        }
    };
    broker.child_started(std::process::id());
    preload.remove_leftovers();
    if config.verbose {
        say(format!("attached to {attached} of {} programs", programs.len()));
    }
    // Relaxed: a flag alone.
    let is_left = || is_over.load(Ordering::Relaxed);
    while !is_left() && programs.iter().any(|program| !proc::is_over(&program.pidfd)) {
        pause(INTERVAL);
    }
    if is_left() {
        leave(&broker, &programs)?;
    }
    let exit = ExitReport { ending: Ending::Exited(0), wall_time: started.elapsed() };
    let (summary, _) = broker.finish(&config.program, exit);
    run::tell(&config, &summary, outputs);
    Ok(())
}

/// A program to attach to.
struct Target {
    process: u32,
    pidfd: OwnedFd,
    name: String,
}

impl Target {
    /// Finds the program, and checks that it is in no run.
    fn find(process: u32) -> Result<Self> {
        let pidfd = proc::pidfd_of(process).ok_or_else(|| no_process(process))?;
        let name = proc::text(process, "comm").unwrap_or_default().trim_end().to_owned();
        if library_in(process).is_some() {
            let cause = format!("process {process} ({name}) is in a run of coldpress already");
            let way_out = "`coldpress detach` ends one that was attached to; `coldpress ctl PID \
                           set memory=SIZE` changes its budget";
            return Err(Failure::ours(cause, way_out));
        }
        Ok(Self { process, pidfd, name })
    }
}

fn no_process(process: u32) -> Failure {
    let way_out = "`pgrep` finds the number of a program";
    Failure::ours(format!("there is no process {process}"), way_out)
}

/// Puts the library into the programs. Fails if none takes it; returns how many did.
fn put_into(broker: &Broker, programs: &[Target]) -> Result<usize> {
    programs.iter().for_each(|program| tree::adopt(program.process));
    let injector = broker.injector();
    let mut refusals: Vec<(u32, String)> = thread::scope(|scope| {
        let put_in = |process| injector.put_in_running(process).map(|why| (process, why));
        let all = programs.iter().map(|program| scope.spawn(move || put_in(program.process)));
        let all: Vec<_> = all.collect();
        all.into_iter().filter_map(|one| one.join().ok().flatten()).collect()
    });
    refusals.extend(injector.take_refusals());
    for (process, why) in &refusals {
        say(format!("warning: process {process} is not managed: {why}"));
    }
    if refusals.len() == programs.len() {
        let way_out = "run this as its user, and where /proc/sys/kernel/yama/ptrace_scope is not \
                       0, as root";
        return Err(Failure::ours("no program could be attached to", way_out));
    }
    Ok(programs.len() - refusals.len())
}

/// Has all services bring everything back and end, and takes the library out of their programs.
fn leave(broker: &Broker, programs: &[Target]) -> Result<()> {
    let ledger = broker.ledger();
    broker.injector().close();
    ledger.end_services();
    let until = Instant::now() + LEAVE_MAX;
    let mut all: HashSet<u32> = tree::adopted_and_below().into_iter().collect();
    loop {
        // A child by fork may take a seat meanwhile.
        let seated = (0..SEATS).map(|seat| ledger.process_in(seat)).filter(|one| *one != 0);
        let seated: Vec<_> = seated.collect();
        all.extend(&seated);
        if seated.is_empty() {
            break;
        }
        if Instant::now() >= until {
            let cause = "some pages do not come back; the programs go on, managed";
            return Err(Failure::ours(cause, "see what the programs wait for, and detach again"));
        }
        pause(INTERVAL);
    }
    all.extend(tree::adopted_and_below());
    all.extend(programs.iter().map(|program| program.process));
    let there: Vec<u32> =
        all.into_iter().filter(|process| library_in(*process).is_some()).collect();
    let injector = broker.injector();
    thread::scope(|scope| {
        for process in &there {
            scope.spawn(move || {
                if let Err(why) = injector.take_out(*process) {
                    say(format!("warning: process {process} keeps the library: {why}"));
                }
            });
        }
    });
    Ok(())
}

/// Sends a signal to the process that has attached to `process`, and waits for its end.
fn try_detach(process: u32) -> Result<()> {
    let not_attached = || {
        let cause = format!("process {process} was not attached to");
        Failure::ours(cause, "`pgrep -a coldpress` lists the runs of coldpress")
    };
    proc::pidfd_of(process).ok_or_else(|| no_process(process))?;
    let leader = leader_in(process).ok_or_else(not_attached)?;
    let pidfd = proc::pidfd_of(leader).ok_or_else(not_attached)?;
    let words = proc::text(leader, "cmdline").unwrap_or_default();
    let pid = Pid::from_raw(leader.cast_signed()).ok_or_else(not_attached)?;
    if words.split('\0').nth(1) != Some("attach") {
        return Err(not_attached());
    }
    rustix::process::kill_process(pid, Signal::TERM).map_err(|errno| {
        let cause = format!("cannot tell process {leader}, which has attached to it: {errno}");
        Failure::ours(cause, "run this as the user who has attached, or as root")
    })?;
    while !proc::is_over(&pidfd) {
        pause(INTERVAL);
    }
    Ok(())
}
