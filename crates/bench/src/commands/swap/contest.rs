//! The contest: the turns of the contestants, and the memory of each.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::Command;

use crate::kernel::{Peer, Ran};
use crate::touch::pattern::Pattern;
use coldpress_cli::failure::Result;
use coldpress_codec::same_filled;
use coldpress_sys::Bytes;
use serde_json::Value;
use tempfile::NamedTempFile;

use super::figures::{Block, Contestant, Line, Turn, Work};
use super::options::{Percent, SwapArgs};
use super::quiet::{OTHERS_MAX, quiet_turn};
use crate::commands::against;
use crate::commands::codecs::programs;
use crate::commands::common::Share;
use crate::commands::launch::{self, Launcher, failed, number, run};
use crate::commands::say;
use crate::commands::sides::{Sides, memory_of};

/// The number of heap pages that the data are copies of: 4 MiB, which are freed when the data are
/// filled.
const TEMPLATES: usize = 1024;
/// The bytes kept of each of these pages. Zeros follow, as where a heap has capacity to spare: then
/// zram with lz4 holds the pages in 0.4 of their size, as it does pages of real programs.
const KEPT_BYTES: usize = 3072;
/// The share of the budget that our pool may take, in percent: limbo and resident pages have the
/// rest.
const POOL_PERCENT: &str = "80";
/// The number of rounds, unless the user asks for another.
const ROUNDS: u32 = 3;

/// The plan of the contest.
pub(super) struct Plan {
    pub(super) data: Bytes,
    pub(super) rounds: u32,
    pub(super) measure_ms: u64,
    warm_ms: u64,
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
            shares: if args.share.is_empty() { Share::ALL.to_vec() } else { args.share.clone() },
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
    sides: Sides<'a>,
    pages: NamedTempFile,
}

impl<'a> Contest<'a> {
    /// Prepares the contest and gets the pages for the data.
    pub(super) fn new(launcher: &'a Launcher, args: &SwapArgs) -> Result<Self> {
        let mut pages = programs::own(2 * TEMPLATES)
            .map_err(|error| failed(format!("no pages of a heap: {error}")))?;
        let mut file = || -> std::io::Result<NamedTempFile> {
            let mut file = NamedTempFile::new()?;
            for page in pages.iter_mut() {
                page[KEPT_BYTES..].fill(0);
            }
            let pages = pages.iter().filter(|page| same_filled(page).is_none());
            for page in pages.take(TEMPLATES) {
                file.write_all(page)?;
            }
            Ok(file)
        };
        let pages = file().map_err(|error| failed(format!("no file for pages: {error}")))?;
        let sides = Sides::new(launcher, &args.contest.directory)?;
        Ok(Self { plan: Plan::new(args), sides, pages })
    }

    /// Measures everything. Also returns what is missing.
    pub(super) fn hold(&self) -> Result<(Vec<Block>, Vec<String>)> {
        let mut missing = Vec::new();
        let peers = self.sides.peers("swap", &self.plan.peers, self.swap_size(), &mut missing);
        let mut blocks = Vec::new();
        for share in &self.plan.shares {
            for threads in &self.plan.threads {
                blocks.extend(self.block(*share, *threads, &peers, &mut missing)?);
            }
        }
        Ok((blocks, missing))
    }

    /// Measures one share with one number of threads; `None` when the size of the share cannot be
    /// found.
    fn block(
        &self,
        share: Share,
        threads: u32,
        peers: &[Peer],
        missing: &mut Vec<String>,
    ) -> Result<Option<Block>> {
        let title = format!("{}, {}", share.name(), threads_text(threads));
        say(format!("swap: {title}: finding limits"));
        // All orders of touches, half as long. In less time a pool does not reach its size: holes
        // open in it as pages come and go.
        let short = |peer, limit| {
            let measure_ms = self.plan.measure_ms.div_ceil(2);
            let work = self.workload(threads, &self.plan.writes, (0, measure_ms));
            self.kernel_turn(peer, limit, work).map(|turn| (turn.pool, turn.kills))
        };
        let memory = memory_of(&title, (share, self.plan.data), peers, missing, short)?;
        let Some(memory) = memory else { return Ok(None) };
        let kernel = |(peer, limit)| Line::new(Contestant::Kernel(peer), limit);
        let mut lines = vec![Line::new(Contestant::Ours, memory.budget)];
        lines.extend(memory.limits.into_iter().map(kernel));
        for round in 0..self.plan.rounds as usize {
            say(format!("swap: {title}: round {} of {}", round + 1, self.plan.rounds));
            for turn in 0..lines.len() {
                let index = (round + turn) % lines.len();
                let Line { contestant, limit, turns, thrown_away } = &mut lines[index];
                let turn = || match contestant {
                    Contestant::Ours => self.our_turn(*limit, share, threads),
                    Contestant::Kernel(peer) => {
                        self.kernel_turn(*peer, *limit, self.work(threads, &self.plan.writes))
                    }
                };
                turns.extend(quiet_turn(self.plan.others_max, thrown_away, turn, Turn::others)?);
            }
        }
        let works = Work::all(&self.plan.writes);
        Ok(Some(Block { share, threads, works, lines }))
    }

    fn work(&self, threads: u32, writes: &[Percent]) -> Command {
        self.workload(threads, writes, (self.plan.warm_ms, self.plan.measure_ms))
    }

    fn workload(
        &self,
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
        command.arg("--pages").arg(self.pages.path());
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

    fn our_turn(&self, budget: Bytes, share: Share, threads: u32) -> Result<Turn> {
        let options = self.our_options(budget, share);
        let name = Contestant::Ours.name();
        let (ran, usage, stats) =
            self.sides.ours(&name, &options, &self.work(threads, &self.plan.writes))?;
        let printed = checked(&name, &ran)?;
        let held = Bytes(number(&stats, "peak_bytes")? as usize);
        Ok(Turn { printed, pool: Bytes(0), held, kills: 0, others: usage.others(), stats })
    }

    fn our_options(&self, budget: Bytes, share: Share) -> [OsString; 6] {
        // Pages that do not fit even when they are compressed go to the disk.
        let disk = match share {
            Share::Total25 => self.sides.directory.clone().into_os_string(),
            _ => "none".into(),
        };
        let memory = budget.0.to_string().into();
        let pool = POOL_PERCENT.into();
        ["--memory".into(), memory, "--max-pool-percent".into(), pool, "--disk".into(), disk]
    }

    /// Has two builds of coldpress take turns with half of the data as their budget, and finds the
    /// time of a touch in each order, for each number of threads.
    pub(super) fn against(&self, builds: &mut against::Contest<'_>) -> Result<()> {
        let share = Share::Total50;
        let options = self.our_options(share.of(self.plan.data), share);
        for threads in &self.plan.threads {
            for writes in &self.plan.writes {
                let works = Pattern::ALL.map(|pattern| Work { pattern, writes: *writes });
                let title = threads_text(*threads);
                let names = works.map(|work| format!("{title}, {}, us", work.name()));
                builds.turns(&format!("swap, {title}"), names, |launcher| {
                    let work = self.work(*threads, &[*writes]);
                    let ran = run(&mut launcher.managed(&options, &work))?;
                    check_pages("coldpress", &ran.printed)?;
                    let mut times = [0.0; Pattern::ALL.len()];
                    for (time, work) in times.iter_mut().zip(&works) {
                        *time = work.touch_us(&ran.printed)?;
                    }
                    Ok(times)
                })?;
            }
        }
        Ok(())
    }
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

/// Returns a number of threads in words.
pub(super) fn threads_text(threads: u32) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}
