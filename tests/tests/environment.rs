//! The risk: a program sees in its environment what its user did not put there; or because of what
//! a script does to it, its programs are not managed, or lose a library of the user's.

use coldpress_sys::Bytes;
use coldpress_tests::harness::Job;
use coldpress_tests::machine::{find, fixture, require};

const BUDGET: Bytes = Bytes::mib(32);
/// A script that prints the names of the preloaded libraries in the calling process.
const LOADED: &str = "grep -o 'libcoldpress\\|libjemalloc\\|libm.so' /proc/self/maps | sort -u";

fn output(job: &Job) -> String {
    let run = job.managed(BUDGET);
    println!("{run}\n{}", run.stderr);
    assert_eq!(run.code, 0);
    String::from_utf8_lossy(&run.stdout).into_owned()
}

#[test]
fn a_program_sees_what_its_user_has_set() {
    for value in [None, Some(""), Some("libm.so.6"), Some("libm.so.6 libdl.so.2")] {
        // The shell's own programs see the environment too. `_` is the path of the program.
        let job = Job::new("env", "sh").args(["-c", "env; env -u _ env; exec env"]);
        let job = match value {
            Some(value) => job.environment("LD_PRELOAD", value),
            None => job,
        };
        let plain = String::from_utf8_lossy(&job.plain().stdout).into_owned();
        let found = output(&job);
        let differs = found.lines().zip(plain.lines()).find(|(one, other)| one != other);
        assert!(found == plain, "{value:?}: {differs:?}");
    }
}

/// What a start script sets, tests or clears reaches the program, and coldpress reaches it too.
#[test]
fn libraries_of_the_users_are_loaded_beside_ours() {
    let scripts = [
        ("[ -n \"${LD_PRELOAD-}\" ] || export LD_PRELOAD=libm.so.6; exec sh -c", true),
        ("export LD_PRELOAD=libm.so.6; exec sh -c", true),
        ("unset LD_PRELOAD; exec sh -c", false),
        ("exec env -i PATH=\"$PATH\" sh -c", false),
        ("exec env -i LD_PRELOAD=libm.so.6 /bin/sh -c", true),
    ];
    for (script, has_theirs) in scripts {
        let job = Job::new("script", "sh").arg("-c").arg(format!("{script} \"$0\"")).arg(LOADED);
        let theirs = if has_theirs { "libm.so\n" } else { "" };
        assert_eq!(output(&job), format!("libcoldpress\n{theirs}"), "{script}");
    }
}

/// A program is managed however it is started, because coldpress follows it through every exec.
#[test]
fn programs_started_in_every_way_with_a_bare_environment_are_managed() {
    let Some(python) = require("python3") else { return };
    let job = Job::new("starts", python).arg(fixture("starts.py"));
    let plain = job.plain();
    let run = job.managed(BUDGET);
    println!("{run}\n{}{}", String::from_utf8_lossy(&run.stdout), run.stderr);
    run.assert_same(&plain);
    // Each program has a private memory of 48 MiB.
    assert!(run.stats().count("managed_processes") >= 6, "{run}");
    run.assert_within_budget();
    assert_eq!(run.stats().count("unmanaged_processes"), 0);
}

/// Perl's exec bypasses none of libc's functions.
#[test]
fn perl_starts_managed_programs() {
    let Some(perl) = find("perl") else { return };
    let words = ["-e", "%ENV = (); exec '/bin/sh', '-c', $ARGV[0]"];
    let job = Job::new("perl", perl).args(words).arg(LOADED);
    assert_eq!(output(&job), "libcoldpress\n");
}

/// Go's runtime starts programs around libc, so its programs keep what they were given.
#[test]
fn programs_of_go_keep_what_they_were_given() {
    let job = Job::new("noted", env!("CARGO_BIN_EXE_noted")).args(["/bin/sh", "-c"]).arg(LOADED);
    assert_eq!(
        output(&job),
        "COLDPRESS_BUDGET_BYTES COLDPRESS_PADDING COLDPRESS_SOCKET LD_PRELOAD\n"
    );
}
