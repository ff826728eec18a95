//! Runs a program alone, over the kernel's swap, and over coldpress, and tells what each took.
//!
//! A cgroup's limit says nothing of the compressed pages: the pool of zram or of zswap lies beside
//! it. So whoever compares sets a limit such that both together come to what coldpress gets.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use coldpress_bench::kernel::{Group, Peer, Ran, Signals, Swap, run};
use coldpress_bench::usage::Usage;
use coldpress_sys::Bytes;
use serde_json::Value;
use tempfile::NamedTempFile;

use super::launch::{Launcher, failed, forget_settings};
use crate::cgroup;
use crate::failure::Result;
use crate::say;

/// A cgroup of less, as a share of the data, cannot run a program.
const LIMIT_SHARE_MIN: usize = 16;
/// How often a limit is corrected by what limit and pool came to.
const CORRECTIONS: u32 = 2;

/// The size of a limit, or why there is none.
pub(super) type Limit = std::result::Result<Bytes, String>;

/// All that runs have in common.
pub(super) struct Sides<'a> {
    pub(super) launcher: &'a Launcher,
    /// Where swap files and our disk are.
    pub(super) directory: PathBuf,
    signals: Signals,
    /// The group that new ones are made below.
    parent: Option<PathBuf>,
}

impl<'a> Sides<'a> {
    /// Gets ready. From now on signals end the program that runs, and then the benchmark.
    pub(super) fn new(launcher: &'a Launcher, directory: &Path) -> Result<Self> {
        let signals =
            Signals::keep().map_err(|error| failed(format!("cannot mind signals: {error}")))?;
        let (directory, parent) = (directory.to_owned(), cgroup::parent_of_new());
        Ok(Self { launcher, directory, signals, parent })
    }

    /// Whether this machine has what a peer needs with swap of `size`. If not, the user is told,
    /// and `missing` too.
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
            say(format!("bench {bench}: left out: {text}"));
            missing.push(text);
        }
        turned.is_ok()
    }

    /// A run as it is. `name` says who failed.
    pub(super) fn alone(&self, name: &str, mut plain: Command) -> Result<(Ran, Usage)> {
        forget_settings(&mut plain);
        self.timed(plain, None).map_err(|error| failed(format!("{name}: {error}")))
    }

    /// A run over the kernel's swap of `size`, in a group with a limit.
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

    /// A run over coldpress; and what `coldpress run --stats` tells of it.
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
        let stats = fs::read(file.path()).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let left_none = || failed(format!("{name}: a run left no statistics ({})", ran.status));
        let stats = stats.ok_or_else(left_none)?;
        Ok((ran, usage, stats))
    }

    fn timed(&self, command: Command, place: Option<(&Group, &Swap)>) -> io::Result<(Ran, Usage)> {
        let before = Usage::now()?;
        let ran = run(command, place, &self.signals)?;
        Ok((ran, Usage::now()? - before))
    }
}

/// The limit with which limit and pool of a peer come to `size`, for a program with so much `data`.
/// `pool` tells what the pool comes to with a limit.
pub(super) fn limit_for(
    size: Bytes,
    data: Bytes,
    mut pool: impl FnMut(Bytes) -> Result<Bytes>,
) -> Result<Limit> {
    let all = data.0 as f64;
    let mut limit = Bytes(size.0 / 2);
    for _ in 0..CORRECTIONS {
        // The pool grows as pages go out: limit + rate * (data - limit) is to be the size.
        let rate = pool(limit)?.0 as f64 / (all - limit.0 as f64);
        let wanted = (size.0 as f64 - rate * all) / (1.0 - rate);
        if rate >= 1.0 || wanted < all / LIMIT_SHARE_MIN as f64 {
            let percent = 100.0 * rate;
            return Ok(Err(format!("its pool alone would hold {percent:.0} % of the data")));
        }
        limit = Bytes(wanted as usize).pages_down().bytes();
    }
    Ok(Ok(limit))
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
            let limit = limit_for(size, data, |limit| Ok(pool(limit))).unwrap().unwrap();
            let sum = (limit + pool(limit)).0 as f64;
            assert!((sum / size.0 as f64 - 1.0).abs() < 0.001, "{rate}: {sum}");
        }
    }

    #[test]
    fn what_does_not_compress_has_no_limit() {
        let (size, data) = (Bytes::mib(64), Bytes::mib(256));
        for (percent, words) in [(25, "25 %"), (105, "105 %")] {
            let pool = |limit: Bytes| Bytes((data.0 - limit.0) / 100 * percent);
            let limit = limit_for(size, data, |limit| Ok(pool(limit))).unwrap();
            assert!(limit.unwrap_err().contains(words));
        }
    }
}
