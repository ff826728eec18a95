//! The contest: the turns of the contestants with a program, and the memory of each.

use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use crate::kernel::{Peer, Ran};
use crate::usage::Usage;
use coldpress_common::failure::Result;
use coldpress_sys::Bytes;
use serde_json::Value;
use tempfile::TempDir;

use super::figures::{Block, Line, Turn, cut};
use super::jobs::Job;
use crate::commands::common::{Common, ContestArgs, Share};
use crate::commands::launch::{Launcher, failed, number};
use crate::commands::say;
use crate::commands::sides::{Sides, memory_of};
use crate::commands::swap::figures::Contestant;
use crate::progress::note;

/// A budget that no program here reaches: the memory held within it is what the program holds by
/// itself.
const PLENTY: &str = "4G";
/// The number of rounds, unless the user asks for another.
const ROUNDS: u32 = 3;
/// A swap size that no program here fills.
const SWAP: Bytes = Bytes::mib(1024);

/// A contest: all that its runs have in common.
pub(crate) struct Contest<'a> {
    sides: Sides<'a>,
    /// The name of the benchmark.
    bench: &'static str,
    share: Share,
    args: &'a ContestArgs,
    /// The number of rounds, in each of which all contestants take a turn.
    pub(crate) rounds: u32,
}

impl<'a> Contest<'a> {
    /// Prepares the contest.
    pub(crate) fn new(
        launcher: &'a Launcher,
        bench: &'static str,
        share: Share,
        args: &'a ContestArgs,
        common: &Common,
    ) -> Result<Self> {
        let rounds = args.rounds.or(ROUNDS, common);
        Ok(Self { sides: Sides::new(launcher, &args.directory), bench, share, args, rounds })
    }

    /// Measures everything. Also returns what is missing.
    pub(crate) fn hold(&self, jobs: &[&Job]) -> Result<(Vec<Block>, Vec<String>)> {
        let mut missing = Vec::new();
        let peers = self.sides.peers(self.bench, &self.args.peers(&Peer::ALL), SWAP, &mut missing);
        let mut blocks = Vec::new();
        for job in jobs {
            if let Some(why) = job.lacks() {
                say(format!("{}: left out: {}: {why}", self.bench, job.name));
                missing.push(format!("{}: {why}", job.name));
                continue;
            }
            blocks.extend(self.block(job, &peers, &mut missing)?);
        }
        Ok((blocks, missing))
    }

    /// Measures one program; `None` when the memory of the share cannot be found.
    fn block(&self, job: &Job, peers: &[Peer], missing: &mut Vec<String>) -> Result<Option<Block>> {
        let (bench, name) = (self.bench, job.name);
        note(format!("{bench}: {name}: what it holds, and limits"));
        // The first run fills the page cache: a cgroup is charged for the pages that it brings in.
        let program = self.ready(job)?;
        let peak = self.held_by_itself(&program)?;
        let memory = memory_of(name, (self.share, peak), peers, missing, |peer, limit| {
            self.kernel(peer, &program, limit).map(|turn| (turn.pool, turn.kills))
        })?;
        let Some(memory) = memory else { return Ok(None) };
        let kernel = |(peer, limit)| Line::new(Contestant::Kernel(peer), limit);
        let mut lines = vec![Line::new(Contestant::Ours, memory.budget)];
        lines.extend(memory.limits.into_iter().map(kernel));
        let mut plain = Vec::new();
        for round in 0..self.rounds as usize {
            note(format!("{bench}: {name}: round {} of {}", round + 1, self.rounds));
            plain.push(self.alone(&program)?);
            for turn in 0..lines.len() {
                let index = (round + turn) % lines.len();
                let line = &mut lines[index];
                let turn = match line.contestant {
                    Contestant::Ours => self.ours(&program, &line.limit.0.to_string())?.0,
                    Contestant::Kernel(peer) => self.kernel(peer, &program, line.limit)?,
                };
                line.turns.push(turn);
            }
        }
        Ok(Some(Block { program: name, figures: job.figures, peak, plain, lines }))
    }

