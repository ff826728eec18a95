//! Runs a program alone, over the kernel's swap, and over coldpress, and measures each run.
//!
//! A cgroup's limit does not include compressed pages: the pool of zram or of zswap lies beside it.
//! So a comparison sets a limit such that limit and pool add up to what coldpress gets.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::interrupt::Signals;
use crate::kernel::{Group, Peer, Ran, Swap, run};
use crate::usage::Usage;
use coldpress_common::cgroup;
use coldpress_common::failure::Result;
use coldpress_sys::Bytes;
use serde_json::Value;
use tempfile::NamedTempFile;

use super::common::Share;
use super::launch::{Launcher, failed, forget_settings, stats_in};
use crate::commands::say;

/// The smallest limit with which a program can run in a cgroup, as a divisor of the data.
const LIMIT_SHARE_MIN: usize = 16;
/// The most limits that are tried with a peer, to find the one that leaves room for its pool.
const LIMITS_MAX: u32 = 4;
/// The largest difference from the size, as a share of it, of a limit and its pool together.
const SUM_OFF: f64 = 0.02;
/// The number of tries of a run that finds a limit, when the kernel kills the program.
const TRIES: u32 = 3;
/// The peer that ratios refer to. Its pool also gives the size of shares that do not include the
/// pool.
pub(super) const JUDGE: Peer = Peer::Zram("lz4");

/// The size of a limit, or the reason why there is none.
type Limit = std::result::Result<Bytes, String>;

/// The limits with which all contestants have the same memory.
pub(super) struct Memory {
    /// The budget of coldpress.
    pub(super) budget: Bytes,
    /// The limits of the peers; a peer without a limit is left out.
    pub(super) limits: Vec<(Peer, Bytes)>,
}

/// The state that all runs have in common.
pub(super) struct Sides<'a> {
    pub(super) launcher: &'a Launcher,
    /// The directory of swap files and of coldpress's disk file.
    pub(super) directory: PathBuf,
    _signals: Signals,
    /// The cgroup below which new cgroups are made.
    parent: Option<PathBuf>,
}

impl<'a> Sides<'a> {
    /// Prepares for runs. From then on a signal ends the running program, and then the benchmark.
    pub(super) fn new(launcher: &'a Launcher, directory: &Path) -> Self {
        let (directory, parent) = (directory.to_owned(), cgroup::parent_of_new());
        Self { launcher, directory, _signals: Signals::keep(), parent }
    }

    /// Returns the peers among `wanted` that this machine has with swap of `size`.
    pub(super) fn peers(
        &self,
        bench: &str,
        wanted: &[Peer],
        size: Bytes,
        missing: &mut Vec<String>,
    ) -> Vec<Peer> {
        let is_here = |peer: &Peer| self.is_here(bench, (&peer.name(), *peer), size, missing);
        wanted.iter().copied().filter(is_here).collect()
    }

    /// Returns whether this machine has what a peer needs with swap of `size`. If not, says why, to
    /// the user and in `missing`.
    pub(super) fn is_here(
        &self,
        bench: &str,
        (name, peer): (&str, Peer),
        size: Bytes,
        missing: &mut Vec<String>,
    ) -> bool {
        let turn_on = || -> io::Result<()> {
            let _swap = Swap::on(peer, size, &self.directory)?;
            let no_group = || io::Error::other("no memory cgroup is mounted");
            Group::new(self.parent.as_deref().ok_or_else(no_group)?, Bytes::mib(16)).map(drop)
        };
        let turned = turn_on();
        if let Err(error) = &turned {
            let text = format!("{name}: {error}");
            say(format!("{bench}: left out: {text}"));
            missing.push(text);
        }
        turned.is_ok()
    }

    /// Runs a program as it is. `name` names it in a failure.
    pub(super) fn alone(&self, name: &str, mut plain: Command) -> Result<(Ran, Usage)> {
        forget_settings(&mut plain);
        self.timed(plain, None).map_err(|error| failed(format!("{name}: {error}")))
    }

    /// Runs a program over the kernel's swap of `size`, in a cgroup with a limit.
    pub(super) fn kernel(
        &self,
        (name, peer): (&str, Peer),
        size: Bytes,
        limit: Bytes,
        mut plain: Command,
    ) -> Result<(Ran, Usage)> {
        forget_settings(&mut plain);
        let turn = || {
            let swap = Swap::on(peer, size, &self.directory)?;
            let group = Group::new(self.parent.as_deref().unwrap_or("/".as_ref()), limit)?;
            self.timed(plain, Some((&group, &swap)))
        };
        turn().map_err(|error| failed(format!("{name}: {error}")))
    }

