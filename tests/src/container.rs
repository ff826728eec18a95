//! Containers from their parts: a runtime's default seccomp profile (`fixtures/seccomp`), its
//! capabilities, another user, and a userfaultfd device that this user may open.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use coldpress_sys::calls::Call;

use crate::machine::{self, Scratch, fixture, require};

/// The user nobody.
pub const NOBODY: u32 = 65534;
/// Root, as it is in a container.
pub const ROOT: u32 = 0;
/// EPERM, the error by which profiles refuse.
const EPERM: i32 = 1;
/// A script that puts a device which everybody may open in the place of the machine's, for the
/// words behind it.
const WITH_DEVICE: &str = r#"[ -e "$0" ] ||
    mknod "$0" c 10 "$(($(stat -c 0x%T /dev/userfaultfd)))" &&
    chmod 666 "$0" && mount --bind "$0" /dev/userfaultfd && exec "$@""#;

/// A container runtime: its profile, and its capabilities by their bits (linux/capability.h).
#[derive(Clone, Copy, Debug)]
pub struct Runtime {
    /// A file of `fixtures`.
    pub profile: &'static str,
    capabilities: &'static str,
}

/// The capabilities CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP,
/// NET_BIND_SERVICE, NET_RAW, SYS_CHROOT, MKNOD, AUDIT_WRITE, SETFCAP.
pub const DOCKER: Runtime = Runtime { profile: "seccomp/docker.txt", capabilities: "a80425fb" };
/// Docker's but NET_RAW, MKNOD and AUDIT_WRITE.
pub const PODMAN: Runtime = Runtime { profile: "seccomp/podman.txt", capabilities: "800405fb" };

/// Makes containers, and has programs where every user may run them.
#[derive(Debug)]
pub struct Containers {
    scratch: Scratch,
}

impl Containers {
    /// Prepares, with copies of the command and of `filtered` (`src/bin/filtered.rs`). `None` with
    /// a printed line where this machine cannot make a container.
    ///
    /// # Panics
    /// When the temporary directory refuses.
    pub fn prepare(filtered: &str) -> Option<Self> {
        if !machine::is_root() {
            println!("skipped: only root can make a device");
            return None;
        }
        require("unshare")?;
        require("setpriv")?;
        let all = Self { scratch: Scratch::new("containers") };
        all.add("launcher", &machine::coldpress());
        all.add("filtered", Path::new(filtered));
        let [first, rest @ ..] = &all.with_device()[..] else { unreachable!("unshare and its") };
        let probe = Command::new(first).args(rest).arg("true").status();
        if probe.is_ok_and(|status| status.success()) {
            return Some(all);
        }
        println!("skipped: no device can be made here");
        None
    }

    /// Copies a program to where every user may run it, as `name`.
    ///
    /// # Panics
    /// When the temporary directory refuses.
    pub fn add(&self, name: &str, program: &Path) -> PathBuf {
        let copy = self.path(name);
        fs::copy(program, &copy).expect("the scratch directory takes files");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("it is ours");
        copy
    }

    /// Returns a path in a directory that every user may write to.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    /// Returns the copy of the command.
    pub fn launcher(&self) -> PathBuf {
        self.path("launcher")
    }

    /// Returns words that give the words after them a device which every user may open.
    fn with_device(&self) -> Vec<OsString> {
        let node = self.path(&format!("device-{:?}", std::thread::current().id()));
        drop(fs::remove_file(&node));
        let mut words = ["unshare", "-m", "sh", "-c", WITH_DEVICE].map(OsString::from).to_vec();
        words.push(node.into());
        words
    }

    /// Returns words that run the words after them as nobody, with the device.
    pub fn as_nobody(&self) -> Vec<OsString> {
        let mut words = self.with_device();
        words.extend(["setpriv", "--clear-groups"].map(OsString::from));
        words.extend(["reuid", "regid"].map(|it| format!("--{it}={NOBODY}").into()));
        words
    }

    /// Returns words that run the words after them in a container of `runtime`, as `user`, with
    /// `refused` calls on top.
    pub fn container(&self, runtime: Runtime, user: u32, refused: &[&Call]) -> Vec<OsString> {
        let mut words = self.with_device();
        words.push(self.path("filtered").into());
        words.extend(["--profile".into(), fixture(runtime.profile).into_os_string()]);
        words.extend(["--capabilities", runtime.capabilities].map(OsString::from));
        for call in refused {
            words.extend(["--refuse".into(), format!("{}={EPERM}", call.number).into()]);
        }
        words.extend(["--user".into(), user.to_string().into()]);
        words
    }
}
