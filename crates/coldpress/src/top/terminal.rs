//! The terminal: it is taken over, and given back whatever happens.
//!
//! Raw mode and the alternate screen end with [`Screen`]: at the end, at an error, at a panic (by a
//! hook that ratatui sets before it takes the terminal over), and after a signal that ends the
//! command, which is only noted until then.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::Duration;

use coldpress_common::failure::{Failure, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::keys::{Action, Mode, Request, State};
use super::sample::{Sample, Sampler};
use super::screen::{self, Skill};
use crate::control;
use crate::ctl::interrupt::Interrupt;
use crate::ctl::thaw;
use crate::runs::Keeper;

/// The longest time until a signal or a new sample is noticed.
const TICK: Duration = Duration::from_millis(100);

/// The reason why the screen was left.
pub(super) enum End {
    /// The user has quit, or a signal has come.
    Quit,
    /// The one run to be shown has ended.
    Over,
}

/// Fails where no screen can be shown.
pub(super) fn check() -> Result<()> {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    let cause = match (is_terminal, is_dumb) {
        (false, _) => "standard input and output are no terminal",
        (true, true) => "the terminal is dumb (TERM)",
        (true, false) => return Ok(()),
    };
    Err(Failure::ours(cause, "give --once for one table, or --json for one document"))
}

/// Returns what this terminal can show, as the environment says.
fn skill() -> Skill {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| variable(name));
    let locale = locale.unwrap_or_default().to_lowercase();
    Skill {
        // https://no-color.org
        has_colours: variable("NO_COLOR").is_none(),
        has_blocks: locale.contains("utf-8") || locale.contains("utf8"),
    }
}

/// The terminal, while it is taken over.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Self> {
        // What fails may have left raw mode behind.
        let init = ratatui::try_init().inspect_err(|_| drop(ratatui::try_restore()));
        init.map(Self).map_err(failed)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that has gone needs nothing.
        let _ = self.0.show_cursor();
        let _ = ratatui::try_restore();
    }
}

fn failed(error: io::Error) -> Failure {
    let cause = format!("cannot use the terminal: {error}");
    Failure::ours(cause, "give --once for one table, or --json for one document")
}

/// What looks at the runs beside the screen, so that no slow keeper stops the keys.
struct Looker {
    samples: Receiver<Result<Sample>>,
    /// A word asks for a look at once; the thread ends when this is closed.
    now: Sender<()>,
}

impl Looker {
    fn start(mut sampler: Sampler, interval: Duration) -> Result<Self> {
        let (sender, samples) = mpsc::channel();
        let (now, wake) = mpsc::channel();
        let look = move || {
            while wake.recv_timeout(interval) != Err(RecvTimeoutError::Disconnected) {
                if sender.send(sampler.look()).is_err() {
                    return;
                }
            }
        };
        start_thread("looker", look)?;
        Ok(Self { samples, now })
    }
}

/// What makes changes beside the screen, one after the other.
struct Changer {
    requests: Sender<Request>,
    told: Receiver<String>,
}

impl Changer {
    fn start() -> Result<Self> {
        let (requests, wanted) = mpsc::channel();
        let (sender, told) = mpsc::channel();
        let work = move || {
            while let Ok(request) = wanted.recv() {
                let text = change(&request).unwrap_or_else(|failure| failure.to_string());
                if sender.send(text).is_err() {
                    return;
                }
            }
        };
        start_thread("changer", work)?;
        Ok(Self { requests, told })
    }
}

fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    let failed =
        |error| Failure::ours(format!("cannot start a thread: {error}"), "raise ulimit -u");
    thread.map(drop).map_err(failed)
}

/// Shows `state` and what `sampler` sees, until the user quits.
pub(super) fn show(
    mut state: State,
    sampler: Sampler,
    interval: Duration,
    interrupt: &Interrupt,
) -> Result<End> {
    let (skill, looker) = (skill(), Looker::start(sampler, interval)?);
    let changer = Changer::start()?;
    let mut screen = Screen::open()?;
    let mut is_stale = true;
    while !interrupt.has_come() {
        loop {
            match looker.samples.try_recv() {
                Ok(Ok(sample)) => state.take(sample),
                Ok(Err(_)) => return Ok(End::Over),
                Err(TryRecvError::Empty) => break,
                // Its panic has given the terminal back.
                Err(TryRecvError::Disconnected) => {
                    let cause = "the thread that looks at the runs has failed";
                    return Err(Failure::ours(cause, "start coldpress top again"));
                }
            }
            is_stale = true;
        }
        // What the user types is not replaced by news.
        if state.mode == Mode::Browsing
            && let Ok(text) = changer.told.try_recv()
        {
            state.tell(text);
            is_stale = true;
            // The thread lives as long as this.
            let _ = looker.now.send(());
        }
        if std::mem::take(&mut is_stale) {
            screen.0.draw(|frame| screen::draw(frame, &mut state, skill)).map_err(failed)?;
        }
        // A signal interrupts the wait.
        let is_there = event::poll(TICK).or_else(ignore_interruption).map_err(failed)?;
        if !is_there {
            continue;
        }
        is_stale = true;
        match event::read().map_err(failed)? {
            Event::Key(key) if key.kind != KeyEventKind::Release => match state.press(key) {
                Action::Nothing => {}
                Action::Quit => break,
                // The thread lives as long as this.
                Action::Ask(request) => drop(changer.requests.send(request)),
            },
            _ => {}
        }
    }
    Ok(End::Quit)
}

fn ignore_interruption(error: io::Error) -> io::Result<bool> {
    if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) }
}

/// Makes a change, as `coldpress ctl` would. Returns what came of it.
fn change(request: &Request) -> Result<String> {
    let Request { keeper: number, setting } = request;
    let keeper = Keeper::of(*number)?;
    let ask = |settings: &[String]| keeper.ask(settings, control::PATIENCE);
    if setting == thaw::ON {
        thaw::check_room(*number, thaw::away(&ask(&[])?))?;
    }
    ask(std::slice::from_ref(setting))?;
    Ok(format!("run {number} has {setting} now"))
}
