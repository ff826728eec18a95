//! `edge`: actions of programs that a memory manager may get in the way of, once each.
//!
//!     edge hold             only holds memory and checks it
//!     edge anew             unmaps a range and maps it anew, again and again
//!     edge thrash SECONDS   reads random pages for SECONDS
//!     edge uffd             serves faults of its own memory by a userfaultfd of its own
//!     edge fifo BUSY        reads cold memory at real-time priority beside BUSY threads that spin
//!     edge robust           lets the owner of a mutex end whose page has been cold for long
//!     edge filter ACTION FILE PROGRAM ARGS...
//!                           starts PROGRAM under a seccomp filter that allows what FILE lists;
//!                           other calls fail with EPERM (ACTION errno), or end it (ACTION kill)
//!
//! The first six also hold and check memory, and print `ok` at the end. An action that this machine
//! forbids prints `skip: ` and the reason.
#![allow(clippy::undocumented_unsafe_blocks, reason = "raw calls on memory of its own")]
#![allow(unreachable_pub, reason = "the shared modules serve several programs")]

#[path = "../../program/mod.rs"]
mod program;

mod filter;
mod own;
mod threads;

use std::io::{Error, Result};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use program::outcome::{Outcome, Stop};
use program::pattern::{Kind, PageImage, Tag};
use program::random::mix;
use program::{PAGE, raw};

/// Seed of the pattern.
const SEED: u64 = 0x6564_6765;
/// Bytes that each action holds: far more than its budget.
const HELD: usize = 64 << 20;

/// Memory with a pattern. Most of it is away when there is no room for it.
struct Held {
    start: usize,
}

impl Held {
    fn new() -> Result<Self> {
        let start = raw::map(HELD)?;
        let held = Self { start };
        (0..HELD / PAGE).for_each(|page| held.write(page));
        Ok(held)
    }

    fn write(&self, page: usize) {
        let to = unsafe { raw::bytes_mut(self.start + page * PAGE, PAGE) };
        to.copy_from_slice(expected(page).bytes());
    }

    /// Returns the number of pages that hold wrong bytes.
    fn wrong(&self) -> usize {
        let is_wrong = |page: &usize| {
            let found = unsafe { raw::bytes(self.start + page * PAGE, PAGE) };
            found != expected(*page).bytes()
        };
        (0..HELD / PAGE).filter(is_wrong).count()
    }

    /// Returns an error when a page is wrong.
    fn check(&self) -> Result<()> {
        match self.wrong() {
            0 => Ok(()),
            count => Err(Error::other(format!("{count} pages are wrong"))),
        }
    }
}

fn hold() -> Outcome {
    let held = Held::new().map_err(|error| Stop::Fail(error.to_string()))?;
    // Coldpress looks for what is not managed twenty times a second.
    thread::sleep(Duration::from_millis(300));
    held.check().map_err(|error| Stop::Fail(error.to_string()))
}

fn expected(page: usize) -> PageImage {
    let mut image = PageImage::zero();
    let kind = Kind::by_lot(mix(page as u64));
    let tag = Tag { owner: 2, index: page as u32, version: 1, kind, patches: 0 };
    tag.expected(SEED, &mut image);
    image
}

/// Makes the failure of a call that is neither done nor forbidden.
fn failed(call: &str) -> Stop {
    program::outcome::failed(call)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["hold"] => hold(),
        ["uffd"] => own::serves_its_own_faults(),
        ["anew"] => own::maps_anew(),
        ["thrash", seconds] => own::thrashes(seconds),
        ["fifo", busy] => threads::real_time(busy.parse().unwrap_or(1)),
        ["robust"] => threads::robust(),
        ["filter", action, file, program, ref args @ ..] => {
            filter::start(action, file, program, args)
        }
        _ => return ExitCode::from(2),
    };
    match outcome {
        Ok(()) => println!("ok"),
        Err(Stop::Skip(why)) => println!("skip: {why}"),
        Err(Stop::Fail(what)) => {
            println!("FAIL: {what}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
