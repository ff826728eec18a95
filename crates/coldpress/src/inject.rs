//! Puts the library into a program that no loader of glibc starts: a static one, one of Go's, or
//! one of musl's.
//!
//! The program stands still: at its exec, before its first instruction, or wherever it is when it
//! turns out to hold much. It is made to map the library from its file; the launcher makes the
//! library's addresses right, and has some of the program's calls lead there. One call more makes a
//! process that starts the service (`runtime/preload/enter.rs`). Then the program goes on, and
//! nothing traces it.
//!
//! A program that runs is stopped by a process of its own ([`apart`]).
//!
//! Whatever fails on the way is told, and the program goes on as it is, unmanaged.

pub(crate) mod apart;
mod code;
mod held;
mod image;
mod sites;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use coldpress_runtime::wire::{
    BESIDE_STACKS_MAX, PUT_IN_VARIABLES_MAX, SERVICE_STACK_BYTES, SOCKET_VARIABLE,
};
use coldpress_sys::trace::Tracee;
use coldpress_sys::{PAGE_BYTES, SysError};
use rustix::io::Errno;

use self::apart::{Done, Verb};
use self::code::Code;
use self::held::Held;
use self::image::{DOOR_COUNT, Image, Mapped};
use self::sites::{Doors, REACH};
use crate::config::Forks;
use crate::preload::LIBRARY;
use crate::proc;

/// How often a program is looked at again that calls exec meanwhile.
const TRIES: usize = 10;
/// The distances below the program at which the library is put. The second is for a program at a
/// low address.
const BELOW: [usize; 2] = [16 << 20, 1 << 20];
/// The distance above the program's code at which it is put otherwise: the heap grows there.
const ABOVE: usize = 1 << 30;
/// The words that the library is told, before the variables: where it lies, two flags, a
/// descriptor, and what lies beside stacks.
const WORDS: usize = 5 + 2 * BESIDE_STACKS_MAX;
/// What opening the library's file fails with in another root.
const ABSENT: [Errno; 3] = [Errno::NOENT, Errno::NOTDIR, Errno::ACCESS];
/// The lowest address that any process may map (vm.mmap_min_addr).
const LOWEST: usize = 0x1_0000;

/// What is wrong with a program whose forks do not come to the library.
pub(crate) const UNSEEN_FORKS: &str = "the calls by which it makes children are not found";

/// The end of a program at its exec: its forks would not come to the library.
#[derive(Debug)]
pub(crate) struct Ended;

/// Why the library could not be put into a program.
#[derive(Debug)]
enum Refusal {
    /// A call in the program, or about it, failed.
    Call(SysError),
    /// A file of /proc cannot be read.
    Proc(io::Error),
    /// The program is in a state, or has a shape, that this cannot handle.
    State(&'static str),
    /// The program is another than it was when its code was looked at.
    Changed,
    /// The program is in a state that may pass.
    NotNow(&'static str),
    /// The calls by which the program makes children are not found.
    Forks,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) if error.is(Errno::PERM) => {
                let why = why_not_stopped(proc::ptrace_scope().as_deref(), proc::may_trace());
                write!(f, "{error}: {why}")
            }
            Self::Call(error) => error.fmt(f),
            Self::Proc(error) => write!(f, "/proc says nothing of it: {error}"),
            Self::State(what) | Self::NotNow(what) => f.write_str(what),
            Self::Changed => f.write_str("it goes on changing to other programs"),
            Self::Forks => write!(f, "{UNSEEN_FORKS}; --unsafe-fork manages it all the same"),
        }
    }
}

/// Returns why a program that runs may not be stopped, under this rule of Yama's, by a process that
/// may trace every other or may not (Documentation/admin-guide/LSM/Yama.rst).
fn why_not_stopped(scope: Option<&str>, may_trace: bool) -> &'static str {
    match scope {
        Some("3") => "kernel.yama.ptrace_scope is 3, and stays so until the next boot",
        Some("1" | "2") if !may_trace => {
            "kernel.yama.ptrace_scope keeps it from being stopped while it runs; run this as root, \
             or: sudo sysctl -w kernel.yama.ptrace_scope=0"
        }
        _ => "another process traces it, or it has other rights",
    }
}

impl From<SysError> for Refusal {
    fn from(error: SysError) -> Self {
        if error.is(Errno::BUSY) {
            return Self::NotNow("it is stopped, or a thread of it cannot be stopped");
        }
        Self::Call(error)
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Proc(error)
    }
}

/// Called when a program stands still, before anything changes in it; fails if it is to go on.
type Begins<'b> = &'b dyn Fn() -> Result<(), Refusal>;

