//! A command in a terminal of its own, and what its screen shows.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// The interval between two looks at the screen.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes read at once.
const CHUNK_BYTES: usize = 4096;

/// A terminal with a command in it.
pub struct Terminal {
    ours: File,
    /// The other side, held open so that its modes can be read after the command has ended.
    theirs: File,
    child: Child,
    screen: Arc<Mutex<vt100::Parser>>,
    _reader: JoinHandle<()>,
}

impl Terminal {
    /// Runs `command` in a terminal of so many columns and lines.
    ///
    /// # Panics
    /// When there is no terminal to be had, or the command cannot be started.
    pub fn run<A: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        words: impl IntoIterator<Item = A>,
        environment: &[(&str, &str)],
        size: (u16, u16),
    ) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
        grantpt(&ours).expect("it is ours");
        unlockpt(&ours).expect("it is ours");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let path = OsStr::from_bytes(name.as_bytes());
        let theirs = File::from(open(path, flags, Mode::empty()).expect("it was just made"));
        let side = || Stdio::from(theirs.try_clone().expect("there are descriptors"));
        let (lines, columns) = of_screen(size);
        let parser = vt100::Parser::new(lines, columns, 0);
        let screen = Arc::new(Mutex::new(parser));
        resize(&theirs, size);
        // Of a terminal that is not its own, a program does not hear when the size changes.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(program).args(words).env("TERM", "xterm-256color");
        command.env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR").envs(environment.iter().copied());
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn();
        let child = child.expect("setsid is part of every system");
        let ours = File::from(ours);
        let (mut reader, seen) =
            (ours.try_clone().expect("there are descriptors"), Arc::clone(&screen));
        let reader = thread::spawn(move || {
            let mut chunk = [0; CHUNK_BYTES];
            while let Ok(count @ 1..) = reader.read(&mut chunk) {
                seen.lock().unwrap_or_else(PoisonError::into_inner).process(&chunk[..count]);
            }
        });
        Self { ours, theirs, child, screen, _reader: reader }
    }

    /// Returns the process of the command.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Types `keys`.
    ///
    /// # Panics
    /// When the terminal takes none.
    pub fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).expect("a terminal takes keys");
    }

    /// Makes the terminal another size.
    pub fn resize(&self, size: (u16, u16)) {
        let (lines, columns) = of_screen(size);
        self.screen().screen_mut().set_size(lines, columns);
        resize(&self.theirs, size);
    }

    /// Waits until `holds` of the text of the screen. Returns the text.
    ///
    /// # Panics
    /// When that takes longer than `limit`.
    pub fn wait_for(&self, limit: Duration, holds: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let text = self.text();
            if holds(&text) {
                return text;
            }
            assert!(begun.elapsed() < limit, "this is not awaited:\n{text}");
            thread::sleep(LOOK);
        }
    }

    /// Returns the text of the screen.
    pub fn text(&self) -> String {
        self.screen().screen().contents()
    }

    /// Returns whether any cell has a colour.
    pub fn has_colours(&self) -> bool {
        let parser = self.screen();
        let screen = parser.screen();
        let (lines, columns) = screen.size();
        let (lines, columns) = (lines.get(), columns.get());
        let cells = (0..lines).flat_map(|line| (0..columns).map(move |column| (line, column)));
        let mut cells = cells.filter_map(|(line, column)| screen.cell(line, column));
        let plain = vt100::Color::Default;
        cells.any(|cell| cell.fgcolor() != plain || cell.bgcolor() != plain)
    }

    /// Waits for the end of the command, which must have given the terminal back: with the screen
    /// as before, the cursor shown, lines and echo.
    ///
    /// # Panics
    /// When the end does not come within `limit`, or something of the terminal was not given back.
    pub fn finish(mut self, limit: Duration) -> ExitStatus {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is ours to wait for") {
                break status;
            }
            assert!(begun.elapsed() < limit, "it does not end:\n{}", self.text());
            thread::sleep(LOOK);
        };
        let is_back = || {
            let parser = self.screen();
            !parser.screen().alternate_screen() && !parser.screen().hide_cursor()
        };
        // What it wrote last may not have been read yet.
        while !is_back() {
            assert!(begun.elapsed() < limit, "the screen is not given back:\n{}", self.text());
            thread::sleep(LOOK);
        }
        let modes = tcgetattr(&self.theirs).expect("it is a terminal").local_modes;
        let wanted = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        assert!(modes.contains(wanted), "the terminal has no lines or no echo: {modes:?}");
        status
    }

    fn screen(&self) -> MutexGuard<'_, vt100::Parser> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has usually ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a size of columns and lines as that of a screen, lines first.
fn of_screen((columns, lines): (u16, u16)) -> (NonZeroU16, NonZeroU16) {
    let part = |part| NonZeroU16::new(part).expect("a screen has lines and columns");
    (part(lines), part(columns))
}

/// Makes a terminal that size, of which the programs in it hear.
fn resize(side: &File, (columns, lines): (u16, u16)) {
    let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(side, size).expect("a terminal has a size");
}
