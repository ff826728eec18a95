//! Takes 64 MiB, reads them for some seconds, and says whether every word was right:
//! `grower [hidden]`. Hidden, it is no longer to be looked into (PR_SET_DUMPABLE), as agents that
//! keep keys are; and locks and unlocks its memory at the end, as those do.

use std::env;
use std::io::{Error, Result};
use std::time::{Duration, Instant};

const WORDS: usize = (64 << 20) / size_of::<u64>();
/// Longer than the launcher waits before it says that somebody has not joined.
const HELD: Duration = Duration::from_secs(3);

/// What word `at` holds: nothing that compresses.
fn word(at: usize) -> u64 {
    let word = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^ word >> 29
}

fn main() -> Result<()> {
    let is_hidden = env::args().nth(1).is_some_and(|word| word == "hidden");
    // SAFETY: it takes numbers only.
    if is_hidden && unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) } != 0 {
        return Err(Error::last_os_error());
    }
    let words: Vec<u64> = (0..WORDS).map(word).collect();
    let (begin, mut wrong) = (Instant::now(), 0);
    while begin.elapsed() < HELD {
        wrong += words.iter().enumerate().filter(|&(at, found)| *found != word(at)).count();
    }
    if is_hidden {
        // SAFETY: numbers only. Where so much may not be locked it is refused, which is as good.
        unsafe {
            libc::mlockall(libc::MCL_CURRENT);
            libc::munlockall();
        }
    }
    println!("wrong words: {wrong}");
    Ok(())
}
