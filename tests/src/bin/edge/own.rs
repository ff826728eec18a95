//! A program that uses userfaultfd(2) itself, as virtual machines and collectors do.

use std::fs::File;
use std::io::{Error, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::thread;
use std::time::{Duration, Instant};

use super::program::outcome::{Outcome, Stop, wrong};
use super::program::random::mix;
use super::program::{PAGE, raw};
use super::{HELD, Held, failed};

/// Numbers of linux/userfaultfd.h: the version of the API, and its calls as `_IOWR(0xaa, number,
/// struct)`.
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_UNREGISTER: u64 = 0x8010_aa01;
const UFFDIO_COPY: u64 = 0xc028_aa03;
const REGISTER_MODE_MISSING: u64 = 1;
const REGISTER_MODE_WP: u64 = 2;
const EVENT_PAGEFAULT: u8 = 0x12;
/// Bytes of its `struct uffd_msg`, and the offset of a fault's address in it.
const MESSAGE_BYTES: usize = 32;
const ADDRESS_AT: usize = 16;

/// Parts of the memory held.
const PARTS: usize = 64;
/// Pages whose faults the program serves.
const PAGES: usize = 512;

/// Holds memory, registers other memory with a userfaultfd of its own, and fills each page of the
/// latter when it is touched.
pub fn serves_its_own_faults() -> Outcome {
    let held = Held::new().map_err(|error| Stop::Fail(error.to_string()))?;
    let (faults, cold) = (open()?, open()?);
    let start = raw::map(PAGES * PAGE).map_err(|error| Stop::Fail(error.to_string()))?;
    let mut register = [start as u64, (PAGES * PAGE) as u64, REGISTER_MODE_MISSING, 0];
    call(&faults, UFFDIO_REGISTER, "UFFDIO_REGISTER", &mut register)?;
    let server = thread::spawn(move || serve(faults));
    for page in 0..PAGES {
        let found = unsafe { raw::bytes(start + page * PAGE, PAGE) };
        if found.iter().any(|byte| usize::from(*byte) != (page & 255)) {
            return wrong(format!("page {page} was not filled by its own server"));
        }
    }
    server.join().map_err(|_| Stop::Fail("its server failed".to_owned()))??;
    // Parts of the cold memory, for a while. Memory that coldpress gives up is resident for a
    // moment, so the parts are small.
    for part in 0..PARTS {
        let start = (held.start + part * HELD / PARTS) as u64;
        let mut register = [start, (HELD / PARTS / 8) as u64, REGISTER_MODE_WP, 0];
        call(&cold, UFFDIO_REGISTER, "UFFDIO_REGISTER", &mut register)?;
        call(&cold, UFFDIO_UNREGISTER, "UFFDIO_UNREGISTER", &mut register)?;
    }
    // Many ranges at once, each a page of its own; then everything between them too, in one call.
    let watch = |part: usize| {
        let page = (held.start + part * HELD / PARTS) as u64;
        let mut register = [page, PAGE as u64, REGISTER_MODE_WP, 0];
        call(&cold, UFFDIO_REGISTER, "UFFDIO_REGISTER", &mut register)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..PARTS / 2)
            .map(|part| {
                scope.spawn({
                    let watch = &watch;
                    move || watch(part)
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|one| one.join().map_err(|_| Stop::Fail("a thread failed".to_owned()))?)
    })?;
    let mut all = [held.start as u64, (HELD / PARTS * 4) as u64];
    call(&cold, UFFDIO_UNREGISTER, "UFFDIO_UNREGISTER", &mut all)?;
    held.check().map_err(|error| Stop::Fail(error.to_string()))
}

fn open() -> Result<File, Stop> {
    // The flag asks for faults of user code alone, which every user may have.
    let flags = libc::O_CLOEXEC | 1;
    let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) } as i32;
    if descriptor < 0 {
        return Err(Stop::Skip(format!("userfaultfd: {}", Error::last_os_error())));
    }
    let faults = unsafe { File::from_raw_fd(descriptor) };
    let mut api = [UFFD_API, 0, 0];
    call(&faults, UFFDIO_API, "UFFDIO_API", &mut api)?;
    Ok(faults)
}

