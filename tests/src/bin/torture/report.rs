//! The end of a run that went wrong: reports what was found where, and the operations before.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::program::PAGE;
use crate::program::pattern::{PageImage, describe};
use crate::program::raw;

use crate::region::Region;
use crate::world::World;

/// Lock that the first thread that reports holds for ever.
static FIRST: Mutex<()> = Mutex::new(());

/// Reports a page that does not hold what it must, and ends the program with status 1.
pub fn mismatch(
    world: &World,
    region: Option<&Region>,
    page: usize,
    addr: usize,
    expected: &PageImage,
) -> ! {
    let _guard = FIRST.lock();
    let first = copy_of(addr);
    let second = copy_of(addr);
    let wrong: Vec<usize> =
        (0..PAGE).filter(|byte| first.bytes()[*byte] != expected.bytes()[*byte]).collect();
    let planted = world.planted.load(Ordering::Relaxed);
    if planted != 0 && (addr..addr + PAGE).contains(&planted) && wrong == [planted - addr] {
        println!("torture: self-test OK: the planted byte was found");
        end(0);
    }
    let mut text = format!(
        "torture: MISMATCH seed={} at {:.3} s: page {page} at {addr:#x}\n  \
         expected {}\n  got      {}\n",
        world.seed,
        world.elapsed().as_secs_f64(),
        describe(expected),
        describe(&first),
    );
    if let Some(byte) = wrong.first() {
        let word = byte / 8;
        let _ = writeln!(
            text,
            "  {} wrong bytes, {byte}..={}; word {word}: expected {:#018x}, got {:#018x}",
            wrong.len(),
            wrong.last().unwrap_or(byte),
            expected.0[word],
            first.0[word],
        );
    } else {
        text.push_str("  right when read again\n");
    }
    let _ = writeln!(text, "  two more reads agree: {}", first == second);
    if let Some(region) = region {
        describe_region(region, page, &mut text);
    }
    eprint!("{text}");
    end(1)
}

/// Reports a system call that failed, and ends the program with status 1.
pub fn failed(world: &World, region: Option<&Region>, call: &str, error: &str) -> ! {
    let _guard = FIRST.lock();
    let mut text = format!("torture: FAILED seed={}: {call}: {error}\n", world.seed);
    if let Some(region) = region {
        describe_region(region, 0, &mut text);
    }
    eprint!("{text}");
    end(1)
}

fn describe_region(region: &Region, page: usize, text: &mut String) {
    let _ = writeln!(
        text,
        "  region {} {:?} {:#x}..{:#x}, {} pages, whole {:?}, protected {:?}\n  page state {:?}",
        region.id,
        region.home,
        region.addr,
        region.addr + region.length(),
        region.pages.len(),
        region.whole,
        region.protected,
        region.pages.get(page),
    );
    for event in region.history() {
        let _ = writeln!(
            text,
            "    #{} thread {} {} pages {}+{} of {:#x}",
            event.number, event.thread, event.name, event.first, event.count, event.addr,
        );
    }
}

fn copy_of(addr: usize) -> PageImage {
    let mut image = PageImage::zero();
    let from = raw::pointer(addr);
    // Byte by byte, because the page may be in a malloc block: no alignment is promised.
    unsafe { std::ptr::copy_nonoverlapping(from, image.0.as_mut_ptr().cast(), PAGE) };
    image
}

/// Ends the program at once: other threads still work on memory that a normal exit would free.
fn end(status: i32) -> ! {
    let _ = io::stdout().flush();
    unsafe { libc::_exit(status) }
}
