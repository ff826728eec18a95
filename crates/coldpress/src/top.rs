//! `coldpress top`: the runs of this machine and their processes, on a screen or once for scripts.
//!
//! The modules from below: `sample` asks keepers and computes rates, `history` keeps the last
//! minutes, `row`, `column`, `model` and `table` make rows and lines of that, `keys` says what keys
//! do, `screen` draws, and `terminal` has the loop. All between the first and the last are pure.

mod column;
mod history;
mod keys;
mod model;
mod row;
mod sample;
mod screen;
mod table;
mod terminal;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use coldpress_common::failure::Result;

use crate::args::TopArgs;
use crate::ctl::interrupt::Interrupt;
use crate::pause::pause;
use crate::{print, say};
use keys::State;
use model::Order;
use sample::{Sample, Sampler, Target};
use terminal::End;

/// Does what `args` ask for. Exit status 1 when that fails; a signal ends it.
pub(crate) fn top(args: &TopArgs) -> ExitCode {
    let interrupt = Interrupt::heed();
    let result = try_top(args, &interrupt);
    interrupt.pass_on();
    match result {
        Ok(text) if print(&text) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => {
            say(failure);
            ExitCode::FAILURE
        }
    }
}

/// Shows the runs, and returns what is to be printed after that.
fn try_top(args: &TopArgs, interrupt: &Interrupt) -> Result<String> {
    let is_for_scripts = args.once || args.json;
    if !is_for_scripts {
        terminal::check()?;
    }
    let target = args.process.map_or(Target::All, Target::One);
    let mut sampler = Sampler::new(target, !is_for_scripts)?;
    let mut sample = look(&mut sampler, target)?;
    if !is_for_scripts {
        let mut state = State::new(args.all || args.process.is_some());
        state.take(sample);
        return Ok(match terminal::show(state, sampler, args.interval, interrupt)? {
            End::Quit => String::new(),
            End::Over => "the run has ended\n".to_owned(),
        });
    }
    if wait(args.interval, interrupt) {
        sample = look(&mut sampler, target)?;
    }
    Ok(if args.json {
        format!("{:#}\n", sample.document())
    } else {
        table::text(&sample, &Order::new(args.all || args.process.is_some()))
    })
}

/// Looks once. Fails when the one run that is wanted does not answer.
fn look(sampler: &mut Sampler, target: Target) -> Result<Sample> {
    let sample = sampler.look()?;
    match (target, sample.silent.first()) {
        (Target::One(_), Some(silent)) => Err(silent.failure.clone()),
        _ => Ok(sample),
    }
}

/// Returns whether no signal has come while this waited for `interval`.
fn wait(interval: Duration, interrupt: &Interrupt) -> bool {
    const STEP: Duration = Duration::from_millis(50);
    let mut left = interval;
    while !left.is_zero() && !interrupt.has_come() {
        let step = left.min(STEP);
        pause(step);
        left -= step;
    }
    !interrupt.has_come()
}
