//! Servers that are attached to and left again and again, under load: every answer is right.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use coldpress_tests::machine::{self, Scratch, fixture, require};
use coldpress_tests::matrix::{self, Lane, case};

use super::{Attached, LIMIT, PAUSE, Program, may};

/// Attaches to a program that checks all that it holds, and leaves it, so many times.
fn holds(mut command: Command, budget: &str, rounds: usize) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let program = Program::of(command);
    for round in 0..rounds {
        let attached = Attached::begin(program.pid(), budget);
        // It goes on checking, and pages go and come.
        sleep(Duration::from_millis(300));
        let said = attached.leave();
        assert!(said.contains(" pages compressed"), "round {round}: {said}");
    }
    program.finish();
}

fn node() -> Option<()> {
    const HOLD: &str = "
        const held = Array.from({ length: 13000 }, (_, n) => Buffer.alloc(5000, n % 251));
        const objects = Array.from({ length: 200000 }, (_, n) => ({ n, text: 'x' + n }));
        let right = true, over = false;
        const check = () => {
            right &&= held.every((one, n) => one[0] === n % 251 && one[4999] === n % 251);
            right &&= objects.every((one, n) => one.n === n && one.text === 'x' + n);
            if (over) console.log(right ? 'True' : 'False');
            else setTimeout(check, 5);
        };
        process.stdin.on('end', () => { over = true; }).resume();
        console.log('ready');
        check();";
    let mut command = Command::new(require("node")?);
    command.args(["-e", HOLD]);
    holds(command, "64M", 15);
    Some(())
}

fn java() -> Option<()> {
    let mut command = Command::new(require("java")?);
    command.args(["-XX:+UseSerialGC", "-Xmx256m"]).arg(fixture("Holds.java"));
    holds(command, "64M", 15);
    Some(())
}

/// A connection to redis-server.
struct Redis(BufReader<UnixStream>);

impl Redis {
    fn connect(socket: &Path) -> Self {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => return Self(BufReader::new(stream)),
                Err(error) => assert!(begun.elapsed() < LIMIT, "no server: {error}"),
            }
            sleep(PAUSE);
        }
    }

    /// Returns the answer to a command.
    fn ask(&mut self, command: &str) -> String {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).expect("it is there");
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it answers");
        let line = line.trim_end();
        let Some(length) = line.strip_prefix('$') else { return line.to_owned() };
        let mut text = vec![0; length.parse::<usize>().expect("it has the key") + 2];
        self.0.read_exact(&mut text).expect("it sends all");
        String::from_utf8_lossy(&text).trim_end().to_owned()
    }

    /// Has it save by a child, and waits for that.
    fn save(&mut self) {
        let answer = self.ask("BGSAVE");
        assert!(answer.contains("started"), "{answer}");
        let begun = Instant::now();
        while self.ask("INFO persistence").contains("rdb_bgsave_in_progress:1") {
            assert!(begun.elapsed() < LIMIT, "it does not end");
            sleep(PAUSE);
        }
        let said = self.ask("INFO persistence");
        assert!(said.contains("rdb_last_bgsave_status:ok"), "{said}");
    }
}

/// Keys of one client, and the bytes of a value.
const KEYS: usize = 2400;
const VALUE_BYTES: usize = 8 << 10;

fn value(client: usize, key: usize, version: u64) -> String {
    let mut text = String::new();
    for at in 0.. {
        text += &format!("{client}:{key}:{version}:{:x},", (at * 8191 + key) as u32 * 40503);
        if text.len() >= VALUE_BYTES {
            break;
        }
    }
    text
}

