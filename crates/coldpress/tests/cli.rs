//! The risk: a script around `coldpress run` cannot distinguish its failure from the program's, or
//! the program notices that it is not alone: another exit status, lost signals, changed
//! environment, stray output. The method: the real command with small real programs, as a shell
//! would call it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

mod common;

use common::{COLDPRESS, NOBODY, assert_fails, can_manage, coldpress, stderr, stdout};

/// Runs `coldpress run --memory 64M` with `args`.
fn run(args: &[&str]) -> Output {
    let mut all = vec!["run", "--memory", "64M"];
    all.extend(args);
    coldpress(&all).output().expect("the command is built")
}

fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    if !is_root {
        eprintln!("skipped: only root can do this");
    }
    is_root
}

/// Makes a file in `directory` with this text and mode.
fn file(directory: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).expect("the directory is ours");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the file is ours");
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

#[test]
fn wrong_options_name_the_text_and_the_choices() {
    for (args, parts) in [
        (&["--memory", "12Q"][..], &["12Q", "512M", "GiB"][..]),
        (&["--memory", "101%"], &["101%", "25%"]),
        (&["--codec", "gzip"], &["gzip", "wk", "lz4", "lzo", "zstd"]),
        (&["--pool", "zbud"], &["zbud", "zsmalloc", "xvmalloc", "xcfmalloc", "segment"]),
        (&["--codec", "zstd:99"], &["zstd:99", "19"]),
        (&["--disk-size", "lots"], &["lots", "512M"]),
        (&["--max-pool-percent", "91"], &["91", "1 to 90"]),
        (&["--memroy", "64M"], &["--memroy"]),
    ] {
        let mut all = vec!["run"];
        all.extend(args);
        all.push("true");
        assert_fails(&coldpress(&all).output().unwrap(), 125, parts);
    }
    for args in [&["run"][..], &["run", "--"], &["run", "--memory", "64M"]] {
        assert_fails(&coldpress(args).output().unwrap(), 125, &["PROGRAM", "Usage"]);
    }
}

