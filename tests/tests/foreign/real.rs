//! Real programs that no loader of glibc starts, or that start such programs.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, SLACK};
use coldpress_tests::machine::{self, Scratch, coldpress, fixture, require};
use coldpress_tests::matrix::{self, Lane, case};

/// Runs `job` in half of its memory: the same outcome and files, at most a tenth over the budget,
/// all of it managed.
fn in_half(job: &Job) {
    let plain = job.plain();
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    println!("{plain}");
    let budget = Bytes::mib((plain.memory.peak_total.0 >> 20) / 2);
    let run = job.managed(budget);
    println!("{run}");
    run.assert_same(&plain);
    run.assert_stored();
    run.assert_within_budget_and(Bytes((budget.0 / 10).saturating_sub(SLACK.0)));
    assert!(run.complaints(&["not managed"]).is_empty(), "{}", run.stderr);
}

/// Go's own compiler and linker, static programs of Go, build a program with all that it uses.
fn go_build() -> Option<()> {
    let go = require("go")?;
    let scratch = Scratch::new("go-build");
    let (cache, program) = (scratch.path("cache"), scratch.path("gofmt"));
    let build = "rm -rf \"$GOCACHE\" && exec \"$0\" build -trimpath -p 2 -o \"$1\" cmd/gofmt";
    let job = Job::new("go build", "sh").args(["-c", build]).arg(go).arg(&program);
    let job = job.environment("GOCACHE", &cache).environment("GOFLAGS", "-mod=mod");
    in_half(&job.shares().artefact(program));
    Some(())
}

/// `make edges` fetches esbuild, and a script of five megabytes.
fn esbuild() -> Option<()> {
    let node = require("node")?;
    let modules = Path::new(&env::var_os("CARGO_TARGET_DIR")?).join("tools/node_modules");
    let input = modules.join("@babel/standalone/babel.js");
    if !input.exists() {
        machine::skip("no esbuild: scripts/bootstrap-tests edges installs it");
        return None;
    }
    let scratch = Scratch::new("esbuild");
    let output = scratch.path("out.js");
    let job = Job::new("esbuild", node).arg(fixture("bundle.mjs")).arg(modules).arg(input);
    let job = job.arg(&output).artefact(scratch.path("out.js.map")).artefact(output);
    in_half(&job.shares());
    Some(())
}

/// A server that ends with its input.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it was built");
        let mut address = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut address).expect("it prints its address");
        Self { child, address: address.trim().to_owned() }
    }

    /// Asks for values over one connection, most of the time for a few of them, and checks each.
    /// Returns how long the answers took, the shortest first.
    fn ask(&self, count: u64, values: u64) -> Vec<Duration> {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        let mut state = 9_u64;
        let mut times: Vec<_> = (0..count)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let share = (state >> 40) as f64 / (1 << 24) as f64;
                let number = (share.powi(4) * values as f64) as u64;
                let begun = Instant::now();
                let request = format!("GET /{number} HTTP/1.1\r\nHost: here\r\n\r\n");
                stream.write_all(request.as_bytes()).expect("it is there");
                let body = answer(&mut reader);
                let time = begun.elapsed();
                let is_right = body.split(' ').take_while(|word| !word.is_empty()).all(|word| {
                    word.split_once(':').is_some_and(|(name, _)| name == number.to_string())
                });
                assert!(is_right && body.len() >= 4 << 10, "{number}: {body}");
                time
            })
            .collect();
        times.sort();
        times
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // After its end, this fails.
        let _ = self.child.wait();
    }
}

/// Reads one answer of HTTP with a length.
fn answer(reader: &mut impl BufRead) -> String {
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("it answers");
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().expect("a number");
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("it sends all");
    String::from_utf8(body).expect("it is text")
}

/// A server of Go under load: the same answers; how long they take is printed.
fn go_server() -> Option<()> {
    const MIB: u64 = 96;
    const BUDGET: &str = "64M";
    let scratch = Scratch::new("go-server");
    let program = scratch.path("server");
    let mut build = Command::new(require("go")?);
    build.args(["build", "-o"]).arg(&program).arg(fixture("server.go")).env("CGO_ENABLED", "0");
    assert!(build.status().expect("it is there").success());
    let stats = scratch.path("stats.json");
    let mut managed = Command::new(coldpress());
    managed.args(["run", "--quiet", "--memory", BUDGET, "--stats"]).arg(&stats).arg(&program);
    for (name, mut command) in [("plain", Command::new(&program)), (BUDGET, managed)] {
        let server = Server::start({
            command.arg(MIB.to_string());
            command
        });
        let times = server.ask(100_000, MIB << 8);
        let at = |part: f64| times[(times.len() as f64 * part) as usize];
        println!("{name}: p50 {:?}, p99 {:?}, p99.9 {:?}", at(0.5), at(0.99), at(0.999));
    }
    let stats: serde_json::Value =
        serde_json::from_slice(&fs::read(stats).expect("it was written")).expect("it is JSON");
    assert!(stats["swap_in_pages"].as_u64() > Some(1000), "{stats}");
    assert_eq!(stats["unmanaged_processes"], 0, "{stats}");
    Some(())
}

#[test]
fn real_ones_do_the_same_in_half_of_their_memory() {
    matrix::run(&[
        case("go build", Lane::Long, go_build),
        case("esbuild below node", Lane::Long, esbuild),
        case("a server of Go", Lane::Long, go_server),
    ]);
}
