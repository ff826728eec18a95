//! The one error of this layer: the call that failed, and its error number.

use core::fmt;

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
        let name = match self.errno {
            1 => "EPERM",
            2 => "ENOENT",
            3 => "ESRCH",
            4 => "EINTR",
            5 => "EIO",
            9 => "EBADF",
            11 => "EAGAIN",
            12 => "ENOMEM",
            13 => "EACCES",
            14 => "EFAULT",
            16 => "EBUSY",
            17 => "EEXIST",
            19 => "ENODEV",
            20 => "ENOTDIR",
            21 => "EISDIR",
            22 => "EINVAL",
            24 => "EMFILE",
            25 => "ENOTTY",
            28 => "ENOSPC",
            30 => "EROFS",
            32 => "EPIPE",
            36 => "ENAMETOOLONG",
            38 => "ENOSYS",
            40 => "ELOOP",
            90 => "EMSGSIZE",
            95 => "EOPNOTSUPP",
            104 => "ECONNRESET",
            111 => "ECONNREFUSED",
            122 => "EDQUOT",
            _ => return write!(f, "{}: error {}", self.call, self.errno),
        };
        write!(f, "{}: {name}", self.call)
    }
}

impl core::error::Error for SysError {}
