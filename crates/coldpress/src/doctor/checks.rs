//! The verdicts: pure functions from the record of a host to findings.

use std::time::Duration;

use coldpress_common::size::show;
use coldpress_runtime::ledger::BUDGET_FLOOR;
use coldpress_sys::uffd::{FEATURE_MOVE, FEATURES_NEEDED};
use coldpress_sys::{Bytes, SysResult};
use rustix::io::Errno;

use super::Access;
use super::finding::Finding;
use super::host::{DEVICE, Faults, Host};
use super::mend::{self, Closed};
use super::place::SpillPlace;
use crate::disk::{self, Disk};
use crate::trial::Obstacle;

/// The first kernel with UFFDIO_MOVE.
const KERNEL_NEEDED: (u32, u32) = (6, 8);
const NEW_KERNEL: &str = "boot Linux 6.8 or newer (Debian 13, Ubuntu 24.04, Fedora 40 have it)";

/// The feature bits of userfaultfd that a run needs, with their names in linux/userfaultfd.h.
const FEATURE_NAMES: [(u64, &str); 5] = [
    (1 << 2, "EVENT_REMAP"),
    (1 << 3, "EVENT_REMOVE"),
    (1 << 6, "EVENT_UNMAP"),
    (1 << 8, "THREAD_ID"),
    (FEATURE_MOVE, "MOVE"),
];
const _: () = {
    let mut named = 0;
    let mut index = 0;
    while index < FEATURE_NAMES.len() {
        named |= FEATURE_NAMES[index].0;
        index += 1;
    }
    assert!(named == FEATURES_NEEDED);
};

/// Runs the checks without which `coldpress run` cannot work, the most basic first.
pub(super) fn of_faults(faults: &Faults) -> Vec<Finding> {
    let mut findings = vec![kernel(&faults.kernel_release), access(faults)];
    findings.extend(features(faults));
    findings.push(page_scan(faults));
    findings
}

/// Runs all checks.
pub(super) fn of_host(host: &Host) -> Vec<Finding> {
    let mut findings = of_faults(&host.faults);
    findings.extend(host.trial.as_ref().map(|result| of_trial(&host.faults.place, result)));
    findings.push(memory(host));
    findings.push(spill(host));
    findings.push(huge_pages(host.huge_pages.as_deref()));
    findings.push(io_uring(&host.faults.place, host.io_uring));
    findings.push(forks(host.sees_forks));
    findings.extend(helper(&host.faults));
    findings.extend(late(&host.faults));
    findings
}

/// Judges the result of a trial.
pub(super) fn of_trial(place: &SpillPlace, result: &Result<Duration, Obstacle>) -> Finding {
    let what = "trial";
    let filtered = if place.is_filtered { "by a seccomp filter, it seems" } else { "" };
    match result {
        Ok(took) => {
            let ms = took.as_millis();
            let filter = if place.is_filtered { ", under a seccomp filter" } else { "" };
            let place = place.container.name();
            let finding = format!("pages of a program went and came back, in {ms} ms");
            Finding::ok(what, format!("{finding} (in {place}{filter})"))
        }
        Err(Obstacle::Refused(error)) => {
            let finding = format!("nothing would be managed: {error} {filtered}");
            Finding::fail(what, finding.trim_end(), mend::calls(place, &[error.call]))
        }
        Err(Obstacle::Kills(call)) => {
            let finding =
                format!("nothing would be managed: who calls {call} is killed {filtered}");
            Finding::fail(what, finding.trim_end(), mend::calls(place, &[call]))
        }
        Err(Obstacle::Other(why)) => {
            Finding::fail(what, format!("nothing would be managed: {why}"), mend::unknown(place))
        }
    }
}

/// Returns the better of the ways in that work.
pub(super) fn best_access(faults: &Faults) -> Option<Access> {
    match (faults.device, faults.syscall) {
        (Ok(_), _) => Some(Access::Device),
        (_, Ok(_)) => Some(Access::Syscall),
        _ => None,
    }
}

