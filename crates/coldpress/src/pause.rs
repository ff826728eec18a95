//! A short sleep that works under every filter.

use std::time::Duration;

use rustix::event::{Timespec, poll};

/// Sleeps for `interval` or less. Makes a call that every program is allowed. The standard library
/// makes another, and ends the program when that is refused.
pub(crate) fn pause(interval: Duration) {
    let timeout = Timespec::try_from(interval).expect("an interval is short");
    let _ = poll(&mut [], Some(&timeout));
}
