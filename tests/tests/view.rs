//! Risk: a program that sizes itself by the memory of the machine sees another number for each way
//! it asks, a number that ends it, or a number that has nothing to do with the machine; or sees
//! such a number without its user's request.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use coldpress_sys::Bytes;
use coldpress_tests::cgroup::Limited;
use coldpress_tests::harness::{Job, Run};
use coldpress_tests::machine::{self, Scratch, fixture};

const BUDGET: Bytes = Bytes::mib(64);
/// A python that has one executable file, which can be copied.
const PYTHON: &str = "/usr/bin/python3";

/// Returns whether it is known how this libc opens files. Prints a line when it is not.
fn is_known() -> bool {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let text =
        output.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()).unwrap_or_default();
    let minor = text.trim().rsplit('.').next().and_then(|minor| minor.parse::<u32>().ok());
    let is_known = minor.is_some_and(|minor| minor >= 32);
    if !is_known {
        println!("skipped: files are opened otherwise by {text:?}");
    }
    is_known
}

/// Makes a job of `view.py` that is shown `view`; `None` with a printed line where there is no
/// python, or another libc.
fn asks(view: &str, words: &[&str]) -> Option<Job> {
    if !Path::new(PYTHON).exists() {
        machine::skip("no python3 of the system's");
        return None;
    }
    if !is_known() {
        return None;
    }
    let job = Job::new("asks", PYTHON).arg(fixture("view.py")).args(words.iter().copied());
    Some(job.options(["--show-memory", view]))
}

fn output(run: &Run) -> String {
    assert_eq!(run.code, 0, "{}", run.stderr);
    String::from_utf8_lossy(&run.stdout).into_owned()
}

/// Returns the answer to each way of asking.
fn told(run: &Run) -> BTreeMap<String, usize> {
    let text = output(run);
    let lines = text.lines().filter_map(|line| line.rsplit_once(": "));
    lines.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
}

/// Builds `view.c` with `flags`; `None` with a printed line where there is no compiler.
fn built(scratch: &Scratch, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let compiler = machine::require("cc")?;
    let path = scratch.path(name);
    let mut command = Command::new(compiler);
    command.args(flags).arg("-o").arg(&path).arg(fixture("view.c")).arg("-pthread");
    assert!(command.status().is_ok_and(|status| status.success()), "it is C");
    Some(path)
}

/// Returns the total that view.py prints when it runs as a program of this name.
fn total_of(scratch: &Scratch, name: &str, view: &str) -> Option<usize> {
    let program = scratch.path(name);
    fs::copy(PYTHON, &program).ok()?;
    let job = Job::new("named", program).arg(fixture("view.py")).arg("total");
    let run = job.options(["--show-memory", view]).managed(BUDGET);
    output(&run).trim().parse().ok()
}

#[test]
fn each_way_to_ask_tells_the_same() {
    let scratch = Scratch::new("view");
    let Some(library) = built(&scratch, "bound.so", &["-shared", "-fPIC"]) else { return };
    let library = library.to_str().expect("plain names").to_owned();
    let folder = scratch.path("").to_str().expect("plain names").to_owned();
    for (view, wanted) in [("3x", 3 * BUDGET.0), ("100M", 100 << 20)] {
        let Some(job) = asks(view, &["ways", &folder, &library]) else { return };
        let run = job.managed(BUDGET);
        let mut told = told(&run);
        println!("{view}: {told:?}");
        assert_eq!(told.remove("own"), Some(7 << 10), "a user's own file");
        assert!(told.len() >= 13, "{told:?}");
        assert!(told.values().all(|total| *total == wanted), "not {wanted}: {told:?}");
    }
}

