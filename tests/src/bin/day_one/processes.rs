//! Children, and a daemon that closes everything it has inherited.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use crate::ground::Ground;
use crate::program::outcome::{Outcome, exactly, failed, wrong};
use crate::program::pressure::Pressure;
use crate::program::{PAGE, raw};
use crate::{Case, Stop};

pub const CASES: &[Case] = &[Case { name: "daemon", lay: ground, run: daemon }];

/// Pages of a ground: 2 MiB.
const PAGES: usize = 512;
/// Time limit for the daemon's report: later, the daemon hangs.
const HANG: Duration = Duration::from_secs(60);
/// The reports of the daemon.
const RIGHT: i32 = 1;
const WRONG: i32 = 2;

fn ground(owner: u32) -> Result<Ground, Stop> {
    Ground::map(owner, PAGES)
}

/// Runs `work` in a forked child. A failure comes through the child's status, and its words through
/// standard error.
pub fn in_child(what: &str, work: impl FnOnce() -> Outcome) -> Outcome {
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(failed("fork"));
    }
    if pid == 0 {
        let status = match work() {
            Ok(()) => 0,
            Err(Stop::Fail(text) | Stop::Skip(text)) => {
                eprintln!("{what}: {text}");
                1
            }
        };
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    exactly("waitpid", unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid as usize)?;
    if status == 0 { Ok(()) } else { wrong(format!("{what}: the child's status is {status:#x}")) }
}

/// Forks twice with a session of its own in between. The daemon closes every descriptor, and uses
/// its memory.
fn daemon(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    let told = shared_word()?;
    in_child("the daemon's parent", || {
        if unsafe { libc::setsid() } < 0 {
            return Err(failed("setsid"));
        }
        match unsafe { libc::fork() } {
            0 => {
                close_one_by_one(0);
                let outcome = ground.compare().and_then(|()| {
                    pressure.walk();
                    close_one_by_one(0);
                    pressure.walk();
                    ground.compare()
                });
                // SeqCst pairs with the load below: nothing else is handed over.
                told.store(if outcome.is_ok() { RIGHT } else { WRONG }, Ordering::SeqCst);
                unsafe { libc::_exit(0) }
            }
            pid if pid < 0 => Err(failed("fork")),
            _ => Ok(()),
        }
    })?;
    let until = Instant::now() + HANG;
    loop {
        match told.load(Ordering::SeqCst) {
            RIGHT => return Ok(()),
            WRONG => return wrong("the daemon found other bytes"),
            _ if Instant::now() > until => return wrong("nothing is heard of the daemon"),
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Closes descriptors one by one, as `closefrom` does where the kernel has no call for it.
pub fn close_one_by_one(first: i32) {
    for number in first..4096 {
        unsafe { libc::close(number) };
    }
}

/// Maps a word that children share.
fn shared_word() -> Result<&'static AtomicI32, Stop> {
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, both, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(failed("mmap"));
    }
    // The word is never unmapped.
    Ok(unsafe { &*raw::pointer(at.expose_provenance()).cast::<AtomicI32>() })
}