#[test]
fn help_and_version_succeed_and_other_usage_errors_are_two() {
    for args in [&["--help"][..], &["--version"], &["run", "--help"], &["doctor", "-h"]] {
        let output = coldpress(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{args:?}");
    }
    let help = stdout(&coldpress(&["help", "run"]).output().unwrap());
    for part in ["Examples:", "python3 job.py", "powers of 1000", "COLDPRESS_DISK_SIZE", "125"] {
        assert!(help.contains(part), "{part:?} is not in: {help}");
    }
    for args in [&[][..], &["frobnicate"], &["doctor", "--frobnicate"]] {
        assert_eq!(coldpress(args).output().unwrap().status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn a_budget_below_the_floor_is_refused_with_both_numbers() {
    let output = coldpress(&["run", "--memory", "4M", "true"]).output().unwrap();
    assert_fails(&output, 125, &["coldpress: a budget of 4 MiB (4194304 bytes", "floor of 16 MiB"]);
    let output = coldpress(&["run", "true"]).env("COLDPRESS_MEMORY", "1000").output().unwrap();
    assert_fails(&output, 125, &["1000 bytes"]);
}

#[test]
fn programs_that_cannot_start_are_told_apart_as_env_does() {
    let directory = tempfile::tempdir().unwrap();
    let plain = file(directory.path(), "plain", "echo\n", 0o644);
    let orphan = file(directory.path(), "orphan", "#!/absent/interpreter\n", 0o755);
    for name in ["coldpress-absent-program", "/absent/program", ""] {
        assert_fails(&run(&["--", name]), 127, &["coldpress: ", "was not found"]);
    }
    assert_fails(&run(&["--idle", "0.5%", "--", "true"]), 127, &["was not found", "--idle=0.5%"]);
    assert_fails(&run(&[text(&orphan)]), 127, &["/absent/interpreter", "orphan"]);
    assert_fails(&run(&[text(&plain)]), 126, &["plain", "chmod +x"]);
    assert_fails(&run(&[text(directory.path())]), 126, &["directory"]);
}

#[test]
fn a_static_program_runs_and_so_does_a_script_for_it() {
    if !can_manage() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = file(directory.path(), "m.c", "int main(void) { return 7; }\n", 0o644);
    let program = directory.path().join("static");
    let mut compiler = Command::new("cc");
    compiler.arg("-static").arg(&source).arg("-o").arg(&program);
    if !compiler.output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no cc -static here");
        return;
    }
    assert_fails(&run(&[text(&program)]), 7, &["no page had to be compressed"]);
    let script = file(directory.path(), "script", &format!("#!{}\n", text(&program)), 0o755);
    assert_fails(&run(&[text(&script)]), 7, &["no page had to be compressed"]);
}

#[test]
fn a_program_of_32_bits_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let mut bytes = fs::read("/bin/true").unwrap();
    // The class of the file (elf(5)).
    bytes[4] = 1;
    fs::write(&copy, bytes).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let parts = ["coldpress: ", "32-bit program", "--allow-unmanaged"];
    assert_fails(&run(&[text(&copy)]), 125, &parts);
}

#[test]
fn an_unmanaged_program_sees_nothing_of_ours() {
    let output = coldpress(&["run", "--memory", "64M", "--allow-unmanaged", "--", "env"])
        .env("COLDPRESS_TEST_FEATURES_MASK", "0")
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    assert_fails(&output, 0, &["coldpress: warning: "]);
    assert!(!stdout(&output).contains("LD_PRELOAD"), "{}", stdout(&output));
}

#[test]
fn a_setuid_program_is_refused_only_when_it_changes_ids() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let copy = directory.path().join("copy");
    fs::copy("/bin/true", &copy).unwrap();
    chown(&copy, Some(NOBODY), None).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_fails(&run(&[text(&copy)]), 125, &["setuid to uid 65534", "--allow-unmanaged"]);
    assert_fails(&run(&["--allow-unmanaged", text(&copy)]), 0, &["warning", "setuid"]);
    // Root's own setuid program gives root nothing new.
    chown(&copy, Some(0), None).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
    if can_manage() {
        assert_fails(&run(&[text(&copy)]), 0, &[]);
    }
}

#[test]
fn a_kernel_without_move_is_refused_in_the_words_of_the_doctor() {
    if !can_manage() {
        return;
    }
    // All features but MOVE, which is bit 16.
    let mask = ("COLDPRESS_TEST_FEATURES_MASK", "fffeffff");
    let run = coldpress(&["run", "--memory", "64M", "true"]).env(mask.0, mask.1).output().unwrap();
    assert_fails(&run, 125, &["lacks MOVE", "6.8"]);
    let doctor = coldpress(&["doctor"]).env(mask.0, mask.1).output().unwrap();
    assert_eq!(doctor.status.code(), Some(1));
    let line = stderr(&run);
    let line = line.trim_end().strip_prefix("coldpress: ").unwrap();
    assert!(stdout(&doctor).contains(&format!("FAIL  {line}\n")), "{}", stdout(&doctor));
}

#[test]
fn a_user_without_access_is_told_what_opens_it() {
    if !is_root() {
        return;
    }
    // The command itself may lie where user nobody may not look.
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = directory.path().join("coldpress");
    fs::copy(COLDPRESS, &copy).unwrap();
    let as_nobody = |args: &[&str]| {
        let mut command = Command::new(&copy);
        command.args(args).uid(NOBODY).gid(NOBODY).current_dir("/");
        command.output().unwrap()
    };
    let doctor = as_nobody(&["doctor"]);
    if doctor.status.success() {
        eprintln!("skipped: here everybody has access");
        return;
    }
    let run = as_nobody(&["run", "--memory", "64M", "true"]);
    assert_fails(&run, 125, &["coldpress: access: ", "/dev/userfaultfd", "CAP_SYS_PTRACE"]);
    let line = stderr(&run);
    let line = line.trim_end().strip_prefix("coldpress: ").unwrap();
    assert!(stdout(&doctor).contains(&format!("FAIL  {line}\n")), "{}", stdout(&doctor));
}

#[test]
fn the_doctor_speaks_json() {
    let output = coldpress(&["doctor", "--json"]).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["ok"], output.status.success());
    let checks = document["checks"].as_array().unwrap();
    for what in ["kernel", "access", "page scan", "memory", "disk"] {
        assert!(checks.iter().any(|check| check["what"] == what), "{document:#}");
    }
    assert!(output.stderr.is_empty());
}

