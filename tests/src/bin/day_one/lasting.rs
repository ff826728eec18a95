//! Actions that change the process for good: its descriptors are closed, all of its memory is
//! locked, its user is dropped.

use crate::ground::Ground;
use crate::processes::{close_one_by_one, in_child};
use crate::program::outcome::{Outcome, exactly, failed};
use crate::program::pressure::Pressure;
use crate::{Case, Stop};

pub const CASES: &[Case] = &[
    Case { name: "close-one-by-one", lay: ground, run: close_each },
    Case { name: "close-range", lay: ground, run: close_range },
    Case { name: "mlockall", lay: ground, run: lock_all },
    Case { name: "mlockall-onfault", lay: ground, run: lock_on_fault },
    Case { name: "fork-without-proc", lay: ground, run: fork_without_proc },
];

/// Pages of a ground: 2 MiB.
const PAGES: usize = 512;

fn ground(owner: u32) -> Result<Ground, Stop> {
    Ground::map(owner, PAGES)
}

fn close_each(_: &mut Ground, _: &Pressure) -> Outcome {
    close_one_by_one(3);
    Ok(())
}

fn close_range(_: &mut Ground, _: &Pressure) -> Outcome {
    exactly("close_range", unsafe { libc::close_range(3, u32::MAX, 0) }, 0)
}

fn lock_all(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    lock(ground, pressure, libc::MCL_CURRENT | libc::MCL_FUTURE)
}

fn lock_on_fault(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    lock(ground, pressure, libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT)
}

/// Locks all memory: what was there is in memory and stays. Once it is released, it may go again.
fn lock(ground: &mut Ground, pressure: &Pressure, flags: i32) -> Outcome {
    if unsafe { libc::mlockall(flags) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Stop::Skip(format!("mlockall: {error}")));
    }
    let outcome = check_locked(ground, pressure, flags);
    let released = exactly("munlockall", unsafe { libc::munlockall() }, 0);
    outcome.and(released)?;
    pressure.walk();
    pressure.walk();
    Ok(())
}

fn check_locked(ground: &mut Ground, pressure: &Pressure, flags: i32) -> Outcome {
    if flags & libc::MCL_ONFAULT == 0 {
        exactly("pages away", ground.evicted().0 as i64, 0)?;
    }
    ground.compare()?;
    let fresh = Ground::map(3000, PAGES)?;
    ground.fill(0..PAGES / 2);
    pressure.walk();
    exactly("pages away", (ground.evicted().0 + fresh.evicted().0) as i64, 0)?;
    ground.compare()?;
    fresh.compare()
}

/// Does what a server does that drops its user and then forks: neither the server nor its child may
/// open the kernel's files about them in /proc.
fn fork_without_proc(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    const NOBODY: u32 = 65534;
    exactly("prctl", unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }, 0)?;
    if unsafe { libc::getuid() == 0 && (libc::setgid(NOBODY) != 0 || libc::setuid(NOBODY) != 0) } {
        return Err(failed("setuid"));
    }
    in_child("the child", || {
        ground.compare()?;
        pressure.walk();
        ground.compare()
    })
}
