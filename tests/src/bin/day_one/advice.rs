//! Advice that changes contents, what a child gets, or whose memory a page is; and protection.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::ground::{Ground, fail};
use crate::processes::in_child;
use crate::program::outcome::{Outcome, exactly, failed, fails, wrong};
use crate::program::pressure::Pressure;
use crate::program::random::mix;
use crate::program::{PAGE, raw};
use crate::{Case, Stop};

pub const CASES: &[Case] = &[
    Case { name: "dont-need", lay: ground, run: dont_need },
    Case { name: "free", lay: ground, run: free },
    Case { name: "free-of-a-file", lay: ground, run: free_of_file },
    Case { name: "guarded", lay: ground, run: guarded },
    Case { name: "dont-fork", lay: ground, run: dont_fork },
    Case { name: "wipe-on-fork", lay: ground, run: wipe_on_fork },
    Case { name: "merge-alike", lay: alike, run: merge },
    Case { name: "protected", lay: ground, run: protect },
    Case { name: "in-a-pipe", lay: wide, run: in_a_pipe },
];

/// Pages of a ground: 2 MiB.
const PAGES: usize = 512;
const HALF: usize = PAGES / 2;
/// Time limit for merging. The samepage merger looks at 100 pages each 20 ms (its defaults), three
/// times before it merges.
const MERGED_WITHIN: Duration = Duration::from_secs(5);

fn ground(owner: u32) -> Result<Ground, Stop> {
    Ground::map(owner, PAGES)
}

/// Lays ground larger than the budget.
fn wide(owner: u32) -> Result<Ground, Stop> {
    Ground::map(owner, 16 * PAGES)
}

fn advise(ground: &Ground, first: usize, pages: usize, advice: i32) -> Outcome {
    exactly("madvise", unsafe { libc::madvise(ground.page(first), pages * PAGE, advice) }, 0)
}

/// Drops pages that are away, finds them empty, and uses them anew.
fn dont_need(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    advise(ground, 64, HALF, libc::MADV_DONTNEED)?;
    ground.expect_zeros(64..64 + HALF);
    ground.compare()?;
    ground.fill(100..200);
    pressure.walk();
    ground.compare()
}

/// Frees pages: each keeps its bytes or becomes empty, as the kernel likes. What is written later
/// stays.
fn free(ground: &mut Ground, _: &Pressure) -> Outcome {
    ground.fill(0..32);
    advise(ground, 0, HALF, libc::MADV_FREE)?;
    let mut kept = 0;
    for page in 0..HALF {
        let bytes = unsafe { raw::bytes(ground.base + page * PAGE, PAGE) };
        let is_empty = bytes.iter().all(|byte| *byte == 0);
        if !ground.is_right(page) && !is_empty {
            return wrong(format!("page {page} is neither as it was nor empty"));
        }
        kept += usize::from(!is_empty);
    }
    eprintln!("kept_when_freed={kept}");
    ground.compare_part(HALF..PAGES)?;
    ground.expect_anything(0..HALF);
    ground.fill(0..HALF / 2);
    Ok(())
}

/// Checks that the kernel refuses the advice for private memory of a file: what was written there
/// stays.
fn free_of_file(_: &mut Ground, _: &Pressure) -> Outcome {
    let file = File::open("/proc/self/exe").map_err(|error| fail("open", &error))?;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let descriptor = file.as_raw_fd();
    let place = std::ptr::null_mut();
    let at = unsafe { libc::mmap(place, PAGE, both, libc::MAP_PRIVATE, descriptor, 0) };
    if at == libc::MAP_FAILED {
        return Err(failed("mmap"));
    }
    let byte = at.cast::<u8>();
    unsafe { byte.write_volatile(b'!') };
    fails("madvise", unsafe { libc::madvise(at, PAGE, libc::MADV_FREE) }, libc::EINVAL)?;
    exactly("the byte", unsafe { byte.read_volatile() }, b'!'.into())
}

/// Walks up to a guard page and not over it.
fn guarded(ground: &mut Ground, _: &Pressure) -> Outcome {
    const MADV_GUARD_INSTALL: i32 = 102;
    let guards = [PAGES + HALF - 9, HALF];
    let fresh = Ground::map(3100, 2 * PAGES)?;
    for (ground, guard) in [(&fresh, guards[0]), (&*ground, guards[1])] {
        if advise(ground, guard, 1, MADV_GUARD_INSTALL).is_err() {
            return Err(Stop::Skip("no guard pages before Linux 6.13".to_owned()));
        }
    }
    for page in 0..guards[0] {
        unsafe { fresh.page::<u8>(page).write_volatile(1) };
    }
    ground.compare_part(0..guards[1])?;
    let zeros = File::open("/dev/zero").map_err(|error| fail("open", &error))?;
    for (ground, guard) in [(&fresh, guards[0]), (&*ground, guards[1])] {
        let place = ground.page(guard);
        let read = unsafe { libc::read(zeros.as_raw_fd(), place, 1) };
        fails("read into a guard page", read, libc::EFAULT)?;
    }
    const MADV_GUARD_REMOVE: i32 = 103;
    advise(ground, guards[1], 1, MADV_GUARD_REMOVE)?;
    ground.expect_zeros(guards[1]..guards[1] + 1);
    Ok(())
}

