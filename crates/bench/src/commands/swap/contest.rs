//! The contest: the turns of the contestants, and the memory of each.

use std::ffi::OsString;
use std::process::Command;

use crate::kernel::{Peer, Ran};
use crate::touch::pattern::Pattern;
use coldpress_common::failure::Result;
use coldpress_sys::Bytes;
use serde_json::Value;

use super::data::Source;
use super::figures::{Block, Contestant, Line, Setting, Turn, Work};
use super::options::{Percent, SwapArgs};
use super::quiet::{OTHERS_MAX, PAUSE, quiet_turn};
use crate::commands::against;
use crate::commands::common::Share;
use crate::commands::launch::{self, Launcher, Outcome, failed, number, run};
use crate::commands::sides::{Sides, memory_of};
use crate::progress::note;

/// The share of the budget that our pool may take: limbo and resident pages have the rest.
const POOL: Percent = Percent(80);
/// The number of rounds, unless the user asks for another.
const ROUNDS: u32 = 3;

/// The plan of the contest.
pub(super) struct Plan {
    pub(super) data: Bytes,
    pub(super) rounds: u32,
    pub(super) measure_ms: u64,
    warm_ms: u64,
    /// The shares that the user asks for, if any.
    shares: Vec<Share>,
    threads: Vec<u32>,
    writes: Vec<Percent>,
    peers: Vec<Peer>,
    /// The largest share of the machine's processors that others may have.
    others_max: f64,
}

impl Plan {
    fn new(args: &SwapArgs) -> Self {
        let plan = Self {
            data: args.data,
            rounds: args.contest.rounds.or(ROUNDS, &args.common),
            measure_ms: u64::from(args.millis),
            warm_ms: u64::from(args.millis / 2),
            shares: args.share.clone(),
            threads: args.threads.clone(),
            writes: args.writes.clone(),
            peers: args.contest.peers(&Peer::ALL),
            others_max: OTHERS_MAX,
        };
        if !args.common.quick {
            return plan;
        }
        // Others may have all: times say nothing anyway.
        Self { data: Bytes::mib(64), measure_ms: 10, warm_ms: 5, others_max: 1.0, ..plan }
    }
}

/// A contest: all that its runs have in common.
pub(super) struct Contest<'a> {
    pub(super) plan: Plan,
    pub(super) sources: Vec<Source>,
    sides: Sides<'a>,
}

impl<'a> Contest<'a> {
    /// Prepares the contest and gets the pages for the data.
    pub(super) fn new(launcher: &'a Launcher, args: &SwapArgs) -> Result<Self> {
        let sources = Source::all(&args.pages)?;
        let sides = Sides::new(launcher, &args.contest.directory);
        Ok(Self { plan: Plan::new(args), sources, sides })
    }

    /// Measures everything. Also returns what is missing.
    pub(super) fn hold(&self) -> Result<(Vec<Block>, Vec<String>)> {
        let mut missing = Vec::new();
        let peers = self.sides.peers("swap", &self.plan.peers, self.swap_size(), &mut missing);
        let mut blocks = Vec::new();
        for source in &self.sources {
            for share in self.shares(source) {
                for threads in &self.plan.threads {
                    let setting = Setting { pages: source.kind, share, threads: *threads };
                    blocks.extend(self.block(setting, source, &peers, &mut missing)?);
                }
            }
        }
        Ok((blocks, missing))
    }

    /// Returns the shares for pages: those that the user asks for, else the smallest total that
    /// holds all of them when they are compressed.
    fn shares(&self, source: &Source) -> Vec<Share> {
        match self.plan.shares.as_slice() {
            [] => vec![usual_share(source.ratio)],
            shares => shares.to_vec(),
        }
    }

