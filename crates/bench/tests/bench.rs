//! The risk: a benchmark that ends with an error after minutes, or counts that differ from run to
//! run. The method: the command with little work; no time is judged. A test that takes half a
//! minute all the same is left to `make edges`.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

mod common;

use common::{BENCH, can_manage, command, started_program};

/// Runs `coldpress-bench` with `args` and returns its JSON.
fn bench(args: &[&str]) -> Value {
    document(&[args, &["--quick", "--rounds", "1"]].concat())
}

/// Runs `coldpress-bench pools` with `args` and returns the JSON of the pools.
fn pools(args: &[&str]) -> Value {
    document(&[&["pools", "--quick"], args].concat())["pools"].take()
}

fn document(args: &[&str]) -> Value {
    let output = command(&[args, &["--json"]].concat()).output().expect("the command is built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Figures are kept, and they must not reveal the directories of this machine.
    let place = Path::new(BENCH).parent().expect("it lies somewhere");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains(place.to_str().expect("UTF-8")), "a path: {text}");
    serde_json::from_str(&text).expect("one document")
}

/// Returns whether the tests run that take long (COLDPRESS_ALL=1).
fn is_all() -> bool {
    let is_all = std::env::var("COLDPRESS_ALL").is_ok_and(|value| value == "1");
    if !is_all {
        println!("left to `make edges`");
    }
    is_all
}

fn length(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

#[test]
fn slab_measures_every_work_with_each_allocator() {
    let found = bench(&["slab"]);
    let works = found["slab"]["works"].as_array().expect("a list");
    assert_eq!(works.len(), 17);
    for work in works {
        for name in ["slab", "malloc", "nothing"] {
            assert!(work["ns"][name]["median"].as_f64() > Some(0.0), "{work}");
        }
    }
}

#[test]
fn frames_measures_every_part() {
    let found = bench(&["frames"]);
    let frames = &found["frames"];
    assert_eq!(length(&frames["order-0"]["works"]), 5);
    assert_eq!(length(&frames["descriptors"]["ns"]), 4);
    let reserved = &frames["descriptors"]["reserved_bytes_for_1_tib"];
    assert_eq!(
        *reserved,
        serde_json::json!([16_u64 << 30, 14_u64 << 30, 8_u64 << 30, 2_u64 << 30])
    );
    if let Some(misses) = frames["descriptors"].get("misses") {
        let instructions = misses[0]["instructions"].as_array().expect("a list");
        assert!(instructions.iter().all(|count| count.as_u64() > Some(0)), "{misses}");
    }
    assert!(frames["huge"]["two_zones"][0]["during"]["blocks"].is_u64());
}

#[test]
fn counts_of_huge_pages_follow_from_the_traces_alone() {
    let [one, two] = [(); 2].map(|()| bench(&["frames", "--part", "huge"]));
    for key in ["blocks", "core_blocks", "events", "one_zone", "two_zones"] {
        assert_eq!(one["frames"]["huge"][key], two["frames"]["huge"][key], "{key}");
    }
}

#[test]
fn recorded_traces_are_replayed_and_others_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("one.frames");
    let path = file.to_str().expect("plain names");
    // Two frames are allocated, one of them core; the other one is freed.
    fs::write(&file, b"cpframes\x01\0\0\0\0\0\0\0\x41\0\0\0\x82\0\0\0\x80\0\0\0").expect("a file");
    let found = bench(&["frames", "--part", "huge", "--trace", path]);
    assert_eq!(found["frames"]["huge"]["events"], 21);
    fs::write(&file, b"cpframes\x02\0\0\0\0\0\0\0").expect("a file");
    let args = ["frames", "--part", "huge", "--trace", path];
    let output = command(&args).output();
    let output = output.expect("the command is built");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("one.frames") && words.contains("no trace of frames"), "{words}");
}

