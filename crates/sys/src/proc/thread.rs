//! What the kernel reports about one thread, or about another process.

use core::ffi::CStr;

use linux_raw_sys::general as linux;
use rustix::fd::OwnedFd;

use super::{decimal, hexadecimal, open_read, write_path};
use crate::error::SysResult;
use crate::page::Bytes;

/// Opens a file of /proc that belongs to a thread or a process.
pub(crate) fn open_of(thread: u32, name: &CStr) -> SysResult<OwnedFd> {
    let mut path = [0_u8; 48];
    let length = write_path(&mut path, b"/proc/", thread, name.to_bytes_with_nul());
    open_read(CStr::from_bytes_with_nul(&path[..length]).expect("ends with its only zero"))
}

/// A mapping that a thread enlarges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enlarged {
    /// The start of the mapping before the call.
    pub from: usize,
    /// The old length, in whole pages.
    pub old: Bytes,
    /// The added length, in whole pages.
    pub by: Bytes,
}

/// Returns the mapping that a thread enlarges, if its `syscall` file says that it waits inside
/// `mremap`. The file has the number of the call in decimal, its six arguments in hexadecimal, and
/// the stack and instruction pointers. Source: proc_pid_syscall(5).
pub fn enlarges(text: &[u8]) -> Option<Enlarged> {
    let mut fields = text.split(|byte| *byte == b' ');
    if decimal(fields.next()?)? != u64::from(linux::__NR_mremap) {
        return None;
    }
    let mut arguments = fields.map(|field| field.strip_prefix(b"0x").and_then(hexadecimal));
    let mut next = || arguments.next().flatten().map(|argument| argument as usize);
    let (from, old, new) = (next()?, next()?, next()?);
    let (old, new) = (Bytes(old).pages_up(), Bytes(new).pages_up());
    let (old, by) = (old.bytes(), new.saturating_sub(old).bytes());
    (by > Bytes(0)).then_some(Enlarged { from, old, by })
}

#[cfg(test)]
mod tests {
    //! The risk: another call passes for one that enlarges a mapping, or a size or field is wrong.

    use super::*;
    use crate::page::PAGE_BYTES;

    #[test]
    fn only_a_call_that_enlarges_a_mapping_does() {
        let call = |old: &str, new: &str| {
            let text = std::format!(
                "{} 0x7f000 {old} {new} 0x1 0x0 0x0 0x7ffd 0x7f12\n",
                linux::__NR_mremap
            );
            enlarges(text.as_bytes())
        };
        let (old, from) = (Bytes(2 * PAGE_BYTES), 0x7f000);
        let by = |pages: usize| Some(Enlarged { from, old, by: Bytes(pages * PAGE_BYTES) });
        assert_eq!(call("0x2000", "0x6000"), by(4));
        // Both sizes count as whole pages.
        assert_eq!(call("0x1800", "0x2900"), by(1));
        assert_eq!([call("0x1800", "0x1900"), call("0x2000", "0x1000")], [None, None]);
        let read = "0 0x3 0x2000 0x6000 0x1 0x0 0x0 0x7ffd 0x7f12\n";
        for text in [read, "running\n", "-1 0x7ffd 0x7f12\n", "25\n", ""] {
            assert_eq!(enlarges(text.as_bytes()), None, "{text}");
        }
    }
}
