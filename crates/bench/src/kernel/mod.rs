//! The kernel's own swap as a peer: a program in a memory cgroup, with zram, with zswap before a
//! swap file, or with the file alone.
//!
//! Nothing of it is linked: files of /sys and /proc and the commands `mkswap`, `swapon` and
//! `swapoff` do all. It needs root. What a machine lacks is an error that names it.
//!
//! 1. There is one swap at a time, and it is ours: where somebody else's is on, none is started.
//! 2. What is changed is put back when its guard is dropped. SIGHUP, SIGINT and SIGTERM end the
//!    program that runs and nothing else, as long as [`Signals`] lives.
//! 3. Commands run in process groups of their own, so that no key of the terminal ends one halfway.

mod group;
mod run;
mod swap;

use std::path::Path;
use std::{fs, io};

pub use group::Group;
pub use run::{Ran, Signals, run};
pub use swap::{Peer, Swap};

/// Reads a file of the kernel. The error names it.
fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map_err(|error| named(path, &error))
}

/// Writes to a file of the kernel. The error names it and the text.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let said = |error| named(path, &io::Error::other(format!("cannot write {text}: {error}")));
    fs::write(path, text).map_err(said)
}

/// The error with the path it is about.
fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Says what could not be put back: a destructor has nobody to give an error to.
fn put_back(result: io::Result<()>) {
    if let Err(error) = result {
        eprintln!("coldpress: this is left as it is, please put it back: {error}");
    }
}
