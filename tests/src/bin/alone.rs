//! Makes calls, again and again, that the kernel grants only to a process of one thread, or that
//! end the management of the process's memory: `alone MEBIBYTES ROUNDS`. Checks every byte after
//! each call.

use std::env;
use std::fs;
use std::io::{Error, Result};

fn number(index: usize) -> Result<usize> {
    let word = env::args().nth(index).ok_or_else(|| Error::other("a number is missing"))?;
    word.parse().map_err(Error::other)
}

/// Returns the byte that position `at` holds in `round`.
fn byte(at: usize, round: usize) -> u8 {
    (at as u64).wrapping_add((round as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
        [7]
}

fn check(bytes: &[u8], round: usize, after: &str) {
    let wrong = bytes.iter().enumerate().find(|&(at, found)| *found != byte(at, round));
    assert!(wrong.is_none(), "after {after} in round {round}: {wrong:?}");
}

fn main() -> Result<()> {
    let (size, rounds) = (number(1)? << 20, number(2)?);
    let mut bytes = vec![0_u8; size];
    let mut mappings = 0;
    for round in 0..rounds {
        bytes.iter_mut().enumerate().for_each(|(at, place)| *place = byte(at, round));
        // SAFETY: the only flag changes nothing in a process of one thread.
        if unsafe { libc::unshare(libc::CLONE_THREAD) } != 0 {
            return Err(Error::last_os_error());
        }
        check(&bytes, round, "unshare");
        // SAFETY: the call takes no arguments, and nothing is locked.
        if unsafe { libc::munlockall() } != 0 {
            return Err(Error::last_os_error());
        }
        check(&bytes, round, "munlockall");
        let found = fs::read_to_string("/proc/self/maps")?.lines().count();
        mappings = if round == 0 { found } else { mappings };
        assert!(found < mappings + 16, "{found} mappings, {mappings} after the first round");
    }
    println!("alone: OK {rounds} rounds");
    Ok(())
}