/// Reads and changes keys of its own until told to stop, and checks each answer. Returns how many
/// there were, and the versions.
fn load(socket: &Path, client: usize, stop: &AtomicBool) -> (u64, Vec<u64>) {
    let mut redis = Redis::connect(socket);
    let mut versions = vec![0; KEYS];
    let set = |redis: &mut Redis, key: usize, version: u64| {
        let answer = redis.ask(&format!("SET {client}:{key} {}", value(client, key, version)));
        assert_eq!(answer, "+OK");
    };
    (0..KEYS).for_each(|key| set(&mut redis, key, 0));
    let (mut state, mut answers) = (client as u64 + 1, 0);
    // Relaxed: a flag alone.
    while !stop.load(Ordering::Relaxed) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = (state >> 33) as usize % KEYS;
        if state >> 62 == 0 {
            versions[key] += 1;
            set(&mut redis, key, versions[key]);
        } else {
            let answer = redis.ask(&format!("GET {client}:{key}"));
            assert!(answer == value(client, key, versions[key]), "{client}:{key}");
        }
        answers += 1;
    }
    (answers, versions)
}

fn redis() -> Option<()> {
    const ROUNDS: usize = 100;
    let server = require("redis-server")?;
    let scratch = Scratch::new("redis");
    let socket = scratch.path("socket");
    let mut command = Command::new(server);
    command.args(["--port", "0", "--save", "", "--enable-debug-command", "yes", "--unixsocket"]);
    command.arg(&socket).arg("--dir").arg(scratch.path("")).stdout(Stdio::null());
    let server = Ends(command.spawn().expect("it is there"), "TERM");
    let mut redis = Redis::connect(&socket);
    let stop = AtomicBool::new(false);
    let (mut stored, mut answers) = (0, 0);
    let versions = thread::scope(|scope| {
        let loaders: Vec<_> = (0..2)
            .map(|client| {
                scope.spawn({
                    let (socket, stop) = (&socket, &stop);
                    move || load(socket, client, stop)
                })
            })
            .collect();
        // A failed round must not leave the loaders at work.
        let rounds = scope.spawn(|| {
            let _stops = Stops(&stop);
            sleep(Duration::from_millis(500));
            for round in 0..ROUNDS {
                let attached = Attached::begin(server.0.id(), "24M");
                sleep(Duration::from_millis(150));
                if round % 8 == 0 {
                    redis.save();
                }
                stored += usize::from(attached.leave().contains(" pages compressed"));
            }
        });
        rounds.join().expect("all rounds pass");
        let ended = loaders.into_iter().map(|loader| loader.join().expect("all answers are right"));
        let (counts, versions): (Vec<_>, Vec<_>) = ended.unzip();
        answers += counts.iter().sum::<u64>();
        versions
    });
    println!("{answers} answers right; pages were compressed in {stored} of {ROUNDS} rounds");
    assert!(stored * 2 > ROUNDS, "{stored}");
    let mut redis = Redis::connect(&socket);
    let digest = redis.ask("DEBUG DIGEST");
    redis.save();
    assert_eq!(redis.ask("DEBUG RELOAD"), "+OK");
    assert_eq!(redis.ask("DEBUG DIGEST"), digest);
    for (client, versions) in versions.iter().enumerate() {
        for (key, version) in versions.iter().enumerate() {
            let answer = redis.ask(&format!("GET {client}:{key}"));
            assert!(answer == value(client, key, *version), "{client}:{key}");
        }
    }
    Some(())
}