/// Makes a trace of touches of 4000 pages, three times through.
fn touches() -> Vec<u8> {
    let mut bytes = b"cptouchs\x01\0\0\0\0\0\0\0".to_vec();
    bytes.extend(12_000_u64.to_le_bytes());
    // Forward by one page, reading; and back to the first, by 3999.
    let step = [4_u8];
    let back = [&[0xfa_u8, 0x7c][..], &step.repeat(3999)].concat();
    bytes.extend(step.repeat(4000));
    bytes.extend(back.repeat(2));
    bytes
}

#[test]
fn policies_are_held_against_the_optimum_on_files_and_models() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("loop.touches");
    let path = file.to_str().expect("plain names");
    fs::write(&file, touches()).expect("a file");
    let found = document(&["policy", "--trace", path, "--budget", "50"]);
    let rows = found["policy"]["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["trace"], &rows[0]["pages"]), (&"loop".into(), &4000.into()));
    // Twice through 4000 pages with room for 2000: LRU finds none of them, the optimum half.
    assert_eq!(rows[0]["lru"]["major"], 8000);
    assert_eq!(rows[0]["belady"]["major"], 4000);
    assert!(found["policy"]["by_optimum"].as_f64() >= Some(1.0));
    assert_eq!(length(&document(&["policy", "--quick"])["policy"]["rows"]), 18);
    for (bytes, words) in
        [(&b"cptouchs\x02"[..], "no trace of touches"), (&touches()[..100], "before its last")]
    {
        fs::write(&file, bytes).expect("a file");
        let output = command(&["policy", "--trace", path]).output();
        let output = output.expect("the command is built");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(words) && told.contains("loop.touches"), "{told}");
        assert_eq!(output.status.code(), Some(1));
    }
}

/// The touches of sqlite3: a table of 20 MB with an index, grouped, looked up, changed, and joined
/// with itself.
const SQLITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/sqlite.touches.zst");

#[test]
fn our_policy_is_not_far_from_linux_on_a_recorded_program() {
    let found = document(&["policy", "--trace", SQLITE, "--budget", "25,50"]);
    let rows = found["policy"]["rows"].as_array().expect("a list");
    assert_eq!((&rows[0]["pages"], &rows[0]["touches"]), (&6425.into(), &113_707.into()));
    for row in rows {
        let major = |name: &str| row[name]["major"].as_f64().expect("a number");
        assert!(major("belady") <= major("coldpress"), "{row}");
        assert!(major("coldpress") < 1.2 * major("active/inactive"), "{row}");
        assert!(major("coldpress_ahead") < 0.5 * major("coldpress"), "{row}");
        assert!(row["coldpress"]["minor"].as_f64() < Some(0.2 * major("coldpress")), "{row}");
    }
    assert!(found["policy"]["ahead_by_optimum"].as_f64() < Some(1.0));
}

#[test]
fn a_program_is_recorded_where_valgrind_is_and_refused_elsewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("true.touches");
    let path = file.to_str().expect("plain names");
    let record = |program| command(&["policy", "--record", path, "--", program]);
    let output = record("true").output().expect("the command is built");
    let told = String::from_utf8_lossy(&output.stderr);
    let has_valgrind = Command::new("valgrind").arg("--version").output().is_ok();
    assert_eq!(output.status.success(), has_valgrind, "{told}");
    if has_valgrind {
        let bytes = fs::read(&file).expect("it was written");
        let count = bytes[16..24].try_into().map(u64::from_le_bytes).expect("eight bytes");
        assert!(bytes.starts_with(b"cptouchs") && count > 10, "{count}");
        assert!(!record("/nonexistent").output().expect("the command is built").status.success());
    } else {
        assert!(told.contains("valgrind"), "{told}");
    }
}

/// Writes a trace of compressed sizes and returns its path.
fn sizes(folder: &Path, name: &str, numbers: &[u16]) -> String {
    let path = folder.join(name);
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    fs::write(&path, bytes).expect("a file");
    path.to_str().expect("plain names").to_owned()
}

fn pool_names(lines: &Value) -> HashSet<&str> {
    let lines = lines.as_array().expect("a list");
    lines.iter().map(|line| line["pool"].as_str().expect("a name")).collect()
}

