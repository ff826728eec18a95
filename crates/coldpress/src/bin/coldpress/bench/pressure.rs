//! The same work under growing pressure: so many parts of it at a time, within one amount of
//! memory, over the kernel's swap and over coldpress.
//!
//! 1. All have the same memory in all: where the kernel keeps compressed pages, the limit of the
//!    cgroup and the pool beside it come to it together, as far as that goes.
//! 2. Contestants take turns, and another one starts each round.
//! 3. A run in which the kernel killed, or a part of the work failed, has no figures but is
//!    counted.
//! 4. What the machine lacks is named, and left out.

pub(super) mod contest;
pub(super) mod figures;
pub(super) mod tables;

use std::process::Command;

use clap::ValueEnum;
use coldpress_bench::kernel::{Peer, Ran};
use coldpress_sys::Bytes;

use crate::failure::Result;

/// With the codec of the reference, which every kernel with zswap has.
const ZSWAP: Peer = Peer::Zswap("lzo");

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contestant {
    /// The kernel with a swap file alone
    SwapFile,
    /// The kernel with zswap before it, with lzo
    KernelZswap,
    /// The kernel with zram in place of the file, with lz4
    KernelZram,
    /// Coldpress with everything raw on disk: nothing is compressed, and the pool is small
    ColdpressRaw,
    /// Coldpress as it is
    Coldpress,
}

impl Contestant {
    /// Its name on the command line and in tables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SwapFile => "swap-file",
            Self::KernelZswap => "kernel-zswap",
            Self::KernelZram => "kernel-zram",
            Self::ColdpressRaw => "coldpress-raw",
            Self::Coldpress => "coldpress",
        }
    }

    /// The kernel's swap that it has; nothing for ours.
    const fn peer(self) -> Option<Peer> {
        match self {
            Self::SwapFile => Some(Peer::File),
            Self::KernelZswap => Some(ZSWAP),
            Self::KernelZram => Some(super::sides::JUDGE),
            Self::ColdpressRaw | Self::Coldpress => None,
        }
    }
}

/// What is done.
pub(super) trait Work {
    /// The name of its benchmark.
    const BENCH: &'static str;

    /// A program that does all of it, so many parts at a time, from the start.
    fn command(&self, jobs: u32) -> Result<Command>;

    /// How many parts of a run have failed. `name` says who ran it. An error when what came out is
    /// wrong.
    fn failed(&self, name: &str, ran: &Ran) -> Result<u32>;

    /// The most that so many parts could ever hold at a time.
    fn largest(&self, jobs: u32) -> Bytes;
}

#[cfg(test)]
mod tests {
    //! The risk: a contestant that the user names and that another one's figures are told of.
    use super::*;

    #[test]
    fn contestants_are_named_as_on_the_command_line() {
        for contestant in Contestant::value_variants() {
            assert_eq!(Contestant::from_str(contestant.name(), false), Ok(*contestant));
        }
    }
}
