//! Shared memory that this process has mapped.
//!
//! The launcher publishes what all processes have of it, each page once, but looks at most twenty
//! times a second. Between two looks a process fills more memory than many a budget has, and
//! private memory grows into room that is no longer there. So each process counts its own shared
//! memory as soon as it is there, until the launcher has looked. Not for longer, because the kernel
//! counts a page twice if it is mapped twice, and counts what processes outside the run map too.

use coldpress_sys::{Bytes, PageCount};

use super::gauges::{Gauges, ResidentPages};

/// Shared memory that may be our own, the ledger, and is ignored.
const IGNORED: PageCount = Bytes::mib(1).pages_down();
/// Change in the amount of files and shared memory at which the kernel is asked again, which takes
/// some 30 us.
const CHANGED: PageCount = Bytes::kib(256).pages_down();

/// Time by which the launcher has looked.
const SEEN_NS: u64 = 200_000_000;
/// Pages that one fault maps of a file or a memfd that is there already: those around the touched
/// one (`fault_around_bytes`, 64 KiB).
const TOGETHER: usize = 16;

/// The shared memory of a process, as last seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mapped {
    /// The amount of files and shared memory at that time.
    of: PageCount,
    shared: PageCount,
    /// Until when the launcher may not have seen that.
    until_ns: u64,
}

impl Mapped {
    /// Returns the shared memory that the launcher may not have seen yet, and nothing once it has.
    /// Asks the kernel again if the amount may have changed. `desk` is shared memory of this
    /// process that is ours.
    pub(crate) fn look(
        &mut self,
        now_ns: u64,
        resident: ResidentPages,
        desk: PageCount,
        gauges: &impl Gauges,
    ) -> PageCount {
        if !gauges.has_files() {
            return PageCount(0);
        }
        if resident.others.0.abs_diff(self.of.0) >= CHANGED.0 {
            // Where the kernel does not say, the launcher does.
            self.shared = gauges.shared().unwrap_or_default();
            (self.of, self.until_ns) = (resident.others, now_ns + SEEN_NS);
        }
        if now_ns >= self.until_ns {
            return PageCount(0);
        }
        let shared = self.shared.saturating_sub(desk);
        if shared > IGNORED { shared } else { PageCount(0) }
    }

    /// Returns the number of faults by which all of it, and what is mapped of files, may have come.
    /// Pages of System V memory come one by one, as do pages that this process was the first to
    /// touch.
    pub(crate) fn faults(&self, resident: ResidentPages) -> u64 {
        let of_files = resident.others.saturating_sub(self.shared);
        (self.shared.0 + of_files.0 / TOGETHER) as u64
    }
}

#[cfg(test)]
mod tests {
    //! The risk: private memory that fills the room of shared memory that was not seen yet.

    use core::sync::atomic::{AtomicU64, Ordering};

    use coldpress_sys::proc::{Files, ResidentGauge};
    use coldpress_sys::program::Program;
    use coldpress_sys::shared::{self, Shared};
    use coldpress_sys::{AsFd, PAGE_BYTES};

    use super::*;
    use crate::memory::KernelGauges;

    const BYTES: Bytes = Bytes::mib(8);

    type Words = [AtomicU64; BYTES.0 / size_of::<AtomicU64>()];

    #[test]
    fn what_is_mapped_counts_as_soon_as_it_is_there() {
        let (gauge, files) = (ResidentGauge::open().unwrap(), Files::open().unwrap());
        let program = Program::follow(std::process::id()).unwrap();
        let gauges = KernelGauges { gauge: &gauge, program: &program, files: Some(&files) };
        let mut mapped = Mapped::default();
        let before = gauges.resident().unwrap();
        mapped.look(1, before, PageCount(0), &gauges);
        let memory = shared::create(c"mapped", BYTES).unwrap();
        // SAFETY: zeroed memory is an array of this many atomics.
        let memory: Shared<Words> = unsafe { Shared::map(memory.as_fd()) }.unwrap();
        memory
            .iter()
            .step_by(PAGE_BYTES / size_of::<AtomicU64>())
            .for_each(|word| word.store(1, Ordering::Relaxed));
        // Each processor has counted some pages that the kernel does not report yet.
        let after = gauges.resident().unwrap();
        let mut look = |now_ns, desk| mapped.look(now_ns, after, desk, &gauges);
        let seen = look(SEEN_NS, PageCount(0));
        assert!(seen >= Bytes::mib(6).pages_down());
        // Part of that is ours.
        let ours = Bytes::mib(4).pages_down();
        assert_eq!(look(SEEN_NS, ours), seen.saturating_sub(ours));
        assert_eq!(look(2 * SEEN_NS, PageCount(0)), PageCount(0));
    }
}
