//! Risk: a monitoring system cannot read the metrics of a run, or reads other figures than the user
//! does; or a client of them, slow, silent or hostile, holds up the run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::harness::{Job, Live};
use coldpress_tests::machine::{self, Scratch, fixture, require};
use coldpress_tests::matrix;
use serde_json::Value;

/// Time limit for a program to reach its "ready", and to end.
const HANG: Duration = Duration::from_secs(60);
const BUDGET: Bytes = Bytes::mib(32);
/// What a client says that reads OpenMetrics.
const OPEN: &str = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";

/// Starts a program that does not fit, and goes on until there is a file `end` in `scratch`, with
/// its metrics at `target`.
fn start(scratch: &Scratch, target: &str) -> Option<Live> {
    let end = scratch.path("end").into_os_string();
    let words = ["private".into(), "48".into(), end];
    let job = Job::new("hold", require("python3")?).arg(fixture("hold.py")).args(words);
    let live = Live::start(&job.options(["--metrics", target]), Some(BUDGET));
    live.wait_for_output("ready\n", HANG);
    Some(live)
}

/// Returns a port that is free.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("this machine has ports");
    listener.local_addr().expect("it is bound").port()
}

/// Returns the values of samples by name, of those with no labels but the two of a run, and of
/// others with all labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a sample has a value");
        let (name, labels) = name.split_once('{').expect("a sample has labels");
        let is_plain = labels.matches('=').count() == 2;
        let name = if is_plain { name.to_owned() } else { format!("{name}{{{labels}") };
        (name, value.parse().expect("a number"))
    };
    lines.map(sample).collect()
}

/// Sends a request, and returns head and body of the answer.
fn ask(mut stream: impl Read + Write, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).expect("it takes a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers in text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head, and a body");
    (head.to_owned(), body.to_owned())
}

fn get(port: u16, path: &str, more: &str) -> (String, String) {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    ask(stream, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"))
}

fn ctl(live: &Live, words: &[&str]) -> String {
    let (command, root) = (machine::coldpress(), live.root().to_string());
    let output = Command::new(command).args(["ctl", &root]).args(words).output();
    let output = output.expect("the command is built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Lets the program end, which must not have noticed anything.
fn finish(live: Live, scratch: &Scratch) -> coldpress_tests::harness::Run {
    scratch.write("end", b"");
    let run = live.finish(HANG);
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.assert_stored();
    run
}

#[test]
fn a_file_for_the_collector_has_the_figures_of_the_statistics() {
    let scratch = Scratch::new("metrics");
    let file = scratch.path("run.prom");
    let Some(live) = start(&scratch, file.to_str().expect("a plain name")) else { return };
    let read = || fs::read_to_string(&file).expect("it is there");
    let begun = Instant::now();
    let first = read();
    while read() == first {
        assert!(begun.elapsed() < HANG, "it is not written again");
        thread::sleep(Duration::from_millis(50));
    }
    let run = finish(live, &scratch);
    let last = read();
    if let Some(promtool) = require("promtool") {
        for text in [&first, &last] {
            let mut check = Command::new(&promtool);
            check.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
            let mut check = check.stdout(Stdio::piped()).spawn().expect("it is installed");
            let mut input = check.stdin.take().expect("it is piped");
            input.write_all(text.as_bytes()).expect("it reads");
            drop(input);
            let done = check.wait_with_output().expect("it ends");
            let told = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.success() && told.is_empty(), "{told}");
        }
    }
    let found = samples(&last);
    let document = run.stats().document().as_object().expect("an object");
    let mut compared = 0;
    for (key, value) in document {
        let Some(value) = value.as_f64() else { continue };
        let (name, value) = match key.strip_suffix("_ns") {
            Some(key) => (format!("coldpress_{key}_seconds"), value / 1e9),
            None => (format!("coldpress_{key}"), value),
        };
        let sample = found.get(&format!("{name}_total")).or(found.get(&name));
        if let Some(sample) = sample {
            assert_eq!(*sample, value, "{key}");
            compared += 1;
        }
    }
    // All counters of processes but one, whose unit is another, and budget, peak and processes.
    assert!(compared >= 36, "{compared} figures are in both");
    for (name, count) in document["zswap"].as_object().expect("an object") {
        let mut events = found.iter().filter(|(sample, _)| {
            sample.starts_with("coldpress_zswap_events_total{")
                && sample.ends_with(&format!("event=\"{name}\"}}"))
        });
        let event = events.next().map(|(_, value)| *value);
        assert!(event == count.as_f64() || name.ends_with("_bytes"), "{name}: {event:?}");
    }
    let left = fs::read_dir(file.parent().expect("a folder")).expect("it is there");
    assert!(!left.flatten().any(|it| it.file_name().to_string_lossy().starts_with(".coldpress")));
}

#[test]
fn clients_of_every_kind_hold_nobody_up() {
    let (scratch, port) = (Scratch::new("metrics"), free_port());
    let Some(live) = start(&scratch, &format!(":{port}")) else { return };
    let (head, body) = get(port, "/metrics", OPEN);
    let kind = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(kind), "{head}");
    assert!(body.ends_with("\n# EOF\n") && samples(&body)["coldpress_faults_total"] > 0.0);
    let (head, body) = get(port, "/metrics?x=1", "");
    assert!(head.contains("text/plain; version=0.0.4") && !body.contains("# EOF"), "{head}");
    for (request, status) in [
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("GET /etc/passwd HTTP/1.1\r\n\r\n", "404"),
        ("hello\r\n\r\n", "400"),
        (&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(9000)), "400"),
    ] {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        // It may answer and close before all of a long request is sent.
        let mut stream = stream;
        let _ = stream.write_all(request.as_bytes());
        let mut answer = [0; 12];
        let answered = stream.read_exact(&mut answer).is_ok();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let is_reset = !answered && request.len() > 8192;
        assert!(is_reset || answer.ends_with(status), "{request:.40} {answer}");
    }
    let connect = || TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let silent: Vec<_> = (0..40).map(|_| connect()).collect();
    let slow: Vec<_> = (0..10)
        .map(|_| {
            let mut stream = connect();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n").expect("it takes a line");
            stream
        })
        .collect();
    let begun = Instant::now();
    get(port, "/metrics", OPEN);
    ctl(&live, &["get", "codec"]);
    // Any of those clients would have been waited for for five seconds.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let told = ctl(&live, &["metrics"]);
    assert!(told.ends_with("\n# EOF\n"));
    let names = |text: &str| samples(text).into_keys().collect::<BTreeSet<_>>();
    let (_, now) = get(port, "/", OPEN);
    assert_eq!(names(&told), names(&now));
    finish(live, &scratch);
    drop((silent, slow));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "it listens on");
}

