//! Holds memory while children of `vfork` take their time before they end: `vforks MEBIBYTES
//! CHILDREN`. Checks every byte at the end.

use std::env;
use std::io::{Error, Result};

/// Lifetime of a child: several looks of a launcher.
const CHILD_US: libc::useconds_t = 200_000;

fn number(index: usize) -> Result<usize> {
    let word = env::args().nth(index).ok_or_else(|| Error::other("a number is missing"))?;
    word.parse().map_err(Error::other)
}

fn byte(at: usize) -> u8 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7]
}

fn main() -> Result<()> {
    let bytes: Vec<u8> = (0..number(1)? << 20).map(byte).collect();
    for _ in 0..number(2)? {
        // SAFETY: the child sleeps and ends; it touches no memory of its parent.
        #[expect(deprecated, reason = "a child that shares memory is what this is about")]
        let child = unsafe { libc::vfork() };
        if child == 0 {
            // SAFETY: both are plain system calls.
            unsafe {
                libc::usleep(CHILD_US);
                libc::_exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: the status word is this function's own.
        if child < 0 || unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
            return Err(Error::last_os_error());
        }
    }
    let wrong = bytes.iter().enumerate().find(|&(at, found)| *found != byte(at));
    assert!(wrong.is_none(), "{wrong:?}");
    println!("vforks: OK");
    Ok(())
}