fn kernel(release: &str) -> Finding {
    let what = "kernel";
    let (major, minor) = KERNEL_NEEDED;
    let Some(version) = parse_release(release) else {
        let finding = format!("{release} has no version number, {major}.{minor} is needed");
        return Finding::warn(what, finding, NEW_KERNEL);
    };
    if version < KERNEL_NEEDED {
        let finding = format!("{release} is older than {major}.{minor}, which can move pages out");
        return Finding::fail(what, finding, NEW_KERNEL);
    }
    Finding::ok(what, format!("{release}, {major}.{minor} is needed"))
}

/// Parses the major and minor number of `6.18.44-generic`.
fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Judges access: names the way in that is taken, and why the others are not.
fn access(faults: &Faults) -> Finding {
    let what = "access";
    let device = match faults.device {
        Ok(_) => format!("{DEVICE} opens"),
        Err(error) => format!("{DEVICE}: {error}"),
    };
    let capability = if faults.has_capability { "with" } else { "without" };
    let sysctl = faults.place.unprivileged_userfaultfd.as_deref().unwrap_or("absent");
    let rights = format!("{capability} CAP_SYS_PTRACE, vm.unprivileged_userfaultfd={sysctl}");
    let syscall = match faults.syscall {
        Ok(_) => format!("system call works {rights}"),
        Err(error) => format!("system call {error} {rights}"),
    };
    match best_access(faults) {
        Some(Access::Device) => Finding::ok(what, format!("{device}; {syscall}")),
        Some(Access::Syscall) if sysctl == "1" => Finding::ok(what, format!("{syscall}; {device}")),
        Some(Access::Syscall) => Finding::warn(
            what,
            format!("{syscall}; {device}, so a program that drops its rights is not managed"),
            way_to_device(faults),
        ),
        None => Finding::fail(
            what,
            format!("no way to userfaultfd: {device}, {syscall}"),
            way_to_device(faults),
        ),
    }
}

/// Returns the command that opens the device, by the reason it is closed.
fn way_to_device(faults: &Faults) -> String {
    let is = |errno: Errno| faults.device.is_err_and(|error| error.is(errno));
    let is_absent = faults.syscall.is_err_and(|error| error.is(Errno::NOSYS)) && is(Errno::NOENT);
    let closed = match (is_absent && !faults.place.is_filtered, is(Errno::NOENT)) {
        (true, _) => Closed::Absent,
        (_, true) => Closed::NoDevice,
        _ => Closed::Device,
    };
    mend::access(&faults.place, closed)
}

/// Judges whether the kernel has the features that a run needs. Returns nothing without access.
fn features(faults: &Faults) -> Option<Finding> {
    let bits = faults.device.or(faults.syscall).ok()?;
    let missing: Vec<_> =
        FEATURE_NAMES.iter().filter(|(bit, _)| bits & bit == 0).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        let names: Vec<_> = FEATURE_NAMES.iter().map(|(_, name)| *name).collect();
        return Some(Finding::ok("userfaultfd", format!("has {}", names.join(", "))));
    }
    let finding = format!("this kernel lacks {} (features {bits:#x})", missing.join(", "));
    Some(Finding::fail("userfaultfd", finding, NEW_KERNEL))
}

fn page_scan(faults: &Faults) -> Finding {
    let what = "page scan";
    match faults.page_scan {
        Ok(()) => Finding::ok(what, "PAGEMAP_SCAN works"),
        Err(error) if error.is(Errno::NOENT) => {
            Finding::fail(what, error.to_string(), "mount -t proc proc /proc")
        }
        Err(error) => Finding::fail(what, error.to_string(), NEW_KERNEL),
    }
}