#[test]
fn nothing_is_shown_without_being_asked_for() {
    let scratch = Scratch::new("view");
    let folder = scratch.path("").to_str().expect("plain names").to_owned();
    let Some(job) = asks("off", &["ways", &folder]) else { return };
    let plain = told(&job.plain());
    assert_eq!(told(&job.managed(BUDGET)), plain);
    let Some(job) = asks("2x", &["ways", &folder]) else { return };
    // An inner program that is to see the true numbers.
    let refused = Job::new("refused", "env").arg("COLDPRESS_SHOW_MEMORY=off").arg(PYTHON);
    let refused = refused.arg(fixture("view.py")).args(["ways", &folder]);
    assert_eq!(told(&refused.options(["--show-memory", "2x"]).managed(BUDGET)), plain);
    assert_ne!(told(&job.managed(BUDGET)), plain);
    let inner = Job::new("inner", machine::coldpress()).args(["run", "--show-memory", "off", "--"]);
    let inner = inner.arg(PYTHON).arg(fixture("view.py")).args(["ways", &folder]);
    let run = inner.options(["--show-memory", "2x"]).managed(BUDGET);
    assert_eq!(told(&run), plain);
    assert!(!run.stderr.contains("ignored"), "{}", run.stderr);
}

#[test]
fn what_is_free_moves_for_who_keeps_the_file_open() {
    let Some(job) = asks("2x", &["kept", "1.5"]) else { return };
    let run = job.managed(BUDGET);
    let text = output(&run);
    let numbers = |name: &str| -> Vec<usize> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("it is told");
        line.split_whitespace().map(|word| word.parse().expect("a number")).collect()
    };
    println!("{text}");
    assert_eq!(numbers("total"), [128 << 20; 2]);
    let available = numbers("available");
    let taken = available[0] - available[1];
    assert!((28 << 20..40 << 20).contains(&taken), "{taken} less are free");
    let again = available[1].abs_diff(available[2]);
    assert!(again <= 1 << 20, "who opens it again sees the same but for {again}");
    assert!(numbers("sysconf")[0].abs_diff(available[1]) <= 1 << 20);
}

#[test]
fn by_who_asks_goes_by_name_and_by_what_is_mapped() {
    if !Path::new(PYTHON).exists() {
        return machine::skip("no python3 of the system's");
    }
    let scratch = Scratch::new("names");
    for (name, times) in [("python3", 2), ("node", 8), ("sort", 1), ("nodes", 2)] {
        let found = total_of(&scratch, name, "auto");
        assert_eq!(found, Some(times * BUDGET.0), "{name}");
    }
    // A program that has loaded a JVM, whatever its name.
    let script = "import mmap, os, sys; file = open(sys.argv[1], 'rb'); \
                  kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ); \
                  print(os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGESIZE'))";
    for (name, times) in [("libjvm.so", 6), ("_duckdb.cpython-311.so", 1), ("libjvm.s", 2)] {
        let library = scratch.write(name, &[1; 4096]);
        let job = Job::new("mapped", PYTHON).args(["-c", script]).arg(library);
        let run = job.options(["--show-memory", "auto"]).managed(BUDGET);
        assert_eq!(output(&run).trim(), (times * BUDGET.0).to_string(), "{name}");
    }
}

