//! The directory of a run: its name, by which the run is found from outside, and the names of what
//! lies in it.

use std::ffi::OsStr;

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
    let parts = name.to_str().and_then(|name| name.strip_prefix("coldpress-")?.split_once('-'));
    parts.is_some_and(|(launcher, rest)| launcher.parse::<u32>().is_ok() && rest.len() == 6)
}