#[test]
fn pools_fill_every_table_with_every_pool() {
    let found = pools(&[]);
    let names = pool_names(&found["t1"]);
    assert!(names.contains("zsmalloc-16") && names.len() >= 5, "{names:?}");
    for lines in [&found["t3"], &found["t4"], &found["t5"]["pools"]] {
        assert_eq!(pool_names(lines), names);
    }
    // Two contents, each with a header and without; two models, each in two sizes, with five
    // churns.
    assert_eq!(length(&found["t1"]), 4 * names.len());
    assert_eq!(length(&found["t4"]), 20 * names.len());
    for line in found["t2"].as_array().expect("a list") {
        let classes = line["classes"].as_array().expect("a list");
        let sum: u64 = classes.iter().filter_map(|class| class["pages_used"].as_u64()).sum();
        assert!(sum > 0 && line["pages_used"] == sum, "{line}");
    }
    let calls = &found["t5"]["pools"][0];
    for calls in [calls, &calls["two_threads"]] {
        assert!(calls["plain_read"]["p50"].as_f64() > Some(0.0));
    }
}

#[test]
fn densities_follow_from_the_sizes_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    // 3 of the 6 pages are objects.
    sizes(folder.path(), "one.lzo1x.u16", &[0, 1, 0xffff, 100, 2000, 4116]);
    sizes(folder.path(), "two.zstd1.u16", &[5; 70]);
    let path = folder.path().to_str().expect("plain names");
    let args = ["--tables", "t4", "--churn", "half,overwrite", "--pool", "zsmalloc-4", "--trace"];
    let run = |more: &[&str]| {
        let mut found = pools(&[&args, more].concat())["t4"].take();
        for line in found.as_array_mut().expect("a list") {
            line["compaction_ns"] = Value::Null;
        }
        found
    };
    let found = run(&[path]);
    assert_eq!(found, run(&[path]));
    assert_eq!(length(&found), 4);
    assert_eq!(found[0]["trace"], "one.lzo1x");
    assert_eq!([&found[0]["objects"], &found[2]["objects"]], [3, 1000]);
    assert_eq!([&found[0]["left"]["objects"], &found[3]["left"]["objects"]], [1, 1000]);
    assert_eq!(run(&[path, "--codec", "zstd1"])[0]["trace"], "two.zstd1");
}

#[test]
fn what_is_no_trace_of_sizes_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, numbers, words) in [
        ("one.lz4.u16", &[100, 5000][..], "number 1 (5000)"),
        ("two.lz4.u16", &[0, 1], "no page"),
        ("three.u16", &[100], "CORPUS.CODEC.u16"),
        ("four.lz4.u16.zst", &[100], "four.lz4.u16.zst"),
    ] {
        let path = sizes(folder.path(), name, numbers);
        let args = ["pools", "--quick", "--trace", &path];
        let output = command(&args).output();
        let output = output.expect("the command is built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(name) && said.contains(words), "{said}");
    }
}

/// Runs `coldpress-bench codecs` with `args` and returns the JSON of the codecs.
fn codecs(args: &[&str]) -> Value {
    document(&[&["codecs", "--quick"], args].concat())["codecs"].take()
}

#[test]
fn codecs_measures_programs_of_this_machine_and_a_model() {
    let found = codecs(&[]);
    let programs = found["programs"].as_array().expect("a list");
    let names: Vec<_> = programs.iter().filter_map(|program| program["program"].as_str()).collect();
    // These two are there, whatever else is installed.
    assert!(names.contains(&"rust") && names.contains(&"text"), "{names:?}");
    for program in programs {
        assert_eq!(length(&program["codecs"]), 21);
        for codec in program["codecs"].as_array().expect("a list") {
            assert!(codec["bytes"].as_f64() > Some(0.0), "{codec}");
            assert!(codec["load_us"]["p50"].is_f64() && codec["store_us"]["p99"].is_f64());
        }
        assert!(program["training"]["dictionary_bytes"].as_u64() > Some(0), "{program}");
    }
}