#[test]
fn exit_status_and_signals_are_handed_on() {
    if !can_manage() {
        return;
    }
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -TERM $$", 128 + 15),
        ("kill -KILL $$", 128 + 9),
        ("kill -SEGV $$", 128 + 11),
    ] {
        let output = run(&["--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{script}: {}", stderr(&output));
    }
    // The shell runs a text without #!, as execvp does; its name stays what the user wrote.
    let directory = tempfile::tempdir().unwrap();
    let script = file(directory.path(), "script", "echo \"$0 $1\"; exit 4\n", 0o755);
    let output = run(&["--quiet", text(&script), "one"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert_eq!(stdout(&output), format!("{} one\n", text(&script)));
}

#[test]
fn orphans_are_reaped_and_not_waited_for() {
    if !can_manage() {
        return;
    }
    // The orphan ends first, and its end must not be taken for the program's.
    let output = run(&["-q", "--", "sh", "-c", "(sh -c 'exit 9' &) ; sleep 0.2; exit 5"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    let mut child =
        coldpress(&["run", "-q", "-m", "64M", "--", "sh", "-c", "sleep 600 >&- 2>&- & echo $!"]);
    let output = child.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let sleeper = stdout(&output).trim().to_owned();
    assert!(Command::new("kill").arg(&sleeper).status().unwrap().success(), "{sleeper} still ran");
}

/// Starts a shell under coldpress that says `ready`, and sends `signal` to the launcher. Returns
/// the shell's further words and the launcher's exit status.
fn signal_launcher(script: &str, signal: &str) -> (String, Option<i32>) {
    let mut command = coldpress(&["run", "-q", "--memory", "64M", "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the command is built");
    let mut words = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    words.read_line(&mut line).expect("the shell prints text");
    assert_eq!(line, "ready\n");
    let pid = child.id().to_string();
    let killed = Command::new("kill").args([signal, &pid]).status();
    assert!(killed.expect("there is a kill").success());
    line.clear();
    words.read_line(&mut line).expect("the shell prints text");
    let status = child.wait().expect("it is our child");
    assert_eq!(status.signal(), None);
    (line, status.code())
}

/// Returns whether the tests were started with signal `number` ignored, as nohup and a shell's `&`
/// do.
fn is_ignored(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is /proc");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("proc(5)");
    let mask = u64::from_str_radix(ignored.trim(), 16).expect("a mask in hexadecimal");
    mask >> (number - 1) & 1 != 0
}

#[test]
fn signals_sent_to_the_launcher_reach_the_program() {
    if !can_manage() {
        return;
    }
    let signals = [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("USR1", 10),
        ("USR2", 12),
        ("ALRM", 14),
        ("TERM", 15),
        ("WINCH", 28),
    ];
    // A shell cannot trap a signal that was ignored at its start.
    for (signal, _) in signals.into_iter().filter(|(_, number)| !is_ignored(*number)) {
        let script = format!(
            "trap 'echo got; exit 6' {signal}; echo ready; for i in $(seq 400); do sleep 0.05; done"
        );
        let (word, code) = signal_launcher(&script, &format!("-{signal}"));
        assert_eq!((word.as_str(), code), ("got\n", Some(6)), "{signal}");
    }
    let (_, code) = signal_launcher("echo ready; exec sleep 20", "-TERM");
    assert_eq!(code, Some(128 + 15));
}

#[test]
fn an_ignored_signal_stays_ignored() {
    if !can_manage() {
        return;
    }
    // `trap ''` ignores before coldpress starts, as nohup does; the program must inherit that.
    let coldpress_path = COLDPRESS;
    let script = format!(
        "trap '' HUP; exec {coldpress_path} run -q -m 64M -- sh -c 'kill -HUP $PPID $$; echo alive'"
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(stdout(&output), "alive\n", "{}", stderr(&output));
}

#[test]
fn what_is_ignored_at_the_start_is_ignored_by_the_program_and_nothing_else_is() {
    if !can_manage() {
        return;
    }
    let ignored = |run: &str| {
        let script =
            format!("trap '' HUP INT USR1 PIPE CHLD; exec {run} grep SigIgn /proc/self/status");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let plain = ignored("");
    assert_eq!(ignored(&format!("{COLDPRESS} run -q -m 64M --")), plain);
    // Without a budget, the program itself is in coldpress's place.
    assert_eq!(ignored(&format!("{COLDPRESS} run -q -m 64M -- {COLDPRESS} run --")), plain);
}

/// A script has its jobs in the background ignore SIGINT; a program may handle it all the same.
#[test]
fn a_signal_that_is_ignored_at_the_start_reaches_a_program_that_handles_it() {
    if !can_manage() || Command::new("python3").arg("-V").output().is_err() {
        return;
    }
    let program = "import signal, sys, time; \
                   signal.signal(signal.SIGINT, lambda *_: sys.exit(3)); print(1, flush=True); \
                   time.sleep(20); sys.exit(9)";
    let script = format!(
        "{COLDPRESS} run -q -m 64M -- python3 -c '{program}' & read line; kill -INT $!; wait $!"
    );
    let (output, input) = std::io::pipe().unwrap();
    // If a program said nothing, the shell would wait for ever.
    let mut command = Command::new("timeout");
    command.args(["60", "sh", "-c", &script]).stdin(output).stdout(input);
    assert_eq!(command.status().unwrap().code(), Some(3));
}

/// systemd names the process that it has opened sockets for: the launcher, though it means the
/// program.
#[test]
fn a_program_that_is_told_its_number_finds_its_own() {
    if !can_manage() {
        return;
    }
    let said = |variables: &str, program: &str| {
        let script = format!("{variables} exec {COLDPRESS} run -q -m 64M -- {program}");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        (output.status.code(), stdout(&output), stderr(&output))
    };
    let names = "export LISTEN_PID=$$ WATCHDOG_PID=7 LISTEN_FDS=1;";
    let program = "sh -c '[ $LISTEN_PID = $$ ] && echo \"$WATCHDOG_PID $LISTEN_FDS $0 $1\"' -a -b";
    assert_eq!(said(names, program), (Some(0), "7 1 -a -b\n".into(), String::new()));
    let (code, _, told) = said(names, "/dev/null");
    assert_eq!(code, Some(126), "{told}");
}

#[test]
fn what_was_preloaded_stays_and_ours_is_not_seen() {
    if !can_manage() {
        return;
    }
    // This library is certainly there: libc itself.
    let existing = "libc.so.6";
    let script = "echo \"$LD_PRELOAD\"; grep -m 1 -o '/[^ ]*libcoldpress.so' /proc/self/maps";
    let output = coldpress(&["run", "-q", "-m", "64M", "--", "sh", "-c", script])
        .env("LD_PRELOAD", existing)
        .output()
        .unwrap();
    let text = stdout(&output);
    let (rest, ours) = text.trim_end().split_once('\n').expect("two lines");
    assert_eq!(rest, existing);
    // The directory goes with the run.
    assert!(!Path::new(ours).parent().unwrap().exists(), "{ours} is still there");
}

#[test]
fn the_program_inherits_no_descriptor_of_ours() {
    if !can_manage() {
        return;
    }
    let script = "for fd in /proc/$$/fd/*; do echo ${fd##*/}; done";
    let plain = Command::new("sh").args(["-c", script]).output().unwrap();
    let managed = run(&["-q", "--", "sh", "-c", script]);
    assert_eq!(stdout(&managed), stdout(&plain), "{}", stderr(&managed));
}

#[test]
fn quiet_is_silent_and_the_default_says_one_line_at_the_end() {
    if !can_manage() {
        return;
    }
    let output = run(&["--quiet", "true"]);
    assert_eq!((stderr(&output), stdout(&output)), (String::new(), String::new()));
    let output = run(&["true"]);
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    // Without --memory a second line says what the budget is.
    let output = coldpress(&["run", "true"]).output().unwrap();
    let text = stderr(&output);
    assert!(text.lines().count() == 2 && text.starts_with("coldpress: budget "), "{text}");
    let output = coldpress(&["run", "true"]).env("COLDPRESS_QUIET", "1").output().unwrap();
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_disk_in_memory_is_warned_of_and_a_missing_one_refused() {
    if !can_manage() {
        return;
    }
    assert_fails(&run(&["--disk", "/absent", "true"]), 125, &["/absent", "--disk none"]);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    if !mounts.lines().any(|line| line.starts_with("tmpfs /dev/shm ")) {
        eprintln!("skipped: no tmpfs at /dev/shm");
        return;
    }
    let output = run(&["--disk", "/dev/shm", "true"]);
    assert_fails(&output, 0, &["coldpress: warning: /dev/shm is tmpfs, which is memory"]);
    let output = run(&["-q", "--disk", "/dev/shm", "true"]);
    assert_eq!(stderr(&output), "");
}

#[test]
fn statistics_are_one_json_document_and_a_bad_name_is_known_at_once() {
    if !can_manage() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let stats = directory.path().join("stats.json");
    let output = run(&["-q", "--stats", text(&stats), "--", "sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let document: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&stats).unwrap()).unwrap();
    assert!(document.is_object());
    let output = run(&["--stats", "/absent/stats.json", "--", "sh", "-c", "echo started"]);
    assert_fails(&output, 125, &["/absent/stats.json"]);
    assert_eq!(stdout(&output), "");
}
