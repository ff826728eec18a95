//! Files that a user names to be written: nothing in them is lost before it is known that they may
//! be.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Opens a file to be written, and makes it where it is absent. What it has stays until [`empty`].
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

/// Empties a file. Terminals, pipes and other devices have no length.
pub(crate) fn empty(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) }
}

/// Returns whether both are one regular file: two streams of a terminal may be one device.
pub(crate) fn is_same(one: &File, other: &File) -> bool {
    let identity = |file: &File| file.metadata().ok().filter(|it| it.is_file());
    let same = identity(one).zip(identity(other));
    same.is_some_and(|(one, other)| (one.dev(), one.ino()) == (other.dev(), other.ino()))
}