    /// Measures one setting; `None` when the size of the share cannot be found.
    fn block(
        &self,
        setting: Setting,
        source: &Source,
        peers: &[Peer],
        missing: &mut Vec<String>,
    ) -> Result<Option<Block>> {
        let (share, title) = (setting.share, setting.title());
        note(format!("swap: {title}: finding limits"));
        // All orders of touches, half as long. In less time a pool does not reach its size: holes
        // open in it as pages come and go.
        let short = |peer, limit| {
            let measure_ms = self.plan.measure_ms.div_ceil(2);
            let work = self.workload(source, setting.threads, &self.plan.writes, (0, measure_ms));
            self.kernel_turn(peer, limit, work).map(|turn| (turn.pool, turn.kills))
        };
        let memory = memory_of(&title, (share, self.plan.data), peers, missing, short)?;
        let Some(memory) = memory else { return Ok(None) };
        let kernel = |(peer, limit)| Line::new(Contestant::Kernel(peer), limit);
        let mut lines = vec![Line::new(Contestant::Ours, memory.budget)];
        lines.extend(memory.limits.into_iter().map(kernel));
        let options = self.our_options(memory.budget, share, source);
        let work = || self.work(source, setting.threads, &self.plan.writes);
        let patience = (self.plan.others_max, PAUSE);
        for round in 0..self.plan.rounds as usize {
            note(format!("swap: {title}: round {} of {}", round + 1, self.plan.rounds));
            for turn in 0..lines.len() {
                let index = (round + turn) % lines.len();
                let Line { contestant, limit, turns, thrown_away } = &mut lines[index];
                let turn = || match contestant {
                    Contestant::Ours => self.our_turn(&options, &work()),
                    Contestant::Kernel(peer) => self.kernel_turn(*peer, *limit, work()),
                };
                turns.extend(quiet_turn(patience, thrown_away, turn, Turn::others)?);
            }
        }
        let works = Work::all(&self.plan.writes);
        Ok(Some(Block { setting, works, lines }))
    }

    fn work(&self, source: &Source, threads: u32, writes: &[Percent]) -> Command {
        self.workload(source, threads, writes, (self.plan.warm_ms, self.plan.measure_ms))
    }

    fn workload(
        &self,
        source: &Source,
        threads: u32,
        writes: &[Percent],
        (warm_ms, measure_ms): (u64, u64),
    ) -> Command {
        let (data, threads) = (self.plan.data.0.to_string(), threads.to_string());
        let (warm, measure) = (warm_ms.to_string(), measure_ms.to_string());
        let writes: Vec<_> = writes.iter().map(|writes| writes.0.to_string()).collect();
        let top = std::process::id().to_string();
        let arguments = ["touch", "--data", &data, "--threads", &threads, "--warm-ms", &warm];
        let mut command = launch::workload(&arguments);
        command.args(["--measure-ms", &measure, "--top", &top, "--writes", &writes.join(",")]);
        command.arg("--pages").arg(source.file.path());
        command
    }

    /// Returns a swap size that no run fills.
    fn swap_size(&self) -> Bytes {
        Bytes(2 * self.plan.data.0)
    }

    fn kernel_turn(&self, peer: Peer, limit: Bytes, work: Command) -> Result<Turn> {
        let name = peer.name();
        let (ran, usage) = self.sides.kernel((&name, peer), self.swap_size(), limit, work)?;
        let (pool, kills) = (ran.pool, ran.kills);
        let printed = if kills == 0 { checked(&name, &ran)? } else { Value::Null };
        let (held, others) = (limit + pool, usage.others());
        Ok(Turn { printed, pool, held, kills, others, stats: Value::Null })
    }

    fn our_turn(&self, options: &[OsString], work: &Command) -> Result<Turn> {
        let name = Contestant::Ours.name();
        let (ran, usage, stats) = self.sides.ours(&name, options, work)?;
        let printed = checked(&name, &ran)?;
        let held = Bytes(number(&stats, "peak_bytes")? as usize);
        Ok(Turn { printed, pool: Bytes(0), held, kills: 0, others: usage.others(), stats })
    }