    /// Runs a program over coldpress. Also returns the statistics of `coldpress run --stats`.
    pub(super) fn ours<S: AsRef<OsStr>>(
        &self,
        name: &str,
        options: &[S],
        plain: &Command,
    ) -> Result<(Ran, Usage, Value)> {
        let file = NamedTempFile::new()
            .map_err(|error| failed(format!("no file for statistics: {error}")))?;
        let mut all: Vec<&OsStr> = options.iter().map(AsRef::as_ref).collect();
        all.extend(["--stats".as_ref(), file.path().as_os_str()]);
        let mut command = self.launcher.managed(&all, plain);
        forget_settings(&mut command);
        let (ran, usage) =
            self.timed(command, None).map_err(|error| failed(format!("{name}: {error}")))?;
        let left_none = || failed(format!("{name}: a run left no statistics ({})", ran.status));
        let stats = stats_in(file.path()).ok_or_else(left_none)?;
        Ok((ran, usage, stats))
    }

    fn timed(&self, command: Command, place: Option<(&Group, &Swap)>) -> io::Result<(Ran, Usage)> {
        let before = Usage::now()?;
        let ran = run(command, place)?;
        Ok((ran, Usage::now()? - before))
    }
}

/// Finds the memory that all contestants get, as a share of a program's `data`. `run` runs the
/// program over a peer with a limit, and returns the most that the pool held and the number of
/// killed processes. Returns `None` when the share cannot be found. Adds what is missing to
/// `missing`, under `title`.
pub(super) fn memory_of(
    title: &str,
    (share, data): (Share, Bytes),
    peers: &[Peer],
    missing: &mut Vec<String>,
    mut run: impl FnMut(Peer, Bytes) -> Result<(Bytes, u64)>,
) -> Result<Option<Memory>> {
    let size = share.of(data);
    let mut pool = |peer, limit| pool_of(|| run(peer, limit));
    let budget = if share.has_pool() {
        size
    } else if peers.contains(&JUDGE) {
        size + pool(JUDGE, size)?.0
    } else {
        missing.push(format!("{title}: only {} tells its size", JUDGE.name()));
        return Ok(None);
    };
    let mut limits = Vec::new();
    for peer in peers {
        let limit = match (share.has_pool(), peer.has_pool()) {
            (true, true) => limit_for(size, data, |limit| pool(*peer, limit))?,
            (false, false) => {
                Err("it would have less memory than the others, for it has no pool".to_owned())
            }
            _ => Ok(size),
        };
        match limit {
            Ok(limit) => limits.push((*peer, limit)),
            Err(why) => missing.push(format!("{title}: {}: {why}", peer.name())),
        }
    }
    Ok(Some(Memory { budget, limits }))
}

/// Measures the pool of a peer, and returns whether a run came to its end. If the kernel kills the
/// program each time, the pool is the largest seen: too small, which makes limits larger or our
/// budget smaller.
fn pool_of(mut run: impl FnMut() -> Result<(Bytes, u64)>) -> Result<(Bytes, bool)> {
    let mut most = Bytes(0);
    for _ in 0..TRIES {
        let (pool, kills) = run()?;
        most = most.max(pool);
        if kills == 0 {
            return Ok((most, true));
        }
    }
    Ok((most, false))
}

/// Finds a limit at which limit and pool of a peer were measured to add up to `size`, for a program
/// with `data`. `pool` measures the pool with a limit, and returns whether a run came to its end.
fn limit_for(
    size: Bytes,
    data: Bytes,
    mut pool: impl FnMut(Bytes) -> Result<(Bytes, bool)>,
) -> Result<Limit> {
    let (size, all) = (size.0 as f64, data.0 as f64);
    let (mut limit, mut sum) = (Bytes(size as usize / 2), 0.0);
    for _ in 0..LIMITS_MAX {
        let (pool, has_ended) = pool(limit)?;
        let pool = pool.0 as f64;
        sum = limit.0 as f64 + pool;
        if has_ended && (sum - size).abs() <= SUM_OFF * size {
            return Ok(Ok(limit));
        }
        // The pool grows as pages are swapped out: limit + rate * (data - limit) should equal the
        // size.
        let rate = pool / (all - limit.0 as f64);
        let wanted = (size - rate * all) / (1.0 - rate);
        if rate >= 1.0 || wanted < all / LIMIT_SHARE_MIN as f64 {
            let percent = 100.0 * rate;
            return Ok(Err(format!("its pool alone would hold {percent:.0} % of the data")));
        }
        limit = Bytes(wanted as usize).pages_down().bytes();
    }
    let times = sum / size;
    Ok(Err(format!(
        "no limit fits of {LIMITS_MAX}: the last and its pool had {times:.2} of the memory, or the \
         kernel killed the program"
    )))
}

