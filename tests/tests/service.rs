//! Risk: a program notices the process that serves its memory, or that process outlives it, has
//! rights that it should not have, or ends before the program's last page was served.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::cgroup::Limited;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{self, Scratch, fixture};
use coldpress_tests::{matrix, watch};

/// A program that runs many programs in one process, one after the other.
const EXECS: &str = env!("CARGO_BIN_EXE_execs");
/// A python that every user may run.
const PYTHON: &str = "/usr/bin/python3";
/// A budget of half of what the fixture holds.
const BUDGET: Bytes = Bytes::mib(32);
/// Time limit for any step here, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes a job of the fixture; `None` with a printed line where there is no python.
fn beside(words: &[&str]) -> Option<Job> {
    if !Path::new(PYTHON).exists() {
        machine::skip("no python3 that every user may run");
        return None;
    }
    let job = Job::new("beside", PYTHON).arg(fixture("beside.py"));
    Some(job.args(words.iter().copied()))
}

/// Checks that the program prints the same plain and managed.
fn is_as_plain(words: &[&str]) {
    let Some(job) = beside(words) else { return };
    let plain = job.plain();
    let run = job.managed(BUDGET);
    println!("{run}\n{}{}", String::from_utf8_lossy(&run.stdout), run.stderr);
    run.assert_same(&plain);
    run.assert_stored();
}

#[test]
fn a_wait_of_any_kind_gives_children_of_the_program_alone() {
    is_as_plain(&["wait"]);
}

#[test]
fn the_program_is_dumpable_and_owns_its_files_as_without_coldpress() {
    is_as_plain(&["dumpable"]);
}

#[test]
fn the_program_has_one_thread_and_may_make_a_user_name_space() {
    is_as_plain(&["single"]);
}

#[test]
fn a_chain_of_exec_ends_whole() {
    is_as_plain(&["exec", "10"]);
}

#[test]
fn a_program_that_was_stopped_for_a_while_ends_in_its_own_way() {
    ends_by_its_handler("term", |program, service| {
        machine::signal("STOP", &[service, program]);
        machine::signal("CONT", &[program, service]);
    });
}

#[test]
fn a_service_goes_with_its_program_from_one_group_to_another() {
    let (Some(job), Some(first)) = (beside(&["term"]), Limited::new(Bytes::mib(512))) else {
        return;
    };
    let second = Limited::new(Bytes::mib(512)).expect("as the first");
    let live = Live::start(&job, Some(BUDGET));
    live.wait_for_output("ready\n", LIMIT);
    let (program, service) = watch::find_service(live.root()).expect("it is managed");
    for group in [&first, &second] {
        group.take(program).expect("it took others");
        let begun = Instant::now();
        while !group.members().contains(&service) {
            assert!(begun.elapsed() < LIMIT, "the service stays behind");
            thread::sleep(Duration::from_millis(20));
        }
    }
    assert!(first.members().is_empty(), "the group that was left cannot be removed");
    machine::signal("TERM", &[program]);
    let run = live.finish(LIMIT);
    assert_eq!((run.code, run.stdout.as_slice()), (7, &b"ready\nwhole\n"[..]), "{}", run.stderr);
}

/// This is the one difference from a run without coldpress; docs/compatibility.md lists it.
#[test]
fn a_reaper_above_the_program_reaps_its_service_too() {
    if beside(&[]).is_none() {
        return;
    }
    let job = Job::new("reaper", PYTHON).arg(fixture("reaper.py")).arg(PYTHON);
    let run = job.arg(fixture("beside.py")).arg("dumpable").managed(BUDGET);
    let text = String::from_utf8_lossy(&run.stdout);
    println!("{run}\n{text}{}", run.stderr);
    assert!(text.contains("whole\nstatus 0\nothers "), "{text}");
    assert!(!text.contains("others 0"), "docs/compatibility.md says otherwise: {text}");
}

