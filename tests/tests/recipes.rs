//! Risk: a recipe is copied from docs/recipes.md, and does not do what it says.
//!
//! Each test takes its lines from the page, so that what is printed is what was run. The command is
//! found by its name on the PATH, as users have it.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use coldpress_tests::machine::{
    self, Scratch, coldpress, find, fixture, require, skip, workspace_file,
};
use coldpress_tests::matrix;

/// The longest time that a recipe may take to say that it is ready.
const READY_MAX: Duration = Duration::from_secs(60);

/// A place with the command on the PATH.
struct Place {
    scratch: Scratch,
}

impl Place {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        fs::create_dir(scratch.path("bin")).expect("it is new");
        symlink(coldpress(), scratch.path("bin/coldpress")).expect("it is new");
        Self { scratch }
    }

    /// Returns a command in this place.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        // What tests are told is not for the command.
        for (name, _) in env::vars_os().filter(|(name, _)| is_ours(name)) {
            command.env_remove(name);
        }
        let path = env::var("PATH").expect("there is a PATH");
        command.env("PATH", format!("{}:{path}", self.scratch.path("bin").display()));
        command.current_dir(self.scratch.path(""));
        command
    }

    /// Has a shell do `lines`, which must succeed.
    fn shell(&self, lines: &str) -> String {
        let output = self.command("sh").args(["-ec", lines]).output().expect("there is a shell");
        succeeded(&output, lines)
    }

    /// Writes a program into the PATH.
    fn program(&self, name: &str, text: &str) {
        let path = self.scratch.write(&format!("bin/{name}"), text.as_bytes());
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
}

fn is_ours(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"COLDPRESS_")
}

fn succeeded(output: &Output, what: &str) -> String {
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}{err}", output.status);
    out + &err
}

/// Returns the block of the page that begins with this line, without its margin.
fn recipe(begins: &str) -> String {
    let page = fs::read_to_string(workspace_file("docs/recipes.md")).expect("it is text");
    let is_block = |line: &&str| line.starts_with("    ") || line.is_empty();
    let first = page.lines().position(|line| line.trim() == begins);
    let first = first.unwrap_or_else(|| panic!("the page has no line {begins:?}"));
    let block = page.lines().skip(first).take_while(is_block);
    let block = block.map(|line| line.strip_prefix("    ").unwrap_or(line));
    block.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

/// Writes C files whose objects make one program, and returns their names.
fn sources(place: &Place) -> Vec<String> {
    let names: Vec<_> = (0..4).map(|number| format!("part{number}")).collect();
    for name in &names {
        let mut text = String::new();
        for function in 0..40 {
            writeln!(text, "int {name}_{function}(int a) {{ return a * {function} + 1; }}")
                .expect("a String takes everything");
        }
        place.scratch.write(&format!("{name}.c"), text.as_bytes());
    }
    place.scratch.write("main.c", b"int part3_7(int); int main(void) { return part3_7(1) != 8; }");
    names.into_iter().chain(["main".into()]).collect()
}

/// Checks that the build was managed and made a program that works.
fn is_built(place: &Place, said: &str) {
    assert!(said.contains("coldpress: peak"), "nothing was in a budget: {said}");
    place.shell("./program");
}

#[test]
fn a_build_by_ninja() {
    let (Some(_), Some(_)) = (require("ninja"), require("gcc")) else { return };
    let place = Place::new("ninja");
    let mut rules = String::from("rule cc\n  command = gcc -O2 -c $in -o $out\n");
    rules += "rule link\n  command = gcc $in -o $out\n";
    let names = sources(&place);
    let objects: Vec<_> = names.iter().map(|name| format!("{name}.o")).collect();
    for name in &names {
        writeln!(rules, "build {name}.o: cc {name}.c").expect("a String takes everything");
    }
    writeln!(rules, "build program: link {}", objects.join(" ")).expect("as above");
    place.scratch.write("build.ninja", rules.as_bytes());
    is_built(&place, &place.shell(&recipe("coldpress run --memory 512M -- ninja -j8")));
}

#[test]
fn a_build_by_make() {
    let (Some(_), Some(_)) = (require("make"), require("gcc")) else { return };
    let place = Place::new("make");
    let objects: Vec<_> = sources(&place).iter().map(|name| format!("{name}.o")).collect();
    let rules = format!("program: {}\n\tgcc $^ -o $@\n", objects.join(" "));
    place.scratch.write("Makefile", rules.as_bytes());
    is_built(&place, &place.shell(&recipe("coldpress run --memory 512M -- make -j8")));
}

/// Makes a package of Rust without dependencies.
fn package(place: &Place) {
    let scratch = &place.scratch;
    fs::create_dir(scratch.path("src")).expect("it is new");
    let manifest = "[package]\nname = \"program\"\nedition = \"2024\"\n[workspace]\n";
    scratch.write("Cargo.toml", manifest.as_bytes());
    scratch.write("src/main.rs", b"fn main() { println!(\"made\"); }");
    // The toolchain of the tree, in a folder that has none of its own.
    let toolchain = workspace_file("rust-toolchain.toml");
    fs::copy(toolchain, scratch.path("rust-toolchain.toml")).expect("there is room");
}

#[test]
fn a_build_by_cargo() {
    if require("cargo").is_none() {
        return;
    }
    let place = Place::new("cargo");
    package(&place);
    let line = recipe("coldpress run --memory 1G -- cargo build --release");
    let said = place.shell(&format!("export CARGO_TARGET_DIR=target; {line}"));
    assert!(said.contains("coldpress: peak"), "nothing was in a budget: {said}");
    assert_eq!(place.shell("target/release/program").trim(), "made");
}

#[test]
fn a_linker_of_its_own() {
    let (Some(_), Some(_)) = (require("cargo"), require("gcc")) else { return };
    let place = Place::new("linker");
    package(&place);
    let script = recipe("exec coldpress run --memory 512M -- cc \"$@\"");
    place.program("coldpress-cc", &format!("#!/bin/sh\nexport COLDPRESS_STATS=stats\n{script}\n"));
    let lines = "export CARGO_TARGET_DIR=target; \
         cargo --config 'target.x86_64-unknown-linux-gnu.linker=\"coldpress-cc\"' build";
    place.shell(lines);
    assert_eq!(place.shell("target/debug/program").trim(), "made");
    assert!(place.scratch.path("stats").is_file(), "nothing was linked in a budget");
}

/// Packets of the Language Server Protocol, as an editor writes them.
fn packet(text: &str) -> String {
    format!("Content-Length: {}\r\n\r\n{text}", text.len())
}

#[test]
fn a_language_server_answers() {
    let Some(python) = require("python3") else { return };
    let place = Place::new("server");
    let version = Command::new("rust-analyzer").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        println!("rust-analyzer is not installed: a server of this test's stands in");
        let script = fixture("language_server.py");
        let text = format!("#!/bin/sh\nexec {} {}\n", python.display(), script.display());
        place.program("rust-analyzer", &text);
    }
    let script = recipe("exec coldpress run --quiet --idle --memory 25% -- rust-analyzer \"$@\"");
    place.program("editor-server", &format!("#!/bin/sh\n{script}\n"));
    let asked = [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize",
            "params":{"capabilities":{},"processId":null,"rootUri":null}}"#,
        r#"{"jsonrpc":"2.0","method":"initialized","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"shutdown"}"#,
        r#"{"jsonrpc":"2.0","method":"exit"}"#,
    ];
    let asked: String = asked.iter().map(|text| packet(text)).collect();
    place.scratch.write("asked", asked.as_bytes());
    let said = place.shell("editor-server < asked");
    assert!(said.contains("\"capabilities\"") && said.contains("\"id\":2"), "{said}");
}

