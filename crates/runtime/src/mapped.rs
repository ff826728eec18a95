//! Shared memory that this process has mapped.
//!
//! The launcher tells what all processes have of it, each page once, but looks twenty times a
//! second at most. Meanwhile a process fills more than many a budget has, and private memory grows
//! into room that is no longer there. So each process counts its own as soon as it is there, until
//! the launcher has looked: the kernel counts what is mapped twice twice, and what others map who
//! are not of the run.

use coldpress_sys::proc::{Files, Resident};
use coldpress_sys::{Bytes, PageCount};

/// So much may be ours, the ledger.
const IGNORED: PageCount = Bytes::mib(1).pages_down();
/// The kernel is asked again, which takes some 30 us, when there is so much more or less of files
/// and shared memory.
const CHANGED: PageCount = Bytes::kib(256).pages_down();

/// The launcher has looked by then.
const SEEN_NS: u64 = 200_000_000;
/// A page of a file or of memfd that is there already comes with as many around it, by one fault
/// (`fault_around_bytes`, 64 KiB).
const TOGETHER: usize = 16;

/// What there is of it, as last seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mapped {
    /// With what there was of files and shared memory then.
    of: PageCount,
    shared: PageCount,
    /// Until when the launcher may not have seen that.
    until_ns: u64,
}

impl Mapped {
    /// Looks again if that may have changed; nothing once the launcher has seen it. `desk`: shared
    /// memory of this process that is ours.
    pub(crate) fn look(
        &mut self,
        now_ns: u64,
        resident: Resident,
        desk: PageCount,
        files: Option<&Files>,
    ) -> PageCount {
        let Some(files) = files else { return PageCount(0) };
        if resident.others.0.abs_diff(self.of.0) >= CHANGED.0 {
            // Where the kernel does not say, the launcher does.
            self.shared = files.shared().unwrap_or_default();
            (self.of, self.until_ns) = (resident.others, now_ns + SEEN_NS);
        }
        if now_ns >= self.until_ns {
            return PageCount(0);
        }
        let shared = self.shared.saturating_sub(desk);
        if shared > IGNORED { shared } else { PageCount(0) }
    }

    /// Faults by which all of it, and what is mapped of files, may have come: pages of System V
    /// memory come one by one, as do those that this process was the first to touch.
    pub(crate) fn faults(&self, resident: Resident) -> u64 {
        let of_files = resident.others.saturating_sub(self.shared);
        (self.shared.0 + of_files.0 / TOGETHER) as u64
    }
}

#[cfg(test)]
mod tests {
    //! The risk: private memory that fills the room of shared memory nobody has seen yet.

    use core::sync::atomic::{AtomicU64, Ordering};

    use coldpress_sys::proc::ResidentGauge;
    use coldpress_sys::shared::{self, Shared};
    use coldpress_sys::{AsFd, PAGE_BYTES};

    use super::*;

    const BYTES: Bytes = Bytes::mib(8);

    type Words = [AtomicU64; BYTES.0 / size_of::<AtomicU64>()];

    #[test]
    fn what_is_mapped_counts_as_soon_as_it_is_there() {
        let (gauge, files) = (ResidentGauge::open().unwrap(), Files::open().unwrap());
        let mut mapped = Mapped::default();
        let before = gauge.resident().unwrap();
        mapped.look(1, before, PageCount(0), Some(&files));
        let memory = shared::create(c"mapped", BYTES).unwrap();
        // SAFETY: zeroed memory is as many atomics.
        let memory: Shared<Words> = unsafe { Shared::map(memory.as_fd()) }.unwrap();
        memory
            .iter()
            .step_by(PAGE_BYTES / size_of::<AtomicU64>())
            .for_each(|word| word.store(1, Ordering::Relaxed));
        // Each processor has counted some pages that the kernel does not tell yet.
        let after = gauge.resident().unwrap();
        let mut look = |now_ns, desk| mapped.look(now_ns, after, desk, Some(&files));
        let seen = look(SEEN_NS, PageCount(0));
        assert!(seen >= Bytes::mib(6).pages_down());
        // Of that, some is ours.
        let ours = Bytes::mib(4).pages_down();
        assert_eq!(look(SEEN_NS, ours), seen.saturating_sub(ours));
        assert_eq!(look(2 * SEEN_NS, PageCount(0)), PageCount(0));
    }
}
