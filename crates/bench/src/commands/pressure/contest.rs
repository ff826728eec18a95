//! The contest: the turns of the contestants, and the memory of each.

use std::ffi::OsStr;
use std::path::Path;

use crate::kernel::Peer;
use coldpress_common::failure::Result;
use coldpress_sys::{Bytes, PAGE_BYTES};
use serde_json::Value;

use super::figures::{Block, Figures, Line, Turn};
use super::{Contestant, Work};
use crate::commands::launch::{Launcher, failed, number};
use crate::commands::sides::Sides;
use crate::progress::note;

/// The options with which coldpress stores raw pages: pages that compress to more than a hundredth
/// are kept as they are, which is all but zeros, and hardly any wait in the pool.
const RAW: [&str; 4] = ["--max-pool-percent", "1", "--set", "max_compression_ratio=1"];
/// The bytes that a pool gains, about, by a byte that the limit loses, as the pages of compilers
/// compress.
const POOL_RATE: f64 = 0.42;
/// The smallest limit, as a divisor of the memory. At this limit, limit and pool may together
/// exceed the memory.
const LIMIT_SHARE_MIN: usize = 8;
/// The number of limits to try. The limit whose sum with the pool is nearest to the memory is
/// taken.
const TRIES: u32 = 3;
/// The smallest correction of a limit that is tried, as a share of the memory.
const LIMIT_NEAR: f64 = 0.03;

/// The plan of a contest.
pub(crate) struct Plan {
    /// The numbers of parts of the work at a time, each of which is measured.
    pub(crate) jobs: Vec<u32>,
    /// The total memory, compressed pages included.
    pub(crate) memory: Bytes,
    pub(crate) rounds: u32,
    pub(crate) contestants: Vec<Contestant>,
}

/// A contest: all that its runs have in common.
pub(crate) struct Contest<'a, W> {
    pub(crate) plan: Plan,
    pub(crate) work: W,
    sides: Sides<'a>,
}

impl<'a, W: Work> Contest<'a, W> {
    /// Prepares the contest; the kernel's swap files and coldpress's disk file go to `directory`.
    pub(crate) fn new(
        launcher: &'a Launcher,
        directory: &Path,
        plan: Plan,
        work: W,
    ) -> Result<Self> {
        Ok(Self { plan, work, sides: Sides::new(launcher, directory) })
    }

    /// Measures everything. Also returns what is missing.
    pub(crate) fn hold(&self) -> Result<(Vec<Block>, Vec<String>)> {
        let mut missing = Vec::new();
        let mut is_here = |contestant: &Contestant| match contestant.peer() {
            Some(peer) => {
                let size = self.swap_size(self.plan.jobs.iter().copied().max().unwrap_or(0));
                self.sides.is_here(W::BENCH, (&contestant.name(), peer), size, &mut missing)
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

    /// Measures all contestants with one number of jobs at a time.
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
            let (bench, rounds) = (W::BENCH, self.plan.rounds);
            note(format!("{bench}: {jobs} jobs: round {} of {rounds}", round + 1));
            for turn in 0..lines.len() {
                let index = (round + turn) % lines.len();
                let line = &mut lines[index];
                line.turns.push(self.turn(line.contestant, line.limit, jobs)?);
            }
        }
        Ok(Block { jobs, lines })
    }

    /// Finds the limit or budget with which a contestant holds the memory of the plan in total.
    fn limit(&self, contestant: Contestant, jobs: u32) -> Result<Bytes> {
        let memory = self.plan.memory;
        if !contestant.peer().is_some_and(Peer::has_pool) {
            return Ok(memory);
        }
        let (bench, name) = (W::BENCH, contestant.name());
        note(format!("{bench}: {jobs} jobs: finding a limit for {name}"));
        let (low, high) = ((memory.0 / LIMIT_SHARE_MIN) as f64, memory.0 as f64);
        let (mut limit, mut best) = (high / 2.0, None);
        for _ in 0..TRIES {
            let tried = Bytes(limit as usize).pages_down().bytes();
            let turn = self.turn(contestant, tried, jobs)?;
            if turn.figures.is_none() {
                // The size of a pool that was never filled means nothing.
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

    /// Runs all of the work once.
    fn turn(&self, contestant: Contestant, limit: Bytes, jobs: u32) -> Result<Turn> {
        match contestant.peer() {
            Some(peer) => self.kernel_turn(contestant, peer, limit, jobs),
            None => self.our_turn(contestant, limit, jobs),
        }
    }

    /// Returns a swap size for all pages that could ever be out at a time.
    fn swap_size(&self, jobs: u32) -> Bytes {
        self.work.largest(jobs) + self.plan.memory
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
        let work = self.work.command(jobs)?;
        let (ran, usage) = self.sides.kernel((&name, peer), size, limit, work)?;
        let failed = self.work.failed(&name, &ran)?;
        // Pages that are swapped to memory go to no disk.
        let is_disk = !matches!(peer, Peer::Zram(_));
        let on_disk = |pages: u64| if is_disk { pages } else { 0 };
        let (pages_in, pages_out) = (on_disk(usage.swapped_in), on_disk(usage.swapped_out));
        let figures = Figures {
            pages_in,
            pages_out,
            faults: usage.major_faults,
            disk: Bytes((pages_in + pages_out) as usize * PAGE_BYTES),
            seconds: ran.time.as_secs_f64(),
            cpu_seconds: usage.cpu_seconds,
        };
        let (pool, kills) = (ran.pool, ran.kills);
        let figures = (kills == 0 && failed == 0).then_some(figures);
        Ok(Turn { figures, pool, held: limit + pool, kills, failed, stats: Value::Null })
    }

    fn our_turn(&self, contestant: Contestant, budget: Bytes, jobs: u32) -> Result<Turn> {
        let memory = budget.0.to_string();
        let mut options = vec!["--memory".as_ref(), memory.as_ref()];
        options.extend(["--disk".as_ref(), self.sides.directory.as_os_str()]);
        if contestant == Contestant::Raw {
            options.extend(RAW.map(OsStr::new));
        }
        let name = contestant.name();
        let work = self.work.command(jobs)?;
        let (ran, usage, stats) = self.sides.ours(&name, &options, &work)?;
        let failed = self.work.failed(&name, &ran)?;
        let count = |object: &Value, key| number(object, key).map(|value| value as u64);
        let store = &stats["zswap"];
        let figures = Figures {
            pages_in: count(store, "loaded_from_backing")?,
            pages_out: count(store, "flushed_pages")?,
            faults: count(&stats, "major_faults")? + usage.major_faults,
            disk: Bytes((count(store, "flushed_bytes")? + usage.read_bytes) as usize),
            seconds: ran.time.as_secs_f64(),
            cpu_seconds: usage.cpu_seconds,
        };
        let held = Bytes(number(&stats, "peak_bytes")? as usize);
        let figures = (failed == 0).then_some(figures);
        Ok(Turn { figures, pool: Bytes(0), held, kills: 0, failed, stats })
    }
}
