//! Error numbers by name, as the kernel's headers have them.

use linux_raw_sys::errno as linux;

/// Declares error numbers once, as constants and with their names.
macro_rules! error_numbers {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        $($(#[$doc])+ pub const $name: i32 = linux::$name as i32;)+

        /// Returns the name of an error number, if it is one of these.
        pub(crate) const fn name_of(errno: i32) -> Option<&'static str> {
            match errno {
                $($name => Some(stringify!($name)),)+
                _ => None,
            }
        }
    };
}

error_numbers! {
    /// The caller lacks the right, or a filter forbids the call.
    EPERM,
    /// There is no such file.
    ENOENT,
    /// There is no such process.
    ESRCH,
    /// A signal came.
    EINTR,
    /// The device failed, or gave less than it should.
    EIO,
    /// There is no such open file.
    EBADF,
    /// There is no such child.
    ECHILD,
    /// The call would have to wait, or has to be made again.
    EAGAIN,
    /// There is no memory, or no more is allowed.
    ENOMEM,
    /// The file may not be used in this way.
    EACCES,
    /// An address is not mapped.
    EFAULT,
    /// Another caller uses it.
    EBUSY,
    /// It exists already.
    EEXIST,
    /// There is no such device.
    ENODEV,
    /// A part of the path is no directory.
    ENOTDIR,
    /// The file is a directory.
    EISDIR,
    /// An argument makes no sense, or the kernel does not know it.
    EINVAL,
    /// The process may open no more files.
    EMFILE,
    /// The file does not know the request.
    ENOTTY,
    /// The process or the file system allows no file of that size.
    EFBIG,
    /// The device has no room.
    ENOSPC,
    /// The file system may not be changed.
    EROFS,
    /// The other end is closed.
    EPIPE,
    /// The name is too long.
    ENAMETOOLONG,
    /// The kernel does not know the call, or a filter hides it.
    ENOSYS,
    /// The path has too many symbolic links.
    ELOOP,
    /// The other end has not kept to the protocol.
    EPROTO,
    /// There are too many users.
    EUSERS,
    /// The message is too long.
    EMSGSIZE,
    /// The file cannot do what was asked for.
    EOPNOTSUPP,
    /// The other end has ended the connection.
    ECONNRESET,
    /// No process listens at the other end.
    ECONNREFUSED,
    /// The user's share of the disk is used up.
    EDQUOT,
}

/// Returns what a raw system call returns for an error number.
pub const fn answer(errno: i32) -> isize {
    -(errno as isize)
}