/// Tells loaders to stop when it goes.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        // Relaxed: a flag alone.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A server that ends with this, by a signal.
struct Ends(Child, &'static str);

impl Drop for Ends {
    fn drop(&mut self) {
        machine::signal(self.1, &[self.0.id()]);
        let begun = Instant::now();
        while self.0.try_wait().is_ok_and(|status| status.is_none()) {
            if begun.elapsed() > LIMIT {
                // It is gone after this.
                let _ = self.0.kill();
            }
            sleep(PAUSE);
        }
    }
}

/// A session of `psql`, and the process of the server that serves it.
struct Session {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    process: u32,
    _psql: Ends,
}

impl Session {
    fn open(programs: &Path, directory: &Path) -> Self {
        let mut command = Command::new(programs.join("psql"));
        command.arg("-h").arg(directory).args(["-U", "test", "-d", "postgres", "-XqAt"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut psql = Ends(command.spawn().expect("it is there"), "TERM");
        let input = psql.0.stdin.take().expect("it is piped");
        let output = BufReader::new(psql.0.stdout.take().expect("it is piped"));
        let mut session = Self { input, output, process: 0, _psql: psql };
        session.send("SELECT pg_backend_pid();");
        session.process = session.receive().parse().expect("a number");
        session
    }

    fn send(&mut self, query: &str) {
        writeln!(self.input, "{query}").expect("it reads");
    }

    fn receive(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }
}

/// One process of PostgreSQL is attached to, while it sorts or before, and left, while it sorts or
/// after.
fn postgres() -> Option<()> {
    const ROUNDS: usize = 8;
    const SORT: &str = "SELECT md5(string_agg(right(word, 3), '')) FROM (SELECT \
        'customer of the branch in the city number ' || n::int8 * 7919 % 1000003 AS word \
        FROM generate_series(1, 600000) AS n ORDER BY word) AS sorted;";
    let setpriv = require("setpriv")?;
    let folders = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let programs = folders.map(|folder| folder.path().join("bin")).max()?;
    let scratch = Scratch::new("postgres");
    let data = scratch.path("data");
    // The server refuses to be root.
    let as_nobody = |program: &str| {
        let mut command = Command::new(&setpriv);
        command.args(["--reuid", "nobody", "--clear-groups"]).arg(programs.join(program));
        command.current_dir(scratch.path(""));
        command
    };
    let mut make = as_nobody("initdb");
    make.arg("-D").arg(&data).args(["--no-sync", "--auth", "trust", "--username", "test"]);
    let made = make.args(["--no-locale", "--encoding", "UTF8"]).output().expect("it is there");
    assert!(made.status.success(), "{made:?}");
    let mut serve = as_nobody("postgres");
    serve.arg("-D").arg(&data).arg("-k").arg(scratch.path(""));
    for setting in ["listen_addresses=", "fsync=off", "jit=off", "work_mem=256MB"] {
        serve.args(["-c", setting]);
    }
    serve.stderr(Stdio::null()).stdout(Stdio::null());
    let _server = Ends(serve.spawn().expect("it is there"), "INT");
    let begun = Instant::now();
    let is_ready = || {
        let mut ask = Command::new(programs.join("pg_isready"));
        ask.arg("-q").arg("-h").arg(scratch.path(""));
        ask.status().is_ok_and(|status| status.success())
    };
    while !is_ready() {
        assert!(begun.elapsed() < LIMIT, "it does not begin");
        sleep(PAUSE);
    }
    let mut session = Session::open(&programs, &scratch.path(""));
    session.send(SORT);
    let expected = session.receive();
    let mut stored = 0;
    for round in 0..ROUNDS {
        let (before, within) = (round % 2 == 0, round % 4 < 2);
        if before {
            session.send(SORT);
            sleep(Duration::from_millis(100));
        }
        let attached = Attached::begin(session.process, "32M");
        if !before {
            session.send(SORT);
        }
        sleep(Duration::from_millis(500));
        let answer = if within { None } else { Some(session.receive()) };
        stored += usize::from(attached.leave().contains(" pages compressed"));
        assert_eq!(answer.unwrap_or_else(|| session.receive()), expected, "round {round}");
    }
    println!("pages were compressed in {stored} of {ROUNDS} rounds");
    assert!(stored * 2 >= ROUNDS, "{stored}");
    Some(())
}

#[test]
fn servers_answer_right_while_they_are_attached_to_and_left() {
    if !may() {
        return;
    }
    matrix::run(&[
        case("node", Lane::Long, node),
        case("java", Lane::Long, java),
        case("redis, 100 rounds", Lane::Long, redis),
        case("a process of PostgreSQL", Lane::Long, postgres),
    ]);
}