fn memory(host: &Host) -> Finding {
    let what = "memory";
    let Some(machine) = host.machine else {
        return Finding::fail(what, "/proc/meminfo cannot be read", "mount -t proc proc /proc");
    };
    let limit = host.limit.as_ref();
    let finding = match limit {
        Some(limit) if limit.bytes < machine => format!(
            "{} here, limited to {} by {}",
            show(machine),
            show(limit.bytes),
            limit.file.display()
        ),
        _ => format!("{} here, no cgroup limit below it", show(machine)),
    };
    let usable = limit.map_or(machine, |limit| limit.bytes.min(machine));
    if usable < Bytes(BUDGET_FLOOR.0 * 2) {
        let fix = format!("raise the limit to {} or more", show(Bytes(BUDGET_FLOOR.0 * 2)));
        return Finding::warn(what, finding, fix);
    }
    Finding::ok(what, finding)
}

fn spill(host: &Host) -> Finding {
    let what = "disk";
    match &host.disk {
        None => Finding::ok(what, "none, cold pages stay in memory"),
        Some((path, Disk::Usable(free))) => Finding::ok(
            what,
            format!("{} takes unnamed files, {} free", path.display(), show(*free)),
        ),
        Some((path, Disk::IsMemory(_))) => Finding::warn(
            what,
            disk::memory_warning(path),
            "name a directory on a disk: coldpress run --disk /var/tmp",
        ),
        Some((path, Disk::Unusable(error))) => {
            let finding = format!("{} takes no unnamed file ({error})", path.display());
            let fix = "name a directory that does: coldpress run --disk PATH, or --disk none";
            // A run with a named directory is refused; without the default one it goes on.
            let level = if host.disk_is_named { Finding::fail } else { Finding::warn };
            level(what, finding, fix)
        }
    }
}

fn huge_pages(setting: Option<&str>) -> Finding {
    let finding = setting.unwrap_or("not in this kernel");
    Finding::ok("huge pages", format!("{finding} (for information)"))
}

fn io_uring(place: &SpillPlace, ring: SysResult<()>) -> Finding {
    let what = "io_uring";
    match ring {
        Ok(()) => Finding::ok(what, "works, so nobody waits while pages go to disk"),
        Err(error) => Finding::warn(
            what,
            format!("{error}, so the program waits while pages go to disk"),
            mend::io_uring(place),
        ),
    }
}

/// Judges whether programs are managed that no loader of glibc starts: it takes that their forks
/// are seen.
fn forks(are_seen: bool) -> Finding {
    let what = "forks";
    if are_seen {
        let finding = "seen, also in static programs; one that hides its calls takes --unsafe-fork";
        return Finding::ok(what, finding);
    }
    let finding = "the calls of this libc are not found, so static programs of it are refused";
    Finding::warn(what, finding, "run them with --unsafe-fork: children may end by SIGSEGV")
}

/// Judges whether programs may be stopped that others start: they get the library while they run.
/// Returns nothing where no rule forbids it.
fn late(faults: &Faults) -> Option<Finding> {
    let scope = faults.place.ptrace_scope.as_deref()?;
    let is_closed = scope == "3" || scope != "0" && !faults.has_capability;
    is_closed.then(|| {
        let finding = format!(
            "kernel.yama.ptrace_scope={scope}, so static programs that others start stay unmanaged"
        );
        let fix = match scope {
            "3" => "it stays until the next boot; boot with kernel.yama.ptrace_scope=1",
            _ => "sudo sysctl -w kernel.yama.ptrace_scope=0",
        };
        Finding::warn("late", finding, fix)
    })
}

/// Judges whether the launcher may read the memory of its programs, to compress ahead. Returns
/// nothing where no rule forbids it (Documentation/admin-guide/LSM/Yama.rst).
fn helper(faults: &Faults) -> Option<Finding> {
    let scope = faults.place.ptrace_scope.as_deref()?;
    let is_closed = scope == "3" || scope == "2" && !faults.has_capability;
    is_closed.then(|| {
        let finding = format!("kernel.yama.ptrace_scope={scope}, so the helper compresses nothing");
        let fix = match scope {
            "3" => "it stays until the next boot; boot with kernel.yama.ptrace_scope=1",
            _ => "sudo sysctl -w kernel.yama.ptrace_scope=1",
        };
        Finding::warn("helper", finding, fix)
    })
}

#[cfg(test)]
mod tests;