/// Checks that the child has no such range. The parent's stays as it was, also when children get it
/// again.
fn dont_fork(ground: &mut Ground, _: &Pressure) -> Outcome {
    advise(ground, 0, HALF, libc::MADV_DONTFORK)?;
    in_child("fork without a range", || {
        if unsafe { raw::resident_pages(ground.base, PAGE) }.is_ok() {
            return wrong("the child has the range");
        }
        ground.compare_part(HALF..PAGES)
    })?;
    ground.compare()?;
    advise(ground, 0, HALF, libc::MADV_DOFORK)?;
    in_child("fork with the range", || ground.compare())
}

/// Checks that the child finds the range empty and can use it, and that the parent's stays as it
/// was.
fn wipe_on_fork(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    advise(ground, 0, HALF, libc::MADV_WIPEONFORK)?;
    let mut childs = Ground::at(u32::MAX, ground.base, HALF);
    in_child("fork with an empty range", || {
        childs.compare()?;
        ground.compare_part(HALF..PAGES)?;
        childs.fill(0..HALF);
        pressure.walk();
        childs.compare()?;
        ground.compare_part(HALF..PAGES)
    })?;
    ground.compare()
}

fn alike(owner: u32) -> Result<Ground, Stop> {
    let mut ground = Ground::map(owner, PAGES)?;
    ground.fill_alike(0..PAGES);
    unsafe { raw::advise(ground.base, ground.length(), libc::MADV_MERGEABLE) }.map_err(
        |error| match error.raw_os_error() {
            Some(libc::EINVAL) => Stop::Skip("this kernel merges no pages".to_owned()),
            _ => fail("madvise", &error),
        },
    )?;
    let until = Instant::now() + MERGED_WITHIN;
    while merged() == Some(0) && merger_runs() && Instant::now() < until {
        sleep(Duration::from_millis(20));
    }
    eprintln!("merged_pages={}", merged().unwrap_or(0));
    Ok(ground)
}

/// Returns whether the merger of this machine is switched on.
fn merger_runs() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/ksm/run").is_ok_and(|text| text.trim() == "1")
}

/// Returns the pages of this process that are merged with others; `None` where the kernel does not
/// report them.
fn merged() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/ksm_merging_pages").ok()?;
    text.trim().parse().ok()
}

/// Takes pages that are alike, one page to the kernel, out of memory all the same; then changes
/// them.
fn merge(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    ground.compare()?;
    ground.fill(0..HALF);
    pressure.walk();
    ground.compare()?;
    let base = ground.page(0);
    if unsafe { libc::madvise(base, ground.length(), libc::MADV_UNMERGEABLE) } != 0 {
        return Err(failed("madvise"));
    }
    Ok(())
}

/// Brings pages back to a range that has become read-only, and to one that has become executable.
/// None is taken from these ranges.
fn protect(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    let protect = |first: usize, protection| {
        let result = unsafe { libc::mprotect(ground.page(first), HALF * PAGE, protection) };
        exactly("mprotect", result, 0)
    };
    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    // In an order that no readahead follows.
    let some = |ground: &Ground, round: usize| -> Outcome {
        for index in 0..PAGES / 4 {
            let page = mix((round * PAGES + index) as u64) as usize % PAGES;
            ground.compare_part(page..page + 1)?;
        }
        pressure.walk();
        Ok(())
    };
    for round in 0..4 {
        some(ground, round)?;
    }
    protect(0, libc::PROT_READ)?;
    protect(HALF, read_write | libc::PROT_EXEC)?;
    some(ground, 4)?;
    ground.compare()?;
    protect(0, read_write)?;
    ground.fill(0..PAGES);
    pressure.walk();
    ground.compare()
}

/// Puts pages of the program, not copies, into a pipe; nothing reports that to coldpress. The pages
/// go and others come back: what was put into the pipe comes out.
fn in_a_pipe(ground: &mut Ground, _: &Pressure) -> Outcome {
    const HELD: usize = 16;
    let mut ends = [0; 2];
    exactly("pipe2", unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0)?;
    let [mut reader, writer] = ends.map(|end| unsafe { File::from(OwnedFd::from_raw_fd(end)) });
    ground.compare()?;
    let (base, length) = (ground.base, HELD * PAGE);
    let wanted = unsafe { raw::bytes(base, length) }.to_vec();
    let from = libc::iovec { iov_base: ground.page(0), iov_len: length };
    let put = unsafe { libc::vmsplice(writer.as_raw_fd(), &raw const from, 1, 0) };
    exactly("vmsplice", put, length)?;
    // One by one, in an order that no readahead follows.
    for index in 0..2 * ground.pages() {
        let page = HELD + mix(index as u64) as usize % (ground.pages() - HELD);
        ground.compare_part(page..page + 1)?;
    }
    let mut found = vec![0; length];
    reader.read_exact(&mut found).map_err(|error| fail("read", &error))?;
    if found != wanted {
        return wrong("other bytes came out of the pipe than were put in");
    }
    ground.compare()
}