    /// Prepares a program, and runs it once: its output is what is wanted.
    pub(super) fn ready<'j>(&self, job: &'j Job) -> Result<Program<'j>> {
        let program = Program::new(job, &self.args.directory)?;
        let wanted = self.plain(&program, None)?.1;
        Ok(Program { wanted, ..program })
    }

    /// Returns the most memory that a program holds by itself.
    pub(super) fn held_by_itself(&self, program: &Program<'_>) -> Result<Bytes> {
        Ok(self.ours(program, PLENTY)?.0.held)
    }

    /// Runs a program without any limit.
    pub(super) fn alone(&self, program: &Program<'_>) -> Result<Turn> {
        Ok(self.plain(program, Some(&program.wanted))?.0)
    }

    /// Runs a program without any limit. Also returns its output.
    fn plain(&self, program: &Program, wanted: Option<&[u8]>) -> Result<(Turn, Vec<u8>)> {
        let name = format!("{} alone", program.job.name);
        let (ran, usage) = self.sides.alone(&name, program.command())?;
        let (output, figures) = check(&name, &ran, program.job, wanted)?;
        Ok((Turn::new(&ran, &usage, Bytes(0), figures), output))
    }

    fn kernel(&self, peer: Peer, program: &Program, limit: Bytes) -> Result<Turn> {
        let name = peer.name();
        let (ran, usage) = self.sides.kernel((&name, peer), SWAP, limit, program.command())?;
        let held = limit + ran.pool;
        if ran.kills > 0 {
            return Ok(Turn::new(&ran, &usage, held, Vec::new()));
        }
        let name = format!("{} over {name}", program.job.name);
        let figures = check(&name, &ran, program.job, Some(&program.wanted))?.1;
        Ok(Turn::new(&ran, &usage, held, figures))
    }

    /// Runs a program within a budget. Also returns the statistics of the run.
    pub(super) fn ours(&self, program: &Program<'_>, memory: &str) -> Result<(Turn, Value)> {
        let name = format!("{} over coldpress", program.job.name);
        let directory = self.sides.directory.as_os_str();
        let options = ["--memory".as_ref(), memory.as_ref(), "--disk".as_ref(), directory];
        let (ran, usage, stats) = self.sides.ours(&name, &options, &program.command())?;
        let figures = check(&name, &ran, program.job, Some(&program.wanted))?.1;
        let held = Bytes(number(&stats, "peak_bytes")? as usize);
        Ok((Turn::new(&ran, &usage, held, figures), stats))
    }
}

/// A program with its files.
pub(super) struct Program<'a> {
    job: &'a Job,
    directory: Rc<TempDir>,
    /// The words that start it, if any.
    words: String,
    /// The expected output, without figures.
    wanted: Vec<u8>,
}

impl<'a> Program<'a> {
    /// Makes the program's files in `parent`, on a disk: in memory they would be charged to a
    /// cgroup.
    fn new(job: &'a Job, parent: &Path) -> Result<Self> {
        let ready = || {
            let directory = tempfile::tempdir_in(parent)?;
            job.prepare(directory.path()).map(|()| directory)
        };
        let no_files = |error| failed(format!("{}: no files for it: {error}", job.name));
        let directory = Rc::new(ready().map_err(no_files)?);
        Ok(Self { job, directory, words: String::new(), wanted: Vec::new() })
    }

    /// Returns the same program, started by these words.
    pub(super) fn started_by(&self, words: &str) -> Self {
        let (directory, wanted) = (Rc::clone(&self.directory), self.wanted.clone());
        Self { job: self.job, directory, words: words.to_owned(), wanted }
    }

    fn command(&self) -> Command {
        let directory: &Path = self.directory.path();
        self.job.command(directory, &self.words)
    }
}

/// Returns the output of a run, and its figures apart. Fails unless the run ended well and printed
/// `wanted`, if that is known.
fn check(name: &str, ran: &Ran, job: &Job, wanted: Option<&[u8]>) -> Result<(Vec<u8>, Vec<f64>)> {
    if !ran.status.success() {
        return Err(failed(format!("{name} ended with {}", ran.status)));
    }
    let lacks = |figure| failed(format!("{name}: it printed no figure {figure}"));
    let (output, figures) = cut(&ran.output, job.figures).map_err(lacks)?;
    if wanted.is_some_and(|wanted| wanted != output) {
        return Err(failed(format!("{name}: WRONG OUTPUT")));
    }
    Ok((output, figures))
}

impl Turn {
    fn new(ran: &Ran, usage: &Usage, held: Bytes, figures: Vec<f64>) -> Self {
        Self {
            seconds: ran.time.as_secs_f64(),
            cpu_seconds: usage.cpu_seconds,
            pool: ran.pool,
            held,
            kills: ran.kills,
            figures,
        }
    }
}
