//! The programs whose pages are measured: those that this machine has, and always one of our own.
//!
//! Each program builds data as jobs of its kind do, says that it is ready, and waits. Then its
//! pages are read and it is ended. The data follow from fixed numbers and from the files that come
//! with the program, so two runs differ in addresses only.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::codecs::process;
use crate::random::Random;
use coldpress_sys::Page;

use crate::commands::launch;

/// The time that a program may take to be ready.
const READY: Duration = Duration::from_secs(60);

/// A Python job: a dictionary of the words in the text of the standard library, and a record of
/// every eighth word.
const PYTHON: &str = r#"
import os, sys, sysconfig
folder, words, records, done = sysconfig.get_path("stdlib"), {}, [], 0
for name in sorted(os.listdir(folder)):
    if not name.endswith(".py") or done > 4_000_000: continue
    with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
        text = file.read()
    for at, word in enumerate(text.split()):
        words.setdefault(word, []).append(done + at)
        if at % 8 == 0:
            records.append({"file": name, "at": at, "word": word, "weight": len(word) * 1.5})
    done += len(text)
print("ready", flush=True)
sys.stdin.read()
"#;

/// An SQLite job: the lines of the standard library in a table with two indexes, in memory.
const SQLITE: &str = r#"
import os, sqlite3, sys, sysconfig
base = sqlite3.connect(":memory:")
base.execute("create table lines(id integer primary key, file text, number integer, line text)")
folder, done = sysconfig.get_path("stdlib"), 0
for name in sorted(os.listdir(folder)):
    if not name.endswith(".py") or done > 12_000_000: continue
    with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
        rows = [(name, number, line) for number, line in enumerate(file)]
    base.executemany("insert into lines(file, number, line) values(?, ?, ?)", rows)
    done += sum(len(row[2]) for row in rows)
base.execute("create index by_line on lines(line)")
base.execute("create index by_place on lines(file, number)")
print("ready", flush=True)
sys.stdin.read()
"#;

/// A Perl job: a hash of words and a record of each line, over Perl's own modules.
const PERL: &str = r#"
use strict;
my (%words, @records, $done);
for my $folder (@INC) {
    for my $file (sort glob("$folder/*.p[lm] $folder/*/*.pm")) {
        last if $done > 3_000_000;
        open(my $handle, '<', $file) or next;
        while (my $line = <$handle>) {
            $words{$_}++ for split(' ', $line);
            push @records, { file => $file, line => $., text => $line };
            $done += length $line;
        }
    }
}
$| = 1;
print "ready\n";
<STDIN>;
"#;

/// A Node job: objects as a server keeps them, and an index of them.
const NODE: &str = r#"
let seed = 1;
const next = (end) => (seed = (seed * 48271) % 2147483647) % end;
const words = Object.getOwnPropertyNames(globalThis).flatMap((name) => [name,
    ...Object.getOwnPropertyNames(Object(globalThis[name]))]);
const word = () => words[next(words.length)];
const users = [], byMail = new Map();
for (let id = 0; id < 60000; id++) {
    const name = word() + '.' + word();
    const user = { id, name, mail: name + next(1000) + '@example.org', score: next(100000) / 7,
        tags: [word(), word(), word()], seen: new Date(1.6e12 + next(1e9)),
        note: JSON.stringify({ from: word(), to: word(), text: [word(), word()].join(' ') }) };
    users.push(user);
    byMail.set(user.mail, user);
}
console.log('ready');
process.stdin.on('end', () => console.log(users.length, byMail.size)).resume();
"#;

/// The programs and the scripts that they run: name, command, flag, script.
const SCRIPTS: [(&str, &str, &str, &str); 4] = [
    ("python", "python3", "-c", PYTHON),
    ("sqlite", "python3", "-c", SQLITE),
    ("perl", "perl", "-e", PERL),
    ("node", "node", "-e", NODE),
];

/// Calls `found` with the name of each program and with at most `most` of its pages, or the reason
/// why there are none.
pub(super) fn each(most: usize, mut found: impl FnMut(&str, Result<Vec<Page>, String>)) {
    found("rust", own(most));
    for (name, command, flag, script) in SCRIPTS {
        let mut command = Command::new(command);
        // Otherwise the hashes would differ in each run.
        command.env("PYTHONHASHSEED", "0").env("PERL_HASH_SEED", "0").args([flag, script]);
        found(name, pages(&mut command, most));
    }
}

/// Returns at most `most` pages of a program of our own, which every machine has. Fails with the
/// reason why there are none.
pub(crate) fn own(most: usize) -> Result<Vec<Page>, String> {
    pages(&mut launch::workload(&["heap"]), most)
}

/// Starts a program, waits until it is ready, and reads its pages.
fn pages(command: &mut Command, most: usize) -> Result<Vec<Page>, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let ready = wait_until_ready(&mut child);
    let pages = ready.and_then(|()| {
        process::pages_of(child.id(), most, &mut Random::new(5)).map_err(|error| error.to_string())
    });
    // The program waits for input and has nothing left to do.
    let ended = child.kill().and_then(|()| child.wait());
    ended.map_err(|error| error.to_string())?;
    pages
}

fn wait_until_ready(child: &mut Child) -> Result<(), String> {
    let output = child.stdout.take().ok_or("it has no output")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        // The receiver is gone if the program took too long.
        let _ = sender.send(read.is_ok() && line == "ready\n");
    });
    match receiver.recv_timeout(READY) {
        Ok(true) => Ok(()),
        Ok(false) => Err("it ended early".to_owned()),
        Err(_) => Err(format!("it was not ready within {} s", READY.as_secs())),
    }
}