#[test]
fn a_kernel_of_jupyter() {
    if !matrix::is_all() {
        return println!("left to `make edges`");
    }
    let Some(python) = machine::find("jupyter-python") else {
        return skip("ipykernel is not installed: scripts/bootstrap-tests edges");
    };
    let place = Place::new("jupyter");
    let first = r#""argv": ["coldpress", "run", "--quiet", "--idle", "--memory", "4G", "--","#;
    let kernel = recipe(first);
    let python_word = format!("{}", python.display());
    let kernel = format!("{{\n{}", kernel.replace("\"python3\"", &format!("{python_word:?}")));
    fs::create_dir_all(place.scratch.path("kernels/coldpress")).expect("it is new");
    place.scratch.write("kernels/coldpress/kernel.json", kernel.replace("4G", "64M").as_bytes());
    let output =
        place.command(&python).arg(fixture("jupyter.py")).arg(place.scratch.path("")).output();
    let said = succeeded(&output.expect("it was found"), "jupyter.py");
    assert!(said.contains("right") && said.contains("interrupted"), "{said}");
}

/// Waits for a server of systemd's to say that it is ready.
fn is_ready(socket: &UnixDatagram) -> bool {
    socket.set_read_timeout(Some(READY_MAX)).expect("that is a time");
    let mut bytes = [0; 4096];
    let until = Instant::now() + READY_MAX;
    while Instant::now() < until {
        let Ok(length) = socket.recv(&mut bytes) else { return false };
        if String::from_utf8_lossy(&bytes[..length]).lines().any(|line| line == "READY=1") {
            return true;
        }
    }
    false
}

