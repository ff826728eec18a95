//! Changes of the address space: floods of them while pages are brought back, addresses that find a
//! new tenant before the end of the old one is reported, memory that grows and moves.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::ground::{Ground, fail};
use crate::program::outcome::{Outcome, exactly, wrong};
use crate::program::pressure::{Busy, Pressure};
use crate::program::random::Random;
use crate::program::{PAGE, raw};
use crate::{Case, Stop};

pub const CASES: &[Case] = &[
    Case { name: "flood", lay: ground, run: flood },
    Case { name: "reuse", lay: ground, run: reuse },
    Case { name: "grow-and-shrink", lay: ground, run: grow_and_shrink },
    Case { name: "grow-locked", lay: ground, run: grow_locked },
    Case { name: "realloc", lay: block, run: reallocate },
    Case { name: "filled-at-once", lay: ground, run: fill_at_once },
];

/// Pages of a ground: 2 MiB.
const PAGES: usize = 512;
/// Pages of a short-lived mapping: enough to be managed.
const SCRATCH: usize = 64;
/// Threads that flood; below, the changes that each makes and the mappings that each holds.
const FLOODERS: u32 = 3;
const CHANGES: usize = 300;
const HELD: usize = 8;
/// Tenants in a row at one address.
const TENANTS: usize = 40;

fn ground(owner: u32) -> Result<Ground, Stop> {
    Ground::map(owner, PAGES)
}

/// Brings pages back, and takes others, while a change is nearly always under way.
fn flood(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    let busy = Busy::start(pressure);
    let outcome = thread::scope(|scope| {
        let flooders: Vec<_> =
            (1..=FLOODERS).map(|number| scope.spawn(move || change_much(number))).collect();
        while !flooders.iter().all(thread::ScopedJoinHandle::is_finished) {
            ground.compare()?;
        }
        flooders.into_iter().try_for_each(|flooder| flooder.join().expect("no thread panics"))
    });
    drop(busy);
    outcome
}

/// Holds some mappings, and always changes the one it has held longest.
fn change_much(number: u32) -> Outcome {
    let mut random = Random::new(1, u64::from(number));
    let mut held = VecDeque::new();
    for _ in 0..CHANGES {
        held.push_back(Ground::map(1000 + number, SCRATCH)?);
        if held.len() > HELD
            && let Some(mut oldest) = held.pop_front()
        {
            change(&mut oldest, random.word())?;
            oldest.compare()?;
            unmap(&oldest, 0, oldest.pages())?;
        }
    }
    held.iter().try_for_each(Ground::compare)
}

fn unmap(ground: &Ground, first: usize, pages: usize) -> Outcome {
    let result = unsafe { raw::unmap(ground.base + first * PAGE, pages * PAGE) };
    result.map_err(|error| fail("munmap", &error))
}

/// Makes one change of a mapping, chosen by `lot`.
fn change(ground: &mut Ground, lot: u64) -> Outcome {
    let (base, length) = (ground.base, ground.length());
    let (middle, quarter) = (SCRATCH / 4..SCRATCH / 2, length / 4);
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let result = match lot % 5 {
        0 => {
            ground.compare_part(SCRATCH / 2..SCRATCH)?;
            unmap(ground, SCRATCH / 2, SCRATCH / 2)?;
            ground.moved(base, SCRATCH / 2);
            Ok(())
        }
        1 => {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let target = raw::map(length).map_err(|error| fail("mmap", &error))?;
            ground.moved(target, SCRATCH);
            unsafe { raw::remap(base, length, length, flags, target) }.map(drop)
        }
        2 => {
            ground.expect_zeros(middle);
            unsafe { raw::advise(base + quarter, quarter, libc::MADV_DONTNEED) }
        }
        3 => {
            ground.expect_zeros(middle);
            unsafe { raw::map_at(base + quarter, quarter, both, libc::MAP_FIXED) }.map(drop)
        }
        _ => unsafe {
            raw::protect(base + quarter, quarter, libc::PROT_READ)
                .and_then(|()| raw::protect(base + quarter, quarter, both))
        },
    };
    result.map_err(|error| fail("the change", &error))
}

/// The address where another thread is to unmap; 0 when it has unmapped, 1 when it shall end.
struct Unmapper(AtomicUsize);

impl Unmapper {
    const END: usize = 1;

    fn run(&self) {
        loop {
            // SeqCst, all three: a word that the threads hand to and fro.
            match self.0.load(Ordering::SeqCst) {
                0 => thread::yield_now(),
                Self::END => return,
                address => {
                    unsafe { raw::unmap(address, SCRATCH * PAGE) }.expect("it is mapped");
                    self.0.store(0, Ordering::SeqCst);
                }
            }
        }
    }

