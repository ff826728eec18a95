//! The options that several benchmarks take.

use std::path::PathBuf;

use crate::kernel::Peer;
use clap::{Args, Parser, ValueEnum, ValueHint};
use coldpress_common::size::{parse_size, show};
use coldpress_runtime::ledger::BUDGET_FLOOR;
use coldpress_sys::Bytes;

/// What every benchmark takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Little work, whose times say nothing
    #[arg(long)]
    pub(crate) quick: bool,

    /// Directory to keep the figures in, too
    ///
    /// Each processor gets a folder, each date and commit two files.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,

    /// Print one JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// How often a benchmark whose sides take turns has them do so.
#[derive(Clone, Debug, Args)]
pub(crate) struct Rounds {
    /// Rounds, in each of which every side has a turn
    ///
    /// The default is as many as the figures need, 20 with --against, 1 with --quick.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: Option<u32>,
}

impl Rounds {
    /// Returns the number of rounds that the user asks for, else `usual`, or one with --quick.
    pub(crate) fn or(&self, usual: u32, common: &Common) -> u32 {
        self.rounds.unwrap_or(if common.quick { 1 } else { usual })
    }
}

/// The kernel's swap that coldpress is compared with, where files go, and how often.
#[derive(Clone, Debug, Args)]
pub(crate) struct ContestArgs {
    /// The kernel's swap to compare with
    ///
    /// It is zram-lz4, zram-lzo-rle, zswap-lzo, swapfile, or none. The default is all that the
    /// benchmark is about. It takes root, a kernel with zram or zswap, and a machine that does not
    /// swap.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_peer)]
    pub(crate) peer: Vec<Choice>,

    /// Directory on a disk
    ///
    /// It is for swap files, the file of coldpress, and what programs read and write.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/tmp",
        value_hint = ValueHint::DirPath
    )]
    pub(crate) directory: PathBuf,

    #[command(flatten)]
    pub(crate) rounds: Rounds,
}

/// A value of `--peer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// No peer.
    None,
    /// This peer.
    Peer(Peer),
}

impl ContestArgs {
    /// Returns the peers that the user names, else the `usual` ones.
    pub(crate) fn peers(&self, usual: &[Peer]) -> Vec<Peer> {
        if self.peer.is_empty() {
            return usual.to_vec();
        }
        let named = |choice: &Choice| match choice {
            Choice::None => None,
            Choice::Peer(peer) => Some(*peer),
        };
        self.peer.iter().filter_map(named).collect()
    }
}

/// Reads the name of a peer. The error lists all names.
fn parse_peer(name: &str) -> Result<Choice, String> {
    if name == "none" {
        return Ok(Choice::None);
    }
    let peer = Peer::ALL.into_iter().find(|peer| peer.name() == name).map(Choice::Peer);
    peer.ok_or_else(|| format!("it is none, or one of {}", Peer::ALL.map(Peer::name).join(", ")))
}

/// How much memory a program gets beside the kernel's swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Share {
    /// Half of the data, compressed pages included
    #[value(name = "total-50")]
    Total50,
    /// Three quarters of the data, compressed pages included
    #[value(name = "total-75")]
    Total75,
    /// A quarter of the data, compressed pages included
    #[value(name = "total-25")]
    Total25,
    /// Half of the data in place, and compressed pages beside it
    #[value(name = "resident-50")]
    Resident50,
    /// A quarter of the data in place, and compressed pages beside it
    #[value(name = "resident-25")]
    Resident25,
}

impl Share {
    /// Returns the name of the share on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Total50 => "total-50",
            Self::Total75 => "total-75",
            Self::Total25 => "total-25",
            Self::Resident50 => "resident-50",
            Self::Resident25 => "resident-25",
        }
    }

    /// Returns whether compressed pages are part of the share.
    pub(crate) fn has_pool(self) -> bool {
        matches!(self, Self::Total50 | Self::Total75 | Self::Total25)
    }

    /// Returns the size of the share of `data`.
    pub(crate) fn of(self, data: Bytes) -> Bytes {
        match self {
            Self::Total75 => Bytes(data.0 / 4 * 3),
            Self::Total50 | Self::Resident50 => Bytes(data.0 / 2),
            Self::Total25 | Self::Resident25 => Bytes(data.0 / 4),
        }
    }
}

/// Returns the options as they are when none is given.
pub(super) fn defaults<T: Args>() -> T {
    #[derive(Parser)]
    struct Alone<T: Args> {
        #[command(flatten)]
        args: T,
    }
    Alone::parse_from(["bench"]).args
}

/// Reads a size that `coldpress run --memory` takes.
pub(super) fn parse_budget(text: &str) -> Result<Bytes, String> {
    let size = parse_size(text)?;
    if size < BUDGET_FLOOR {
        return Err(format!("a budget is at least {}", show(BUDGET_FLOOR)));
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_and_shares_are_named_as_on_the_command_line() {
        for peer in Peer::ALL {
            assert_eq!(parse_peer(&peer.name()), Ok(Choice::Peer(peer)));
        }
        assert!(parse_peer("zram").is_err_and(|error| error.contains("zram-lz4")));
        for share in Share::value_variants().iter().copied() {
            assert_eq!(Share::from_str(share.name(), false), Ok(share));
        }
    }
}
