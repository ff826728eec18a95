//! The figures of the kernel about the process that the allowance asks for.

use coldpress_sys::proc::{Files, ResidentGauge};
use coldpress_sys::program::Program;
use coldpress_sys::{PageCount, SysError, cpu, raw};

use crate::allowance::{Gauges, ResidentPages};

/// The figures as the kernel has them now.
#[derive(Clone, Copy)]
pub(crate) struct KernelGauges<'a> {
    pub(crate) gauge: &'a ResidentGauge,
    pub(crate) program: &'a Program,
    /// The files of /proc about its memory, where they may be read.
    pub(crate) files: Option<&'a Files>,
}

impl Gauges for KernelGauges<'_> {
    type Error = SysError;

    fn resident(&self) -> Result<ResidentPages, SysError> {
        let resident = self.gauge.resident()?;
        Ok(ResidentPages { anonymous: resident.anonymous, others: resident.others })
    }

    fn shared(&self) -> Option<PageCount> {
        self.files.and_then(|files| files.shared().ok())
    }

    fn has_files(&self) -> bool {
        self.files.is_some()
    }

    fn fair_part(&self) -> Option<PageCount> {
        self.files.and_then(|files| files.fair_part().ok())
    }

    fn minor_faults(&self) -> u64 {
        self.program.minor_faults() + raw::minor_faults()
    }

    fn now_ns(&self) -> u64 {
        cpu::monotonic_ns()
    }

    fn ran_ns(&self) -> u64 {
        cpu::ran_ns()
    }
}
