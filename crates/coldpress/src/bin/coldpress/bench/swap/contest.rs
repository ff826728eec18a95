//! Who runs when, and with how much memory.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use coldpress_bench::kernel::{self, Group, Peer, Signals, Swap};
use coldpress_codec::same_filled;
use coldpress_sys::Bytes;
use serde_json::Value;
use tempfile::NamedTempFile;

use super::figures::{Block, Contestant, Line, Turn};
use super::options::{Share, SwapArgs};
use crate::bench::codecs::programs;
use crate::bench::launch::{Launcher, failed, forget_settings, number};
use crate::cgroup;
use crate::failure::Result;
use crate::say;

/// Pages of a heap that the data are copies of: 4 MiB, which go when the data are filled.
const TEMPLATES: usize = 1024;
/// How much of each of them is kept, and zeros behind it, as where a heap has capacity to spare:
/// then zram with lz4 holds them in 0.4 of their size, as it does pages of real programs.
const KEPT_BYTES: usize = 3072;
/// The share of the budget that our pool may take, in percent: the rest is limbo and pages in
/// place.
const POOL_PERCENT: &str = "80";
/// A cgroup of less, as a share of the data, cannot run the program.
const LIMIT_SHARE_MIN: usize = 16;
/// How often a limit is corrected by what limit and pool came to.
const CORRECTIONS: u32 = 2;
/// How often a run that finds a limit is tried, when the kernel kills it.
const TRIES: u32 = 3;
/// Milliseconds of the runs that find a limit.
const SHORT_MS: u64 = 100;
/// Whose pool says what `resident` shares come to.
const JUDGE: Peer = Peer::Zram("lz4");

/// What is measured.
pub(super) struct Plan {
    pub(super) data: Bytes,
    pub(super) rounds: u32,
    pub(super) measure_ms: u64,
    warm_ms: u64,
    shares: Vec<Share>,
    threads: Vec<u32>,
    peers: Vec<Peer>,
}

impl Plan {
    fn new(args: &SwapArgs) -> Self {
        let or_all = |peers: &[Peer]| if peers.is_empty() { &Peer::ALL } else { peers }.to_vec();
        let plan = Self {
            data: args.data,
            rounds: args.rounds,
            measure_ms: u64::from(args.millis),
            warm_ms: u64::from(args.millis / 2),
            shares: if args.share.is_empty() { Share::ALL.to_vec() } else { args.share.clone() },
            threads: args.threads.clone(),
            peers: or_all(&args.peer),
        };
        if !args.quick {
            return plan;
        }
        Self { data: Bytes::mib(64), rounds: 1, measure_ms: 10, warm_ms: 5, ..plan }
    }
}

/// A limit, or why there is none.
type Limit = std::result::Result<Bytes, String>;

/// All that runs have in common.
pub(super) struct Contest<'a> {
    pub(super) plan: Plan,
    launcher: &'a Launcher,
    directory: PathBuf,
    signals: Signals,
    pages: NamedTempFile,
    parent: Option<PathBuf>,
}

impl<'a> Contest<'a> {
    /// Gets the pages for the data.
    pub(super) fn new(launcher: &'a Launcher, args: &SwapArgs) -> Result<Self> {
        let mut pages = programs::own(launcher, 2 * TEMPLATES)
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
        let signals =
            Signals::keep().map_err(|error| failed(format!("cannot mind signals: {error}")))?;
        let (plan, directory) = (Plan::new(args), args.directory.clone());
        Ok(Self { plan, launcher, directory, signals, pages, parent: cgroup::parent_of_new() })
    }

