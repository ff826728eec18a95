//! Who runs the jobs when, and with how much memory.

use std::ffi::OsStr;
use std::process::Command;

use coldpress_bench::kernel::{Peer, Ran};
use coldpress_sys::{Bytes, PAGE_BYTES};
use serde_json::Value;

use super::figures::{Block, Figures, Line, Turn};
use super::options::{Contestant, ZswapArgs};
use crate::bench::launch::{Launcher, failed, number};
use crate::bench::sides::Sides;
use crate::failure::Result;
use crate::say;

/// With the codec of the reference, which every kernel with zswap has.
const ZSWAP: Peer = Peer::Zswap("lzo");
/// What coldpress is told for raw pages: those that compress to more than a hundredth are kept as
/// they are, which is all but zeros, and hardly any wait in the pool.
const RAW: [&str; 4] = ["--max-pool-percent", "1", "--set", "max_compression_ratio=1"];
/// What the pool of zswap gains by a byte that the limit loses, as the pages of jobs compress.
const POOL_RATE: f64 = 0.42;
/// A limit below this share of the memory is not set: then limit and pool are more than it.
const LIMIT_SHARE_MIN: usize = 8;
/// How many limits are tried. That whose sum with the pool is nearest is taken.
const TRIES: u32 = 3;
/// A correction by a smaller share of the memory than this is not tried.
const LIMIT_NEAR: f64 = 0.03;

/// What is measured.
pub(super) struct Plan {
    pub(super) jobs: Vec<u32>,
    pub(super) total: u32,
    pub(super) largest: Bytes,
    pub(super) memory: Bytes,
    pub(super) is_threads: bool,
    pub(super) rounds: u32,
    contestants: Vec<Contestant>,
}

impl Plan {
    fn new(args: &ZswapArgs) -> Self {
        let all = args.contestant.is_empty();
        let plan = Self {
            jobs: args.jobs.clone(),
            total: args.total,
            largest: args.largest,
            memory: args.memory,
            is_threads: args.threads,
            rounds: args.rounds,
            contestants: if all { Contestant::ALL.to_vec() } else { args.contestant.clone() },
        };
        if !args.quick {
            return plan;
        }
        let (largest, memory) = (Bytes::mib(10), Bytes::mib(16));
        Self { jobs: vec![2, 4], total: 4, largest, memory, rounds: 1, ..plan }
    }
}

/// All that runs have in common.
pub(super) struct Contest<'a> {
    pub(super) plan: Plan,
    sides: Sides<'a>,
}

impl<'a> Contest<'a> {
    /// Gets ready.
    pub(super) fn new(launcher: &'a Launcher, args: &ZswapArgs) -> Result<Self> {
        Ok(Self { plan: Plan::new(args), sides: Sides::new(launcher, &args.directory)? })
    }

    /// Measures everything; and what is missing.
    pub(super) fn hold(&self) -> Result<(Vec<Block>, Vec<String>)> {
        let mut missing = Vec::new();
        let mut is_here = |contestant: &Contestant| match peer(*contestant) {
            Some(peer) => {
                let size = self.swap_size(self.plan.jobs.iter().copied().max().unwrap_or(0));
                self.sides.is_here("zswap", (contestant.name(), peer), size, &mut missing)
            }
            None => true,
        };
        let contestants: Vec<Contestant> =
            self.plan.contestants.iter().copied().filter(|it| is_here(it)).collect();
        if contestants.is_empty() {
            return Err(failed(format!("nobody can be measured: {}", missing.join("; "))));
        }
        let blocks = self.plan.jobs.iter().map(|jobs| self.block(*jobs, &contestants));
        Ok((blocks.collect::<Result<_>>()?, missing))
    }

    /// One number of jobs at a time.
    fn block(&self, jobs: u32, contestants: &[Contestant]) -> Result<Block> {
        let mut lines = Vec::new();
        for contestant in contestants {
            lines.push(Line {
                contestant: *contestant,
                limit: self.limit(*contestant, jobs)?,
                turns: Vec::new(),
            });
        }
        for round in 0..self.plan.rounds as usize {
            say(format!("bench zswap: {jobs} jobs: round {} of {}", round + 1, self.plan.rounds));
            for turn in 0..lines.len() {
                let index = (round + turn) % lines.len();
                let line = &mut lines[index];
                line.turns.push(self.turn(line.contestant, line.limit, jobs)?);
            }
        }
        Ok(Block { jobs, lines })
    }