    fn our_options(&self, budget: Bytes, share: Share, source: &Source) -> [OsString; 6] {
        // Pages that do not fit even when they are compressed go to the disk.
        let disk = if is_enough(share, source.ratio) {
            "none".into()
        } else {
            self.sides.directory.clone().into_os_string()
        };
        let (memory, pool) = (budget.0.to_string().into(), POOL.0.to_string().into());
        ["--memory".into(), memory, "--max-pool-percent".into(), pool, "--disk".into(), disk]
    }

    /// Has two builds of coldpress take turns with the usual share of the data as their budget, and
    /// finds the time of a touch in each order, for each kind of pages, number of threads and share
    /// of writes.
    pub(super) fn against(&self, builds: &mut against::Contest<'_>) -> Result<()> {
        for source in &self.sources {
            let share = usual_share(source.ratio);
            let options = self.our_options(share.of(self.plan.data), share, source);
            for threads in &self.plan.threads {
                let setting = Setting { pages: source.kind, share, threads: *threads };
                for writes in &self.plan.writes {
                    let work = || self.work(source, *threads, &[*writes]);
                    against_in(builds, &setting.title(), *writes, |launcher| {
                        run(&mut launcher.managed(&options, &work()))
                    })?;
                }
            }
        }
        Ok(())
    }
}

/// Has two builds take turns at `work`, in the setting `title`.
fn against_in(
    builds: &mut against::Contest<'_>,
    title: &str,
    writes: Percent,
    work: impl Fn(&Launcher) -> Result<Outcome>,
) -> Result<()> {
    let works = Pattern::ALL.map(|pattern| Work { pattern, writes });
    let names = works.map(|work| format!("{title}, {}, us", work.name()));
    builds.turns(&format!("swap, {title}"), names, |launcher| {
        let ran = work(launcher)?;
        check_pages("coldpress", &ran.printed)?;
        let mut times = [0.0; Pattern::ALL.len()];
        for (time, work) in times.iter_mut().zip(&works) {
            *time = work.touch_us(&ran.printed)?;
        }
        Ok(times)
    })
}

/// Returns whether our pool can hold all pages of a ratio within a share of their size.
fn is_enough(share: Share, ratio: f64) -> bool {
    let data = Bytes::mib(1);
    let pool = share.of(data).0 as f64 * f64::from(POOL.0) / 100.0;
    !share.has_pool() || pool * ratio >= data.0 as f64
}

/// Returns the share for pages of a ratio that the user asks nothing for.
fn usual_share(ratio: f64) -> Share {
    if is_enough(Share::Total50, ratio) { Share::Total50 } else { Share::Total75 }
}

/// Returns the JSON that a program printed; for programs that were not killed. Fails when the
/// program read wrong pages.
fn checked(name: &str, ran: &Ran) -> Result<Value> {
    if !ran.status.success() {
        return Err(failed(format!("{name}: the program ended with {}", ran.status)));
    }
    let printed: Value = serde_json::from_slice(&ran.output)
        .map_err(|error| failed(format!("{name}: the program printed no figures: {error}")))?;
    check_pages(name, &printed)?;
    Ok(printed)
}

/// Fails when a program read wrong pages.
fn check_pages(name: &str, printed: &Value) -> Result<()> {
    for work in printed["works"].as_array().into_iter().flatten() {
        if number(work, "wrong_pages")? != 0.0 {
            return Err(failed(format!("{name}: WRONG PAGES were read: {work}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! The risk: pages that fit nowhere, so that the disk is measured, or nobody.
    use super::*;

    #[test]
    fn pages_get_a_share_that_holds_them() {
        let shares = [1.8, 2.0, 2.5, 6.0].map(usual_share);
        let (more, half) = (Share::Total75, Share::Total50);
        assert_eq!(shares, [more, more, half, half]);
        assert!(is_enough(Share::Total75, 1.8) && !is_enough(Share::Total25, 4.9));
        assert!(is_enough(Share::Resident25, 1.1));
    }
}
