//! A memory cgroup with a limit, for the time of a test.
//!
//! Both versions are supported: v1 where the memory controller has a mount of its own, else v2. The
//! group is made directly below the mount. Its limit holds for memory and swap together, so that a
//! program cannot escape through a swap device.
//!
//! Invariant: the group is gone when the value is dropped; processes left in it are ended first.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use coldpress_sys::Bytes;

use crate::machine;

/// The mount point that distributions use for the memory controller of v1.
const V1_MEMORY: &str = "/sys/fs/cgroup/memory";
/// The mount point that distributions use for v2.
const V2: &str = "/sys/fs/cgroup";
/// Number of tries to remove the group, 50 ms apart: the kernel needs a moment after the last
/// process.
const REMOVE_TRIES_MAX: u32 = 100;

/// A limited group.
#[derive(Debug)]
pub struct Limited {
    path: PathBuf,
    counter: PathBuf,
}

impl Limited {
    /// Makes a group limited to `limit`; `None` with a printed line where that is not possible.
    pub fn new(limit: Bytes) -> Option<Self> {
        let group = Self::v1(limit).or_else(|| Self::v2(limit));
        if group.is_none() {
            println!("skipped: no writable memory cgroup");
        }
        group
    }

    /// Makes a group of version 1.
    fn v1(limit: Bytes) -> Option<Self> {
        let group = Self::create(Path::new(V1_MEMORY), "memory.oom_control")?;
        group.change(limit)?;
        Some(group)
    }

    /// Makes a group of version 2.
    fn v2(limit: Bytes) -> Option<Self> {
        let group = Self::create(Path::new(V2), "memory.events")?;
        group.change(limit)?;
        if group.path.join("memory.swap.max").exists() {
            group.write("memory.swap.max", "0")?;
        }
        Some(group)
    }

    /// Limits the group to `limit` from now on; `None` where the kernel refuses.
    pub fn change(&self, limit: Bytes) -> Option<()> {
        let bytes = limit.0.to_string();
        if self.path.join("memory.max").exists() {
            return self.write("memory.max", &bytes);
        }
        // The limit of both together is never the smaller one. Its file is there only when the
        // kernel accounts swap.
        let both = "memory.memsw.limit_in_bytes";
        let has_both = self.path.join(both).exists();
        let is_raised = has_both && self.write(both, &bytes).is_some();
        self.write("memory.limit_in_bytes", &bytes)?;
        if has_both && !is_raised { self.write(both, &bytes) } else { Some(()) }
    }

    /// Makes the directory below `mount`; `None` unless the memory controller's `counter` is in it.
    fn create(mount: &Path, counter: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Only a mounted hierarchy: elsewhere this would make an ordinary directory.
        if !mount.join("cgroup.procs").exists() {
            return None;
        }
        // Relaxed: only the number's uniqueness matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = mount.join(format!("coldpress-test-{}-{number}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = Self { counter: path.join(counter), path };
        group.counter.exists().then_some(group)
    }

    /// Writes one control file.
    fn write(&self, name: &str, value: &str) -> Option<()> {
        fs::write(self.path.join(name), value).ok()
    }

    /// Returns words that, in front of a command, run it with all its children inside the group.
    pub fn entering(&self) -> Vec<OsString> {
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        let procs = self.path.join("cgroup.procs").into_os_string();
        vec!["sh".into(), "-c".into(), script.into(), procs]
    }

    /// Returns the number of processes that the kernel killed in the group for lack of memory.
    ///
    /// # Panics
    /// When the kernel does not count them: then the test would prove nothing.
    pub fn kills(&self) -> u64 {
        let text = fs::read_to_string(&self.counter).expect("create() saw the file");
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).expect("the kernel counts oom_kill")
    }

    /// Returns the most memory that the group ever held, where the kernel reports it.
    pub fn peak(&self) -> Option<Bytes> {
        let names = ["memory.max_usage_in_bytes", "memory.peak"];
        let read = |name| fs::read_to_string(self.path.join(name)).ok()?.trim().parse().ok();
        names.into_iter().find_map(read).map(Bytes)
    }

    /// Returns the private and shared memory charged to the group: without files on disk and the
    /// kernel's own memory. `None` where that cannot be read.
    pub fn held(&self) -> Option<Bytes> {
        let text = fs::read_to_string(self.path.join("memory.stat")).ok()?;
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(key, _)| *key == name)?.1.parse::<usize>().ok()
        };
        // `rss` is the name in v1.
        Some(Bytes(value("rss").or_else(|| value("anon"))? + value("shmem")?))
    }

    /// Returns the group's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves a process into the group; `None` where the kernel refuses.
    pub fn take(&self, process: u32) -> Option<()> {
        self.write("cgroup.procs", &process.to_string())
    }

    /// Returns the processes inside.
    pub fn members(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        for _ in 0..REMOVE_TRIES_MAX {
            let members = self.members();
            if !members.is_empty() {
                machine::signal("KILL", &members);
            }
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        eprintln!("could not remove the cgroup {}", self.path.display());
    }
}

#[cfg(test)]
mod tests {
    //! Risk: a group that limits nothing, or whose kills go uncounted, lets every run pass.

    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_program_over_the_limit_is_killed_and_counted() {
        let Some(python) = machine::require("python3") else { return };
        if !machine::is_root() {
            return;
        }
        let Some(group) = Limited::new(Bytes::mib(48)) else { return };
        let words = group.entering();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(python).args(["-c", "bytearray(128 << 20)"]);
        let status = command.stderr(Stdio::null()).status().unwrap();
        assert!(!status.success() && group.kills() > 0, "{status:?} {}", group.kills());
        let path = group.path.clone();
        drop(group);
        assert!(!path.exists());
    }
}
