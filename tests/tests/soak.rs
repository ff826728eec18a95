//! Risk: a run that lasts for days loses a page or a descriptor each time that a program starts,
//! forks or ends, and fails when all are lost.
//!
//! Two runs stay: a shell that starts one program after another, with what it is told, and a Redis
//! whose keys are checked, changed and saved by forks. Each program must print what it printed
//! without coldpress, and Redis keep its digest. After each round all processes of ours are looked
//! at; at the end none of their figures may have grown.
//!
//! `make long` runs a few short rounds, and `make soak` goes on for SOAK_HOURS.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use coldpress_sys::Bytes;
use coldpress_sys::proc::share_memory;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{Scratch, fixture, require};
use coldpress_tests::soak::{LOOKS_MIN, Record, Records, look};
use coldpress_tests::watch::{descendants, keeper, services};

/// The budget of the shell and all that it starts, and of the server: less than each program asks
/// for.
const BUDGET: Bytes = Bytes::mib(24);
/// The same for the short form.
const BUDGET_SHORT: Bytes = Bytes::mib(16);
/// Keys of the server: about 55 MiB; and of the short form, which is a little above its budget.
const KEYS: usize = 50_000;
const KEYS_SHORT: usize = 11_000;
/// The longest time that a program may take.
const PROGRAM_MAX: Duration = Duration::from_secs(300);

/// A shell that does the lines of a pipe, and says how each ended.
const SHELL: &str = "exec 3<\"$1\"; while read -r number line <&3; do \
     sh -c \"$line\" > \"$2\" 2>&1; echo \"end $number $?\"; done";
/// Keys with values that hash functions made, so that they compress as text does.
const FILL: &str = "for i = 1, tonumber(ARGV[1]) do local v = {} \
     for j = 1, 20 do v[j] = redis.sha1hex(i .. ' ' .. (j - j % 2)) end \
     redis.call('set', 'key' .. i, table.concat(v)) end return 'filled'";

/// Returns for how long the test goes on, if it is the long one.
fn time() -> Option<Duration> {
    let text = env::var("COLDPRESS_SOAK_HOURS").ok()?;
    let hours: f64 = text.parse().unwrap_or_else(|_| panic!("{text} is no number of hours"));
    Some(Duration::from_secs_f64(hours * 3600.0))
}

/// The programs that the shell starts: lines for `sh -c`.
fn programs(is_long: bool) -> Option<Vec<String>> {
    let script = |program: &str, file: &str, words: &str| {
        Some(format!("{} {} {words}", require(program)?.display(), fixture(file).display()))
    };
    let mut lines = vec![script("python3", "fork.py", "24")?];
    if is_long {
        lines.push(script("python3", "fork.py", "60")?);
        lines.push(script("python3", "job.py", "1 30")?);
        let table = fixture("table.sql");
        lines.push(format!("{} :memory: < {}", require("sqlite3")?.display(), table.display()));
        lines.push(script("python3", "job.py", "2 60")?);
        lines.push(script("node", "job.js", "40")?);
        lines.push(script("java", "Job.java", "30")?);
        lines.push("seq 400000 | LC_ALL=C sort -r -S 60M | md5sum".into());
    }
    Some(lines)
}

/// Returns what a line prints without coldpress.
fn plain(line: &str) -> String {
    let mut command = Command::new("sh");
    // As runs have it.
    command.envs([("LC_ALL", "C.UTF-8"), ("PYTHONHASHSEED", "0")]);
    let output = command.args(["-c", line]).stdin(Stdio::null()).output();
    let output = output.expect("there is a shell");
    assert!(output.status.success(), "{line}: fails without coldpress");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The run of the shell.
struct Shell {
    live: Live,
    lines: fs::File,
    output: PathBuf,
    count: usize,
}

impl Shell {
    fn start(scratch: &Scratch, budget: Bytes) -> Self {
        let (pipe, output) = (scratch.path("lines"), scratch.path("output"));
        assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|done| done.success()));
        let job = Job::new("shell", "sh").args(["-c", SHELL, "sh"]).args([&pipe, &output]);
        let job = job.options(["--quiet", "--disk"]).options([scratch.path("")]).rate_hz(1);
        let live = Live::start(&job, Some(budget));
        // Opened for reading too, this does not wait until the shell has opened it.
        let lines = OpenOptions::new().read(true).write(true).open(&pipe);
        Self { live, lines: lines.expect("the pipe was made above"), output, count: 0 }
    }

    /// Has the shell do a line, and returns what that printed.
    fn run(&mut self, line: &str) -> String {
        self.count += 1;
        writeln!(self.lines, "{} {line}", self.count).expect("the shell reads");
        self.live.wait_for_output(&format!("end {} 0\n", self.count), PROGRAM_MAX);
        fs::read_to_string(&self.output).expect("the shell has written it")
    }
}