    fn is_at_rest(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

/// Lets a thread unmap while another maps the same addresses as soon as they are free. They are
/// free before the first thread's call returns, and before the change is reported.
fn reuse(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    let busy = Busy::start(pressure);
    let unmapper = Unmapper(AtomicUsize::new(0));
    let outcome = thread::scope(|scope| {
        scope.spawn(|| unmapper.run());
        let outcome = change_tenants(&unmapper);
        while !unmapper.is_at_rest() {
            thread::yield_now();
        }
        unmapper.0.store(Unmapper::END, Ordering::SeqCst);
        outcome
    });
    drop(busy);
    outcome.and_then(|()| ground.compare())
}

fn change_tenants(unmapper: &Unmapper) -> Outcome {
    let mut tenants = Vec::new();
    for owner in 0..HELD as u32 {
        tenants.push(Ground::map(2000 + owner, SCRATCH)?);
    }
    let mut early = 0;
    for round in 0..TENANTS {
        for tenant in &mut tenants {
            tenant.compare()?;
            unmapper.0.store(tenant.base, Ordering::SeqCst);
            let mut tries = 0_u32;
            while let Err(error) = map_there(tenant.base, round % 2 == 0) {
                tries += 1;
                if error.raw_os_error() != Some(libc::EEXIST) {
                    return Err(fail("mmap", &error));
                }
                // Another thread may have mapped there, and its mapping does not go away.
                if unmapper.is_at_rest() && tries > 1_000_000 {
                    return wrong("the address does not become free");
                }
            }
            early += usize::from(!unmapper.is_at_rest());
            tenant.expect_zeros(0..SCRATCH);
            tenant.fill(0..SCRATCH / 2);
            while !unmapper.is_at_rest() {
                thread::yield_now();
            }
        }
    }
    eprintln!("early_tenants={early} of {}", TENANTS * HELD);
    tenants.iter().try_for_each(Ground::compare)
}

/// Maps where nothing may be, through libc's `mmap` or around it.
fn map_there(address: usize, through_libc: bool) -> std::io::Result<()> {
    let both = libc::PROT_READ | libc::PROT_WRITE;
    if through_libc {
        let flags = libc::MAP_FIXED_NOREPLACE;
        return unsafe { raw::map_at(address, SCRATCH * PAGE, both, flags) }.map(drop);
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let call = libc::SYS_mmap;
    let result = unsafe { libc::syscall(call, address, SCRATCH * PAGE, both, flags, -1, 0) };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Grows memory that must move for it, and shrinks it, each time with pages away.
fn grow_and_shrink(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    for pages in [3 * PAGES, PAGES / 2, 2 * PAGES] {
        let (old, new) = (ground.length(), pages * PAGE);
        let flags = libc::MREMAP_MAYMOVE;
        let base = unsafe { raw::remap(ground.base, old, new, flags, 0) };
        ground.moved(base.map_err(|error| fail("mremap", &error))?, pages);
        ground.compare()?;
        ground.fill(pages * 2 / 3..pages);
        pressure.walk();
    }
    Ok(())
}

/// Grows locked memory that must move for it: the kernel touches the new pages before it reports
/// the move.
fn grow_locked(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    if unsafe { libc::mlock(ground.page(0), ground.length()) } != 0 {
        return Err(Stop::Skip(format!("mlock: {}", std::io::Error::last_os_error())));
    }
    for pages in [2 * PAGES, 3 * PAGES] {
        grow_elsewhere(ground, pages)?;
        pressure.walk();
        exactly("pages away", ground.evicted().0 as i64, 0)?;
        ground.compare()?;
    }
    exactly("munlock", unsafe { libc::munlock(ground.page(0), ground.length()) }, 0)?;
    pressure.walk();
    ground.compare()?;
    ground.fill(0..ground.pages());
    pressure.walk();
    Ok(())
}

/// Grows the ground with something in the way.
fn grow_elsewhere(ground: &mut Ground, pages: usize) -> Outcome {
    let (old, new) = (ground.length(), pages * PAGE);
    // The kernel refuses this where something is already.
    let _ =
        unsafe { raw::map_at(ground.base + old, PAGE, libc::PROT_NONE, libc::MAP_FIXED_NOREPLACE) };
    let base = unsafe { raw::remap(ground.base, old, new, libc::MREMAP_MAYMOVE, 0) };
    let base = base.map_err(|error| fail("mremap", &error))?;
    exactly("moved", i64::from(base != ground.base), 1)?;
    ground.moved(base, pages);
    Ok(())
}

/// Lays ground in a block that malloc maps.
fn block(owner: u32) -> Result<Ground, Stop> {
    let base = unsafe { libc::malloc(PAGES * PAGE) };
    let mut ground = Ground::at(owner, base.expose_provenance(), PAGES);
    ground.fill(0..PAGES);
    Ok(ground)
}

/// Lets libc move the ground by a call of its own.
fn reallocate(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    for pages in [2 * PAGES, 5 * PAGES, PAGES] {
        let kept = pages.min(ground.pages());
        let base = unsafe { libc::realloc(ground.page(0), pages * PAGE) };
        if base.is_null() {
            return wrong("realloc gave nothing");
        }
        ground.moved(base.expose_provenance(), pages);
        ground.expect_anything(kept..pages);
        ground.compare()?;
        ground.fill(kept..pages);
        pressure.walk();
    }
    Ok(())
}

/// Asks the kernel to fill a mapping at once, one too small for the budget to matter.
fn fill_at_once(ground: &mut Ground, _: &Pressure) -> Outcome {
    const SMALL: usize = 256;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let base = unsafe { raw::map_at(0, SMALL * PAGE, both, libc::MAP_POPULATE) };
    let mut fresh = Ground::at(3200, base.map_err(|error| fail("mmap", &error))?, SMALL);
    let (away, pages) = fresh.evicted();
    eprintln!("filled_at_once={}", pages - away);
    fresh.compare()?;
    fresh.fill(0..SMALL);
    fresh.compare()?;
    ground.compare()
}
