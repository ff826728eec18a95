//! A trial: this very command, run as a program would be run, with so little memory that pages must
//! go and come back.
//!
//! Whether a program is managed depends on much that no call reports: seccomp filters, security
//! modules, limits, name spaces. So the trial does all that a run does. It lays out the preload
//! library, and starts a broker and a child of ours with the library. The child grows beyond its
//! budget, and reads its memory again and again. The ledger shows when a page was stored and one
//! loaded; then the child compares all of its bytes once more, and ends. A static command puts the
//! library into that child itself, as into any foreign program.
//!
//! Such a trial cannot show why nothing happens. So a child, which a filter may kill, first makes
//! the calls of a managed program, each by itself ([`coldpress_sys::calls`]).

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use coldpress_runtime::ledger::{Keeper, SEATS};
use coldpress_runtime::tally::Counter;
use coldpress_sys::calls::{self, Call};
use coldpress_sys::{Bytes, PAGE_BYTES, SysError, raw, trace};

use crate::args::{TrialArgs, TrialPart};
use crate::broker::Broker;
use crate::config::RunConfig;
use crate::outer;
use crate::pause::pause;
use crate::preload::{LD_PRELOAD, Preload};
use crate::print;

/// The name of the socket of a trial's broker, beside that of the run.
const SOCKET_NAME: &str = "trial";
/// The memory that the trial may hold, and the memory that it holds. A child of ours has some 2 MiB
/// besides.
const BUDGET: Bytes = Bytes::mib(8);
const HELD: Bytes = Bytes::mib(12);
/// The time after which nothing more is going to happen, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval between two looks at the ledger.
const INTERVAL: Duration = Duration::from_millis(1);

/// Whether this command is static, so that no loader puts the library into it.
const IS_FOREIGN: bool = cfg!(target_env = "musl");

/// The reason why nothing would be managed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// This call is refused.
    Refused(SysError),
    /// A process that makes this call is killed.
    Kills(String),
    /// Anything else, in words.
    Other(String),
}

/// Tries everything that a run does, and returns how long that took.
pub(crate) fn run(preload: &Preload) -> Result<Duration, Obstacle> {
    let begun = Instant::now();
    try_calls()?;
    try_memory(preload)?;
    Ok(begun.elapsed())
}

/// Runs a program of a trial.
pub(crate) fn program(args: &TrialArgs) -> ExitCode {
    match args.part {
        TrialPart::Memory => hold(),
        TrialPart::Calls => make_calls(),
    }
}

fn other(what: &str) -> impl Fn(std::io::Error) -> Obstacle {
    move |error| Obstacle::Other(format!("{what}: {error}"))
}

fn child_of_ours(part: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["trial", part]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::null());
    command
}

/// Has a child make each call that must not be refused. Fails with the first call that is.
fn try_calls() -> Result<(), Obstacle> {
    let child = child_of_ours("calls").spawn().map_err(other("no child can be started"))?;
    let output = child.wait_with_output().map_err(other("a child cannot be waited for"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut last = None;
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(name), errno) = (words.next(), words.next()) else { continue };
        let Some(call) = calls::ALL.iter().find(|call| call.name == name) else { continue };
        last = Some(call);
        if let Some(errno) = errno.and_then(|word| word.parse().ok()) {
            return Err(Obstacle::Refused(SysError { call: call.name, errno }));
        }
    }
    match (output.status.success(), last) {
        (true, _) => Ok(()),
        (false, Some(call)) => Err(Obstacle::Kills(call.name.to_owned())),
        (false, None) => Err(Obstacle::Other(format!("a child {}", ending(output.status)))),
    }
}