#[test]
fn a_socket_of_unix_answers_and_is_gone_at_the_end() {
    let scratch = Scratch::new("metrics");
    let socket = scratch.path("socket");
    // A run that was killed left this one.
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("the place is free"));
    let target = format!("unix:{}", socket.display());
    let Some(live) = start(&scratch, &target) else { return };
    let stream = UnixStream::connect(&socket).expect("it listens");
    let (head, body) = ask(stream, "GET /metrics HTTP/1.0\r\n\r\n");
    assert!(head.contains("200 OK") && body.contains("coldpress_used_bytes{"), "{head}");
    // The place is taken.
    let other = Job::new("other", "true").options(["--metrics", &target]).managed(BUDGET);
    assert_eq!(other.code, 125, "{}", other.stderr);
    assert_eq!(other.complaints(&["cannot export metrics", "in use"]).len(), 1, "{}", other.stderr);
    finish(live, &scratch);
    assert!(!socket.exists(), "the socket is left");
}

/// A file is replaced by a new one each second, which must not happen to a device or a pipe.
#[test]
fn what_is_no_regular_file_is_left_alone() {
    let scratch = Scratch::new("metrics");
    let pipe = scratch.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "coreutils are there");
    let target = pipe.to_str().expect("plain names");
    let run = Job::new("true", "true").options(["--metrics", target]).managed(BUDGET);
    assert_eq!(run.code, 125, "{}", run.stderr);
    assert_eq!(run.complaints(&["no regular file", target]).len(), 1, "{}", run.stderr);
    let kind = fs::symlink_metadata(&pipe).expect("it is there").file_type();
    assert!(!kind.is_file(), "it is a file now");
    // A link stays one, and what it leads to is written.
    let (link, file) = (scratch.path("link"), scratch.write("file", b""));
    std::os::unix::fs::symlink(&file, &link).expect("there is room");
    let target = link.to_str().expect("plain names");
    let run = Job::new("true", "true").options(["--metrics", target]).managed(BUDGET);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(fs::symlink_metadata(&link).expect("it is there").file_type().is_symlink());
    assert!(fs::read_to_string(&file).expect("text").contains("coldpress_run_seconds"));
}

#[test]
fn a_target_that_cannot_be_is_told_before_the_program_starts() {
    let scratch = Scratch::new("metrics");
    let port = TcpListener::bind("127.0.0.1:0").expect("this machine has ports");
    let taken = port.local_addr().expect("it is bound").to_string();
    let mark = scratch.path("mark");
    for target in ["/nowhere/run.prom", "unix:/nowhere/socket", &taken] {
        let job = Job::new("touch", "touch").arg(&mark).options(["--metrics", target]);
        let run = job.managed(BUDGET);
        assert_eq!(run.code, 125, "{}", run.stderr);
        let told = run.complaints(&["cannot export metrics", target, "unix:PATH or HOST:PORT"]);
        assert_eq!(told.len(), 1, "{}", run.stderr);
        assert!(!mark.exists());
    }
}

/// Returns the queries of the dashboard.
fn queries(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("queries"));
    let of_panels = targets.map(|target| target["expr"].as_str().expect("a query").to_owned());
    let variables = dashboard["templating"]["list"].as_array().expect("variables").iter();
    let of_variables = variables.filter_map(|it| it["query"]["query"].as_str()).map(str::to_owned);
    of_panels.chain(of_variables).collect()
}

