//! Risk: the static command does not start where there is no glibc, or there does not say why it
//! manages nothing; or it manages worse than the command for glibc, which carries the same library.
//!
//! `make containers` builds the static command, names it in COLDPRESS_STATIC and runs these tests,
//! with the machine's programs, in bare roots, and in containers by bubblewrap, runc and Podman.
//! Without the variable they are skipped. The roots hold the command alone, or what it needs to run
//! a program of glibc, or what Alpine has: busybox, and musl's loader with a program for it.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Fraction, Job, check};
use coldpress_tests::machine::{self, Scratch, fixture, require, workspace_file};
use serde_json::{Value, json};

const DEVICE: &str = "/dev/userfaultfd";
/// The words of a managed run in a container: the program checks what it holds.
const RUN: [&str; 11] = [
    "/coldpress",
    "run",
    "--memory",
    "32M",
    "--disk",
    "none",
    "--require-managed",
    "--",
    "/dropper",
    "--bytes",
    "96M",
];
/// What mounts the parts of a root that the kernel makes, and enters it.
const ENTER: &str = r#"mount -t proc proc "$0/proc" && for file in userfaultfd null; do
    touch "$0/dev/$file" && mount --bind "/dev/$file" "$0/dev/$file" || exit; done &&
    exec chroot "$0" "$@""#;

/// A root directory with the static command as `/coldpress`.
struct Root {
    scratch: Scratch,
}

/// What a command said, and its status.
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Said {
    fn of(command: &mut Command) -> Self {
        let output = command.output().expect("the command starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        println!("{command:?}: {:?}\n{stdout}{stderr}", output.status.code());
        Self { code: output.status.code(), stdout, stderr }
    }

    /// Asserts that the program of [`RUN`] was right, and within its budget.
    fn assert_managed(&self) {
        assert_eq!((self.code, &self.stdout[..]), (Some(0), "dropper: OK\n"), "{}", self.stderr);
        let peak = self.stderr.split_once("peak ").and_then(|(_, rest)| rest.split_once(" MiB of"));
        let peak: f64 = peak.expect("the line at the end").0.parse().expect("a number");
        assert!(peak <= 32.0, "peak {peak}");
    }

    /// Asserts that coldpress refused with the line that has `words`.
    fn assert_refused(&self, words: &str) {
        assert_eq!((self.code, &self.stdout[..]), (Some(125), ""), "{}", self.stderr);
        assert!(self.stderr.contains(words) && self.stderr.lines().count() == 1);
    }
}

/// Returns the static command, or `None` with a printed line where it was not built.
fn static_command() -> Option<PathBuf> {
    let Some(named) = env::var_os("COLDPRESS_STATIC") else {
        println!("skipped: left to `make containers`, which builds the static command");
        return None;
    };
    let path = PathBuf::from(named);
    assert!(path.is_file(), "{} is missing: run 'make static'", path.display());
    Some(path)
}

/// Asserts that `command` ends well.
fn done(command: &mut Command) {
    let said = Said::of(command);
    assert_eq!(said.code, Some(0), "{command:?}: {}", said.stderr);
}

impl Root {
    /// Makes a root with the command alone.
    fn empty() -> Option<Self> {
        let command = static_command()?;
        if !machine::is_root() {
            return None;
        }
        let root = Self { scratch: Scratch::new("root") };
        done(Command::new("install").arg("-s").arg(command).arg(root.path("coldpress")));
        Some(root)
    }

    /// Makes a root in which a program of glibc runs, with nothing else.
    fn with_glibc() -> Option<Self> {
        let root = Self::empty()?;
        root.add_folders();
        let program = env!("CARGO_BIN_EXE_dropper");
        fs::copy(program, root.path("dropper")).expect("there is room");
        // `libc.so.6 => /lib/.../libc.so.6 (0x...)`, and the loader without an arrow.
        let listed = Said::of(Command::new("ldd").arg(program)).stdout;
        for file in listed.split_whitespace().filter(|word| word.starts_with('/')) {
            let copy = root.path(&file[1..]);
            fs::create_dir_all(copy.parent().expect("it has one")).expect("there is room");
            fs::copy(file, copy).expect("there is room");
        }
        Some(root)
    }

    /// Makes a root like Alpine's: busybox without glibc, and a program of musl.
    fn like_alpine() -> Option<Self> {
        let (busybox, compiler) = (require("busybox")?, require("musl-gcc")?);
        let root = Self::empty()?;
        root.add_folders();
        fs::copy(busybox, root.path("bin/sh")).expect("there is room");
        fs::copy("/lib/ld-musl-x86_64.so.1", root.path("lib/ld-musl-x86_64.so.1"))
            .expect("musl-gcc comes with musl");
        let mut command = Command::new(compiler);
        command
            .args(["-O1", "-w"])
            .arg(fixture("foreign.c"))
            .arg("-o")
            .arg(root.path("bin/foreign"));
        done(&mut command);
        Some(root)
    }

    fn add_folders(&self) {
        for folder in ["bin", "dev", "lib", "proc", "tmp"] {
            fs::create_dir(self.path(folder)).expect("there is room");
        }
        fs::set_permissions(self.path("tmp"), fs::Permissions::from_mode(0o1777)).expect("ours");
    }

    fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.scratch.path(name)
    }

    /// Runs the command with `words` in the root, with /proc and the device.
    fn says(&self, words: &[&str]) -> Said {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", ENTER]).arg(self.path("")).arg("/coldpress").args(words);
        Said::of(&mut command)
    }
}