#[cfg(test)]
mod tests {
    //! The risk: limits that give one side more memory than the other.
    use super::*;

    #[test]
    fn limit_and_pool_come_to_the_size() {
        let (size, data) = (Bytes::mib(128), Bytes::mib(256));
        for rate in [0.0, 0.3, 0.4] {
            let pool = |limit: Bytes| Bytes(((data.0 - limit.0) as f64 * rate) as usize);
            let limit = limit_for(size, data, |limit| Ok((pool(limit), true))).unwrap().unwrap();
            let sum = (limit + pool(limit)).0 as f64;
            assert!((sum / size.0 as f64 - 1.0).abs() <= SUM_OFF, "{rate}: {sum}");
        }
    }

    #[test]
    fn the_pool_is_that_of_a_run_to_its_end_or_the_most_of_those_that_were_killed() {
        let play = |turns: &[(usize, u64)]| {
            let mut turns = turns.iter().map(|(pool, kills)| Ok((Bytes(*pool), *kills)));
            pool_of(|| turns.next().unwrap()).unwrap()
        };
        assert_eq!(play(&[(3, 1), (7, 0), (9, 0)]), (Bytes(7), true));
        assert_eq!(play(&[(3, 1), (9, 1), (4, 2), (10, 0)]), (Bytes(9), false));
    }

    #[test]
    fn shares_give_all_the_same_or_say_who_is_left_out() {
        let data = Bytes::mib(100);
        let (judge, file) = (JUDGE, Peer::File);
        let run = |_, limit: Bytes| Ok((Bytes((data.0 - limit.0) / 5), 0));
        let of = |share, peers: &[Peer]| {
            let mut missing = Vec::new();
            let memory = memory_of("a", (share, data), peers, &mut missing, run).unwrap();
            (memory.map(|memory| (memory.budget, memory.limits)), missing.len())
        };
        let half = Bytes::mib(50);
        let (memory, missing) = of(Share::Resident50, &[judge, file]);
        assert_eq!((memory.unwrap(), missing), ((Bytes::mib(60), vec![(judge, half)]), 1));
        assert_eq!(of(Share::Resident50, &[file]), (None, 1));
        let (budget, limits) = of(Share::Total50, &[judge, file]).0.unwrap();
        assert_eq!((budget, limits[1]), (half, (file, half)));
        assert!(limits[0].1 < half && limits[0].1 > Bytes::mib(35));
    }

    #[test]
    fn a_pool_that_was_found_too_small_gives_nobody_more_memory() {
        let (size, data) = (Bytes::mib(102), Bytes::mib(205));
        // Each time the pool is another.
        let mut share = 0.1;
        let limit = limit_for(size, data, |limit| {
            share = 0.4 - share;
            Ok((Bytes(((data.0 - limit.0) as f64 * share) as usize), true))
        });
        assert!(limit.unwrap().unwrap_err().contains("no limit fits"));
        // The kernel kills the program each time, and limit and pool come to the size.
        let killed = |limit: Bytes| Ok((Bytes(size.0 - limit.0), false));
        assert!(limit_for(size, data, killed).unwrap().is_err());
    }

    #[test]
    fn what_does_not_compress_has_no_limit() {
        let (size, data) = (Bytes::mib(64), Bytes::mib(256));
        for (percent, words) in [(25, "25 %"), (105, "105 %")] {
            let pool = |limit: Bytes| Bytes((data.0 - limit.0) / 100 * percent);
            let limit = limit_for(size, data, |limit| Ok((pool(limit), true))).unwrap();
            assert!(limit.unwrap_err().contains(words));
        }
    }
}