/// The run of Redis.
struct Server {
    live: Live,
    socket: PathBuf,
    digest: String,
    keys: String,
}

impl Server {
    fn start(scratch: &Scratch, budget: Bytes, keys: usize) -> Option<Self> {
        require("redis-cli")?;
        let socket = scratch.path("redis.sock");
        let job = Job::new("redis-server", require("redis-server")?)
            .args(["--port", "0", "--save", "", "--enable-debug-command", "yes"])
            .args(["--unixsocket".into(), socket.clone()])
            .args(["--dir".into(), scratch.path("")])
            .options(["--quiet", "--disk"])
            .options([scratch.path("")])
            .rate_hz(1);
        let live = Live::start(&job, Some(budget));
        live.wait_for_output("eady to accept connections", PROGRAM_MAX);
        let mut server = Self { live, socket, digest: String::new(), keys: keys.to_string() };
        server.fill();
        server.digest = server.ask(&["debug", "digest"]);
        Some(server)
    }

    fn ask(&self, words: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        let output = command.arg("-s").arg(&self.socket).args(words).output();
        let output = output.expect("redis-cli is there");
        assert!(output.status.success(), "redis-cli {words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Writes all keys anew, with the same values.
    fn fill(&self) {
        assert_eq!(self.ask(&["eval", FILL, "0", &self.keys]), "filled");
    }

    /// Changes and saves all keys, and compares what is there with what was at first.
    fn round(&self) {
        self.fill();
        self.ask(&["bgsave"]);
        let until = Instant::now() + PROGRAM_MAX;
        while !self.ask(&["info", "persistence"]).contains("rdb_bgsave_in_progress:0") {
            assert!(Instant::now() < until, "redis does not come to the end of a save");
            thread::sleep(Duration::from_millis(20));
        }
        let info = self.ask(&["info", "persistence"]);
        assert!(info.contains("rdb_last_bgsave_status:ok"), "{info}");
        assert_eq!(self.ask(&["debug", "digest"]), self.digest);
    }
}

/// Returns a run's processes that stay: its launcher, its keeper, and of the server the service.
/// Those of the shell's programs end with them.
fn staying(shell: &Shell, server: &Server) -> Vec<(&'static str, u32)> {
    let (programs, server) = (shell.live.root(), server.live.root());
    let mut all = vec![("launcher of programs", programs), ("launcher of a server", server)];
    all.extend(keeper(programs).map(|keeper| ("keeper of programs", keeper)));
    all.extend(keeper(server).map(|keeper| ("keeper of a server", keeper)));
    // Children that save come behind their parent, and have services of their own.
    let parent = *descendants(server).first().expect("the server runs");
    let serves = |service: &u32| share_memory(parent, *service).is_ok_and(|is_same| is_same);
    all.extend(services().into_iter().find(serves).map(|it| ("service of a server", it)));
    all
}

#[test]
fn mixed_programs_leave_our_processes_as_they_were() {
    let time = time();
    let is_long = time.is_some();
    let Some(lines) = programs(is_long) else { return };
    let (budget, keys) = if is_long { (BUDGET, KEYS) } else { (BUDGET_SHORT, KEYS_SHORT) };
    let scratch = Scratch::new("soak");
    let Some(server) = Server::start(&scratch, budget, keys) else { return };
    let mut shell = Shell::start(&scratch, budget);
    let wanted: Vec<_> = lines.iter().map(|line| plain(line)).collect();
    let begun = Instant::now();
    let mut records: Vec<(u32, Record)> = Vec::new();
    let mut rounds = 0;
    loop {
        for (line, wanted) in lines.iter().zip(&wanted) {
            assert_eq!(shell.run(line), *wanted, "round {rounds}: {line}");
        }
        server.round();
        rounds += 1;
        for (name, process) in staying(&shell, &server) {
            let known = records.iter().position(|(known, _)| *known == process);
            let at = known.unwrap_or_else(|| {
                records.push((process, Record::new(name)));
                records.len() - 1
            });
            records[at].1.looks.extend(look(process));
        }
        if rounds >= LOOKS_MIN && time.is_none_or(|time| begun.elapsed() >= time) {
            break;
        }
    }
    let records = Records(records.into_iter().map(|(_, record)| record).collect());
    println!("{rounds} rounds of {} programs and a server", lines.len());
    println!("{records}");
    let whole: Vec<_> = records.0.iter().filter(|it| it.looks.len() == rounds).collect();
    assert_eq!(whole.len(), 5, "two launchers, two keepers and a service stay: {records}");
    assert!(records.grown().is_empty(), "{:#?}", records.grown());
}