#[test]
fn a_program_of_this_machine_gets_the_same_bytes() {
    let Some(command) = static_command() else { return };
    let Some(python) = require("python3") else { return };
    let script = "words = [str(n) * 100 for n in range(90_000)]\nprint(*words[::9])";
    let job = Job::new("python3", python).args(["-c", script]).launcher(&command);
    check(&job, &[Fraction::Half]);
    // A trial goes before the run: the command puts the library into itself.
    let job = Job::new("dropper", env!("CARGO_BIN_EXE_dropper")).launcher(&command);
    let run = job.args(["--bytes", "96M"]).options(["--require-managed"]).managed(Bytes::mib(32));
    assert_eq!((run.code, &run.stdout[..]), (0, &b"dropper: OK\n"[..]), "{}", run.stderr);
    run.assert_stored();
    run.assert_within_budget();
}

#[test]
fn in_an_empty_root_the_command_says_what_is_missing() {
    let Some(root) = Root::empty() else { return };
    let says = |words: &[&str]| {
        Said::of(Command::new("chroot").arg(root.path("")).arg("/coldpress").args(words))
    };
    let version = says(&["--version"]);
    assert_eq!((version.code, version.stderr.len()), (Some(0), 0));
    assert!(version.stdout.starts_with("coldpress "), "{}", version.stdout);
    let doctor = says(&["doctor"]);
    assert_eq!(doctor.code, Some(1));
    let line = "FAIL  page scan: open: ENOENT; mount -t proc proc /proc";
    assert!(doctor.stdout.contains(line), "{}", doctor.stdout);
    let run = says(&["run", "--memory", "32M", "--", "/coldpress", "--version"]);
    assert_eq!(run.code, Some(125), "{}", run.stderr);
}

