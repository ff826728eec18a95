//! A guest that boots a fetched kernel and runs steps: the command, tests as they were built, and
//! the programs that these need.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use coldpress_tests::guest::{Accelerator, CodeMemory, Files, QEMU};
use coldpress_tests::machine::{self, workspace_file};
use serde_json::Value;

/// The memory of a guest, in MiB: the torture's 500 with all that is in the first files.
const MIB: usize = 2048;
/// What a kernel says that panics because a processor of QEMU's ran code while another changed it,
/// as no processor does (seen with QEMU 7.2), and the number of times that it is booted.
const TORN: &str = "Oops: int3";
const BOOTS_MAX: usize = 4;
/// Longest time, in seconds, that a guest may take for all of its steps.
const HANG_S: usize = 1500;

/// The Python that guests get. Others that are in PATH may have all that was ever installed beside
/// them.
const PYTHON: &str = "/usr/bin/python3";

/// A kernel that `scripts/fetch-kernel` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Of Debian 11.
    Linux5_10,
    /// Of Debian 12.
    Linux6_1,
    /// Of Debian 13.
    Linux6_12,
    /// Of Debian's sid.
    Newest,
}

impl Kernel {
    /// Returns the name by which it was fetched.
    const fn name(self) -> &'static str {
        match self {
            Self::Linux5_10 => "5.10",
            Self::Linux6_1 => "6.1",
            Self::Linux6_12 => "6.12",
            Self::Newest => "newest",
        }
    }

    /// Returns its image. `None` with a printed line where it was not fetched, or is not wanted.
    fn image(self) -> Option<PathBuf> {
        let Some(fetched) = env::var_os("COLDPRESS_KERNELS").map(PathBuf::from) else {
            println!("skipped: left to `make kernels`, which fetches kernels");
            return None;
        };
        if env::var("COLDPRESS_KERNEL").is_ok_and(|wanted| wanted != self.name()) {
            println!("skipped: COLDPRESS_KERNEL names another");
            return None;
        }
        let image = fetched.join(self.name()).join("vmlinuz");
        if !image.is_file() {
            machine::skip(&format!("the kernel {} was not fetched", self.name()));
            return None;
        }
        Some(image)
    }
}

/// What a guest runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// The command's name, the program, or the file of tests.
    name: &'static str,
    /// The command, the program's options, or the test.
    what: &'static str,
    kind: Kind,
}

/// The kinds of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Command,
    /// Of `src/bin`, within a budget of so many MiB.
    Program(u32),
    Test,
}

impl Step {
    /// A command for the shell, under a name.
    pub(crate) const fn command(name: &'static str, command: &'static str) -> Self {
        Self { name, what: command, kind: Kind::Command }
    }

    /// A program of `src/bin` within a budget that makes pages go.
    pub(crate) const fn program(
        name: &'static str,
        options: &'static str,
        budget_mib: u32,
    ) -> Self {
        Self { name, what: options, kind: Kind::Program(budget_mib) }
    }

    /// A test of the file `file`.
    pub(crate) const fn test(file: &'static str, test: &'static str) -> Self {
        Self { name: file, what: test, kind: Kind::Test }
    }

    /// Returns the name that the guest prints, without spaces.
    fn label(&self) -> String {
        match self.kind {
            Kind::Test => format!("{}::{}", self.name, self.what),
            _ => self.name.to_owned(),
        }
    }

    /// Returns the command, with what was built.
    fn line(&self, built: &Built) -> String {
        let Self { name, what, kind } = self;
        match kind {
            Kind::Command => (*what).to_owned(),
            Kind::Program(mib) => {
                let program = built.program("bin", name).display();
                format!("$COLDPRESS_BIN run --memory {mib}M --disk none -- {program} {what}")
            }
            Kind::Test => {
                let tests = built.program("test", name).display();
                format!("{tests} --exact {what} --test-threads=1 --nocapture")
            }
        }
    }
}

/// The programs that cargo has built, by its messages in the file that COLDPRESS_BUILT names.
struct Built {
    messages: Vec<Value>,
}

impl Built {
    fn read() -> Self {
        let file = env::var_os("COLDPRESS_BUILT").expect("`make kernels` sets COLDPRESS_BUILT");
        let text = fs::read_to_string(file).expect("cargo wrote its messages");
        let messages = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        Self { messages: messages.collect() }
    }

    /// Returns the names of targets of `kind` with their programs.
    fn of(&self, kind: &str) -> impl Iterator<Item = (&str, &Path)> {
        self.messages.iter().filter_map(move |message| {
            let target = &message["target"];
            let is_kind = target["kind"].as_array()?.iter().any(|of| of == kind);
            let program = message["executable"].as_str().filter(|_| is_kind)?;
            Some((target["name"].as_str()?, Path::new(program)))
        })
    }