/// Puts the library of a run into programs.
#[derive(Debug)]
pub(crate) struct Injector {
    /// The library's layout.
    image: Image,
    /// The library's file, by the name for glibc's loader, and by the one for this.
    names: [PathBuf; 2],
    /// The variables of the run, each with a zero at its end.
    variables: Vec<u8>,
    /// Which programs may have the library.
    forks: Forks,
    /// The programs that did not take it, and why.
    refusals: Mutex<Vec<(u32, String)>>,
    /// Whether programs that run get it no more. Held while one is given it.
    is_closed: RwLock<bool>,
}

impl Injector {
    /// Prepares for a run whose library has these `names`, for glibc's loader and for this, and
    /// whose variables are `environment`.
    pub(crate) fn new(
        names: [&Path; 2],
        environment: &[(OsString, OsString)],
        forks: Forks,
    ) -> Self {
        let image = Image::of(LIBRARY).expect("a test reads the layout of this very library");
        let line = |(name, value): &(OsString, OsString)| {
            [name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat()
        };
        let variables = environment.iter().flat_map(line).collect();
        let names = names.map(Path::to_owned);
        let (refusals, is_closed) = Default::default();
        Self { image, names, variables, forks, refusals, is_closed }
    }

    /// Puts the library into `process`, a child of this thread that stops at its exec, at the first
    /// exec that `is_it` accepts. The program then begins, with the signal mask `mask`. Returns how
    /// long it stood still, if that was done. If its forks would not be seen and it `must` have the
    /// library, it is ended instead.
    pub(crate) fn put_in_at_exec(
        &self,
        process: u32,
        mask: u64,
        must: bool,
        is_it: impl Fn(u32) -> bool,
    ) -> Result<Option<Duration>, Ended> {
        let put_in = || {
            let mut tracee = Tracee::at_exec(process, mask, || is_it(process))?;
            let stopped = Instant::now();
            let put_in = self.put_in_by(&mut tracee, &Code::of(process, &self.names)?, &[]);
            if must && matches!(put_in, Err(Refusal::Forks)) {
                tracee.end();
            }
            put_in?;
            drop(tracee);
            Ok(stopped.elapsed())
        };
        let done: Result<Duration, Refusal> = put_in();
        // A program that has ended needs no library.
        if let Err(refusal) = &done
            && proc::pidfd_of(process).is_some_and(|pidfd| !proc::is_over(&pidfd))
        {
            self.refuse(process, refusal.to_string());
        }
        match done {
            Err(Refusal::Forks) if must => Err(Ended),
            done => Ok(done.ok()),
        }
    }

    /// Puts the library into `process`, which runs, unless it has the library already. Returns why
    /// that is to be tried again, if the program is in a state that may pass.
    pub(crate) fn put_in_running(&self, process: u32) -> Option<String> {
        let is_closed = self.is_closed.read().ok()?;
        if *is_closed {
            return None;
        }
        match apart::run(self, Verb::PutIn, process) {
            Done::Yes => None,
            Done::NotNow(why) => Some(why),
            Done::Refused(why) => {
                self.refuse(process, why);
                None
            }
        }
    }

    /// Lets no running program have the library any more, after those that are given it now.
    pub(crate) fn close(&self) {
        self.is_closed.write().iter_mut().for_each(|it| **it = true);
    }

    /// Takes the library out of `process`, whose service has ended.
    pub(crate) fn take_out(&self, process: u32) -> Result<(), String> {
        match apart::run(self, Verb::TakeOut, process) {
            Done::Yes => Ok(()),
            Done::NotNow(why) | Done::Refused(why) => Err(why),
        }
    }

    /// Returns the programs that did not take the library since the last call, and why.
    pub(crate) fn take_refusals(&self) -> Vec<(u32, String)> {
        self.refusals.lock().map(|mut refusals| mem::take(&mut *refusals)).unwrap_or_default()
    }

    /// Whether forks of programs with this command's libc come to the library.
    pub(crate) fn sees_forks_of_own_libc() -> bool {
        let names = ["", ""].map(PathBuf::from);
        Code::of(std::process::id(), &names).is_ok_and(|code| code.tells_of_forks())
    }

    /// Whether the environment that `process` was started with belongs to another run, or to none.
    fn is_kept_out(&self, process: u32) -> io::Result<bool> {
        let environment = fs::read(format!("/proc/{process}/environ"))?;
        let is_name = |entry: &&[u8]| {
            entry.strip_prefix(SOCKET_VARIABLE.as_bytes()).is_some_and(|it| it.starts_with(b"="))
        };
        let find = |text: &[u8]| text.split(|byte| *byte == 0).find(is_name).map(<[u8]>::to_vec);
        let named = find(&environment);
        Ok(named.is_some() && named != find(&self.variables))
    }

    /// Keeps why `process` did not take the library.
    fn refuse(&self, process: u32, why: String) {
        self.refusals.lock().iter_mut().for_each(|all| all.push((process, why.clone())));
    }

    /// Puts the library into `process`, as [`Injector::put_in_running`] does, in the process of its
    /// own that does so.
    fn put_in_now(&self, process: u32, begins: Begins<'_>) -> Result<(), Refusal> {
        let mut done = Err(Refusal::Changed);
        for _ in 0..TRIES {
            done = self.try_put_in(process, begins);
            if !matches!(done, Err(Refusal::Changed)) {
                break;
            }
        }
        done
    }

    fn try_put_in(&self, process: u32, begins: Begins<'_>) -> Result<(), Refusal> {
        let code = Code::of(process, &self.names)?;
        if code.has_ours {
            return Ok(());
        }
        if self.is_kept_out(process)? {
            return Err(Refusal::State("COLDPRESS_SOCKET in its environment names another run"));
        }
        if code.is_valgrinds {
            return Err(Refusal::State("valgrind gives all of its addresses out itself"));
        }
        let mut held = Held::stop(process, &code.sites.all)?;
        // It may have called exec since its code was looked at.
        if code::start_of(process, &self.names[1])?.is_some() || !code.is_of(process) {
            return Err(Refusal::Changed);
        }
        // Without sites, some threads run, and may have stacks there too.
        let beside_stacks =
            if code.sites.all.is_empty() { Vec::new() } else { held.beside_stacks(process)? };
        begins()?;
        let tracee = held.caller();
        tracee.prepare_calls()?;
        self.put_in_by(tracee, &code, &beside_stacks)
    }

    /// Puts the library into the program with this code, by its thread `tracee`, and tells it what
    /// lies beside stacks.
    fn put_in_by(
        &self,
        tracee: &mut Tracee,
        code: &Code,
        beside_stacks: &[Range<usize>],
    ) -> Result<(), Refusal> {
        if !tracee.is_64_bit() {
            return Err(Refusal::State("it is a 32-bit program"));
        }
        if self.forks == Forks::Seen && !code.tells_of_forks() {
            return Err(Refusal::Forks);
        }
        for site in &code.sites.all {
            let mut now = site.before();
            if tracee.read(site.address, &mut now).is_err() || now != site.before() {
                return Err(Refusal::Changed);
            }
        }
        let base = self.place(tracee, code.around_sites())?;
        let put_in = self.put_in_at(tracee, base, code, beside_stacks);
        if put_in.is_err() {
            // Nothing leads there yet.
            let _ = tracee.give_up(base, self.image.length + SERVICE_STACK_BYTES);
        }
        let (doors, directory) = put_in?;
        let [words, enter, came, loose, stubs, ..] = doors;
        for (address, bytes) in sites::changes(&code.sites, stubs, Doors { came, loose }) {
            tracee.write(address, &bytes)?;
        }
        // The status goes to words that have been read by then.
        let entered = tracee.run_beside(enter, words);
        directory.map_or(Ok(()), |directory| tracee.close(directory))?;
        Ok(entered?)
    }

    /// Takes the library out of `process`, in the process of its own that does so.
    fn take_out_now(&self, process: u32, begins: Begins<'_>) -> Result<(), Refusal> {
        let Some(base) = code::start_of(process, &self.names[1])? else { return Ok(()) };
        let data = self.image.data_at(base);
        let doors = self.image.doors(&data);
        let doors = doors.ok_or(Refusal::State("the library has another shape"))?;
        let [words, _, _, _, stubs, leave, inside] = doors;
        let sites = sites::of_stubs(&code::read(process, stubs, sites::STUBS_BYTES)?);
        let length = self.image.length + SERVICE_STACK_BYTES;
        let mut held = Held::stop_outside(process, &sites, base..base + length, inside)?;
        begins()?;
        let tracee = held.caller();
        tracee.prepare_calls()?;
        for site in &sites {
            let mut now = [0];
            tracee.read(site.address, &mut now)?;
            if now == [sites::JUMP] {
                tracee.write(site.address, &site.before())?;
            }
        }
        tracee.run_beside(leave, words)?;
        Ok(tracee.give_up(base, length)?)
    }

    /// Reserves addresses for the library, within reach of the code at `near`, and returns the
    /// lowest.
    fn place(&self, tracee: &mut Tracee, near: Option<&Range<usize>>) -> Result<usize, Refusal> {
        let length = self.image.length + SERVICE_STACK_BYTES;
        let Some(near) = near else { return Ok(tracee.reserve(0, length)?) };
        let below = BELOW.into_iter().filter_map(|far| near.start.checked_sub(length + far));
        let above = near.end.next_multiple_of(PAGE_BYTES) + ABOVE;
        for hint in below.filter(|hint| *hint >= LOWEST).chain([above]) {
            let base = tracee.reserve(hint, length)?;
            if base.abs_diff(near.start) < REACH && base.abs_diff(near.end) < REACH {
                return Ok(base);
            }
            tracee.give_up(base, length)?;
        }
        Err(Refusal::State("there is no room near its code"))
    }

    /// Opens the library's file in the program, whose path may lie at `place` for that. In another
    /// root the program gets the file, and with it the run's directory, which is returned too.
    fn open_in(
        &self,
        tracee: &mut Tracee,
        place: usize,
    ) -> Result<(usize, Option<usize>), Refusal> {
        let path = &self.names[1];
        tracee.write(place, &[path.as_os_str().as_bytes(), b"\0"].concat())?;
        match tracee.open(place) {
            Err(error) if ABSENT.iter().any(|errno| error.is(*errno)) => {}
            opened => return Ok((opened?, None)),
        }
        let file = fs::File::open(path)?;
        let directory = fs::File::open(path.parent().unwrap_or(Path::new("/")))?;
        let [file, directory] = tracee.give(place, [file.as_fd(), directory.as_fd()])?;
        Ok((file, Some(directory)))
    }

    /// Maps the library at `base`, and makes its data right, for a program with this code. Returns
    /// the addresses that the library gives, and the program's descriptor of the run's directory,
    /// if it needs one.
    fn put_in_at(
        &self,
        tracee: &mut Tracee,
        base: usize,
        code: &Code,
        beside_stacks: &[Range<usize>],
    ) -> Result<([usize; DOOR_COUNT], Option<usize>), Refusal> {
        let image = &self.image;
        let data = image.data_at(base);
        let doors = image.doors(&data).ok_or(Refusal::State("the library has another shape"))?;
        if self.variables.len() >= PUT_IN_VARIABLES_MAX {
            return Err(Refusal::State("the path of the run's socket is too long"));
        }
        // The path lies meanwhile where the data comes to lie.
        let data_at = base + image.data_start;
        if tracee.is_reaper(data_at)? {
            return Err(Refusal::State("it takes orphans in, and would see the service"));
        }
        let (file, directory) = self.open_in(tracee, data_at)?;
        let map = |part: &Mapped| {
            let at = base + part.pages.start..base + part.pages.end;
            tracee.map_file(at, file, part.offset, part.is_code)
        };
        let mapped = image.mapped.iter().try_for_each(map);
        tracee.close(file)?;
        if let (Err(_), Some(directory)) = (&mapped, directory) {
            tracee.close(directory)?;
        }
        mapped?;
        tracee.write(data_at, &data)?;
        let told = [code.sites.tell_of_memory(), code.sites.tell_of_starts()].map(usize::from);
        let end = base + image.length + SERVICE_STACK_BYTES;
        let directory_word = directory.map_or(0, |number| number + 1);
        let mut words = vec![base, end, told[0], told[1], directory_word];
        words.extend(beside_stacks.iter().flat_map(|range| [range.start, range.end]));
        words.resize(WORDS, 0);
        let words: Vec<u8> = words.into_iter().flat_map(usize::to_le_bytes).collect();
        tracee.write(doors[0], &[&words[..], &self.variables[..]].concat())?;
        Ok((doors, directory))
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a user who may not stop a program is told the wrong thing to mend.

    use super::*;

    #[test]
    fn who_may_not_stop_a_program_is_told_of_the_rule_that_says_so() {
        for (scope, may_trace, words) in [
            (Some("1"), false, "sysctl -w kernel.yama.ptrace_scope=0"),
            (Some("2"), false, "sysctl -w kernel.yama.ptrace_scope=0"),
            (Some("3"), true, "until the next boot"),
            (Some("1"), true, "another process traces it"),
            (Some("0"), false, "another process traces it"),
            (None, false, "another process traces it"),
        ] {
            let why = why_not_stopped(scope, may_trace);
            assert!(why.contains(words), "{scope:?} {may_trace}: {why}");
        }
    }
}