fn dashboard() -> Value {
    let text = fs::read_to_string(machine::workspace_file("packaging/grafana.json"));
    serde_json::from_str(&text.expect("text")).expect("JSON")
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let scratch = Scratch::new("metrics");
    let file = scratch.path("run.prom");
    let target = file.to_str().expect("a plain name");
    let run = Job::new("true", "true").options(["--metrics", target]).managed(BUDGET);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let text = fs::read_to_string(&file).expect("it was written");
    let known = samples(&text);
    let is_known = |name: &str| known.keys().any(|sample| sample.split('{').next() == Some(name));
    let queries = queries(&dashboard());
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let words = queries.iter().flat_map(|query| query.split(|char| !is_part(char)));
    let names: BTreeSet<_> = words.filter(|word| word.starts_with("coldpress_")).collect();
    assert!(names.len() >= 25, "{names:?}");
    let absent: Vec<_> = names.into_iter().filter(|name| !is_known(name)).collect();
    assert!(absent.is_empty(), "{absent:?}");
}

/// A server that ends with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts a Prometheus that scrapes `port` each second, and listens at `own`.
fn prometheus(program: &Path, scratch: &Scratch, port: u16, own: u16) -> Server {
    let configuration = format!(
        "global: {{ scrape_interval: 1s }}\nscrape_configs:\n- job_name: coldpress\n  \
         static_configs:\n  - targets: ['127.0.0.1:{port}']\n"
    );
    let file = scratch.write("prometheus.yml", configuration.as_bytes());
    let mut command = Command::new(program);
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", scratch.path("data").display()));
    command.arg(format!("--web.listen-address=127.0.0.1:{own}"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Server(command.spawn().expect("it is installed"))
}

/// Asks a Prometheus at `port`. Returns the results, or `None` while it does not answer.
fn query(port: u16, query: &str) -> Option<Vec<Value>> {
    let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = format!("GET /api/v1/query?query={escaped} HTTP/1.0\r\n\r\n");
    let (_, body) = ask(stream, &request);
    let document: Value = serde_json::from_str(&body).ok()?;
    assert_eq!(document["status"], "success", "{query}: {document}");
    Some(document["data"]["result"].as_array().cloned().unwrap_or_default())
}

#[test]
fn a_real_prometheus_scrapes_and_answers_the_dashboard() {
    if matrix::is_left_out() {
        return;
    }
    let Some(program) = require("prometheus") else { return };
    let (scratch, port, own) = (Scratch::new("metrics"), free_port(), free_port());
    let Some(live) = start(&scratch, &port.to_string()) else { return };
    let server = prometheus(&program, &scratch, port, own);
    let until = |wanted: &str| {
        let begun = Instant::now();
        loop {
            match query(own, wanted) {
                Some(found) if !found.is_empty() => return found,
                _ => assert!(begun.elapsed() < HANG, "{wanted} has no result"),
            }
            thread::sleep(Duration::from_millis(200));
        }
    };
    let found = until("coldpress_budget_bytes");
    assert_eq!(found[0]["metric"]["program"], "python3");
    assert_eq!(found[0]["value"][1], (32 << 20).to_string());
    until("rate(coldpress_faults_total[10s]) > 0");
    until("histogram_quantile(0.5, rate(coldpress_fault_duration_seconds_bucket[10s])) > 0");
    assert_eq!(until("up{job=\"coldpress\"}")[0]["value"][1], "1");
    for asked in queries(&dashboard()) {
        let asked = asked.replace("$__rate_interval", "10s");
        let asked = asked.replace("$program", ".*").replace("$pid", ".*");
        if !asked.starts_with("label_values") {
            let found = query(own, &asked).expect("it answers");
            assert!(!found.is_empty() || asked.contains("reject_"), "{asked} has no result");
        }
    }
    drop(server);
    finish(live, &scratch);
}

/// Returns the datagrams that a run sends to the service manager until it ends.
fn told(options: &[&str]) -> Vec<String> {
    let scratch = Scratch::new("notify");
    let path = scratch.path("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).expect("the folder is ours");
    let ended = Command::new(machine::coldpress())
        .args(["run", "--quiet", "--memory", "32M"])
        .args(options)
        .args(["--", "sleep", "0.5"])
        .env("NOTIFY_SOCKET", &path)
        .status();
    assert!(ended.is_ok_and(|status| status.success()));
    manager.set_nonblocking(true).expect("it is a socket");
    let mut heard = [0; 200];
    std::iter::from_fn(|| manager.recv(&mut heard).ok().map(|count| heard[..count].to_vec()))
        .map(|text| String::from_utf8(text).expect("text"))
        .collect()
}

#[test]
fn the_service_manager_is_told_how_the_run_stands_and_once_that_it_is_ready() {
    let lines = |options: &[&str]| told(options).concat();
    let without = lines(&[]);
    assert!(without.starts_with("STATUS=") && without.contains(" of 32 MiB\n"), "{without}");
    assert!(!without.contains("READY"), "{without}");
    assert_eq!(lines(&["--ready"]).matches("READY=1\n").count(), 1);
}