#[test]
fn a_limit_of_a_cgroup_is_lowered_and_never_made_or_raised() {
    let Some(group) = Limited::new(Bytes::mib(300)) else { return };
    let Some(other) = Limited::new(Bytes::mib(400)) else { return };
    let [limit, usage] = if group.path().join("memory.max").exists() {
        ["memory.max", "memory.current"]
    } else {
        ["memory.limit_in_bytes", "memory.usage_in_bytes"]
    };
    let file = |group: &Limited, name: &str| {
        group.path().join(name).to_str().expect("plain names").to_owned()
    };
    let root = group.path().parent().expect("it is below the mount").join(limit);
    let paths = [file(&group, limit), file(&group, usage), file(&other, limit)];
    let mut words = vec!["files"];
    words.extend(paths.iter().map(String::as_str));
    let root_text = fs::read_to_string(&root).ok();
    let root = root.to_str().expect("plain names").to_owned();
    if root_text.is_some() {
        words.push(&root);
    }
    let lines = |view: &str| {
        let run = asks(view, &words)?.before(group.entering()).managed(BUDGET);
        Some(output(&run).lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let Some(shown) = lines("2x") else { return };
    println!("{shown:?}");
    assert_eq!(shown[0], (128 << 20).to_string(), "the own one");
    let used: usize = shown[1].parse().expect("a number");
    // The memory of python, which is not a multiple of what the kernel charges at a time.
    assert!((4 << 20..32 << 20).contains(&used), "{used} are used");
    assert_eq!(shown[2], (400 << 20).to_string(), "another's");
    assert_eq!(shown.get(3).map(String::as_str), root_text.as_deref().map(str::trim), "no limit");
    // The limit is lower than the number that would be shown: the limit holds everywhere.
    let shown = lines("8x").expect("as before");
    assert_eq!(shown[0], (300 << 20).to_string());
    let job = asks("8x", &["total"]).expect("as before").before(group.entering());
    assert_eq!(output(&job.managed(BUDGET)).trim(), (300 << 20).to_string());
}

#[test]
fn a_thread_that_is_cancelled_in_open_goes() {
    let scratch = Scratch::new("cancelled");
    let Some(program) = built(&scratch, "cancelled", &["-fexceptions"]) else { return };
    let fifo = scratch.path("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.is_ok_and(|status| status.success()), "a directory of ours");
    let job = Job::new("cancelled", program).arg(fifo).options(["--show-memory", "1x"]);
    assert_eq!(output(&job.managed(BUDGET)), "cancelled: 1, cleaned: 1\n");
}

/// libc's `qsort` keeps the order of equal elements where a quarter of the machine's memory is
/// enough for a copy.
#[test]
fn what_is_sorted_is_in_the_same_order() {
    let scratch = Scratch::new("sorted");
    let Some(program) = built(&scratch, "sorted", &[]) else { return };
    let job = Job::new("sorted", program).options(["--show-memory", "1x"]);
    assert_eq!(output(&job.managed(BUDGET)), output(&job.plain()));
}

#[test]
fn go_is_told_by_its_variable_and_a_user_s_own_stays() {
    let script = "echo \"${GOMEMLIMIT-none}\"";
    let job = |view: &str| {
        Job::new("go", "sh").args(["-c", script]).options(["--show-memory", view]).managed(BUDGET)
    };
    assert_eq!(output(&job("off")), "none\n");
    assert_eq!(output(&job("auto")).trim(), (BUDGET.0 / 10 * 9).to_string());
    let own = Job::new("go", "sh").args(["-c", script]).environment("GOMEMLIMIT", "7MiB");
    assert_eq!(output(&own.options(["--show-memory", "auto"]).managed(BUDGET)), "7MiB\n");
}

#[test]
fn an_open_leaves_nothing_open_and_is_closed_by_exec() {
    let Some(job) = asks("1x", &["opens", "/proc/meminfo", "1000"]) else { return };
    assert_eq!(output(&job.managed(BUDGET)), output(&job.plain()));
}

#[test]
fn tools_agree_on_what_is_shown() {
    if !is_known() {
        return;
    }
    let script = "free -b | awk '/^Mem:/ { print $2 }'; \
                  top -b -n 1 -E m | awk '/^MiB Mem/ { printf \"%d\\n\", $4 * 1048576 }'; \
                  getconf _PHYS_PAGES | awk '{ printf \"%d\\n\", $1 * 4096 }'";
    let job = Job::new("tools", "sh").args(["-c", script]).options(["--show-memory", "2x"]);
    let text = output(&job.managed(BUDGET));
    println!("{text}");
    let totals: Vec<f64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(totals, [f64::from(2_u32 * (64 << 20)); 3], "{text}");
}

/// The machine has more than four budgets, and `sort` takes most of the memory that it finds.
#[test]
fn who_sized_itself_and_mostly_waited_is_told_what_helps() {
    let scratch = Scratch::new("hint");
    let input = scratch.path("lines");
    let script = "seq 3000000 | awk '{ print $1 * 7919 % 3000017 }' > \"$0\"";
    let made = Command::new("sh").args(["-c", script]).arg(&input).status();
    assert!(made.is_ok_and(|status| status.success()), "there is room");
    let job = |view: &str| {
        let sort = Job::new("sort", "sort").arg("-n").arg(&input).options(["--show-memory", view]);
        sort.environment("TMPDIR", scratch.path("")).managed(Bytes::mib(48))
    };
    let [off, auto] = ["off", "auto"].map(job);
    println!("{off}{}{auto}{}", off.stderr, auto.stderr);
    assert_eq!(off.stdout, auto.stdout);
    let hint = "sort mostly waited, and may have sized itself for";
    assert_eq!([&off, &auto].map(|run| run.stderr.matches(hint).count()), [1, 0]);
}
