//! The program of `coldpress-bench fork`: it fills memory, forks children that end at once, and
//! then forks one that writes to every page.
//!
//! 1. A child that writes first checks that each page is the one it should be.
//! 2. The data away at a fork are the pages that the kernel does not hold just before it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use coldpress_sys::fork::fork_with;
use coldpress_sys::{PAGE_BYTES, Page};
use rustix::process::{Pid, WaitOptions, waitpid};
use serde_json::{Value, json};

use super::options::ForksArgs;
use crate::commands::pages::{fresh, make_page, page_random, pages_of};
use crate::commands::say;

/// The bit of a 64-bit entry of /proc/PID/pagemap that says that the page is in memory
/// (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
/// The interval between two looks at the memory of a child that writes and of its parent. A look
/// takes milliseconds, and longer while pages come and go.
const LOOK: Duration = Duration::from_millis(100);
/// The interval at which the parent asks whether the child has ended.
const POLL: Duration = Duration::from_millis(1);

/// Runs the workload `forks`. Returns `None` after a failure, which it reports to the user.
pub(crate) fn forks(args: &ForksArgs) -> Option<Value> {
    let mut memory = fresh(args.data);
    let pages = pages_of(&mut memory, args.data);
    for (number, page) in pages.iter_mut().enumerate() {
        make_page(page, number);
    }
    let turns: io::Result<Vec<Value>> = (0..args.forks).map(|_| turn(pages)).collect();
    let found = turns.and_then(|turns| Ok(json!({ "forks": turns, "written": written(pages)? })));
    found.map_err(|error| say(format!("a program that forks: {error}"))).ok()
}

/// Forks with libc's call.
fn fork(work: fn(&mut [Page]) -> u8, pages: &mut [Page]) -> io::Result<Pid> {
    fork_with(work, pages).map_err(|error| io::Error::other(error.to_string()))
}

/// Forks a child that ends at once, and times it.
fn turn(pages: &mut [Page]) -> io::Result<Value> {
    let away = away(pages)?;
    let started = Instant::now();
    let child = fork(|_| 0, pages)?;
    let forked = started.elapsed();
    let status = waitpid(Some(child), WaitOptions::empty())?;
    let ended = started.elapsed();
    if status.is_none_or(|(_, status)| status.exit_status() != Some(0)) {
        return Err(io::Error::other(format!("a child ended with {status:?}")));
    }
    let us = |time: Duration| 1e6 * time.as_secs_f64();
    Ok(json!({ "away": away, "fork_us": us(forked), "whole_us": us(ended) }))
}

/// Forks a child that writes to all pages, and finds the most that both processes held, with shared
/// pages divided between them.
fn written(pages: &mut [Page]) -> io::Result<Value> {
    let away = away(pages)?;
    let started = Instant::now();
    let child = fork(write_all, pages)?;
    let (mut all, mut anonymous, mut looks) = (0, 0, 0);
    let mut next = Duration::ZERO;
    let status = loop {
        if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG)? {
            break status;
        }
        // A child that has ended meanwhile gives no figures.
        if started.elapsed() >= next
            && let Ok((pss, pss_anonymous)) = held(child)
        {
            all = all.max(pss);
            anonymous = anonymous.max(pss_anonymous);
            looks += 1;
            next = started.elapsed() + LOOK;
        }
        std::thread::sleep(POLL);
    };
    Ok(json!({
        "away": away,
        "seconds": started.elapsed().as_secs_f64(),
        "looks": looks,
        "pss_bytes": all,
        "pss_anonymous_bytes": anonymous,
        "wrong_pages": u32::from(status.exit_status() != Some(0)),
    }))
}

/// Writes to all pages, as the child does. Returns 1 when a page was not what it should be. Takes
/// no memory and no lock.
fn write_all(pages: &mut [Page]) -> u8 {
    let mut is_wrong = false;
    for (number, page) in pages.iter_mut().enumerate() {
        is_wrong |= page[..8] != page_random(number).next().to_le_bytes();
        page[8] = page[8].wrapping_add(1);
    }
    u8::from(is_wrong)
}

/// Returns the bytes of `pages` that are not in memory.
fn away(pages: &[Page]) -> io::Result<usize> {
    let file = File::open("/proc/self/pagemap")?;
    let mut entries = vec![0; 8 * pages.len()];
    let first = pages.as_ptr().addr() / PAGE_BYTES;
    file.read_exact_at(&mut entries, 8 * first as u64)?;
    let entries = entries.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    Ok(PAGE_BYTES * entries.filter(|entry| entry & PRESENT == 0).count())
}

/// Returns the bytes that this process and its child hold, with each page divided by the number of
/// its sharers: all bytes, and those that belong to no file.
fn held(child: Pid) -> io::Result<(u64, u64)> {
    let mut sums = (0, 0);
    for name in ["self".to_owned(), child.as_raw_nonzero().to_string()] {
        let text = fs::read_to_string(format!("/proc/{name}/smaps_rollup"))?;
        let bytes = |name| kib_of(&text, name).map(|kib| 1024 * kib);
        sums.0 += bytes("Pss:").unwrap_or(0);
        sums.1 += bytes("Pss_Anon:").unwrap_or(0);
    }
    Ok(sums)
}

/// Returns the KiB behind a name at the start of a line.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    //! The risk: a fork with nothing away, or a child that found wrong pages, goes unnoticed.
    use super::*;
    use coldpress_sys::Bytes;

    #[test]
    fn pages_that_were_never_touched_are_away() {
        // More than glibc ever takes from what was freed (32 MiB).
        let data = Bytes::mib(64);
        let mut memory = fresh(data);
        let pages = pages_of(&mut memory, data);
        for page in pages.iter_mut().take(4) {
            page[0] = 1;
        }
        assert_eq!(away(pages).unwrap(), data.0 - 4 * PAGE_BYTES);
    }

    #[test]
    fn a_child_that_writes_says_what_was_wrong() {
        let mut pages = [[0; PAGE_BYTES]; 2];
        for (number, page) in pages.iter_mut().enumerate() {
            make_page(page, number);
        }
        assert_eq!(write_all(&mut pages), 0);
        pages.swap(0, 1);
        assert_eq!(write_all(&mut pages), 1);
    }

    #[test]
    fn the_lines_of_the_kernel_are_told_apart() {
        let text = "Pss:                  12 kB\nPss_Dirty: 7 kB\nPss_Anon:  9 kB\n";
        assert_eq!((kib_of(text, "Pss:"), kib_of(text, "Pss_Anon:")), (Some(12), Some(9)));
        assert_eq!(kib_of(text, "Rss:"), None);
    }
}