/// Fills each page with its number when it is touched, until all pages have been.
fn serve(mut faults: File) -> Outcome {
    let mut first = None;
    for _ in 0..PAGES {
        let mut message = [0_u8; MESSAGE_BYTES];
        let read = faults.read(&mut message);
        if read.ok() != Some(MESSAGE_BYTES) || message[0] != EVENT_PAGEFAULT {
            return wrong(format!("no fault was read: {message:?}"));
        }
        let word = message[ADDRESS_AT..].first_chunk::<8>().copied().unwrap_or_default();
        let address = u64::from_le_bytes(word) & !(PAGE as u64 - 1);
        // Pages are touched in order, so the first fault is the first page's.
        let start = *first.get_or_insert(address);
        let bytes = vec![((address - start) / PAGE as u64) as u8; PAGE];
        let from = bytes.as_ptr().expose_provenance() as u64;
        let mut copy = [address, from, PAGE as u64, 0, 0];
        call(&faults, UFFDIO_COPY, "UFFDIO_COPY", &mut copy)?;
    }
    Ok(())
}

fn call<const N: usize>(
    faults: &File,
    number: u64,
    name: &str,
    argument: &mut [u64; N],
) -> Outcome {
    let result = unsafe { libc::ioctl(faults.as_raw_fd(), number, argument.as_mut_ptr()) };
    if result == 0 { Ok(()) } else { Err(failed(name)) }
}

/// Returns an address below which nothing is mapped: right below the lowest mapping that the kernel
/// has placed, where the kernel puts large mappings.
fn below_all() -> Result<usize, Stop> {
    const PLACED_FROM: usize = 0x7000_0000_0000;
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| failed("/proc/self/maps"))?;
    let starts =
        maps.lines().filter_map(|line| usize::from_str_radix(line.split('-').next()?, 16).ok());
    starts.filter(|start| *start > PLACED_FROM).min().ok_or_else(|| failed("no mapping"))
}

/// Unmaps a range and maps it anew at the same place, again and again, as a program of one thread
/// may: no other thread can have taken the place meanwhile, even when the service of the program
/// begins just then.
pub fn maps_anew() -> Outcome {
    const LENGTH: usize = 8 << 20;
    const ROUNDS: Duration = Duration::from_millis(1500);
    let fails = |error: std::io::Error| Stop::Fail(error.to_string());
    let place = below_all()? - LENGTH;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let map = |start, length, flags| unsafe { raw::map_at(start, length, protection, flags) };
    // A mapping below keeps larger ones away from the place.
    map(place - PAGE, PAGE, libc::MAP_FIXED_NOREPLACE).map_err(fails)?;
    let held = Held::new().map_err(fails)?;
    // Until the service has settled.
    thread::sleep(Duration::from_millis(300));
    map(place, LENGTH, libc::MAP_FIXED_NOREPLACE).map_err(|_| failed("it is taken: mmap"))?;
    let begun = Instant::now();
    while begun.elapsed() < ROUNDS {
        unsafe { raw::unmap(place, LENGTH) }.map_err(fails)?;
        map(place, LENGTH, libc::MAP_FIXED).map_err(fails)?;
        for _ in 0..2000 {
            std::hint::spin_loop();
        }
        // An error when any page of it is not mapped.
        unsafe { raw::resident_pages(place, LENGTH) }.map_err(|_| failed("it is gone: mincore"))?;
    }
    held.check().map_err(fails)
}

/// Touches all pages that the program holds, in no order.
pub fn thrashes(seconds: &str) -> Outcome {
    let fails = |error: std::io::Error| Stop::Fail(error.to_string());
    let seconds = seconds.parse().map_err(|_| Stop::Fail(format!("{seconds}: not seconds")))?;
    let held = Held::new().map_err(fails)?;
    let begun = Instant::now();
    let mut number = 0;
    while begun.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..100 {
            number += 1;
            let page = mix(number) as usize % (HELD / PAGE);
            std::hint::black_box(unsafe { raw::bytes(held.start + page * PAGE, 1)[0] });
        }
    }
    held.check().map_err(fails)
}