#[test]
fn bytes_of_pages_that_were_kept_are_the_same_in_every_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("kept.pages");
    let line = |number: usize| format!("{number}: {}\n", number * number).into_bytes();
    let bytes: Vec<u8> = (0..).flat_map(line).take(64 * 4096).collect();
    fs::write(&file, &bytes).expect("a file");
    let path = file.to_str().expect("plain names");
    let picture = folder.path().join("codecs.svg");
    let svg = picture.to_str().expect("plain names");
    let [one, two] = [(); 2].map(|()| codecs(&["--pages", path, "--svg", svg]));
    // Each codec is a point.
    assert_eq!(fs::read_to_string(&picture).expect("a file").matches("<circle").count(), 21);
    assert_eq!(one["programs"][0]["program"], "kept");
    let bytes_of = |found: &Value| -> Vec<Value> {
        let codecs = found["programs"][0]["codecs"].as_array().expect("a list");
        codecs.iter().map(|codec| codec["bytes"].clone()).collect()
    };
    assert_eq!(bytes_of(&one), bytes_of(&two));
    fs::write(&file, &bytes[1..]).expect("a file");
    for args in [["--pages", path], ["--pid", "4000000000"]] {
        let output = command(&[&["codecs"][..], &args].concat()).output().expect("it is built");
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(!output.stderr.is_empty());
    }
}

/// Returns the swap of the kernel, and the number of its zram devices.
fn swap_state() -> (String, usize) {
    let devices = fs::read_dir("/sys/block").expect("a folder").flatten();
    let devices = devices.filter(|device| device.file_name().to_string_lossy().starts_with("zram"));
    (fs::read_to_string("/proc/swaps").expect("a file"), devices.count())
}

/// Runs all contests in one test: at the same time they would find each other's swap.
#[test]
fn contests_over_the_kernels_swap_leave_nothing_behind() {
    if !is_all() || !can_manage() {
        return;
    }
    let before = swap_state();
    let folder = tempfile::tempdir().expect("a folder");
    let picture = folder.path().join("swap.svg");
    let svg = picture.to_str().expect("plain names");
    let found = document(&["swap", "--quick", "--pages", "heap", "--threads", "1", "--svg", svg]);
    let found = &found["swap"];
    let lines = found["blocks"][0]["lines"].as_array().expect("a list");
    assert_eq!(lines[0]["contestant"], "coldpress");
    let missing = found["missing"].as_array().expect("a list");
    assert_eq!(lines.len() - 1 + missing.len(), 4, "{missing:?}");
    for line in lines {
        let turn = &line["turns"][0];
        assert!(turn["held_bytes"].as_u64() > Some(0), "{line}");
        if turn["kills"] == 0 {
            assert_eq!(length(&turn["seen"]["works"]), 10, "{line}");
        }
    }
    assert_eq!(length(&found["goals"]), 14);
    assert!(fs::read_to_string(&picture).expect("a file").contains("80/20: "));
    assert_eq!(swap_state(), before);
    interrupted_swap();
    assert_eq!(swap_state(), before);
    programs();
    assert_eq!(swap_state(), before);
    trees();
    assert_eq!(swap_state(), before);
}

/// Compares a real program with zram, where there is the right to it.
fn programs() {
    let only = ["--program", "python", "--peer", "zram-lz4", "--share", "total-50"];
    let found = document(&[&["programs", "--rounds", "1"][..], &only].concat());
    let found = &found["programs"];
    let Some(block) = found["programs"].as_array().expect("a list").first() else {
        assert_ne!(length(&found["missing"]), 0);
        return;
    };
    assert!(block["plain"][0]["seconds"].as_f64() > Some(0.0), "{block}");
    let lines = block["contestants"].as_array().expect("a list");
    assert_eq!(lines[0]["contestant"], "coldpress");
    let (limit, held) = (&lines[0]["limit_bytes"], &lines[0]["turns"][0]["held_bytes"]);
    assert!(held.as_u64() > Some(16 << 20) && limit.as_u64() < block["peak_bytes"].as_u64());
    let is_told = lines.len() == 2 && lines[1]["turns"][0]["kills"] == 0;
    assert_eq!(found["time_ratio"].is_f64(), is_told, "{found}");
    assert_eq!(lines.len() + length(&found["missing"]), 2);
}