#[test]
fn a_drop_in_for_a_service() {
    let unit = Path::new("/lib/systemd/system/redis-server.service");
    let (Some(systemd), Some(_), true) =
        (find("systemd-analyze"), require("redis-server"), unit.is_file())
    else {
        return println!("skipped: no systemd-analyze, or no unit of redis-server");
    };
    let place = Place::new("drop-in");
    let scratch = &place.scratch;
    let drop_in = fs::read_to_string(workspace_file("packaging/redis-server-coldpress.conf"));
    let here = drop_in.expect("it is text");
    let here = here.replace("/usr/local/bin/coldpress", &coldpress().to_string_lossy());
    fs::create_dir_all(scratch.path("units/redis-server.service.d")).expect("it is new");
    fs::copy(unit, scratch.path("units/redis-server.service")).expect("there is room");
    scratch.write("units/redis-server.service.d/coldpress.conf", here.as_bytes());
    let path = format!("{}:", scratch.path("units").display());
    let mut verify = Command::new(systemd);
    verify.args(["verify", "--man=no"]).env("SYSTEMD_UNIT_PATH", path);
    verify.arg(scratch.path("units/redis-server.service"));
    let output = verify.output().expect("it was found");
    let errors = String::from_utf8_lossy(&output.stderr);
    // systemd-analyze also reports other units of the machine.
    let ours = errors.lines().filter(|line| line.contains("redis-server"));
    assert_eq!(ours.collect::<Vec<_>>(), [""; 0], "{errors}");

    // Its command line, with settings of the test's in the place of the machine's.
    scratch.write("redis.conf", b"port 0\nunixsocket redis.sock\nsave \"\"\n");
    let line = here.lines().filter_map(|line| line.strip_prefix("ExecStart=")).next_back();
    let line = line.expect("a command").replace("/etc/redis/redis.conf", "redis.conf");
    let socket = scratch.path("notify");
    let told = UnixDatagram::bind(&socket).expect("it is new");
    let mut words = line.split(' ');
    let mut server = place.command(words.next().expect("a command"));
    let mut server = server.args(words).env("NOTIFY_SOCKET", &socket).spawn().expect("it starts");
    let was_ready = is_ready(&told);
    machine::signal("TERM", &[server.id()]);
    let status = server.wait().expect("it is a child of ours");
    assert!(was_ready, "the server did not say that it is ready");
    assert!(status.success(), "systemctl stop ends by {status}");
}

#[test]
fn a_task_prolog_gives_options() {
    let place = Place::new("slurm");
    let scratch = &place.scratch;
    let prolog = place
        .command(workspace_file("packaging/slurm-task-prolog"))
        .env("TMPDIR", scratch.path(""))
        .output()
        .expect("it is a program");
    let printed = succeeded(&prolog, "the prolog");
    let exports = printed.lines().map(|line| line.strip_prefix("export ").expect("an export"));
    let exports: Vec<_> = exports.filter_map(|line| line.split_once('=')).collect();
    assert_eq!(exports.len(), 2, "{printed}");
    let line = recipe("srun --mem 8G coldpress run -- ./job");
    let line = line.replace("srun --mem 8G ", "").replace("./job", "sh -c 'echo done'");
    let mut task = place.command("sh");
    task.args(["-ec", &line]).envs(exports);
    let said = succeeded(&task.output().expect("there is a shell"), &line);
    assert!(said.contains("done"), "{said}");
    // An option that the prolog gives is one that the command knows.
    let mut wrong = place.command("coldpress");
    wrong.args(["run", "--", "true"]).env("COLDPRESS_DISK", "/no");
    assert!(!wrong.status().expect("it starts").success(), "COLDPRESS_DISK is not read");
}

#[test]
fn the_action_sets_a_runner_up() {
    let place = Place::new("runner");
    let scratch = &place.scratch;
    let action = workspace_file(".github/actions/setup/action.yml");
    let folder: PathBuf = action.parent().expect("it is in a folder").into();
    let text = fs::read_to_string(&action).expect("it is text");
    let line = text.lines().find_map(|line| line.trim().strip_prefix("run: '"));
    let line = line.and_then(|line| line.strip_suffix('\'')).expect("the step is in quotes");
    let output = Command::new("bash")
        .args(["-ec", line])
        .env("GITHUB_ACTION_PATH", &folder)
        .env("GITHUB_PATH", scratch.path("github-path"))
        .env("RUNNER_TEMP", scratch.path(""))
        .env("COMMAND", coldpress())
        .output();
    succeeded(&output.expect("there is bash"), line);
    let path = fs::read_to_string(scratch.path("github-path")).expect("the step wrote it");
    let program = Path::new(path.trim()).join("coldpress");
    let run = recipe("- run: coldpress run --memory auto --disk \"$RUNNER_TEMP\" -- make -j8");
    let run = run.trim().strip_prefix("- run: ").expect("the recipe has a step");
    let run = run.replace("make -j8", "echo done").replace("coldpress", &program.to_string_lossy());
    let output =
        Command::new("bash").args(["-ec", &run]).env("RUNNER_TEMP", scratch.path("")).output();
    assert!(succeeded(&output.expect("there is bash"), &run).contains("done"));
}
