//! The one error of this layer: the call that failed, and its error number.

use core::fmt;

use crate::errno;

/// A failed system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysError {
    /// The name of the call in the manual.
    pub call: &'static str,
    /// The kernel's error number, positive.
    pub errno: i32,
}

/// The result of a system call.
pub type SysResult<T> = Result<T, SysError>;

impl SysError {
    /// Returns a function that turns an error number of rustix into an error of `call`.
    pub(crate) fn of(call: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |errno| Self { call, errno: errno.raw_os_error() }
    }

    /// Returns whether the error number is `errno`.
    pub fn is(self, errno: rustix::io::Errno) -> bool {
        self.errno == errno.raw_os_error()
    }
}

impl fmt::Display for SysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match errno::name_of(self.errno) {
            Some(name) => write!(f, "{}: {name}", self.call),
            None => write!(f, "{}: error {}", self.call, self.errno),
        }
    }
}

impl core::error::Error for SysError {}