/// Prints the name of each call before making it, and the error number of a call that failed.
fn make_calls() -> ExitCode {
    for call in calls::ALL.iter().filter(|call| call.is_needed) {
        let Call { name, .. } = call;
        // One by one, because any call may be the last.
        if !print(name) {
            return ExitCode::FAILURE;
        }
        let line = call.make().err().map_or("\n".to_owned(), |error| format!(" {}\n", error.errno));
        if !print(&line) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Runs a child beyond its budget, until one of its pages has gone and one has come back.
fn try_memory(preload: &Preload) -> Result<(), Obstacle> {
    let mut command = child_of_ours("memory");
    let config = RunConfig::for_trial(BUDGET);
    let broker = Broker::start(&config, preload, None, SOCKET_NAME)
        .map_err(|failure| Obstacle::Other(failure.cause))?;
    let existing = std::env::var_os(LD_PRELOAD);
    let former = outer::former_library();
    command.env(LD_PRELOAD, preload.ld_preload(existing.as_deref(), former.as_deref()));
    command.envs(broker.environment());
    let started = Instant::now();
    if IS_FOREIGN {
        trace::stop_at_exec(&mut command);
    }
    let mut child = command.spawn().map_err(other("no child can be started"))?;
    if IS_FOREIGN {
        // What keeps it out is found below: the program does not say that it was managed.
        let _ = broker.injector().put_in_at_exec(child.id(), raw::signal_mask(), false, |_| true);
    }
    broker.child_started(child.id());
    let result = watch(&mut child, broker.ledger(), started);
    // The input of the child ends, and with it the child.
    drop(child.stdin.take());
    if result.is_err() {
        // The child may wait for a page that nothing brings.
        let _ = child.kill();
    }
    let status = child.wait().map_err(other("a child cannot be waited for"));
    let told = broker.into_unmanaged();
    result.map_err(|why| Obstacle::Other(told.unwrap_or(why)))?;
    match status? {
        status if status.success() => Ok(()),
        status => Err(Obstacle::Other(format!("a program that was managed {}", ending(status)))),
    }
}

/// Waits until the ledger shows that pages went and came back.
fn watch(child: &mut Child, ledger: &Keeper, started: Instant) -> Result<(), String> {
    loop {
        let seat = (0..SEATS).find(|seat| ledger.process_in(*seat) != 0);
        let count = |seat: usize, counter| ledger.tally(seat).get(counter);
        let is_managing = seat.is_some_and(|seat| ledger.is_managing(seat));
        let stored = seat.map_or(0, |seat| count(seat, Counter::PagesStored));
        let loaded = seat.map_or(0, |seat| count(seat, Counter::PagesLoaded));
        if is_managing && stored > 0 && loaded > 0 {
            return Ok(());
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("a program with the library {}", ending(status)));
        }
        if started.elapsed() > PATIENCE {
            let seconds = PATIENCE.as_secs();
            return Err(match (seat, is_managing) {
                (None, _) => format!("a program did not join its run in {seconds} s"),
                (_, false) => format!("a program that joined was not managed in {seconds} s"),
                _ => format!("{stored} pages went and {loaded} came back in {seconds} s"),
            });
        }
        pause(INTERVAL);
    }
}

/// Describes how a child ended.
fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        (Some(WRONG), _) => "found other bytes than it wrote".to_owned(),
        (code, _) => format!("ended with status {}", code.unwrap_or(0)),
    }
}

/// The exit status of a child whose memory is not what it wrote.
const WRONG: i32 = 3;

/// Holds [`HELD`] until standard input ends. Each page differs from the others, and is compared
/// again and again.
fn hold() -> ExitCode {
    let words = PAGE_BYTES / size_of::<u64>();
    let value =
        |at: usize| if at.is_multiple_of(4) { (at as u64).wrapping_mul(0x9e37_79b9) } else { 0 };
    let memory: Vec<u64> = (0..HELD.0 / size_of::<u64>()).map(value).collect();
    let is_right = || {
        let pages = memory.chunks_exact(words).enumerate();
        let is_same = |(page, chunk): (usize, &[u64])| {
            chunk.iter().enumerate().all(|(index, word)| *word == value(page * words + index))
        };
        pages.map(is_same).fold(true, |all, one| all & one)
    };
    let over = thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    loop {
        let is_last = over.is_finished();
        if !is_right() {
            return ExitCode::from(WRONG as u8);
        }
        if is_last {
            return ExitCode::SUCCESS;
        }
    }
}