    /// Measures everything; and what is missing.
    pub(super) fn hold(&self) -> Result<(Vec<Block>, Vec<String>)> {
        let mut missing = Vec::new();
        let peers = self.plan.peers.iter().copied();
        let peers: Vec<Peer> = peers
            .filter(|peer| match self.turn_on(*peer) {
                Ok(()) => true,
                Err(error) => {
                    let text = format!("{}: {error}", peer.name());
                    say(format!("bench swap: left out: {text}"));
                    missing.push(text);
                    false
                }
            })
            .collect();
        let mut blocks = Vec::new();
        for share in &self.plan.shares {
            for threads in &self.plan.threads {
                blocks.extend(self.block(*share, *threads, &peers, &mut missing)?);
            }
        }
        Ok((blocks, missing))
    }

    /// Whether this machine has what a peer needs.
    fn turn_on(&self, peer: Peer) -> std::io::Result<()> {
        let _swap = Swap::on(peer, Bytes::mib(16), &self.directory)?;
        let no_group = || std::io::Error::other("no memory cgroup is mounted");
        Group::new(self.parent.as_deref().ok_or_else(no_group)?, Bytes::mib(16)).map(drop)
    }

    /// One share with one number of threads; nothing when its size cannot be told.
    fn block(
        &self,
        share: Share,
        threads: u32,
        peers: &[Peer],
        missing: &mut Vec<String>,
    ) -> Result<Option<Block>> {
        let title = format!("{}, {}", share.name(), threads_text(threads));
        say(format!("bench swap: {title}: finding limits"));
        let size = share.of(self.plan.data);
        let budget = if share.has_pool() {
            size
        } else if peers.contains(&JUDGE) {
            Bytes(size.0 + self.short_run(JUDGE, size, threads)?.pool.0)
        } else {
            missing.push(format!("{title}: only {} tells its size", JUDGE.name()));
            return Ok(None);
        };
        let mut lines = vec![Line::new(Contestant::Ours, budget)];
        for peer in peers {
            match self.limit(*peer, share, threads)? {
                Ok(limit) => lines.push(Line::new(Contestant::Kernel(*peer), limit)),
                Err(why) => missing.push(format!("{title}: {}: {why}", peer.name())),
            }
        }
        for round in 0..self.plan.rounds as usize {
            say(format!("bench swap: {title}: round {} of {}", round + 1, self.plan.rounds));
            for turn in 0..lines.len() {
                let index = (round + turn) % lines.len();
                let line = &mut lines[index];
                let turn = match line.contestant {
                    Contestant::Ours => self.our_turn(line.limit, share, threads)?,
                    Contestant::Kernel(peer) => {
                        self.kernel_turn(peer, line.limit, self.work(threads))?
                    }
                };
                line.turns.push(turn);
            }
        }
        Ok(Some(Block { share, threads, lines }))
    }

    /// The limit with which a peer has this share; or why there is none.
    fn limit(&self, peer: Peer, share: Share, threads: u32) -> Result<Limit> {
        let size = share.of(self.plan.data);
        if !share.has_pool() {
            let no_pool = "it would have less memory than the others, for it has no pool";
            return Ok(peer.has_pool().then_some(size).ok_or_else(|| no_pool.to_owned()));
        }
        if !peer.has_pool() {
            return Ok(Ok(size));
        }
        let data = self.plan.data.0 as f64;
        let mut limit = Bytes(size.0 / 2);
        for _ in 0..CORRECTIONS {
            let pool = self.short_run(peer, limit, threads)?.pool.0 as f64;
            // The pool grows as pages go out: limit + rate * (data - limit) is to be the size.
            let rate = pool / (data - limit.0 as f64);
            let wanted = (size.0 as f64 - rate * data) / (1.0 - rate);
            if wanted < data / LIMIT_SHARE_MIN as f64 {
                let percent = 100.0 * rate;
                return Ok(Err(format!("its pool alone would hold {percent:.0} % of the data")));
            }
            limit = Bytes(wanted as usize).pages_down().bytes();
        }
        Ok(Ok(limit))
    }

