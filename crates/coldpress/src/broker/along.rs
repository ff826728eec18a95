//! Moves services along with their programs from one cgroup to another. Otherwise the group that a
//! program was moved out of could not be removed, and would be charged for work done for the
//! program.
//!
//! The kernel does not report such a move, so the launcher compares the groups from time to time,
//! of some processes at each look. A launcher that may not write to the new group leaves the
//! service where it is.

use std::fs;
use std::io;
use std::path::{Component, Path};

use coldpress_common::cgroup::Mount;

use crate::proc::{self, Life};

/// The number of processes at each look, once a second: some milliseconds in all.
const LOOKED_AT: usize = 64;

/// The place in the list of processes where the next look begins.
#[derive(Debug, Default)]
pub(crate) struct Along {
    next: usize,
}

impl Along {
    /// Looks at some of `pairs`, each a program and its service.
    pub(crate) fn look(&mut self, pairs: &[(u32, u32)]) {
        for _ in 0..pairs.len().min(LOOKED_AT) {
            let (program, service) = pairs[self.next % pairs.len()];
            self.next = (self.next + 1) % pairs.len();
            // A process that has ended needs no group.
            let _ = take(program, service);
        }
    }
}

/// Moves `service` to the groups of `program`.
fn take(program: u32, service: u32) -> io::Result<()> {
    // A first thread that has ended while others run is in no group, which reads as the topmost
    // group.
    if Life::of(program).is_none_or(|life| life.is_ending) {
        return Ok(());
    }
    let groups = |process| fs::read_to_string(format!("/proc/{process}/cgroup"));
    let (wanted, now) = (groups(program)?, groups(service)?);
    // Process numbers are reused: this checks that both are still the same processes.
    if wanted == now || !proc::have_one_memory(service, program) {
        return Ok(());
    }
    let mounts = fs::read("/proc/self/mountinfo")?;
    let mounts = String::from_utf8_lossy(&mounts);
    let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    for line in wanted.lines().filter(|line| now.lines().all(|other| other != *line)) {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let Some(mount) = mounts.iter().find(|mount| mount.is_of(controllers)) else { continue };
        // A group that is not below what is mounted here has no path here.
        let Ok(group) = Path::new(path).strip_prefix(&mount.root) else { continue };
        if !group.components().all(|part| matches!(part, Component::Normal(_))) {
            continue;
        }
        let file = mount.mount_point.join(group).join("cgroup.procs");
        // Other hierarchies may allow the write if this one does not.
        let _ = fs::write(file, service.to_string());
    }
    Ok(())
}
