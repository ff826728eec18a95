//! Guests of QEMU's: the files that a Linux guest starts from, and what runs its instructions.
//!
//! A guest has no disk: all that it has is in its first files, the archive that the kernel unpacks
//! into memory. [`Files`] gathers them: busybox, and programs with the libraries that they need, at
//! the paths that they have here.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::machine::{self, Scratch, fixture, require};

/// The program that runs guests.
pub const QEMU: &str = "qemu-system-x86_64";

/// What runs a guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// QEMU itself, with a thread for each of the guest's processors, and as much memory for
    /// translated code.
    Tcg(CodeMemory),
    /// The processor.
    Kvm,
}

/// The memory that QEMU keeps for code that it has translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeMemory {
    /// 16 MiB. A guest of one small program runs as fast as with more.
    Little,
    /// What QEMU takes by itself: a part of the machine's memory.
    Usual,
}

impl Accelerator {
    /// Returns the words for QEMU.
    pub fn words(self) -> [&'static str; 4] {
        let words = match self {
            Self::Tcg(CodeMemory::Little) => "tcg,thread=multi,tb-size=16",
            Self::Tcg(CodeMemory::Usual) => "tcg,thread=multi",
            Self::Kvm => "kvm",
        };
        ["-accel", words, "-cpu", "max"]
    }
}

/// The first files of a guest, as a folder.
#[derive(Debug)]
pub struct Files {
    scratch: Scratch,
    busybox: PathBuf,
}

impl Files {
    /// Makes a folder that has busybox as its shell, and runs the fixture `init` first. `None` with
    /// a printed line where QEMU or busybox is missing.
    ///
    /// # Panics
    /// When there is no room.
    pub fn new(init: &str) -> Option<Self> {
        require(QEMU)?;
        let busybox = require("busybox")?;
        // The guest need not have a loader. `ldd` fails where a program needs none.
        let is_static = Command::new("ldd").arg(&busybox).output();
        if is_static.is_ok_and(|output| output.status.success()) {
            machine::skip("busybox is not static; Debian has it as busybox-static");
            return None;
        }
        let files = Self { scratch: Scratch::new("guest"), busybox };
        for folder in ["bin", "dev", "modules", "proc", "sys", "tmp"] {
            fs::create_dir_all(files.root().join(folder)).expect("there is room");
        }
        fs::copy(&files.busybox, files.root().join("bin/busybox")).expect("there is room");
        symlink("busybox", files.root().join("bin/sh")).expect("there is room");
        let first = files.root().join("init");
        fs::copy(fixture(init), &first).expect("there is room");
        fs::set_permissions(&first, fs::Permissions::from_mode(0o755)).expect("it is ours");
        Some(files)
    }

    /// Returns the guest's root folder.
    pub fn root(&self) -> PathBuf {
        self.scratch.path("root")
    }

    /// Returns a path beside the guest's root.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    /// Copies a file, or all below a folder, to its own path in the guest, with what links lead to.
    ///
    /// # Panics
    /// When it is not there, or there is no room.
    pub fn add(&self, path: &Path) {
        let inside = path.strip_prefix("/").expect("the path is absolute");
        let copy = self.root().join(inside);
        fs::create_dir_all(copy.parent().expect("it is below the root")).expect("there is room");
        let mut command = Command::new("cp");
        command.args(["-rLT"]).arg(path).arg(&copy);
        assert!(command.status().expect("cp is there").success(), "{command:?}");
    }

    /// Adds a program, and the libraries that its loader would load.
    ///
    /// # Panics
    /// When it is not there, or there is no room.
    pub fn add_program(&self, program: &Path) {
        self.add(program);
        let output = Command::new("ldd").arg(program).output().expect("ldd is there");
        for word in String::from_utf8_lossy(&output.stdout).split_whitespace() {
            let library = Path::new(word);
            if library.is_absolute() && !self.root().join(&word[1..]).exists() {
                self.add(library);
            }
        }
    }

    /// Packs the files as the kernel takes them, and returns the archive's path.
    ///
    /// # Panics
    /// When there is no room.
    pub fn pack(&self) -> PathBuf {
        let archive = self.beside("initrd");
        let mut command = Command::new("sh");
        command.args(["-c", "find . | \"$0\" cpio -o -H newc"]).arg(&self.busybox);
        let file = fs::File::create(&archive).expect("there is room");
        let status = command.current_dir(self.root()).stdout(file).stderr(Stdio::null()).status();
        assert!(status.expect("a shell is there").success(), "{command:?}");
        archive
    }
}
