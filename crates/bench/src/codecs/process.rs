//! Pages of a running process: those that coldpress would manage.
//!
//! These are the pages of writable private anonymous memory and of the heap that are present; not
//! stacks, nor mapped files. The process is not stopped. Its pages may change while they are read,
//! which does not matter to a codec.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use coldpress_sys::{PAGE_BYTES, Page};

use super::pages::WINDOW_PAGES;
use crate::random::Random;

/// The bytes of a window.
const WINDOW_BYTES: usize = WINDOW_PAGES * PAGE_BYTES;
/// The bits of an entry of /proc/PID/pagemap (Linux: Documentation/admin-guide/mm/pagemap.rst):
/// present in memory, and of a file or shared.
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;

/// Returns at most `most` pages of process `pid`, in the order of their addresses: whole windows,
/// picked at random where there are more. Skips windows with less than half of their pages.
pub(crate) fn pages_of(pid: u32, most: usize, random: &mut Random) -> io::Result<Vec<Page>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut windows = Vec::new();
    for range in maps.lines().filter_map(managed) {
        for start in (range.start.next_multiple_of(WINDOW_BYTES)..range.end).step_by(WINDOW_BYTES) {
            if start + WINDOW_BYTES > range.end {
                break;
            }
            let present = present(&pagemap, start)?;
            if present.iter().filter(|present| **present).count() * 2 >= WINDOW_PAGES {
                windows.push((start, present));
            }
        }
    }
    random.shuffle(&mut windows);
    windows.truncate(most.div_ceil(WINDOW_PAGES));
    windows.sort_unstable();
    let mut pages = Vec::with_capacity(windows.len() * WINDOW_PAGES);
    let mut window = vec![0; WINDOW_BYTES];
    for (start, present) in windows {
        // A window that was unmapped meanwhile cannot be read.
        if memory.read_exact_at(&mut window, start as u64).is_ok() {
            let there = window.as_chunks::<PAGE_BYTES>().0.iter().zip(present);
            pages.extend(there.filter_map(|(page, present)| present.then_some(*page)));
        }
    }
    pages.truncate(most);
    Ok(pages)
}

/// Returns the addresses of a line of /proc/PID/maps, if coldpress would manage that memory.
fn managed(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (access, _, _, inode) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let name = fields.next().unwrap_or_default();
    let is_plain = name.is_empty() || name == "[heap]" || name.starts_with("[anon:");
    let address = |text| usize::from_str_radix(text, 16).ok();
    (access == "rw-p" && inode == "0" && is_plain).then_some(())?;
    Some(address(start)?..address(end)?)
}

/// Returns which pages of a window are in memory.
fn present(pagemap: &File, start: usize) -> io::Result<[bool; WINDOW_PAGES]> {
    let mut entries = [0; WINDOW_PAGES * size_of::<u64>()];
    let at = start / PAGE_BYTES * size_of::<u64>();
    pagemap.read_exact_at(&mut entries, at as u64)?;
    let entries = entries.as_chunks().0;
    Ok(std::array::from_fn(|page| {
        u64::from_ne_bytes(entries[page]) & (PRESENT | OF_FILE) == PRESENT
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_that_would_be_managed_is_taken() {
        let heap = "55d0c8a0e000-55d0c8a2f000 rw-p 00000000 00:00 0       [heap]";
        assert_eq!(managed(heap), Some(0x55d0_c8a0_e000..0x55d0_c8a2_f000));
        assert_eq!(managed("1000-2000 rw-p 00000000 00:00 0"), Some(0x1000..0x2000));
        for other in [
            "1000-2000 rw-p 00000000 00:00 0 [stack]",
            "1000-2000 rw-p 00001000 08:01 77 /usr/lib/libc.so.6",
            "1000-2000 r--p 00000000 00:00 0",
            "1000-2000 rwxp 00000000 00:00 0",
            "1000-2000 rw-s 00000000 00:00 0",
            "1000 rw-p 00000000 00:00 0",
            "",
        ] {
            assert_eq!(managed(other), None, "{other}");
        }
    }

    #[test]
    fn pages_of_this_process_are_found_as_they_are() {
        let mark = 0x636f_6c64_7072_6573_u64;
        let words: Vec<u64> = (0..1 << 17).map(|number| number ^ mark).collect();
        let pages = pages_of(std::process::id(), usize::MAX, &mut Random::new(1)).unwrap();
        let expected: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let is_found = |page: &Page| {
            let first = u64::from_ne_bytes(page[..8].try_into().unwrap()) ^ mark;
            let at = usize::try_from(first).ok().and_then(|number| number.checked_mul(8));
            at.and_then(|at| expected.get(at..)?.get(..PAGE_BYTES)) == Some(page)
        };
        let found = pages.iter().filter(|page| is_found(page));
        // 1 MiB, except windows it shares and pages it does not fill.
        assert!(found.count() >= 200);
        let few = pages_of(std::process::id(), 33, &mut Random::new(1)).unwrap();
        assert_eq!(few.len(), 33);
    }
}
