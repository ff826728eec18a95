//! `coldpress run`: one program within a budget, from the options to the exit status.
//!
//! Everything that can be wrong is found before the program starts, in the order in which a user
//! would mend it: options, the program, the machine, the disk. After that the keeper serves and the
//! launcher waits.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use coldpress_cli::failure::{Failure, Result};
use coldpress_cli::size::show;
use coldpress_runtime::knobs::Knob;
use coldpress_runtime::wire::PADDING_VARIABLE;
use rustix::process::Pid;

use crate::args::{self, RunArgs};
use crate::broker::stats::Summary;
use crate::broker::{self, Broker};
use crate::budget::Origin;
use crate::config::RunConfig;
use crate::directory::SOCKET_NAME;
use crate::disk::{self, Disk};
use crate::doctor::{self, Finding};
use crate::keeper::{self, Keeper, Part};
use crate::outer::{self, Outer};
use crate::own_number;
use crate::preload::{LD_PRELOAD, Preload};
use crate::program::Program;
use crate::record::Records;
use crate::say;
use crate::supervise::{self, ExitReport};
use crate::view;

/// The option that an inner run may turn off.
const SHOW_MEMORY: &str = "--show-memory";

/// Runs the program and returns its exit status, or that of our own failure.
pub(crate) fn run(args: &RunArgs) -> ExitCode {
    ExitCode::from(code_of(try_run(args)))
}

/// Returns the exit status, and prints a failure for the user.
fn code_of(result: Result<u8>) -> u8 {
    result.unwrap_or_else(|failure| {
        say(&failure);
        failure.code
    })
}

fn try_run(args: &RunArgs) -> Result<u8> {
    if let Some(outer) = Outer::find() {
        return Err(run_inside(args, &outer));
    }
    let mut config = RunConfig::from_args(args)?;
    let (name, arguments) = args.command.split_first().expect("clap requires a program");
    let program = Program::find(name)?;
    let command = supervise::command(&program, arguments);
    if let Err(failure) = check_manageable(&program) {
        if !config.allow_unmanaged {
            return Err(failure);
        }
        if !config.quiet {
            let cause = failure.cause;
            say(format!("warning: running without a budget, and all options ignored: {cause}"));
        }
        return Err(supervise::replace_by(&program, command));
    }
    if !config.quiet && config.budget.origin != Origin::Asked {
        say(format!("budget {}", config.budget));
    }
    if !config.quiet
        && let Some(complaint) = config.budget.complaint()
    {
        say(format!("warning: {complaint}"));
    }
    check_disk(&mut config, args.disk.is_some())?;
    // The files are opened now, so that a name that cannot be written is known before hours of
    // work.
    let stats = args.stats.as_deref().map(create_stats).transpose()?;
    let records = args.record.as_deref().map(Records::create).transpose()?;
    if config.verbose {
        say_settings(&config, &program);
    }
    supervise_managed(&config, &program, command, stats, records)
}

/// Puts the program in our place, to be managed by the outer run. Returns only on failure.
fn run_inside(args: &RunArgs, outer: &Outer) -> Failure {
    let (name, arguments) = args.command.split_first().expect("clap requires a program");
    let program = match Program::find(name) {
        Ok(program) => program,
        Err(failure) => return failure,
    };
    match check_program(&program) {
        Err(failure) if !args.allow_unmanaged => return failure,
        Err(failure) if !args.quiet => {
            say(format!("warning: running without a budget: {}", failure.cause));
        }
        _ => {}
    }
    let mut given = args::given_for_a_run();
    let mut command = supervise::command(&program, arguments);
    if args.show_memory == view::Ask::Off && given.iter().any(|name| name == SHOW_MEMORY) {
        given.retain(|name| name != SHOW_MEMORY);
        view::refuse(&mut command, outer.budget());
    }
    if !args.quiet {
        say(outer.line(&given));
    }
    command.env(LD_PRELOAD, outer.ld_preload());
    supervise::replace_by(&program, command)
}

/// Makes the keeper, which starts the program with everything it needs to be managed, and waits for
/// the program.
fn supervise_managed(
    config: &RunConfig,
    program: &Program,
    command: Command,
    stats: Option<File>,
    records: Option<Records>,
) -> Result<u8> {
    let command = own_number::through(program, command, &own_number::variables());
    match keeper::part(config.waits)? {
        Part::Launcher(launcher) => launcher.wait(),
        Part::Keeper(keeper) => keep(keeper, config, program, command, stats, records),
    }
}

