//! Who runs a program when, and with how much memory.

use std::path::Path;
use std::process::Command;

use coldpress_bench::kernel::{Peer, Ran};
use coldpress_bench::usage::Usage;
use coldpress_sys::Bytes;
use tempfile::TempDir;

use super::figures::{Block, Line, Turn};
use super::jobs::Job;
use super::options::ProgramsArgs;
use crate::bench::launch::{Launcher, failed, number};
use crate::bench::sides::{Sides, memory_of};
use crate::bench::swap::figures::Contestant;
use crate::failure::Result;
use crate::say;

/// A budget that no program here reaches: what it holds within it is what it holds by itself.
const PLENTY: &str = "4G";
/// Swap that no program here fills.
const SWAP: Bytes = Bytes::mib(1024);

/// All that runs have in common.
pub(super) struct Contest<'a> {
    sides: Sides<'a>,
    args: &'a ProgramsArgs,
}

impl<'a> Contest<'a> {
    /// Gets ready.
    pub(super) fn new(launcher: &'a Launcher, args: &'a ProgramsArgs) -> Result<Self> {
        Ok(Self { sides: Sides::new(launcher, &args.directory)?, args })
    }

    /// Measures everything; and what is missing.
    pub(super) fn hold(&self, jobs: &[&Job]) -> Result<(Vec<Block>, Vec<String>)> {
        let mut missing = Vec::new();
        let peers = self.sides.peers("programs", &self.args.peer, SWAP, &mut missing);
        let mut blocks = Vec::new();
        for job in jobs {
            if let Some(why) = job.lacks() {
                say(format!("bench programs: left out: {}: {why}", job.name));
                missing.push(format!("{}: {why}", job.name));
                continue;
            }
            blocks.extend(self.block(job, &peers, &mut missing)?);
        }
        Ok((blocks, missing))
    }

    /// One program; nothing when the memory of the share cannot be told.
    fn block(&self, job: &Job, peers: &[Peer], missing: &mut Vec<String>) -> Result<Option<Block>> {
        let name = job.name;
        say(format!("bench programs: {name}: what it holds, and limits"));
        let program = Program::new(job)?;
        // Once for the page cache: a group is charged for what it brings in.
        let wanted = self.plain(&program, None)?.1;
        let program = Program { wanted, ..program };
        let peak = self.ours(&program, PLENTY)?.held;
        let memory = memory_of(name, (self.args.share, peak), peers, missing, |peer, limit| {
            self.kernel(peer, &program, limit).map(|turn| (turn.pool, turn.kills))
        })?;
        let Some(memory) = memory else { return Ok(None) };
        let kernel = |(peer, limit)| Line::new(Contestant::Kernel(peer), limit);
        let mut lines = vec![Line::new(Contestant::Ours, memory.budget)];
        lines.extend(memory.limits.into_iter().map(kernel));
        let mut plain = Vec::new();
        for round in 0..self.args.rounds as usize {
            say(format!("bench programs: {name}: round {} of {}", round + 1, self.args.rounds));
            plain.push(self.plain(&program, Some(&program.wanted))?.0);
            for turn in 0..lines.len() {
                let index = (round + turn) % lines.len();
                let line = &mut lines[index];
                let turn = match line.contestant {
                    Contestant::Ours => self.ours(&program, &line.limit.0.to_string())?,
                    Contestant::Kernel(peer) => self.kernel(peer, &program, line.limit)?,
                };
                line.turns.push(turn);
            }
        }
        Ok(Some(Block { program: name, peak, plain, lines }))
    }

    /// A run without any limit; and what it printed.
    fn plain(&self, program: &Program, wanted: Option<&[u8]>) -> Result<(Turn, Vec<u8>)> {
        let name = format!("{} alone", program.job.name);
        let (ran, usage) = self.sides.alone(&name, program.command())?;
        check(&name, &ran, wanted.unwrap_or(&ran.output))?;
        Ok((Turn::new(&ran, &usage, Bytes(0)), ran.output))
    }

    fn kernel(&self, peer: Peer, program: &Program, limit: Bytes) -> Result<Turn> {
        let name = peer.name();
        let (ran, usage) = self.sides.kernel((&name, peer), SWAP, limit, program.command())?;
        if ran.kills == 0 {
            check(&format!("{} over {name}", program.job.name), &ran, &program.wanted)?;
        }
        Ok(Turn::new(&ran, &usage, limit + ran.pool))
    }

    fn ours(&self, program: &Program, memory: &str) -> Result<Turn> {
        let name = format!("{} over coldpress", program.job.name);
        let directory = self.sides.directory.as_os_str();
        let options = ["--memory".as_ref(), memory.as_ref(), "--disk".as_ref(), directory];
        let (ran, usage, stats) = self.sides.ours(&name, &options, &program.command())?;
        check(&name, &ran, &program.wanted)?;
        let held = Bytes(number(&stats, "peak_bytes")? as usize);
        Ok(Turn::new(&ran, &usage, held))
    }
}

/// A program with its files.
struct Program<'a> {
    job: &'a Job,
    directory: TempDir,
    /// What it prints.
    wanted: Vec<u8>,
}

impl<'a> Program<'a> {
    fn new(job: &'a Job) -> Result<Self> {
        let ready = || {
            let directory = tempfile::tempdir()?;
            job.prepare(directory.path()).map(|()| directory)
        };
        let no_files = |error| failed(format!("{}: no files for it: {error}", job.name));
        Ok(Self { job, directory: ready().map_err(no_files)?, wanted: Vec::new() })
    }

    fn command(&self) -> Command {
        let directory: &Path = self.directory.path();
        self.job.command(directory)
    }
}

/// Fails unless the program ended well and printed what it prints.
fn check(name: &str, ran: &Ran, wanted: &[u8]) -> Result<()> {
    if !ran.status.success() {
        return Err(failed(format!("{name} ended with {}", ran.status)));
    }
    if ran.output != wanted {
        return Err(failed(format!("{name}: WRONG OUTPUT")));
    }
    Ok(())
}

impl Turn {
    fn new(ran: &Ran, usage: &Usage, held: Bytes) -> Self {
        Self {
            seconds: ran.time.as_secs_f64(),
            cpu_seconds: usage.cpu_seconds,
            pool: ran.pool,
            held,
            kills: ran.kills,
        }
    }
}