    fn program(&self, kind: &str, name: &str) -> &Path {
        let found = self.of(kind).find(|(of, _)| *of == name);
        found.unwrap_or_else(|| panic!("the {kind} {name} was not built")).1
    }
}

/// The files of a guest, and its kernel.
pub(crate) struct Guest {
    kernel: Kernel,
    image: PathBuf,
    files: Files,
    built: Built,
}

impl Guest {
    /// Makes the files. `None` with a printed line where the kernel was not fetched, or a program
    /// is missing.
    pub(crate) fn new(kernel: Kernel) -> Option<Self> {
        let image = kernel.image()?;
        let python = Path::new(PYTHON);
        if !python.is_file() {
            machine::skip("there is no python3 of Debian's, which is small");
            return None;
        }
        let files = Files::new("kernels-init.sh")?;
        let built = Built::read();
        files.add_program(&machine::coldpress());
        for kind in ["test", "bin"] {
            built.of(kind).for_each(|(_, program)| files.add_program(program));
        }
        files.add(workspace_file("tests/fixtures/job.py").parent().expect("it is in a folder"));
        files.add_program(python);
        let output = Command::new(python)
            .args(["-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"])
            .output();
        let output = output.expect("python starts").stdout;
        let library = PathBuf::from(String::from_utf8_lossy(&output).trim());
        files.add(&library);
        for entry in fs::read_dir(library.join("lib-dynload")).into_iter().flatten().flatten() {
            files.add_program(&entry.path());
        }
        let bin = format!("COLDPRESS_BIN={}", machine::coldpress().display());
        let variables = format!("export CI=true PATH=/bin:/usr/bin {bin}\n");
        fs::write(files.root().join("environment"), variables).expect("there is room");
        Some(Self { kernel, image, files, built })
    }

    /// Runs the steps on a machine of so many processors, and returns what it printed.
    pub(crate) fn run(self, processors: usize, steps: &[Step]) -> Console {
        let lines = steps.iter().map(|step| {
            let command = step.line(&self.built);
            format!("{} {command}\n", step.label())
        });
        let lines: String = lines.collect();
        fs::write(self.files.root().join("steps"), lines).expect("there is room");
        let archive = self.files.pack();
        let mut text = self.boot(processors, &archive);
        for _ in 1..BOOTS_MAX {
            if !text.contains(TORN) {
                break;
            }
            println!("QEMU ran code that the kernel was changing: once more");
            text = self.boot(processors, &archive);
        }
        Console { text }
    }

    /// Boots once, and returns what the machine printed until it was off.
    fn boot(&self, processors: usize, archive: &Path) -> String {
        println!("{}, {processors} processors:", self.kernel.name());
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", &HANG_S.to_string(), QEMU])
            .args(Accelerator::Tcg(CodeMemory::Usual).words())
            .args(["-smp", &processors.to_string(), "-m", &format!("{MIB}M")])
            .args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"])
            .arg("-kernel")
            .arg(&self.image)
            .arg("-initrd")
            .arg(archive)
            .args(["-append", "console=ttyS0 loglevel=3 printk.time=0 panic=-1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut machine = command.spawn().expect("timeout is there");
        let mut text = String::new();
        let console = BufReader::new(machine.stdout.take().expect("it is piped"));
        for line in console.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).replace('\r', "");
            if line.starts_with("kernel ") || line.starts_with("step ") {
                println!("  {line}");
            }
            text.push_str(&line);
            text.push('\n');
        }
        let status = machine.wait().expect("it is ours");
        assert!(status.success(), "{}, {status}: {text}", self.kernel.name());
        text
    }
}

/// What a guest has printed.
pub(crate) struct Console {
    pub(crate) text: String,
}

impl Console {
    /// Asserts that a step ended with `status`.
    pub(crate) fn assert_status(&self, step: &Step, status: i32) {
        let end = format!("step {}: status {status} after ", step.label());
        let has_ended = self.text.lines().any(|line| line.starts_with(&end));
        assert!(has_ended, "{}: not status {status}: {}", step.label(), self.text);
    }

    /// Asserts that a step has succeeded: that a test was run, or that pages of a program went and
    /// came back.
    pub(crate) fn assert_passed(&self, step: &Step) {
        self.assert_status(step, 0);
        let end = format!("step {}: ", step.label());
        let before = self.text.split(&end).next().unwrap_or_default();
        let of_step = before.rsplit("\nstep ").next().unwrap_or_default();
        let has_passed = match step.kind {
            Kind::Command => true,
            Kind::Program(_) => pages_compressed(of_step) > 0,
            Kind::Test => of_step.contains("1 passed"),
        };
        assert!(has_passed, "{}: {of_step}", step.label());
    }
}

/// Returns the number of pages that the line at the end of a run tells.
fn pages_compressed(text: &str) -> u64 {
    let before = text.split(" pages compressed").next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
