//! Huge pages: asked for, made later, cut up, and forbidden.

use crate::ground::{Ground, HUGE, fail};
use crate::program::outcome::{Outcome, exactly};
use crate::program::pressure::Pressure;
use crate::program::{PAGE, raw};
use crate::{Case, Stop};

pub const CASES: &[Case] = &[
    Case { name: "huge-from-the-start", lay: advised, run: nothing },
    Case { name: "huge-cut-up", lay: advised, run: cut_up },
    Case { name: "huge-made-later", lay: small, run: collapse },
];

/// Pages of two huge pages.
const PAGES: usize = 2 * HUGE / PAGE;

/// Forbids huge pages to this process from now on.
pub fn forbid() {
    let set = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    assert_eq!(set, 0, "a process may do without");
}

/// Lays ground that is first touched after huge pages were asked for.
fn advised(owner: u32) -> Result<Ground, Stop> {
    let ground = Ground::map_aligned(owner, PAGES, HUGE)?;
    let (base, length) = (ground.base, ground.length());
    let advice = |advice| unsafe { raw::advise(base, length, advice) };
    advice(libc::MADV_DONTNEED).map_err(|error| fail("madvise", &error))?;
    match advice(libc::MADV_HUGEPAGE) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            return Err(Stop::Skip("this kernel has no huge pages".to_owned()));
        }
        result => result.map_err(|error| fail("madvise", &error))?,
    }
    let mut ground = Ground::at(owner, base, PAGES);
    ground.fill(0..PAGES);
    Ok(ground)
}

fn small(owner: u32) -> Result<Ground, Stop> {
    Ground::map_aligned(owner, PAGES, HUGE)
}

fn nothing(_: &mut Ground, _: &Pressure) -> Outcome {
    Ok(())
}

/// Changes a part of a huge page; the rest must stay as it is.
fn cut_up(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    ground.compare()?;
    let drop = unsafe { libc::madvise(ground.page(3), 5 * PAGE, libc::MADV_DONTNEED) };
    exactly("madvise", drop, 0)?;
    ground.expect_zeros(3..8);
    let protect = |protection| unsafe { libc::mprotect(ground.page(600), PAGE, protection) };
    exactly("mprotect", protect(libc::PROT_READ), 0)?;
    pressure.walk();
    ground.compare()?;
    exactly("mprotect", protect(libc::PROT_READ | libc::PROT_WRITE), 0)?;
    ground.fill(590..610);
    Ok(())
}

/// Asks for huge pages of memory that is away. The kernel may refuse; the bytes are the same either
/// way.
fn collapse(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    for _ in 0..2 {
        let result = unsafe { raw::advise(ground.base, ground.length(), libc::MADV_COLLAPSE) };
        eprintln!("collapse: {result:?}");
        ground.compare()?;
        pressure.walk();
        ground.compare()?;
        // All pages are there now, which makes huge pages easier.
        ground.fill(0..PAGES / 2);
    }
    Ok(())
}
