//! Children of a program most of whose memory is away, and what they find: `heirs WAY
//! [GENERATIONS]`.
//!
//! ```text
//! fork      libc's fork; each child forks the next
//! wipe      the same after MADV_WIPEONFORK
//! dropped   the same when it has dropped its user, and may not open its own files in /proc
//! clone     libc's clone without CLONE_VM, on a stack that was mapped
//! ```
//!
//! Each child writes as much memory of its own as it inherited, until most of its inherited memory
//! is away or some time has passed. The output says how many pages were away: in the parent when it
//! made a child, in the child when it began, and at last; and how many were wrong.
#![allow(clippy::undocumented_unsafe_blocks, reason = "forks, and memory of its own")]
#![allow(unreachable_pub, reason = "the shared modules serve several programs")]

#[path = "../program/mod.rs"]
mod program;

use std::ffi::{c_int, c_void};
use std::io::{Error, Result};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use program::pattern::{Kind, PageImage, Tag};
use program::pressure::Pressure;
use program::random::mix;
use program::{PAGE, raw};

/// Bytes that all processes inherit; below, the bytes that each writes besides.
const HELD: usize = 32 << 20;
const WRITTEN: usize = 32 << 20;
const PAGES: usize = HELD / PAGE;
const STACK: usize = 1 << 20;
const NOBODY: u32 = 65534;
/// Time limit for pages of a child to go away: longer than a busy machine takes.
const PATIENCE: Duration = Duration::from_secs(40);
/// The same for a child that is not managed: much longer than the launcher waits before it reports
/// that.
const PATIENCE_UNMANAGED: Duration = Duration::from_secs(6);
/// The same where the launcher reports that at once.
const PATIENCE_REFUSED: Duration = Duration::from_secs(1);
/// Pause between two walks.
const REST: Duration = Duration::from_millis(50);

struct Held {
    start: usize,
    pressure: Pressure,
    patience: Duration,
}

impl Held {
    fn new(way: &str) -> Result<Self> {
        let patience = match way {
            "clone" => PATIENCE_UNMANAGED,
            "dropped" => PATIENCE_REFUSED,
            _ => PATIENCE,
        };
        let held = Self { start: raw::map(HELD)?, pressure: Pressure::new(WRITTEN), patience };
        for page in 0..PAGES {
            held.page_mut(page).copy_from_slice(expected(page).bytes());
        }
        held.pressure.walk();
        Ok(held)
    }

    fn page_mut(&self, page: usize) -> &'static mut [u8] {
        unsafe { raw::bytes_mut(self.start + page * PAGE, PAGE) }
    }

    fn wrong(&self) -> usize {
        let is_wrong = |page: &usize| self.page_mut(*page) != expected(*page).bytes();
        (0..PAGES).filter(is_wrong).count()
    }

    fn away(&self) -> usize {
        let here = unsafe { raw::resident_pages(self.start, HELD) };
        PAGES - here.expect("it is mapped")
    }

    /// Does a child's work. Returns its status: whether all its inherited memory is right.
    fn judge(&self, generation: usize) -> c_int {
        let (begun, first) = (Instant::now(), self.away());
        loop {
            self.pressure.walk();
            if self.away() > PAGES / 2 || begun.elapsed() > self.patience {
                break;
            }
            sleep(REST);
        }
        let (last, wrong) = (self.away(), self.wrong());
        println!("generation {generation}: {first} away, then {last}; {wrong} wrong");
        c_int::from(wrong > 0)
    }

    /// Makes a child by `make`, waits for it, and returns its status.
    fn with_child(&self, make: impl FnOnce(&Self) -> Result<libc::pid_t>) -> Result<c_int> {
        let before = self.away();
        let child = make(self)?;
        println!("parent: {before} away");
        let mut status = 0;
        raw::checked(unsafe { libc::waitpid(child, &raw mut status, 0) })?;
        Ok(status)
    }
}

fn expected(page: usize) -> PageImage {
    let mut image = PageImage::zero();
    let kind = Kind::by_lot(mix(page as u64));
    Tag { owner: 3, index: page as u32, version: 1, kind, patches: 0 }.expected(7, &mut image);
    image
}

/// Makes the child of `generation`, which makes the next one until there are `generations`. Does
/// not return in a child.
fn fork(held: &Held, generation: usize, generations: usize) -> Result<c_int> {
    held.with_child(|held| {
        let child = raw::checked(unsafe { libc::fork() })?;
        if child > 0 {
            return Ok(child);
        }
        let mut status = held.judge(generation);
        if generation < generations {
            status |= fork(held, generation + 1, generations).unwrap_or(1);
        }
        unsafe { libc::_exit(c_int::from(status != 0)) }
    })
}

extern "C" fn cloned(held: *mut c_void) -> c_int {
    let held = unsafe { &*held.cast::<Held>() };
    held.judge(1)
}

fn clone(held: &Held) -> Result<c_int> {
    let stack = raw::map(STACK)?;
    held.with_child(|held| {
        let argument = (&raw const *held).cast_mut().cast();
        let top = raw::pointer(stack + STACK).cast();
        raw::checked(unsafe { libc::clone(cloned, top, libc::SIGCHLD, argument) })
    })
}

/// Drops the user, as a server does that starts as root.
fn drop_user() -> Result<()> {
    unsafe {
        raw::checked(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0))?;
        if libc::getuid() == 0 {
            raw::checked(libc::setgid(NOBODY))?;
            raw::checked(libc::setuid(NOBODY))?;
        }
    }
    Ok(())
}

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let way = words.first().map_or("", String::as_str);
    let generations = words.get(1).map_or(Ok(1), |word| word.parse()).map_err(Error::other)?;
    let held = Held::new(way)?;
    let status = match way {
        "fork" => fork(&held, 1, generations)?,
        "wipe" => {
            let page = raw::map(PAGE)?;
            unsafe { raw::advise(page, PAGE, libc::MADV_WIPEONFORK) }?;
            fork(&held, 1, generations)?
        }
        "dropped" => {
            drop_user()?;
            fork(&held, 1, generations)?
        }
        "clone" => clone(&held)?,
        _ => return Ok(ExitCode::from(2)),
    };
    let wrong = held.wrong();
    println!("parent: {wrong} wrong, the child ended with {status}");
    Ok(if wrong == 0 && status == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