    /// What a contestant is told that it may hold, so that it holds the memory of the plan in all.
    fn limit(&self, contestant: Contestant, jobs: u32) -> Result<Bytes> {
        let memory = self.plan.memory;
        if contestant != Contestant::KernelZswap {
            return Ok(memory);
        }
        say(format!("bench zswap: {jobs} jobs: finding a limit"));
        let (low, high) = ((memory.0 / LIMIT_SHARE_MIN) as f64, memory.0 as f64);
        let (mut limit, mut best) = (high / 2.0, None);
        for _ in 0..TRIES {
            let tried = Bytes(limit as usize).pages_down().bytes();
            let turn = self.turn(contestant, tried, jobs)?;
            if turn.kills > 0 {
                // A pool that was never filled tells nothing.
                limit = f64::midpoint(limit, high);
                continue;
            }
            let over = turn.held.0 as f64 - memory.0 as f64;
            if best.is_none_or(|(least, _): (f64, Bytes)| over.abs() < least) {
                best = Some((over.abs(), tried));
            }
            let next = (limit - over / (1.0 - POOL_RATE)).clamp(low, high);
            if (next - limit).abs() < high * LIMIT_NEAR {
                break;
            }
            limit = next;
        }
        Ok(best.map_or(memory, |(_, limit)| limit))
    }

    /// One run of all jobs.
    fn turn(&self, contestant: Contestant, limit: Bytes, jobs: u32) -> Result<Turn> {
        match peer(contestant) {
            Some(peer) => self.kernel_turn(contestant, peer, limit, jobs),
            None => self.our_turn(contestant, limit, jobs),
        }
    }

    fn workload(&self, jobs: u32) -> Command {
        let (jobs, total) = (jobs.to_string(), self.plan.total.to_string());
        let largest = self.plan.largest.0.to_string();
        let arguments = ["build", "--jobs", &jobs, "--total", &total, "--largest", &largest];
        let mut command = self.sides.launcher.workload(&arguments);
        command.args(self.plan.is_threads.then_some("--threads"));
        command
    }

    /// Room for all that jobs could ever hold at a time.
    fn swap_size(&self, jobs: u32) -> Bytes {
        Bytes(self.plan.largest.0 * jobs as usize) + self.plan.memory
    }

    fn kernel_turn(
        &self,
        contestant: Contestant,
        peer: Peer,
        limit: Bytes,
        jobs: u32,
    ) -> Result<Turn> {
        let size = self.swap_size(jobs);
        let name = contestant.name();
        let (ran, usage) = self.sides.kernel((name, peer), size, limit, self.workload(jobs))?;
        let (pool, kills) = (ran.pool, ran.kills);
        let figures = match kills {
            0 => {
                check(name, &ran)?;
                Some(Figures {
                    pages_in: usage.swapped_in,
                    pages_out: usage.swapped_out,
                    faults: usage.major_faults,
                    disk: Bytes((usage.swapped_in + usage.swapped_out) as usize * PAGE_BYTES),
                    seconds: ran.time.as_secs_f64(),
                    cpu_seconds: usage.cpu_seconds,
                })
            }
            _ => None,
        };
        Ok(Turn { figures, pool, held: limit + pool, kills, stats: Value::Null })
    }

    fn our_turn(&self, contestant: Contestant, budget: Bytes, jobs: u32) -> Result<Turn> {
        let memory = budget.0.to_string();
        let mut options = vec!["--memory".as_ref(), memory.as_ref()];
        options.extend(["--disk".as_ref(), self.sides.directory.as_os_str()]);
        if contestant == Contestant::ColdpressRaw {
            options.extend(RAW.map(OsStr::new));
        }
        let name = contestant.name();
        let (ran, usage, stats) = self.sides.ours(name, &options, &self.workload(jobs))?;
        check(name, &ran)?;
        let count = |object: &Value, key| number(object, key).map(|value| value as u64);
        let store = &stats["zswap"];
        let figures = Figures {
            pages_in: count(store, "loaded_from_backing")?,
            pages_out: count(store, "flushed_pages")?,
            faults: count(&stats, "pages_loaded")? + usage.major_faults,
            disk: Bytes((count(store, "flushed_bytes")? + usage.read_bytes) as usize),
            seconds: ran.time.as_secs_f64(),
            cpu_seconds: usage.cpu_seconds,
        };
        let held = Bytes(number(&stats, "peak_bytes")? as usize);
        Ok(Turn { figures: Some(figures), pool: Bytes(0), held, kills: 0, stats })
    }
}

/// The kernel's swap of a contestant; nothing for ours.
fn peer(contestant: Contestant) -> Option<Peer> {
    match contestant {
        Contestant::SwapFile => Some(Peer::File),
        Contestant::KernelZswap => Some(ZSWAP),
        Contestant::ColdpressRaw | Contestant::Coldpress => None,
    }
}

/// Fails unless all jobs came to their ends with the right pages.
fn check(name: &str, ran: &Ran) -> Result<()> {
    if !ran.status.success() {
        return Err(failed(format!("{name}: the jobs ended with {}", ran.status)));
    }
    let printed: Value = serde_json::from_slice(&ran.output)
        .map_err(|error| failed(format!("{name}: the jobs printed no figures: {error}")))?;
    if number(&printed, "wrong_pages")? != 0.0 {
        return Err(failed(format!("{name}: WRONG PAGES were read: {printed}")));
    }
    Ok(())
}
