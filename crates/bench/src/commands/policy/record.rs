//! Records the touches of real programs with valgrind's lackey.
//!
//! All data count, also the few that are mapped from files. The programs of our own set work for a
//! few hundredths of a second and touch 24 to 40 MiB: lackey takes a thousand times as long.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufReader, Read, Write as _};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::interrupt::{self, Signals};
use crate::policy::lackey;
use crate::policy::trace::Trace;
use crate::random::Random;
use rustix::pipe::fcntl_setpipe_size;
use tempfile::TempDir;

use crate::commands::launch::{failed, forget_settings, is_valgrind_here};
use crate::commands::say;
use crate::progress::note;

/// The number of touches after which a recording ends: 160 MB of memory.
const TOUCHES_MAX: usize = 20_000_000;
/// The size of the pipe that valgrind writes into; any user may have this much without privilege.
const PIPE_BYTES: usize = 1 << 20;
/// The time for which valgrind fills the pipe before it is read: valgrind writes each line by a
/// system call, which would wake a waiting reader.
const PAUSE: Duration = Duration::from_millis(5);

/// A Python job: records of 2 KB in a hash, of which a tenth gets most of the look-ups; then all
/// records, sorted.
const PYTHON: &str = "
seed, pad, records = 1, 'abcdefgh' * 240, {}
for number in range(9000):
    seed = seed * 48271 % 2147483647
    records.setdefault(seed % 6000, []).append({'n': number, 't': pad + str(number)})
total = 0
for number in range(12000):
    seed = seed * 48271 % 2147483647
    for record in records.get(seed % (600 if number % 5 else 6000), ()): total += record['n']
for key in sorted(records): total += len(records[key][0]['t'])
print(total)
";