/// Compares a server with processes with zram, where there is the right to it. The server's figures
/// are separated from the output that is compared.
fn trees() {
    let only = ["--tree", "postgres", "--peer", "zram-lz4", "--share", "resident-50"];
    let found = document(&[&["trees", "--quick"][..], &only].concat());
    let found = &found["trees"];
    let Some(block) = found["trees"].as_array().expect("a list").first() else {
        assert_ne!(length(&found["missing"]), 0);
        return;
    };
    assert_eq!(block["figures"], serde_json::json!(["tps", "latency_ms"]));
    let lines = block["contestants"].as_array().expect("a list");
    let turns = block["plain"].as_array().into_iter().flatten();
    for turn in turns.chain(lines.iter().map(|line| &line["turns"][0])) {
        assert_eq!(length(&turn["figures"]), if turn["kills"] == 0 { 2 } else { 0 }, "{turn}");
    }
    let is_told = lines.len() == 2 && lines[1]["turns"][0]["kills"] == 0;
    assert_eq!(found["time_ratio"].is_f64(), is_told, "{found}");
}

/// Ends `coldpress-bench swap` by SIGTERM while it runs a program, over the kernel's swap, or over
/// coldpress where there is no right to swap.
fn interrupted_swap() {
    let args = ["swap", "--share", "total-50", "--threads", "1", "--data", "64M"];
    let mut command = command(&args);
    command.stderr(Stdio::piped()).stdout(Stdio::null());
    let child = command.spawn().expect("the command is built");
    started_program(child.id(), "workload");
    let term = Command::new("kill").arg(child.id().to_string()).status();
    assert!(term.expect("there is a kill").success());
    let output = child.wait_with_output().expect("a child");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("put it back"), "{said}");
    assert_eq!(output.status.signal(), Some(15), "{said}");
}

/// Runs without the kernel's swap, which the test above turns on and off meanwhile.
#[test]
fn zswap_measures_every_pressure() {
    if !can_manage() {
        return;
    }
    for threads in [&[][..], &["--threads"]] {
        let args = ["zswap", "--quick", "--peer", "none"];
        let found = document(&[&args, threads].concat());
        let found = &found["zswap"];
        assert_eq!(found["missing"], serde_json::json!([]));
        assert!(found["encryption"]["seal_ns"].as_f64() > Some(0.0), "{found}");
        let blocks = found["blocks"].as_array().expect("a list");
        assert_eq!(blocks.iter().map(|block| &block["jobs"]).collect::<Vec<_>>(), [2, 4]);
        for block in blocks {
            let names = ["coldpress-raw", "coldpress"];
            for (index, name) in names.into_iter().enumerate() {
                let line = &block["contestants"][index];
                assert_eq!(line["contestant"], name);
                let turn = &line["turns"][0];
                assert!(turn["figures"]["seconds"].as_f64() > Some(0.0), "{line}");
                // A peak was read, and it is this run's. On a busy machine four young processes
                // pass a budget as small as 16 MiB, by a third once; the system tests guard how
                // far.
                let held = turn["held_bytes"].as_u64().expect("a number");
                assert!((4 << 20..=32 << 20).contains(&held), "{line}");
            }
        }
        // Four jobs at a time need more than they have, and raw pages find room on the disk only.
        let raw = &blocks[1]["contestants"][0]["turns"][0]["figures"];
        assert!(raw["pages_out"].as_u64() > Some(0), "{raw}");
    }
    let refused = command(&["zswap", "--peer", "zram"]).output();
    assert_eq!(refused.expect("the command is built").status.code(), Some(2));
}

/// Writes a file of C with `count` functions into `source`.
fn functions(source: &Path, name: &str, count: usize) {
    let file = source.join("src/backend").join(name).with_extension("c");
    fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    let function = |number: usize| {
        format!(
            "unsigned f{number}(unsigned *in, int n) {{ unsigned sum = {number}; \
             for (int i = 0; i < n; i++) if (in[i] % 7) sum += in[i] * {number}; \
             else sum ^= in[i] >> 3; return sum; }}\n"
        )
    };
    let text: String = (0..count).map(function).collect();
    fs::write(file, text).expect("a file");
}

