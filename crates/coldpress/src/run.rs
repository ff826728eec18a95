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

use coldpress_common::failure::{Failure, Result};
use coldpress_common::size::show;
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
use crate::output;
use crate::own_number;
use crate::preload::{LD_PRELOAD, Preload};
use crate::program::Program;
use crate::record::Records;
use crate::report;
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
    let outputs = Outputs::create(args.stats.as_deref(), args.report.as_deref())?;
    let records = args.record.as_deref().map(Records::create).transpose()?;
    if config.verbose {
        say_settings(&config, &program);
    }
    supervise_managed(&config, &program, command, outputs, records)
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
    outputs: Outputs,
    records: Option<Records>,
) -> Result<u8> {
    let command = own_number::through(program, command, &own_number::variables());
    match keeper::part(config.waits)? {
        Part::Launcher(launcher) => launcher.wait(),
        Part::Keeper(keeper) => keep(keeper, config, program, command, outputs, records),
    }
}

/// Runs the keeper, from the start of a run until nothing of the run is left.
fn keep(
    mut keeper: Keeper,
    config: &RunConfig,
    program: &Program,
    mut command: Command,
    outputs: Outputs,
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
    let must = !config.allow_unmanaged;
    let (child, put_in) = match keeper.spawn(program, command, broker.injector(), must) {
        Ok(spawned) => spawned,
        Err(failure) => {
            // What the broker has opened goes with its thread.
            broker.into_unmanaged();
            return Err(failure);
        }
    };
    broker.child_started(child.id());
    if let Some(took) = put_in.filter(|_| config.verbose) {
        let ms = took.as_secs_f64() * 1e3;
        say(format!("put the library into the program in {ms:.3} ms"));
    }
    preload.remove_leftovers();
    let ending = supervise::wait_for(Pid::from_child(&child))?;
    let exit = ExitReport { ending, wall_time: started.elapsed() };
    keeper.say_reaped(ending.exit_code());
    if config.waits {
        supervise::wait_for_rest();
    }
    let (summary, serving) = broker.finish(&program.name.to_string_lossy(), exit);
    tell(config, &summary, outputs);
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

/// The files that are written at the end of a run.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    stats: Option<File>,
    report: Option<File>,
}

impl Outputs {
    /// Makes the files that the user has named, and empties them once nothing is refused.
    pub(crate) fn create(stats: Option<&Path>, report: Option<&Path>) -> Result<Self> {
        let named = [("--stats", stats), ("--report", report)];
        let failed = |at: usize, error| {
            let (option, path) = named[at];
            let path = path.unwrap_or(Path::new("")).display();
            let cause = format!("cannot write {option} {path}: {error}");
            Failure::ours(cause, "name a file in a directory you may write to")
        };
        let open = |at: usize| {
            let file = named[at].1.map(output::open).transpose();
            file.map_err(|error| failed(at, error))
        };
        let (stats, report) = (open(0)?, open(1)?);
        if let (Some(stats), Some(report)) = (&stats, &report)
            && output::is_same(stats, report)
        {
            let cause = "--stats and --report name one file";
            return Err(Failure::ours(cause, "name another for one of them"));
        }
        for (at, file) in [&stats, &report].into_iter().enumerate() {
            file.as_ref().map_or(Ok(()), output::empty).map_err(|error| failed(at, error))?;
        }
        Ok(Self { stats, report })
    }

    /// Writes the files of a run. The program's own exit status matters more than what fails here.
    fn write(self, summary: &Summary) {
        if self.stats.is_none() && self.report.is_none() {
            return;
        }
        let document = summary.to_json();
        if let Some(mut file) = self.stats
            && let Err(error) = file.write_all(document.as_bytes())
        {
            say(format!("cannot write the statistics: {error}; make room and run again"));
        }
        if let Some(mut file) = self.report {
            let page = report::page_of(&document).map_err(std::io::Error::other);
            if let Err(error) = page.and_then(|page| file.write_all(page.as_bytes())) {
                say(format!("cannot write the report: {error}; make room and run again"));
            }
        }
    }
}

/// Prints how the run went, and writes its statistics and its report.
pub(crate) fn tell(config: &RunConfig, summary: &Summary, outputs: Outputs) {
    if !config.quiet {
        say(summary);
        if summary.left > 0 {
            let left = summary.left;
            say(format!("managed processes go on in the background: {left}; see --wait"));
        }
    }
    outputs.write(summary);
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