/// The same job in Perl, with strings that grow.
const PERL: &str = r#"
my (%words, @keys); my $s = 1; my $pad = "abcdefgh" x 220;
for my $i (1..12000) {
    $s = ($s * 48271) % 2147483647; my $k = "k" . ($s % 8000);
    $words{$k} = $pad . $i . ($words{$k} // ""); push @keys, $k if $i % 4 == 0;
}
my $total = 0;
for (1..12000) {
    $s = ($s * 48271) % 2147483647; my $k = $s % 8000; $k %= 800 if $s % 5;
    $total += length($words{"k$k"} // "");
}
for my $k (sort @keys) { $total += length $words{$k} }
print "$total\n";
"#;

/// An SQLite job: a table of 20 MB with an index, grouped, looked up, changed, and joined with
/// itself.
const SQLITE: &str = "
create table t(id integer primary key, a text, b integer, c blob);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)
insert into t select i, 'row ' || ((i * 7919) % 5000) || ' of', (i * 104729) % 5003,
    zeroblob(3900) from n;
create index ta on t(a);
select b, count(*), sum(length(c)) from t where b < 500 group by b order by 2 limit 3;
with recursive n(i) as (select 1 union all select i + 1 from n where i < 4000)
select sum(length(a)) from n join t
    on t.id = ((n.i * 7877) % 5000) / (1 + (n.i % 5 > 0) * 9);
update t set b = b + 1 where id % 7 = 0;
select count(*) from t x join t y on x.a = y.a where x.b < 300;
";

/// The number of lines for `sort`, and the bytes of each.
const LINES: usize = 24_000;
const LINE_BYTES: usize = 1_500;

/// Records a program of the user.
pub(super) fn user(program: &[OsString]) -> coldpress_common::failure::Result<Trace> {
    if !is_valgrind_here() {
        return Err(failed("valgrind is not installed, which records the touches".to_owned()));
    }
    let Some((name, arguments)) = program.split_first() else {
        return Err(failed("there is no program to record".to_owned()));
    };
    trace(Stdio::inherit(), ">&2", name, arguments).map_err(failed)
}

/// A program's name, and its trace or the reason why there is none.
type Recorded = (String, Result<Trace, String>);

/// A program's name, and the function that records it.
type Program = (&'static str, fn(&TempDir) -> Result<Trace, String>);

/// Records our own set, two programs at a time.
pub(super) fn own_set() -> coldpress_common::failure::Result<Vec<Recorded>> {
    if !is_valgrind_here() {
        return Ok(vec![("programs".to_owned(), Err("valgrind is not installed".to_owned()))]);
    }
    note("policy: records four programs by valgrind, some minutes");
    let _signals = Signals::keep();
    let folder = TempDir::new().map_err(|error| failed(format!("no folder: {error}")))?;
    let folder = &folder;
    let record = |programs: &[Program]| -> Vec<Recorded> {
        programs.iter().map(|(name, record)| ((*name).to_owned(), record(folder))).collect()
    };
    thread::scope(|scope| {
        let others = scope.spawn(|| record(&[("python", python), ("sort", sort)]));
        let mut all = record(&[("perl", perl), ("sqlite", sqlite)]);
        all.extend(others.join().map_err(|_| failed("a recording panicked".to_owned()))?);
        Ok(all)
    })
}

fn python(_: &TempDir) -> Result<Trace, String> {
    // The file of this name may be a script that looks for the interpreter.
    let python = told(Command::new("python3").args(["-c", "import sys; print(sys.executable)"]))?;
    quiet(Stdio::null(), &python, &["-I", "-S", "-c", PYTHON])
}

fn perl(_: &TempDir) -> Result<Trace, String> {
    quiet(Stdio::null(), "perl", &["-e", PERL])
}

fn sqlite(folder: &TempDir) -> Result<Trace, String> {
    let path = file(folder, "t.sql", SQLITE)?;
    let script = File::open(path).map_err(|error| error.to_string())?;
    quiet(script.into(), "sqlite3", &[":memory:"])
}

fn sort(folder: &TempDir) -> Result<Trace, String> {
    let mut random = Random::new(2);
    let pad = "y".repeat(LINE_BYTES);
    let lines: String = (0..LINES).map(|_| format!("{:016x} {pad}\n", random.next())).collect();
    let path = file(folder, "lines", &lines)?;
    quiet(Stdio::null(), "sort", &["-S", "64M", "--parallel=1", &path])
}

/// Writes a file into the folder and returns its path.
fn file(folder: &TempDir, name: &str, text: &str) -> Result<String, String> {
    let path = folder.path().join(name);
    let written = File::create(&path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("{}: {error}", path.display()))?;
    path.into_os_string().into_string().map_err(|path| format!("{} has no name", path.display()))
}

/// Returns the first line that a program prints.
fn told(command: &mut Command) -> Result<String, String> {
    let output = command.stderr(Stdio::null()).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().filter(|line| !line.is_empty());
    line.map(str::to_owned).ok_or_else(|| "it does not say where it is".to_owned())
}

/// Records a program and discards its output.
fn quiet(input: Stdio, program: &str, arguments: &[&str]) -> Result<Trace, String> {
    let is_here = program.contains('/') || told(Command::new("which").arg(program)).is_ok();
    if !is_here {
        return Err("it is not installed".to_owned());
    }
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    trace(input, ">/dev/null 2>&1", OsStr::new(program), &arguments)
}

/// Records a program whose output goes where the shell's `redirection` says.
fn trace(
    input: Stdio,
    redirection: &str,
    program: &OsStr,
    arguments: &[OsString],
) -> Result<Trace, String> {
    let mut command = Command::new("sh");
    // Lackey's lines go to a descriptor of their own, apart from all that the program prints.
    command.arg("-c").arg(format!("exec \"$@\" 3>&1 {redirection}")).arg("sh").arg("valgrind");
    command.args(["-q", "--tool=lackey", "--trace-mem=yes", "--log-fd=3"]);
    command.arg(program).args(arguments);
    // Every run gets the same hashes.
    command.env("PYTHONHASHSEED", "0").env("PERL_HASH_SEED", "0").env("LC_ALL", "C");
    forget_settings(&mut command);
    let mut child = command
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start sh: {error}"))?;
    let output = child.stdout.take().ok_or("it has no output")?;
    // With a smaller pipe the recording only takes longer.
    let _ = fcntl_setpipe_size(&output, PIPE_BYTES);
    let mut output = BufReader::with_capacity(PIPE_BYTES, Patient(output));
    let touches = lackey::touches(&mut output, TOUCHES_MAX);
    let was_cut = touches.as_ref().is_ok_and(|touches| touches.len() > TOUCHES_MAX);
    if was_cut {
        say(format!("recorded {TOUCHES_MAX} touches; the rest is left out"));
        child.kill().map_err(|error| error.to_string())?;
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    interrupt::check().map_err(|error| error.to_string())?;
    let touches = touches.map_err(|error| error.to_string())?;
    if !status.success() && !was_cut {
        return Err(format!("it ended with {status}"));
    }
    Trace::new(&touches).map_err(|error| error.to_string())
}

/// A pipe that is read only after data have gathered in it.
struct Patient<R>(R);

impl<R: Read> Read for Patient<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        thread::sleep(PAUSE);
        self.0.read(buffer)
    }
}
