//! The record of this machine: things tried, not guessed. No verdicts here.

use std::env;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coldpress_common::cgroup::{self, Limit};
use coldpress_sys::proc::Pagemap;
use coldpress_sys::ring::Ring;
use coldpress_sys::uffd::{FEATURES_NEEDED, Userfaultfd};
use coldpress_sys::{Bytes, PAGE_BYTES, SysError, SysResult};
use rustix::io::Errno;

use super::place::SpillPlace;
use crate::disk::{self, Disk};
use crate::inject::Injector;
use crate::proc;
use crate::trial::Obstacle;

/// The device that makes userfaultfds for every process that may open it.
pub(super) const DEVICE: &str = "/dev/userfaultfd";

/// The variable, for tests only, with the feature bits that the kernel may have at most, in
/// hexadecimal.
const TEST_FEATURES_MASK: &str = "COLDPRESS_TEST_FEATURES_MASK";

/// The facts that decide whether `coldpress run` can work at all.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    /// The release of the kernel, as `uname -r` prints it.
    pub(super) kernel_release: String,
    /// The feature bits of a userfaultfd from the device, or why there is none.
    pub(super) device: SysResult<u64>,
    /// The feature bits of a userfaultfd from the system call, or why there is none.
    pub(super) syscall: SysResult<u64>,
    /// Whether this process has CAP_SYS_PTRACE.
    pub(super) has_capability: bool,
    /// The place where this runs.
    pub(super) place: SpillPlace,
    /// The result of scanning one page of our own.
    pub(super) page_scan: SysResult<()>,
}

/// The record of a machine.
#[derive(Clone, Debug)]
pub(super) struct Host {
    /// The facts that decide whether `coldpress run` works at all.
    pub(super) faults: Faults,
    /// The result of a trial; `None` where a check above says why there was no trial.
    pub(super) trial: Option<Result<Duration, Obstacle>>,
    /// The machine's memory.
    pub(super) machine: Option<Bytes>,
    /// The smallest limit of this process's cgroup and its parents.
    pub(super) limit: Option<Limit>,
    /// The directory for written-back pages, and its use.
    pub(super) disk: Option<(PathBuf, Disk)>,
    /// Whether the user named the directory.
    pub(super) disk_is_named: bool,
    /// The chosen word in the kernel's setting of transparent huge pages.
    pub(super) huge_pages: Option<String>,
    /// The result of making a ring.
    pub(super) io_uring: SysResult<()>,
    /// Whether forks of programs with this command's libc are seen that no loader of glibc starts.
    pub(super) sees_forks: bool,
}

impl Faults {
    /// Tries everything on this machine, which is at `place`. Takes a millisecond at most.
    pub(super) fn gather(place: SpillPlace) -> Self {
        let mask = test_features_mask();
        let masked = |features: SysResult<u64>| features.map(|bits| bits & mask);
        Self {
            kernel_release: rustix::system::uname().release().to_string_lossy().into_owned(),
            device: masked(features_of(userfaultfd_by_device)),
            syscall: masked(features_of(|| Userfaultfd::from_syscall(false))),
            has_capability: proc::may_trace(),
            place,
            page_scan: scan_a_page(),
        }
    }
}

impl Host {
    /// Tries everything on this machine, with `directory` for written-back pages; `is_named` says
    /// whether the user named it.
    pub(super) fn gather(directory: Option<&Path>, is_named: bool) -> Self {
        Self {
            trial: None,
            faults: Faults::gather(SpillPlace::here()),
            machine: cgroup::machine_memory().ok(),
            limit: cgroup::own_limit(),
            disk: directory.map(|path| (path.to_path_buf(), disk::examine(path))),
            disk_is_named: is_named,
            huge_pages: setting("/sys/kernel/mm/transparent_hugepage/enabled").map(chosen_word),
            io_uring: Ring::new().map(drop),
            sees_forks: Injector::sees_forks_of_own_libc(),
        }
    }
}

fn userfaultfd_by_device() -> SysResult<Userfaultfd> {
    let device = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(DEVICE)
        .map_err(|error| SysError { call: "open", errno: error.raw_os_error().unwrap_or(0) })?;
    Userfaultfd::from_device(device.as_fd())
}

/// Agrees on the features a run needs, and returns all that the kernel has. If the kernel lacks
/// one, asks a second userfaultfd what there is instead, because each can be asked once.
fn features_of(open: impl Fn() -> SysResult<Userfaultfd>) -> SysResult<u64> {
    match open()?.handshake(FEATURES_NEEDED) {
        Err(error) if error.is(Errno::INVAL) => open()?.handshake(0),
        result => result,
    }
}

fn test_features_mask() -> u64 {
    let text = env::var(TEST_FEATURES_MASK).unwrap_or_default();
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(u64::MAX)
}

fn scan_a_page() -> SysResult<()> {
    let page = [0_u8; PAGE_BYTES];
    let start = page.as_ptr().addr() & !(PAGE_BYTES - 1);
    Pagemap::open()?.for_each_present(start, start + PAGE_BYTES, |_, _| {})
}

fn setting(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Returns the word in brackets of `always [madvise] never`.
fn chosen_word(text: String) -> String {
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or(text.clone(), |(word, _)| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_is_the_one_in_brackets() {
        assert_eq!(chosen_word("always [madvise] never".to_owned()), "madvise");
        assert_eq!(chosen_word("never".to_owned()), "never");
    }

    #[test]
    fn the_device_and_the_call_know_the_same_features() {
        let faults = Faults::gather(SpillPlace::default());
        if let (Ok(device), Ok(syscall)) = (faults.device, faults.syscall) {
            assert_eq!(device, syscall);
        } else {
            eprintln!("skipped: only one way in here");
        }
    }
}
