//! The kernel's own swap as a peer: a program in a memory cgroup, with zram, with zswap in front of
//! a swap file, or with the file alone.
//!
//! No library is linked: files of /sys and /proc and the commands `mkswap`, `swapon` and `swapoff`
//! do everything. Root is required. An error names what the machine lacks.
//!
//! 1. There is one swap at a time, and it is ours: where any other swap is on, none is started.
//! 2. Every change is undone when its guard is dropped. Whoever makes changes keeps a
//!    [`Signals`](crate::interrupt::Signals) meanwhile.
//! 3. Commands run in process groups of their own, so that no key of the terminal ends one halfway.

mod group;
mod run;
mod swap;

use std::path::Path;
use std::{fs, io};

pub(crate) use group::Group;
pub(crate) use run::{Ran, run};
pub(crate) use swap::{Peer, Swap};

/// Reads a file of the kernel. The error names the file.
fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map_err(|error| named(path, &error))
}

/// Writes to a file of the kernel. The error names the file and the text.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let said = |error| named(path, &io::Error::other(format!("cannot write {text}: {error}")));
    fs::write(path, text).map_err(said)
}

/// Adds the path of the file to an error.
fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Says what could not be put back: a destructor cannot return an error.
fn put_back(result: io::Result<()>) {
    if let Err(error) = result {
        eprintln!("coldpress: this is left as it is, please put it back: {error}");
    }
}
