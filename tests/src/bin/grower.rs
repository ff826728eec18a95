//! Takes 64 MiB, reads them for some seconds, and says whether every word was right: `grower
//! [hidden]`. With `hidden`, other processes may not inspect it (PR_SET_DUMPABLE), as with agents
//! that keep keys; and it locks and unlocks its memory at the end, as those agents do.

use std::env;
use std::io::{Error, Result};
use std::thread::sleep;
use std::time::{Duration, Instant};

const WORDS: usize = (64 << 20) / size_of::<u64>();
/// Time for which the memory is held: longer than the launcher waits before it reports a process
/// that has not joined.
const HELD: Duration = Duration::from_secs(3);

const PAUSE: Duration = Duration::from_millis(200);

/// Returns the value of word `at`: it does not compress.
fn word(at: usize) -> u64 {
    let word = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^ word >> 29
}

fn main() -> Result<()> {
    let is_hidden = env::args().nth(1).is_some_and(|word| word == "hidden");
    // SAFETY: the call takes numbers only.
    if is_hidden && unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) } != 0 {
        return Err(Error::last_os_error());
    }
    let words: Vec<u64> = (0..WORDS).map(word).collect();
    let (begin, mut wrong) = (Instant::now(), 0);
    while begin.elapsed() < HELD {
        wrong += words.iter().enumerate().filter(|&(at, found)| *found != word(at)).count();
        // Several run at a time.
        sleep(PAUSE);
    }
    if is_hidden {
        // SAFETY: numbers only. Where the limit forbids to lock all of it, the call fails, which is
        // as good.
        unsafe {
            libc::mlockall(libc::MCL_CURRENT);
            libc::munlockall();
        }
    }
    println!("wrong words: {wrong}");
    Ok(())
}
