//! What the kernel takes for the work that the runtime weighs, in nanoseconds: medians of pages of
//! 4 KiB on two virtual processors (AMD EPYC), Linux 6.18 (`[uffd-costs]` in docs/sources.md).
//!
//! They are of one machine and only begin an estimate, or stand for what cannot be measured where
//! it counts.

/// A missing fault that is served on the same processor, with its COPY: 7.1 to 7.4 us.
pub const FAULT_NS: u64 = 7_200;
/// UFFDIO_COPY of one page.
pub const COPY_NS: u64 = 1_700;
/// What a fault takes beside its COPY: stopping the thread, waking the service, and waking the
/// thread again.
pub const WAKE_UPS_NS: u64 = FAULT_NS - COPY_NS;
/// Bytes by which a program can grow in a microsecond: first touches of huge pages by two threads
/// (THP: 0.19 of 1.5 us per page).
pub const GROWTH_BYTES_PER_US: usize = 8_000;