#[test]
fn in_a_root_like_alpines_programs_are_managed() {
    let Some(root) = Root::like_alpine() else { return };
    let doctor = root.says(&["doctor", "--disk", "none"]);
    assert_eq!(doctor.code, Some(0), "{}", doctor.stdout);
    assert!(doctor.stdout.contains("ok    trial: pages of a program went and came back"));
    let expected = "0 words and 0 children wrong";
    for words in [&["foreign", "64", "2", "2"][..], &["/bin/sh", "-c", "foreign 64 2 2; :"]] {
        let options = ["run", "--memory", "32M", "--disk", "none", "--require-managed", "--"];
        let run = root.says(&[&options[..], words].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert!(run.stdout.contains(expected) && run.stderr.contains(" pages compressed"));
    }
}

#[test]
fn bubblewrap_with_the_device_manages() {
    let Some(bwrap) = require("bwrap") else { return };
    let Some(root) = Root::with_glibc() else { return };
    let mut command = Command::new(bwrap);
    command.arg("--bind").arg(root.path("")).arg("/").args(["--proc", "/proc", "--dev", "/dev"]);
    command.args(["--dev-bind", DEVICE, DEVICE, "--unshare-all"]).args(RUN);
    Said::of(&mut command).assert_managed();
}

/// Returns the number of the device, which the kernel gives anew at each boot.
fn device_number() -> (u64, u64) {
    let number = fs::metadata(DEVICE).expect("this kernel has it").rdev();
    (number >> 8 & 0xfff, number & 0xff | number >> 12 & !0xff)
}

/// Writes the bundle of a container in `root`: runc's own, with `words` and maybe the device.
fn write_bundle(bundle: &Path, root: &Root, words: &[&str], has_device: bool) {
    drop(fs::remove_file(bundle.join("config.json")));
    done(Command::new("runc").arg("spec").current_dir(bundle));
    let text = fs::read(bundle.join("config.json")).expect("runc wrote it");
    let mut config: Value = serde_json::from_slice(&text).expect("it is JSON");
    config["process"]["terminal"] = false.into();
    config["process"]["args"] = words.into();
    config["root"] = json!({ "path": root.path(""), "readonly": false });
    if has_device {
        let (major, minor) = device_number();
        let node = json!({ "path": DEVICE, "type": "c", "major": major, "minor": minor });
        let rule = json!({ "allow": true, "type": "c", "major": major, "minor": minor,
            "access": "rw" });
        config["linux"]["devices"] = json!([node]);
        config["linux"]["resources"]["devices"].as_array_mut().expect("runc's rules").push(rule);
    }
    fs::write(bundle.join("config.json"), config.to_string()).expect("there is room");
}

#[test]
fn runc_manages_with_the_device_and_names_it_without() {
    let Some(runc) = require("runc") else { return };
    let Some(root) = Root::with_glibc() else { return };
    let bundle = Scratch::new("bundle");
    let name = format!("coldpress-test-{}", std::process::id());
    let run = |words: &[&str], has_device| {
        write_bundle(&bundle.path(""), &root, words, has_device);
        Said::of(Command::new(&runc).arg("run").arg("--bundle").arg(bundle.path("")).arg(&name))
    };
    run(&RUN, true).assert_managed();
    let doctor = run(&["/coldpress", "doctor", "--disk", "none"], true);
    assert_eq!(doctor.code, Some(0));
    assert!(doctor.stdout.contains("ok    trial:"), "{}", doctor.stdout);
    run(&RUN, false).assert_refused("access: no way to userfaultfd");
}

/// Podman with images of its own, which go with it.
struct Podman {
    store: Scratch,
}

impl Podman {
    fn new() -> Option<Self> {
        require("podman")?;
        Some(Self { store: Scratch::new("podman") })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("podman");
        for (option, folder) in [("--root", "store"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
            command.arg(option).arg(self.store.path(folder));
        }
        command.args(["--storage-driver", "vfs", "--runtime", "runc"]);
        command
    }

    /// Builds `text` in `folder` as the image `name`.
    fn build(&self, name: &str, text: &str, folder: &Path) {
        let file = self.store.write("Containerfile", text.as_bytes());
        let mut command = self.command();
        command.args(["build", "--network", "none", "--tag", name, "--file"]).arg(file).arg(folder);
        done(&mut command);
    }

    /// Runs `words` in a container of the image `name`, with more options.
    fn run(&self, options: &[&str], name: &str, words: &[&str]) -> Said {
        let mut command = self.command();
        // Podman's own limits are above those that root may set in some sandboxes.
        command.args(["run", "--rm", "--network", "none", "--ulimit", "nofile=1024:1024"]);
        command.args(["--ulimit", "nproc=1024:1024"]).args(options).arg(name).args(words);
        Said::of(&mut command)
    }
}

/// A file that names the device to the runtimes of this machine, for as long as this lives.
struct NamedDevice(PathBuf);

impl NamedDevice {
    /// Lays out the file of the documents, for a vendor of the test's own: the user's may be there.
    fn new() -> Self {
        let file = fs::read_to_string(workspace_file("packaging/cdi-userfaultfd.json"));
        let file = file.expect("it is text").replace("coldpress.local", "test.coldpress.local");
        let path = PathBuf::from(format!("/var/run/cdi/test-{}.json", std::process::id()));
        fs::create_dir_all("/var/run/cdi").expect("the test is root's");
        fs::write(&path, file).expect("there is room");
        Self(path)
    }
}

impl Drop for NamedDevice {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// The images are those of docs/containers.md: one of the command alone, and one into which it is
/// copied from there.
#[test]
fn podman_manages_under_its_profile_with_the_device() {
    let (Some(root), Some(empty)) = (Root::with_glibc(), Root::empty()) else { return };
    let Some(podman) = Podman::new() else { return };
    let text = fs::read_to_string(workspace_file("packaging/Containerfile")).expect("text");
    podman.build("coldpress", &text, &empty.path(""));
    let said = podman.run(&[], "coldpress", &["--version"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    fs::remove_file(root.path("coldpress")).expect("it is there");
    let text = "FROM scratch\nCOPY . /\nCOPY --from=localhost/coldpress /coldpress /coldpress\n";
    podman.build("application", text, &root.path(""));
    let run = |options: &[&str]| podman.run(options, "application", &RUN);

    run(&["--device", DEVICE]).assert_managed();
    run(&["--read-only", "--device", DEVICE]).assert_managed();
    let words = ["/coldpress", "doctor", "--disk", "none"];
    let doctor = podman.run(&["--device", DEVICE], "application", &words);
    assert_eq!(doctor.code, Some(0));
    assert!(doctor.stdout.contains("(in Podman, under a seccomp filter)"), "{}", doctor.stdout);

    run(&[]).assert_refused("start the container with: podman run --device /dev/userfaultfd");
    let nobody = ["--user", "65534", "--device"];
    run(&[&nobody[..], &[DEVICE]].concat()).assert_refused("closed to this user");
    let _named = NamedDevice::new();
    run(&[&nobody[..], &["test.coldpress.local/device=userfaultfd"]].concat()).assert_managed();
    let bare = ["--read-only", "--read-only-tmpfs=false", "--device", DEVICE];
    run(&bare).assert_refused("no place for the preload library (/tmp: Read-only file system");
    run(&[&bare[..], &["--tmpfs", "/tmp:exec"]].concat()).assert_managed();
}

/// The budget is a part of the container's limit, which nobody has to repeat.
#[test]
fn podman_with_a_limit_gives_the_budget() {
    let Some(root) = Root::with_glibc() else { return };
    let Some(podman) = Podman::new() else { return };
    podman.build("limited", "FROM scratch\nCOPY . /\n", &root.path(""));
    let words = ["/coldpress", "run", "--disk", "none", "--", "/dropper", "--bytes", "96M"];
    let said = podman.run(&["--memory", "64m", "--device", DEVICE], "limited", &words);
    assert_eq!((said.code, &said.stdout[..]), (Some(0), "dropper: OK\n"), "{}", said.stderr);
    assert!(said.stderr.contains("90 % of the cgroup's limit of 64 MiB"), "{}", said.stderr);
}