/// Runs without the kernel's swap, as above.
#[test]
fn build_compiles_and_finds_its_objects_or_says_how_to_get_the_source() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().to_str().expect("plain names");
    let args = ["build", "--quick", "--source", source, "--peer", "none"];
    let output = command(&args).output().expect("it is built");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("scripts/fetch-postgresql") && said.contains(source), "{said}");
    if !is_all() || !can_manage() {
        return;
    }
    for name in ["parser/gram", "commands/tablecmds", "utils/adt/ruleutils", "utils/misc/guc"] {
        functions(folder.path(), name, 150);
    }
    fs::create_dir_all(folder.path().join("src/include/utils")).expect("a folder");
    fs::write(folder.path().join("src/include/utils/fmgroids.h"), "").expect("a file");
    let out = folder.path().join("kept");
    let out_text = out.to_str().expect("plain names");
    let found = document(&[&args[..], &["--out", out_text]].concat());
    let blocks = found["build"]["blocks"].as_array().expect("a list");
    assert_eq!(blocks.iter().map(|block| &block["jobs"]).collect::<Vec<_>>(), [2, 4]);
    for line in blocks.iter().flat_map(|block| block["contestants"].as_array().expect("a list")) {
        let turn = &line["turns"][0];
        assert_eq!((&turn["failed"], &turn["kills"]), (&0.into(), &0.into()), "{line}");
        assert!(turn["figures"]["seconds"].as_f64() > Some(0.0), "{line}");
    }
    let kept = fs::read_dir(&out).expect("a folder").flatten().next().expect("a processor");
    let names = fs::read_dir(kept.path()).expect("a folder").flatten();
    let names: Vec<_> = names.map(|file| file.file_name().into_string().expect("text")).collect();
    assert_eq!(names.len(), 2);
    assert!(names.iter().all(|name| name.contains("-build.")), "{names:?}");
}

/// A build that lays nothing out and watches nothing starts a program faster without doubt, so this
/// build is worse. The test does not judge the reverse: on a busy machine it could come out either
/// way.
#[test]
fn a_build_that_is_worse_than_another_ends_with_1_and_the_figure() {
    if !can_manage() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("unmanaging");
    // The other build knows no option: it runs the program behind the options.
    fs::write(&file, "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n")
        .expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = file.to_str().expect("plain names");
    let output = command(&["start", "--against", path, "--json"]).output();
    let output = output.expect("the command is built");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("worse than") && said.contains("true, ms"), "{said}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let found = &found["start-against"];
    let figure = &found["figures"][0];
    assert_eq!((&figure["verdict"], &found["rounds"]), (&"worse".into(), &20.into()), "{found}");
    let place = folder.path().to_str().expect("plain names");
    assert!(!String::from_utf8_lossy(&output.stdout).contains(place), "a path");

    // A build that cannot run the program has no figure.
    for (file, words) in [("/bin/false", "exit status: 1"), ("/nowhere/it", "No such file")] {
        let output = command(&["fault", "--against", file]).output();
        let output = output.expect("the command is built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(words) && output.stdout.is_empty(), "{said}");
    }
}

#[test]
fn fork_tells_what_was_away_and_what_both_hold() {
    if !can_manage() {
        return;
    }
    let args = ["fork", "--data", "48M", "--memory", "40M", "--rounds", "1", "--forks", "2"];
    let found = &document(&args)["fork"];
    let managed = |key: &str| found[key]["managed"]["least"].as_f64().expect("a number");
    assert!(managed("away_bytes") > f64::from(4 << 20), "{found}");
    assert!(managed("fork_us") > 0.0 && managed("whole_us") >= managed("fork_us"), "{found}");
    assert!(managed("pss_bytes") >= managed("pss_anonymous_bytes"), "{found}");
    assert_eq!(found["away_bytes"]["plain"]["most"], 0.0);
}
