//! A guest of QEMU's: its kernel, its first files, and the words that start it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use coldpress_tests::harness::Job;
use coldpress_tests::machine::{self, Scratch, fixture, require};

/// The program that runs guests.
pub(crate) const QEMU: &str = "qemu-system-x86_64";

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accelerator {
    /// QEMU itself, with a thread for each of the guest's processors.
    Tcg,
    /// The processor.
    Kvm,
}

impl Accelerator {
    /// Returns the words for QEMU. Translated code stays in place, and QEMU keeps a part of the
    /// machine's memory for it if nothing else is said. The kernel and the program here run as fast
    /// with 16 MiB of it.
    fn words(self) -> [&'static str; 4] {
        let words = match self {
            Self::Tcg => "tcg,thread=multi,tb-size=16",
            Self::Kvm => "kvm",
        };
        ["-accel", words, "-cpu", "max"]
    }
}

/// What the program in a guest does, in MiB (see `fixtures/guest.c`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// What it holds.
    pub(crate) held: usize,
    /// How often it checks all of that.
    pub(crate) rounds: usize,
    /// What it frees then, for the balloon.
    pub(crate) freed: usize,
}

impl Work {
    /// Returns the line that the guest prints when all was right.
    pub(crate) fn right(self) -> String {
        let Self { held, rounds, freed } = self;
        format!("guest: right, {held} MiB, {rounds} rounds, {freed} MiB freed\r\nguest: status 0")
    }
}

/// The files that a guest starts from.
pub(crate) struct Guest {
    scratch: Scratch,
}

impl Guest {
    /// Makes the files. `None` with a printed line where the kernel was not fetched, or a program
    /// is missing.
    pub(crate) fn new() -> Option<Self> {
        let Some(fetched) = env::var_os("COLDPRESS_GUEST").map(PathBuf::from) else {
            println!("skipped: left to `make machines`, which fetches a guest's kernel");
            return None;
        };
        require(QEMU)?;
        let (busybox, compiler) = (require("busybox")?, require("musl-gcc")?);
        // The guest has no loader. `ldd` fails where a program needs none.
        let is_static = Command::new("ldd").arg(&busybox).output();
        if is_static.is_ok_and(|output| output.status.success()) {
            machine::skip("busybox is not static; Debian has it as busybox-static");
            return None;
        }
        let guest = Self { scratch: Scratch::new("guest") };
        symlink(fetched.join("vmlinuz"), guest.folder().join("vmlinuz")).expect("there is room");
        let root = guest.folder().join("root");
        for folder in ["bin", "dev", "modules", "proc"] {
            fs::create_dir_all(root.join(folder)).expect("there is room");
        }
        fs::copy(&busybox, root.join("bin/busybox")).expect("there is room");
        symlink("busybox", root.join("bin/sh")).expect("there is room");
        for entry in fs::read_dir(fetched.join("modules")).expect("it was fetched").flatten() {
            let copy = root.join("modules").join(entry.file_name());
            fs::copy(entry.path(), copy).expect("there is room");
        }
        let init = root.join("init");
        fs::copy(fixture("guest-init.sh"), &init).expect("there is room");
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let mut command = Command::new(compiler);
        command.args(["-static", "-O2", "-o"]).arg(root.join("guest")).arg(fixture("guest.c"));
        assert!(command.status().expect("the compiler starts").success(), "{command:?}");
        pack(&busybox, &root, &guest.folder().join("initrd"));
        Some(guest)
    }

    /// Returns the folder with `vmlinuz` and `initrd`.
    pub(crate) fn folder(&self) -> PathBuf {
        self.scratch.path("")
    }

    /// Returns the path of the socket by which QEMU takes commands.
    pub(crate) fn socket(&self) -> PathBuf {
        self.scratch.path("qmp")
    }

    /// Returns the words for QEMU that hold for all guests: how they run and what for. The kernel
    /// hands the names that it does not know to the first process, and prints nothing below a
    /// panic, without the time.
    pub(crate) fn words(accelerator: Accelerator, work: Work) -> Vec<OsString> {
        let mut words = accelerator.words().map(OsString::from).to_vec();
        let Work { held, rounds, freed } = work;
        let kernel = "console=ttyS0 loglevel=1 printk.time=0 panic=-1";
        let line = format!("{kernel} HELD={held} ROUNDS={rounds} FREED={freed}");
        words.extend(["-append".into(), line.into()]);
        words
    }

    /// Makes a job of one guest of `mib` MiB, which prints what its console says, and takes
    /// commands at the socket.
    pub(crate) fn job(&self, mib: usize, accelerator: Accelerator, work: Work) -> Job {
        let folder = self.folder();
        let mut control = OsString::from("unix:");
        control.push(self.socket());
        control.push(",server=on,wait=off");
        Job::new("guest", QEMU)
            .args(["-m".into(), format!("{mib}M")])
            .args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"])
            .args(["-kernel".into(), folder.join("vmlinuz")])
            .args(["-initrd".into(), folder.join("initrd")])
            .args(["-qmp".into(), control])
            .args(Self::words(accelerator, work))
    }
}

/// Packs the folder `root` into the archive `archive`, as the kernel takes it.
fn pack(busybox: &Path, root: &Path, archive: &Path) {
    let mut command = Command::new("sh");
    command.args(["-c", "find . | \"$0\" cpio -o -H newc"]).arg(busybox).current_dir(root);
    let file = fs::File::create(archive).expect("there is room");
    let status = command.stdout(file).stderr(Stdio::null()).status();
    assert!(status.expect("a shell is there").success(), "{command:?}");
}
