//! A memory cgroup with a limit, of version 1 or 2. Sources: Linux,
//! Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, io, thread};

use coldpress_sys::Bytes;
use rustix::process::{Pid, Signal, kill_process};

use super::{named, put_back, read, write};

/// The number of tries to remove a group whose processes were killed, and the pause between them: 2
/// s in total.
const REMOVALS: u32 = 100;
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);

/// A script that puts the shell into the group and becomes the program; `$0` is the file that takes
/// processes.
const ENTER: &str = "echo 0 > \"$0\" && exec \"$@\"";

/// The names of the files that differ between the versions.
struct Names {
    limit: &'static str,
    /// The file with a line `oom_kill N`.
    kills: &'static str,
}

const VERSION_1: Names = Names { limit: "memory.limit_in_bytes", kills: "memory.oom_control" };
const VERSION_2: Names = Names { limit: "memory.max", kills: "memory.events" };

/// A group of processes that hold no more memory than its limit. Dropping the group ends all
/// processes in it, and removes it.
pub(crate) struct Group {
    directory: PathBuf,
    names: &'static Names,
}

impl Group {
    /// Makes a group below the group `parent`, which must hand the memory controller down. Fails
    /// without the rights to do so.
    pub(crate) fn new(parent: &Path, limit: Bytes) -> io::Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let handed_down = parent.join("cgroup.subtree_control");
        let is_unified = handed_down.exists();
        if is_unified && !read(&handed_down)?.split_whitespace().any(|name| name == "memory") {
            return Err(named(&handed_down, &io::Error::other("memory is not handed down")));
        }
        // Relaxed: the number only has to differ each time.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("coldpress-bench-{}-{number}", std::process::id());
        let directory = parent.join(name);
        fs::create_dir(&directory).map_err(|error| named(&directory, &error))?;
        let group = Self { directory, names: if is_unified { &VERSION_2 } else { &VERSION_1 } };
        write(&group.directory.join(group.names.limit), &limit.0.to_string())?;
        Ok(group)
    }

    /// Returns the command that runs the program of `plain`, with its arguments and variables, in
    /// this group.
    pub(crate) fn command(&self, plain: &Command) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", ENTER]).arg(self.directory.join("cgroup.procs"));
        command.arg(plain.get_program()).args(plain.get_args());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Returns the memory that the group holds now.
    #[cfg(test)]
    pub(super) fn used(&self) -> Bytes {
        let files = ["memory.usage_in_bytes", "memory.current"];
        let text = files.into_iter().find_map(|file| read(&self.directory.join(file)).ok());
        Bytes(text.expect("the kernel reports it").trim().parse().expect("a number"))
    }

    /// Returns the number of processes of this group that the kernel has killed for lack of memory.
    pub(crate) fn kills(&self) -> io::Result<u64> {
        let file = self.directory.join(self.names.kills);
        let text = read(&file)?;
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|number| number.trim().parse().ok())
            .ok_or_else(|| named(&file, &io::Error::other("no line oom_kill")))
    }

    /// Has the kernel sum up the group's counters, which it otherwise does now and then.
    pub(super) fn sum_up(&self) -> io::Result<()> {
        read(&self.directory.join("memory.stat")).map(drop)
    }

    /// Ends every process of the group.
    pub(super) fn end(&self) -> io::Result<()> {
        for line in read(&self.directory.join("cgroup.procs"))?.lines() {
            if let Some(pid) = line.parse().ok().and_then(Pid::from_raw) {
                // A process that has ended meanwhile needs no signal.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        let mut removed = fs::remove_dir(&self.directory);
        for _ in 0..REMOVALS {
            if removed.is_ok() {
                return Ok(());
            }
            self.end()?;
            thread::sleep(REMOVAL_PAUSE);
            removed = fs::remove_dir(&self.directory);
        }
        removed.map_err(|error| named(&self.directory, &error))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        put_back(self.remove());
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a limit that does not hold makes the peer look fast. The method: without the
    //! rights for groups, folders stand in for the kernel's; `swap.rs` has a test with the kernel's
    //! groups.
    use super::*;

    /// Makes a group in a folder, with the files that the kernel would make.
    fn group(parent: &Path) -> Group {
        let group = Group::new(parent, Bytes(4096)).unwrap();
        let kills = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        fs::write(group.directory.join(group.names.kills), kills).unwrap();
        fs::write(group.directory.join("cgroup.procs"), "").unwrap();
        group
    }

    /// Removes the files that the kernel would have removed with the group.
    fn forget(group: Group) {
        for file in fs::read_dir(&group.directory).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
        let directory = group.directory.clone();
        drop(group);
        assert!(!directory.exists());
    }

    #[test]
    fn both_versions_are_limited_by_their_own_files() {
        for (controllers, limit) in
            [(None, "memory.limit_in_bytes"), (Some("cpu memory\n"), "memory.max")]
        {
            let parent = tempfile::tempdir().unwrap();
            if let Some(controllers) = controllers {
                fs::write(parent.path().join("cgroup.subtree_control"), controllers).unwrap();
            }
            let group = group(parent.path());
            assert_eq!(fs::read_to_string(group.directory.join(limit)).unwrap(), "4096");
            assert_eq!(group.kills().unwrap(), 3);
            forget(group);
        }
    }

    #[test]
    fn the_program_enters_with_its_arguments_and_variables() {
        let parent = tempfile::tempdir().unwrap();
        let group = group(parent.path());
        let mut plain = Command::new("sh");
        plain.args(["-c", "echo \"$MARK $1\"", "sh", "two  words"]).env("MARK", "$HOME");
        let output = group.command(&plain).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "$HOME two  words\n");
        let entered = fs::read_to_string(group.directory.join("cgroup.procs")).unwrap();
        assert_eq!(entered, "0\n");
        forget(group);
    }

    #[test]
    fn a_parent_that_hands_no_memory_down_is_refused_by_name() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("cgroup.subtree_control"), "cpu hugetlb\n").unwrap();
        let error = Group::new(parent.path(), Bytes(4096)).err().unwrap().to_string();
        assert!(error.contains("cgroup.subtree_control"), "{error}");
    }
}
