//! The command lines of `coldpress-bench swap` and of its workload.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use coldpress_cli::size::parse_size;
use coldpress_sys::Bytes;

use crate::against::AgainstArgs;
use crate::options::{Common, ContestArgs};

/// The options of `coldpress-bench swap`.
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

    #[command(flatten)]
    pub(crate) contest: ContestArgs,

    #[command(flatten)]
    pub(crate) against: AgainstArgs,

    /// How long each order of touches is measured in each turn, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 500,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) millis: u32,

    /// Draw accesses per second into FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// How much memory a program gets in `coldpress-bench swap` and `coldpress-bench programs`.
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
    /// All shares.
    pub(super) const ALL: [Self; 4] =
        [Self::Total50, Self::Total25, Self::Resident50, Self::Resident25];

    /// Returns the name of the share on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Total50 => "total-50",
            Self::Total25 => "total-25",
            Self::Resident50 => "resident-50",
            Self::Resident25 => "resident-25",
        }
    }

    /// Returns whether compressed pages are part of the share.
    pub(crate) fn has_pool(self) -> bool {
        matches!(self, Self::Total50 | Self::Total25)
    }

    /// Returns the size of the share of `data`.
    pub(crate) fn of(self, data: Bytes) -> Bytes {
        match self {
            Self::Total50 | Self::Resident50 => Bytes(data.0 / 2),
            Self::Total25 | Self::Resident25 => Bytes(data.0 / 4),
        }
    }
}

/// The options of the workload of `coldpress-bench swap`.
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
    fn shares_are_named_as_on_the_command_line() {
        for share in Share::ALL {
            assert_eq!(Share::from_str(share.name(), false), Ok(share));
        }
    }
}
