//! What the allowance asks the kernel about the process, as a trait: nothing here makes a system
//! call, and tests and benchmarks answer themselves.

use coldpress_sys::PageCount;

/// Pages of a process that are in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResidentPages {
    /// Private pages (RssAnon).
    pub(crate) anonymous: PageCount,
    /// Pages of files and of shared memory (RssFile and RssShmem).
    pub(crate) others: PageCount,
}

/// The kernel's figures about a process.
pub(crate) trait Gauges {
    /// The reason why a figure cannot be read.
    type Error;

    /// Returns what is in memory now.
    fn resident(&self) -> Result<ResidentPages, Self::Error>;
    /// Returns the shared memory that is mapped, where the kernel says.
    fn shared(&self) -> Option<PageCount>;
    /// Returns whether files of /proc about its memory may be read.
    fn has_files(&self) -> bool;
    /// Returns the process's fair part of its private pages (Pss_Anon), where the kernel says. This
    /// takes 30 to 130 ns a page.
    fn fair_part(&self) -> Option<PageCount>;
    /// Returns the faults that needed no disk, of the program and of the service: pages that the
    /// service writes to become this process's own too. This takes some microseconds.
    fn minor_faults(&self) -> u64;
    /// Returns the nanoseconds of the monotonic clock.
    fn now_ns(&self) -> u64;
    /// Returns for how many nanoseconds the calling thread has run.
    fn ran_ns(&self) -> u64;
}

/// Answers for tests: figures that do not change, and the clock of the machine.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    resident: ResidentPages,
    minor_faults: u64,
    fair_part: Option<PageCount>,
    /// Whether nothing may ask for the fair part.
    is_unasked: bool,
}

#[cfg(test)]
impl Answers {
    /// Creates the answers of a process with so many faults and this fair part.
    pub(crate) fn of(minor_faults: u64, fair_part: Option<usize>) -> Self {
        Self { minor_faults, fair_part: fair_part.map(PageCount), ..Self::default() }
    }

    /// Creates the answers of a process whose fair part nothing may ask for.
    pub(crate) fn unasked(minor_faults: u64) -> Self {
        Self { minor_faults, is_unasked: true, ..Self::default() }
    }
}

#[cfg(test)]
impl Gauges for Answers {
    type Error = core::convert::Infallible;

    fn resident(&self) -> Result<ResidentPages, Self::Error> {
        Ok(self.resident)
    }

    fn shared(&self) -> Option<PageCount> {
        None
    }

    fn has_files(&self) -> bool {
        false
    }

    fn fair_part(&self) -> Option<PageCount> {
        assert!(!self.is_unasked, "it is too early");
        self.fair_part
    }

    fn minor_faults(&self) -> u64 {
        self.minor_faults
    }

    fn now_ns(&self) -> u64 {
        coldpress_sys::cpu::monotonic_ns()
    }

    fn ran_ns(&self) -> u64 {
        coldpress_sys::cpu::ran_ns()
    }
}
