//! The command lines of `coldpress-bench swap` and of its workload.

use std::path::PathBuf;

use clap::Args;
use coldpress_common::size::parse_size;
use coldpress_sys::Bytes;

use super::data::Kind;
use crate::commands::against::AgainstArgs;
use crate::commands::common::{Common, ContestArgs, Share};

/// A share in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Percent(pub(crate) u32);

/// The options of `coldpress-bench swap`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SwapArgs {
    /// Data of the program
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub(crate) data: Bytes,

    /// Pages to copy the data from
    ///
    /// Each kind is measured. They are of a heap. With RATIO they are made such that lz4 stores so
    /// many to 1.
    #[arg(long, value_name = "heap|RATIO", value_delimiter = ',', default_value = "heap,1.8",
        value_parser = Kind::parse)]
    pub(crate) pages: Vec<Kind>,

    /// The memory, of all that the data take
    ///
    /// The default is total-50, or total-75 for pages that do not fit in that when compressed.
    #[arg(long, value_name = "SHARE", value_delimiter = ',', value_enum)]
    pub(crate) share: Vec<Share>,

    /// Threads of the program
    ///
    /// Each number is measured.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: Vec<u32>,

    /// Touches that write, in percent
    ///
    /// Each number is measured.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0,30",
        value_parser = parse_percent)]
    pub(crate) writes: Vec<Percent>,

    #[command(flatten)]
    pub(crate) contest: ContestArgs,

    #[command(flatten)]
    pub(crate) against: AgainstArgs,

    /// Milliseconds of each order of touches in a turn
    #[arg(long, value_name = "N", default_value_t = 500,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) millis: u32,

    /// Draw touches a second, by threads, into FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) common: Common,
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
    /// Touches that write, in percent; each number is measured
    #[arg(long, value_delimiter = ',', value_parser = parse_percent)]
    pub(crate) writes: Vec<Percent>,
    /// A file of pages to fill it with
    #[arg(long)]
    pub(crate) pages: PathBuf,
    /// Milliseconds of each order that are not measured
    #[arg(long)]
    pub(crate) warm_ms: u64,
    /// Milliseconds of each order
    #[arg(long)]
    pub(crate) measure_ms: u64,
    /// The process below which everything runs for this program
    #[arg(long)]
    pub(crate) top: u32,
}

fn parse_percent(text: &str) -> Result<Percent, String> {
    let percent = text.parse().ok().filter(|percent| *percent <= 100);
    percent.map(Percent).ok_or_else(|| "it is a whole number up to 100".to_owned())
}