/// Runs the keeper, from the start of a run until nothing of the run is left.
fn keep(
    mut keeper: Keeper,
    config: &RunConfig,
    program: &Program,
    mut command: Command,
    stats: Option<File>,
    records: Option<Records>,
) -> Result<u8> {
    let preload = Preload::lay_out()?;
    if config.require_managed {
        try_out(&preload)?;
    }
    let broker = Broker::start(config, &preload, records, SOCKET_NAME)?;
    let existing = std::env::var_os(LD_PRELOAD);
    let former = outer::former_library();
    command.env(LD_PRELOAD, preload.ld_preload(existing.as_deref(), former.as_deref()));
    if existing.is_none() {
        command.env(PADDING_VARIABLE, "");
    }
    command.envs(broker.environment());
    command.envs(view::environment(config.show_memory, config.budget.bytes));
    let started = Instant::now();
    let child = match keeper.spawn(program, command, broker.injector()) {
        Ok(child) => child,
        Err(failure) => {
            // What the broker has opened goes with its thread.
            broker.into_unmanaged();
            return Err(failure);
        }
    };
    broker.child_started(child.id());
    preload.remove_leftovers();
    let ending = supervise::wait_for(Pid::from_child(&child))?;
    let exit = ExitReport { ending, wall_time: started.elapsed() };
    keeper.say_reaped(ending.exit_code());
    if config.waits {
        supervise::wait_for_rest();
    }
    let (summary, serving) = broker.finish(&program.name.to_string_lossy(), exit);
    report(config, &summary, stats);
    let code = match summary.unmanaged_for() {
        Some(why) if config.require_managed => Err(Failure::ours(
            format!("the run was to be managed, and was not: {why}"),
            "`coldpress doctor` says what this machine lacks; or run it without --require-managed",
        )),
        _ => Ok(exit.ending.exit_code()),
    };
    if !supervise::has_rest() {
        return code;
    }
    keeper.say_ended(code_of(code));
    if let Some(serving) = serving {
        broker::go_on(serving, supervise::wait_for_rest);
    }
    Ok(0)
}

/// Prints how the run went, and writes its statistics.
pub(crate) fn report(config: &RunConfig, summary: &Summary, stats: Option<File>) {
    if !config.quiet {
        say(summary);
        if summary.left > 0 {
            let left = summary.left;
            say(format!("managed processes go on in the background: {left}; see --wait"));
        }
    }
    if let Some(mut file) = stats
        && let Err(error) = file.write_all(summary.to_json().as_bytes())
    {
        // The program's own exit status matters more than the report on it.
        say(format!("cannot write the statistics: {error}; make room and run again"));
    }
}

/// Fails when a program that starts now would not be managed.
fn try_out(preload: &Preload) -> Result<()> {
    doctor::trial(preload).map(|_| ()).map_err(of_finding)
}

pub(crate) fn of_finding(finding: Finding) -> Failure {
    let cause = format!("{}: {}", finding.what, finding.finding);
    Failure::ours(cause, finding.fix.unwrap_or_default())
}

/// Checks that the program and the machine allow a budget. The failure says which of them does not.
fn check_manageable(program: &Program) -> Result<()> {
    check_program(program)?;
    match doctor::access() {
        Ok(_) => Ok(()),
        Err(finding) => Err(of_finding(finding)),
    }
}

/// Checks that the program allows a budget.
fn check_program(program: &Program) -> Result<()> {
    let Some(obstacle) = &program.obstacle else { return Ok(()) };
    Err(Failure::ours(obstacle.to_string(), "run it without a budget with --allow-unmanaged"))
}

/// Checks the directory for written-back pages. A directory that the user named must work; the
/// default one is given up with a warning, because the pool works without it.
pub(crate) fn check_disk(config: &mut RunConfig, is_named: bool) -> Result<()> {
    let Some(directory) = &config.disk else { return Ok(()) };
    match disk::examine(directory) {
        Disk::Usable(_) => {}
        Disk::IsMemory(_) => {
            if !config.quiet {
                let warning = disk::memory_warning(directory);
                say(format!("warning: {warning}; name a directory on a disk, or --disk none"));
            }
        }
        Disk::Unusable(error) => {
            let cause = format!("{} takes no unnamed file ({error})", directory.display());
            if is_named {
                let way_out = "name another directory with --disk, or --disk none";
                return Err(Failure::ours(cause, way_out));
            }
            if !config.quiet {
                say(format!(
                    "warning: {cause}; cold pages stay in memory, or name one with --disk"
                ));
            }
            config.disk = None;
        }
    }
    Ok(())
}

pub(crate) fn create_stats(path: &Path) -> Result<File> {
    File::create(path).map_err(|error| {
        let cause = format!("cannot write --stats {}: {error}", path.display());
        Failure::ours(cause, "name a file in a directory you may write to")
    })
}

fn say_settings(config: &RunConfig, program: &Program) {
    let disk_size = config.disk_size.map_or("all but 5 % of its free space".to_owned(), show);
    let disk = match &config.disk {
        Some(path) => format!("{} ({disk_size})", path.display()),
        None => "none".to_owned(),
    };
    say(format!(
        "{} with {} ({} bytes, {}), codec {}, {} up to {} %, disk {disk}",
        program.path.display(),
        show(config.budget.bytes),
        config.budget.bytes.0,
        config.budget.origin,
        config.knobs.codec(),
        config.knobs.pool(),
        config.knobs.get(Knob::MaxPoolPercent),
    ));
}
