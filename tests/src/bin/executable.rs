//! `executable MIB SHARE`: fills executable memory, with a function in each page and data behind
//! it. The first `SHARE` per cent are executable from the start, the rest when it is full. The
//! output is the same with and without coldpress.

use std::ffi::c_int;
use std::process::ExitCode;

const PAGE: usize = 4096;
const ROUNDS: usize = 3;
const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
const ALL: c_int = READ_WRITE | libc::PROT_EXEC;
/// Functions that the program calls all the time, like those of an inner loop.
const HOT: usize = 16;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let (Some(Ok(mib)), Some(Ok(share))) = (words.next(), words.next()) else {
        eprintln!("usage: executable MIB SHARE");
        return ExitCode::from(2);
    };
    let pages = (mib << 20) / PAGE;
    let first = pages * share / 100;
    let code = Code::new(pages, first);
    (0..pages).for_each(|page| code.write(page, 0));
    // SAFETY: the rest of the mapping, to which this adds a right.
    let result = unsafe { libc::mprotect(code.address(first), (pages - first) * PAGE, ALL) };
    assert!(result == 0 || first == pages, "mprotect");
    let mut wrong = 0;
    for round in 1..=ROUNDS {
        for page in 0..pages {
            wrong += code.wrong(page, round - 1);
            wrong += code.wrong(page % HOT, if page < HOT { round - 1 } else { round });
            code.write(page, round);
        }
        wrong += in_child(|| (0..pages).map(|page| code.wrong(page, round)).sum());
        // SAFETY: the pages there are written anew before they are used.
        unsafe { libc::madvise(code.address(pages / 2), PAGE * (pages / 4), libc::MADV_DONTNEED) };
        (pages / 2..pages / 2 + pages / 4).for_each(|page| code.write(page, round));
    }
    println!("{pages} functions, {wrong} wrong");
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns what `count` returns in a child, at most 255; or 1 if the child dies.
fn in_child(count: impl FnOnce() -> usize) -> usize {
    // SAFETY: one thread; the child ends by `_exit`.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(count().min(255) as c_int);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) as usize } else { 1 }
    }
}

/// Pages that each begin with a function.
struct Code {
    start: *mut u8,
}

impl Code {
    /// Maps `pages` pages, of which the `first` ones are executable.
    fn new(pages: usize, first: usize) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: fresh memory, whose rest loses a right before it is used.
        unsafe {
            let start = libc::mmap(std::ptr::null_mut(), pages * PAGE, ALL, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            let code = Self { start: start.cast() };
            let rest = (pages - first) * PAGE;
            assert!(rest == 0 || libc::mprotect(code.address(first), rest, READ_WRITE) == 0);
            code
        }
    }

    fn address(&self, page: usize) -> *mut libc::c_void {
        self.start.wrapping_add(page * PAGE).cast()
    }

    fn value(page: usize, round: usize) -> u32 {
        (page * 2_654_435_761 + round) as u32
    }

    /// Writes `mov $value, %eax; ret`, then the same value over and over.
    fn write(&self, page: usize, round: usize) {
        let value = Self::value(page, round).to_le_bytes();
        // SAFETY: the page is this program's, which has one thread.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.address(page).cast(), PAGE) };
        bytes[0] = 0xb8;
        bytes[1..5].copy_from_slice(&value);
        bytes[5] = 0xc3;
        for (index, word) in bytes[8..].chunks_exact_mut(4).enumerate() {
            word.copy_from_slice(&if index % 8 == 0 { value } else { [0; 4] });
        }
    }

    /// Returns 1 if the page's function returns another value, or the data behind it is not as
    /// written.
    fn wrong(&self, page: usize, round: usize) -> usize {
        let value = Self::value(page, round);
        // SAFETY: a function was written there; it takes nothing and changes one register.
        let (told, bytes) = unsafe {
            let function: extern "C" fn() -> u32 = std::mem::transmute(self.address(page));
            (function(), std::slice::from_raw_parts(self.address(page).cast::<u8>(), PAGE))
        };
        let (words, value) = (bytes[8..].chunks_exact(4), value.to_le_bytes());
        let as_written = words
            .enumerate()
            .all(|(index, word)| word == if index % 8 == 0 { value } else { [0; 4] });
        usize::from(told.to_le_bytes() != value || !as_written)
    }
}