    /// Fills the data and touches them for a moment; tries again when the kernel kills it.
    fn short_run(&self, peer: Peer, limit: Bytes, threads: u32) -> Result<Turn> {
        let mut turn = None;
        for _ in 0..TRIES {
            let work = self.workload(threads, 0, SHORT_MS, &["--only-uniform"]);
            let found = turn.insert(self.kernel_turn(peer, limit, work)?);
            if found.kills == 0 {
                break;
            }
        }
        turn.ok_or_else(|| failed("no run".to_owned()))
    }

    fn work(&self, threads: u32) -> Command {
        self.workload(threads, self.plan.warm_ms, self.plan.measure_ms, &[])
    }

    fn workload(&self, threads: u32, warm_ms: u64, measure_ms: u64, more: &[&str]) -> Command {
        let (data, threads) = (self.plan.data.0.to_string(), threads.to_string());
        let (warm, measure) = (warm_ms.to_string(), measure_ms.to_string());
        let arguments = ["touch", "--data", &data, "--threads", &threads, "--warm-ms", &warm];
        let mut command = self.launcher.workload(&arguments);
        command.args(["--measure-ms", &measure]).args(more).arg("--pages").arg(self.pages.path());
        forget_settings(&mut command);
        command
    }

    fn kernel_turn(&self, peer: Peer, limit: Bytes, work: Command) -> Result<Turn> {
        let turn = || -> std::io::Result<kernel::Ran> {
            let swap = Swap::on(peer, Bytes(2 * self.plan.data.0), &self.directory)?;
            let parent = self.parent.as_deref().unwrap_or("/".as_ref());
            let group = Group::new(parent, limit)?;
            kernel::run(work, Some((&group, &swap)), &self.signals)
        };
        let ran = turn().map_err(|error| failed(format!("{}: {error}", peer.name())))?;
        let (pool, kills) = (ran.pool, ran.kills);
        let printed = if kills == 0 { checked(&peer.name(), &ran)? } else { Value::Null };
        Ok(Turn { printed, pool, held: Bytes(limit.0 + pool.0), kills, stats: Value::Null })
    }

    fn our_turn(&self, budget: Bytes, share: Share, threads: u32) -> Result<Turn> {
        let file = NamedTempFile::new()
            .map_err(|error| failed(format!("no file for statistics: {error}")))?;
        let memory = budget.0.to_string();
        let mut options: Vec<OsString> =
            ["--memory", &memory, "--max-pool-percent", POOL_PERCENT, "--disk"]
                .map(OsString::from)
                .to_vec();
        // What does not fit even when it is compressed goes to the disk.
        options.push(match share {
            Share::Total25 => self.directory.clone().into_os_string(),
            _ => "none".into(),
        });
        options.extend(["--stats".into(), file.path().as_os_str().to_owned()]);
        let mut command = self.launcher.managed(&options, &self.work(threads));
        forget_settings(&mut command);
        let ran = kernel::run(command, None, &self.signals)
            .map_err(|error| failed(format!("cannot run within a budget: {error}")))?;
        let printed = checked(Contestant::Ours.name().as_str(), &ran)?;
        let stats = fs::read(file.path()).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let stats: Value = stats.ok_or_else(|| failed("a run left no statistics".to_owned()))?;
        let held = Bytes(number(&stats, "peak_bytes")? as usize);
        Ok(Turn { printed, pool: Bytes(0), held, kills: 0, stats })
    }
}

/// What a program that was not killed printed; its pages must have been right.
fn checked(name: &str, ran: &kernel::Ran) -> Result<Value> {
    if !ran.status.success() {
        return Err(failed(format!("{name}: the program ended with {}", ran.status)));
    }
    let printed: Value = serde_json::from_slice(&ran.output)
        .map_err(|error| failed(format!("{name}: the program printed no figures: {error}")))?;
    for work in printed["works"].as_array().into_iter().flatten() {
        if number(work, "wrong_pages")? != 0.0 {
            return Err(failed(format!("{name}: WRONG PAGES were read: {work}")));
        }
    }
    Ok(printed)
}

/// A number of threads in words.
pub(super) fn threads_text(threads: u32) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}
