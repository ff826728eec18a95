//! A guest of QEMU's: its kernel, its first files, and the words that start it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use coldpress_tests::guest::{Accelerator, CodeMemory, Files, QEMU};
use coldpress_tests::harness::Job;
use coldpress_tests::machine::{self, fixture, require};

/// How guests run without KVM: QEMU's memory for translated code would stay in place.
pub(crate) const TCG: Accelerator = Accelerator::Tcg(CodeMemory::Little);

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
    files: Files,
}

impl Guest {
    /// Makes the files. `None` with a printed line where the kernel was not fetched, or a program
    /// is missing.
    pub(crate) fn new() -> Option<Self> {
        let Some(fetched) = env::var_os("COLDPRESS_GUEST").map(PathBuf::from) else {
            println!("skipped: left to `make machines`, which fetches a guest's kernel");
            return None;
        };
        if !fetched.is_dir() {
            machine::skip("the guest's kernel was not fetched");
            return None;
        }
        let compiler = require("musl-gcc")?;
        let files = Files::new("guest-init.sh")?;
        let root = files.root();
        symlink(fetched.join("vmlinuz"), files.beside("vmlinuz")).expect("there is room");
        for entry in fs::read_dir(fetched.join("modules")).expect("it was fetched").flatten() {
            let copy = root.join("modules").join(entry.file_name());
            fs::copy(entry.path(), copy).expect("there is room");
        }
        let mut command = Command::new(compiler);
        command.args(["-static", "-O2", "-o"]).arg(root.join("guest")).arg(fixture("guest.c"));
        assert!(command.status().expect("the compiler starts").success(), "{command:?}");
        files.pack();
        Some(Self { files })
    }

    /// Returns the folder with `vmlinuz` and `initrd`.
    pub(crate) fn folder(&self) -> PathBuf {
        self.files.beside("")
    }

    /// Returns the path of the socket by which QEMU takes commands.
    pub(crate) fn socket(&self) -> PathBuf {
        self.files.beside("qmp")
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
