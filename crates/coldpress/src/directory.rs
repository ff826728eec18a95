//! The directory of a run: its name, by which the run is found from outside, and the names of what
//! lies in it.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::mappings;

/// The name of the socket in the run's directory.
pub(crate) const SOCKET_NAME: &str = "socket";
/// The library's name in the directory of a run.
pub(crate) const LIBRARY_NAME: &str = "libcoldpress.so";
/// The same file by the name under which the launcher puts it into programs itself. So /proc tells
/// them from programs of another libc, whose loader has mapped it in vain.
pub(crate) const PUT_IN_NAME: &str = "libcoldpress-in.so";

/// Returns how the name of a run's directory begins when `launcher` leads the run. The run is found
/// from outside by it.
pub(crate) fn directory_prefix(launcher: u32) -> String {
    format!("coldpress-{launcher}-")
}

/// Returns whether a directory of a run can be called `name`.
pub(crate) fn is_directory_name(name: &OsStr) -> bool {
    leader_named(name).is_some()
}

/// Returns the process that leads the run whose directory is called `name`, if one can be.
pub(crate) fn leader_named(name: &OsStr) -> Option<u32> {
    let (leader, rest) = name.to_str()?.strip_prefix("coldpress-")?.split_once('-')?;
    leader.parse().ok().filter(|_| rest.len() == 6)
}

/// Returns the path of the library in `process`, if it has one.
pub(crate) fn library_in(process: u32) -> Option<PathBuf> {
    let mut all = mappings::of(process).unwrap_or_default().into_iter().map(|it| it.name);
    let is_one = |file: &String| file.ends_with(LIBRARY_NAME) || file.ends_with(PUT_IN_NAME);
    all.find(is_one).map(PathBuf::from)
}

/// Returns the process that leads the run whose library is in `process`, by the library's path. A
/// program can map a file of any name.
pub(crate) fn leader_in(process: u32) -> Option<u32> {
    leader_named(library_in(process)?.parent()?.file_name()?)
}
