//! The same work under growing pressure: a growing number of its parts run at a time, within a
//! fixed amount of memory, over the kernel's swap and over coldpress.
//!
//! 1. All contestants have the same memory in total. Where the kernel keeps compressed pages, the
//!    limit of the cgroup and the pool beside it add up to that memory, as far as possible.
//! 2. Contestants take turns, and a different one starts each round.
//! 3. A run in which the kernel killed a process, or in which a part of the work failed, has no
//!    figures but is counted.
//! 4. A contestant for which the machine lacks something is left out, and the reason is given.

pub(super) mod contest;
pub(super) mod figures;
pub(super) mod tables;

use std::process::Command;

use crate::kernel::{Peer, Ran};
use coldpress_common::failure::Result;
use coldpress_sys::Bytes;

/// The kernel's zswap with lzo, the codec of zswap v4's mail, which every kernel with zswap has.
pub(super) const ZSWAP: Peer = Peer::Zswap("lzo");

/// A contestant, which does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contestant {
    /// The kernel with this swap.
    Kernel(Peer),
    /// coldpress with everything raw on disk: nothing is compressed, and the pool is small.
    Raw,
    /// coldpress as it is.
    Ours,
}

impl Contestant {
    /// Returns the name of the contestant in tables.
    pub(super) fn name(self) -> String {
        match self {
            Self::Kernel(peer) => peer.name(),
            Self::Raw => "coldpress-raw".to_owned(),
            Self::Ours => "coldpress".to_owned(),
        }
    }

    /// Returns the kernel's swap that the contestant runs on; `None` for coldpress.
    const fn peer(self) -> Option<Peer> {
        match self {
            Self::Kernel(peer) => Some(peer),
            Self::Raw | Self::Ours => None,
        }
    }
}

/// The work of a contest.
pub(super) trait Work {
    /// The name of the benchmark.
    const BENCH: &'static str;

    /// Returns the command that does all of the work from the start, `jobs` parts at a time.
    fn command(&self, jobs: u32) -> Result<Command>;

    /// Returns how many parts of a run have failed. `name` is that of the contestant. Fails when a
    /// result is wrong.
    fn failed(&self, name: &str, ran: &Ran) -> Result<u32>;

    /// Returns the most memory that `jobs` parts could ever hold at a time.
    fn largest(&self, jobs: u32) -> Bytes;
}
