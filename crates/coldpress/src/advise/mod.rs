//! `coldpress advise`: the smallest budget within which a program hardly takes longer, found by
//! runs of it.
//!
//! The first run is limited by nothing, and tells the time and the peak. The next ones are within
//! budgets that [`search`] chooses by what [`estimate`] makes of the runs until then. A budget is
//! advised only if a run within it kept within the slow-down: what was expected of it stands beside
//! that. The modules, from below: [`attempts`], [`estimate`], [`search`], [`words`].

mod attempts;
mod estimate;
mod search;
mod words;

use std::process::ExitCode;

use coldpress_common::failure::{EXIT_OURS, Failure, Result};
use coldpress_common::progress::Progress;
use coldpress_sys::Bytes;

use crate::args::AdviseArgs;
use crate::ctl::interrupt::Interrupt;
use crate::outer::Outer;
use crate::program::Program;
use crate::report::Figures;
use crate::{print, say};
use attempts::Attempts;
use estimate::{Estimate, Measured};
use words::{Advice, typed};

/// The budget of the first run: all memory that there is.
const ALL: &str = "100%";
/// The exit status when advise itself has failed; what a run could not start keeps its own.
const EXIT_FAILED: u8 = 1;
/// How far above its budget a run may be: Go grows untold by up to 8 MiB (docs/limits.md), and what
/// many processes hold is counted a little late.
const ABOVE: f64 = 1.05;
const ABOVE_BYTES: f64 = Bytes::mib(8).0 as f64;

/// Runs the program, prints what budget it needs, and returns the exit status.
pub(crate) fn advise(args: &AdviseArgs) -> ExitCode {
    let interrupt = Interrupt::heed();
    let done = try_advise(args, &interrupt).map(|advice| {
        let text = if args.json { advice.json() } else { advice.text() };
        print(&text)
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_FAILED),
        Err(failure) => {
            say(&failure);
            interrupt.pass_on();
            ExitCode::from(if failure.code == EXIT_OURS { EXIT_FAILED } else { failure.code })
        }
    }
}

fn try_advise(args: &AdviseArgs, interrupt: &Interrupt) -> Result<Advice> {
    if Outer::find().is_some() {
        let way_out = "start it outside: a budget of its own is what it looks for";
        return Err(Failure::ours("this is inside another run", way_out));
    }
    let (name, _) = args.command.split_first().expect("clap requires a program");
    let program = Program::find(name)?;
    if let Some(obstacle) = &program.obstacle {
        return Err(Failure::ours(obstacle.to_string(), "a budget for it means nothing"));
    }
    if Attempts::loses_input() {
        say(
            "warning: standard input is no file, and can be read once only: the program gets none; \
             name a file by \"<\"",
        );
    }
    if !args.json {
        say(format!(
            "running {} up to {} times; what it prints is thrown away",
            program.name.to_string_lossy(),
            args.runs
        ));
    }
    let attempts = Attempts::new(&args.command, args.of_each_run(), interrupt);
    let mut runs = Runs { attempts, all: Vec::new(), most: args.runs, line: Progress::spinner() };
    runs.first()?;
    if args.curve {
        runs.along_the_curve()?;
    } else {
        runs.search(args.slower)?;
    }
    let name = program.name.to_string_lossy().into_owned();
    let slower = (!args.curve).then_some(args.slower);
    Ok(Advice { program: name, slower, runs: runs.all })
}

/// The runs until now.
struct Runs<'a> {
    attempts: Attempts<'a>,
    all: Vec<Measured>,
    most: u32,
    line: Progress,
}

impl Runs<'_> {
    /// Runs the program with all memory there is.
    fn first(&mut self) -> Result<()> {
        let figures = self.attempt(ALL)?;
        if figures.peak() == Bytes(0) {
            let cause = format!(
                "the program ended after {:.2} s, before its memory was looked at",
                figures.wall_ns() / 1e9
            );
            return Err(Failure::ours(cause, "advise needs a longer run of it"));
        }
        self.all.push(Measured::new(None, &figures, None));
        Ok(())
    }

    /// Looks for the smallest budget within which the program is `slower` by no more than that.
    fn search(&mut self, slower: f64) -> Result<()> {
        while self.left() > 0 {
            let Some(budget) = search::next(&self.all, slower, self.left() == 1) else { break };
            self.within(budget)?;
        }
        Ok(())
    }

    /// Runs the program within budgets over the whole curve.
    fn along_the_curve(&mut self) -> Result<()> {
        for budget in search::curve(self.all[0].peak, self.most) {
            if !search::goes_on(&self.all) {
                break;
            }
            self.within(budget)?;
        }
        Ok(())
    }

    fn within(&mut self, budget: Bytes) -> Result<()> {
        let expected = Estimate::of(&self.all).and_then(|estimate| estimate.at(budget));
        let figures = self.attempt(&typed(budget))?;
        let most = ABOVE * budget.0 as f64 + ABOVE_BYTES;
        let mut run = Measured::new(Some(budget), &figures, expected.map(|it| it.time_ns));
        run.is_over = figures.peak().0 as f64 > most;
        self.all.push(run);
        Ok(())
    }

    fn attempt(&self, memory: &str) -> Result<Figures> {
        let number = self.all.len() + 1;
        self.line.note(format!("run {number} of {}, --memory {memory}", self.most));
        self.attempts.run(memory, || self.line.turn())
    }

    fn left(&self) -> u32 {
        self.most.saturating_sub(self.all.len() as u32)
    }
}
