//! The command lines of `coldpress bench swap` and of its workload.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use coldpress_bench::kernel::Peer;
use coldpress_sys::Bytes;

use crate::size::parse_size;

/// The options of `coldpress bench swap`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SwapArgs {
    /// Data of the program, copies of pages of a heap
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub(crate) data: Bytes,

    /// The memory, of all that the data take; everything is the default
    #[arg(long, value_name = "SHARE", value_delimiter = ',', value_enum)]
    pub(crate) share: Vec<Share>,

    /// Threads of the program; each number is measured
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: Vec<u32>,

    /// The kernel's swap to compare with: zram-lz4, zram-lzo-rle, zswap-lzo or swapfile; all is the
    /// default. It takes root, a kernel with zram or zswap, and a machine that does not swap
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_peer)]
    pub(crate) peer: Vec<Peer>,

    /// Directory for swap files, on a disk
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) directory: PathBuf,

    /// Rounds; each contestant has a turn in each
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,

    /// How long each order of touches is measured in each turn, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 500,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) millis: u32,

    /// Draw accesses per second into FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Little work, to see that everything runs; its times say nothing
    #[arg(long)]
    pub(crate) quick: bool,

    /// Print one JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// How much memory a program gets in `coldpress bench swap` and `coldpress bench programs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Share {
    /// Half of the data, compressed pages included
    #[value(name = "total-50")]
    Total50,
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
    /// All of them.
    pub(super) const ALL: [Self; 4] =
        [Self::Total50, Self::Total25, Self::Resident50, Self::Resident25];

    /// Its name on the command line.
    pub(in crate::bench) fn name(self) -> &'static str {
        match self {
            Self::Total50 => "total-50",
            Self::Total25 => "total-25",
            Self::Resident50 => "resident-50",
            Self::Resident25 => "resident-25",
        }
    }

    /// Whether compressed pages are part of it.
    pub(in crate::bench) fn has_pool(self) -> bool {
        matches!(self, Self::Total50 | Self::Total25)
    }

    /// It, of `data`.
    pub(in crate::bench) fn of(self, data: Bytes) -> Bytes {
        match self {
            Self::Total50 | Self::Resident50 => Bytes(data.0 / 2),
            Self::Total25 | Self::Resident25 => Bytes(data.0 / 4),
        }
    }
}

/// Reads the name of a kind of swap. The error has them all.
pub(in crate::bench) fn parse_peer(name: &str) -> Result<Peer, String> {
    let peer = Peer::ALL.into_iter().find(|peer| peer.name() == name);
    peer.ok_or_else(|| format!("it is one of {}", Peer::ALL.map(Peer::name).join(", ")))
}

/// The options of the workload of `coldpress bench swap`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TouchArgs {
    /// Bytes to fill
    #[arg(long, value_parser = parse_size)]
    pub(crate) data: Bytes,
    /// Threads, each with a part of the data
    #[arg(long)]
    pub(crate) threads: u32,
    /// A file of pages to fill it with
    #[arg(long)]
    pub(crate) pages: PathBuf,
    /// Milliseconds of each order that are not measured
    #[arg(long)]
    pub(crate) warm_ms: u64,
    /// Milliseconds of each order
    #[arg(long)]
    pub(crate) measure_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_peers_are_named_as_on_the_command_line() {
        for share in Share::ALL {
            assert_eq!(Share::from_str(share.name(), false), Ok(share));
        }
        for peer in Peer::ALL {
            assert_eq!(parse_peer(&peer.name()), Ok(peer));
        }
        assert!(parse_peer("zram").is_err_and(|error| error.contains("zram-lz4")));
    }
}