/// The program goes on, and takes its service with it when it ends.
#[test]
fn a_program_whose_launcher_was_killed_ends_in_its_own_way() {
    let Some(job) = beside(&["term"]) else { return };
    let mut live = Live::start(&job, Some(BUDGET));
    live.wait_for_output("ready\n", LIMIT);
    let (program, service) = watch::find_service(live.root()).expect("it is managed");
    live.kill_root();
    machine::signal("TERM", &[program]);
    assert!(live.wait_output_end(LIMIT), "it does not end");
    assert_eq!(live.output(), b"ready\nwhole\n");
    let begin = Instant::now();
    while watch::is_service(service) {
        assert!(begin.elapsed() < LIMIT, "the service outlives the program");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Starts the fixture, looks at its service, and signals the service and the program.
fn ends_by_its_handler(what: &str, before: impl Fn(u32, u32)) {
    let Some(job) = beside(&[what]) else { return };
    let live = Live::start(&job, Some(BUDGET));
    live.wait_for_output("ready\n", LIMIT);
    let (program, service) = watch::find_service(live.root()).expect("it is managed");
    before(program, service);
    machine::signal("TERM", &[service, program]);
    let run = live.finish(LIMIT);
    println!("{run}\n{}{}", String::from_utf8_lossy(&run.stdout), run.stderr);
    assert_eq!((run.code, &run.stdout[..]), (7, &b"ready\nwhole\n"[..]));
    assert!(!watch::is_service(service), "it outlives the program");
}

/// A service manager stops processes like this: the service gets the signal first.
#[test]
fn a_signal_to_every_process_ends_the_program_in_its_own_way() {
    ends_by_its_handler("term", |_, _| ());
}

/// All signals but KILL and STOP; 32 and 33 are libc's own.
#[test]
fn signals_that_can_be_blocked_do_nothing_to_a_service() {
    ends_by_its_handler("term", |_, service| {
        for number in (1..=31).chain(34..=64).filter(|number| ![9, 19].contains(number)) {
            machine::signal(&number.to_string(), &[service]);
        }
        let stat = fs::read_to_string(format!("/proc/{service}/status")).expect("it lives");
        let has = |line: &str, bit: u32| {
            let mask = stat.lines().find_map(|found| found.strip_prefix(line)).expect("proc(5)");
            u64::from_str_radix(mask.trim(), 16).expect("hex") >> (bit - 1) & 1 == 1
        };
        // HUP and the last signal are pending.
        assert!([1, 64].iter().all(|bit| has("ShdPnd:", *bit)), "{stat}");
        assert!(watch::is_service(service) && !stat.contains("State:\tT"), "{stat}");
    });
}

#[test]
fn the_service_of_a_program_that_became_nobody_has_no_rights() {
    if !machine::is_root() {
        return;
    }
    ends_by_its_handler("drop", |_, service| {
        let status = fs::read_to_string(format!("/proc/{service}/status")).expect("it lives");
        for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(status.contains(line), "no {line:?} in {status}");
        }
    });
}

/// Root makes the calls that a program would command its service to make after taking it over. So
/// the filter refuses them, whatever the program can write.
#[test]
fn a_service_that_somebody_commands_may_do_nothing_for_them() {
    let Some(gdb) = machine::require("gdb").filter(|_| machine::is_root()) else { return };
    ends_by_its_handler("term", |_, service| {
        let mut command = Command::new(&gdb);
        command.args(["-batch", "-p", &service.to_string(), "-x"]).arg(fixture("calls.gdb"));
        let output = command.output().expect("gdb is there");
        let text = String::from_utf8_lossy(&output.stdout);
        let results: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("call ")).collect();
        println!("{results:?}");
        // The filter refuses (EPERM) open for writing and for reading, kill, socket, ptrace, mmap
        // to execute, setuid and clone. It does not refuse the last call, getpid.
        let refused = ["257", "257", "62", "41", "101", "9", "105", "56"];
        let mut wanted: Vec<String> = refused.iter().map(|call| format!("{call}: -1")).collect();
        wanted.push(format!("39: {service}"));
        assert_eq!(results, wanted, "{}", String::from_utf8_lossy(&output.stderr));
    });
}

/// `make edges` runs the full number of programs in one process, `make test` a tenth.
#[test]
fn a_long_chain_of_exec_leaves_one_service() {
    let count = if matrix::is_all() { "1000" } else { "100" };
    let run = Job::new("execs", EXECS).args([count]).managed(BUDGET);
    println!("{run}{}", run.stderr);
    assert_eq!((run.code, &run.stdout[..]), (0, &b"whole, services 1\n"[..]), "{}", run.stderr);
}

/// After an exec, only the service holds the memory of the image before, whatever comes next: a
/// managed program, a static one, or one that takes on another user.
#[test]
fn an_exec_ends_the_service_of_the_image_before() {
    let scratch = Scratch::new("execs");
    let mut after = vec![vec!["/bin/sleep".to_owned(), "1".to_owned()]];
    if let Some(compiler) = machine::find("cc") {
        let source = scratch.write("rest.c", b"#include <unistd.h>\nint main(void){sleep(1);}\n");
        let program = scratch.path("rest");
        let words = ["-static".as_ref(), "-o".as_ref(), program.as_os_str(), source.as_os_str()];
        let built = Command::new(compiler).args(words).status().is_ok_and(|done| done.success());
        if built {
            after.push(vec![program.to_str().expect("plain names").to_owned()]);
            if machine::is_root() {
                let copy = scratch.path("setuid");
                fs::copy(&program, &copy).expect("there is room");
                let copy = copy.to_str().expect("plain names").to_owned();
                let given = Command::new("chown").args(["65534", &copy]).status();
                let set = Command::new("chmod").args(["4755", &copy]).status();
                assert!(given.is_ok_and(|done| done.success()), "it is ours to give");
                assert!(set.is_ok_and(|done| done.success()), "it is ours to set");
                after.push(vec![copy]);
            }
        }
    }
    for words in after {
        let live = Live::start(&Job::new("exec", EXECS).arg("0").args(&words), Some(BUDGET));
        live.wait_for_output("ready\n", LIMIT);
        // The program goes on at the end of its input, which comes at once.
        let begin = Instant::now();
        while watch::find_service(live.root()).is_some() {
            assert!(begin.elapsed() < LIMIT, "{words:?}: its service stays");
            thread::sleep(Duration::from_millis(1));
        }
        println!("{words:?}: no service after {:?}", begin.elapsed());
        let run = live.finish(LIMIT);
        assert_eq!((run.code, &run.stdout[..]), (0, &b"ready\n"[..]), "{}", run.stderr);
        assert!(!run.stderr.contains("background"), "{words:?}: {}", run.stderr);
    }
}
