//! Restartable sequences: per-processor lists that change without a lock or a locked instruction.
//!
//! Idea (linux/rseq.h): while a thread runs inside a marked section and is moved, interrupted or
//! signalled, the kernel sends it to the section's abort address. So a section that ends in one
//! store happened as a whole on one processor, or not at all. The C library registers an area for
//! each thread, in which the kernel notes the processor; the sections here use that area and never
//! register one.
//!
//! Invariants:
//! 1. No section runs until [`enable`] has returned true. A thread that shares the thread pointer
//!    of another one must not run a section, because it would note its own section in the other's
//!    area; so a process with such threads never enables sections.
//! 2. A section reads a list's limits before its length, and its only lasting store is the store of
//!    the length. Hence a thread that changes the limits and then calls [`restart_all`] owns the
//!    list until it changes them back.

use core::sync::atomic::{AtomicIsize, AtomicU32, Ordering};

use linux_raw_sys::general as linux;

use crate::error::SysResult;
use crate::raw;

/// No area: a value that no offset has, because areas are aligned.
const NONE: isize = -1;
/// The offset of every thread's area from its thread pointer.
static OFFSET: AtomicIsize = AtomicIsize::new(NONE);

/// Returns whether the sections are on for this process, after turning them on where its C library
/// registers areas (glibc since 2.35) and the kernel can restart sections (Linux 5.10).
///
/// # Safety
/// Every thread that uses [`Blocks`] from now on must have a thread pointer of its own, set up by
/// the C library.
pub unsafe fn enable() -> bool {
    let Some(offset) = library_offset() else { return false };
    if register().is_err() {
        return false;
    }
    // Relaxed: the offset is the same for every thread and publishes nothing.
    OFFSET.store(offset, Ordering::Relaxed);
    true
}

/// Returns the offset of every thread's area from its thread pointer. `None` until [`enable`].
pub fn offset() -> Option<isize> {
    // Relaxed: as in `enable`.
    Some(OFFSET.load(Ordering::Relaxed)).filter(|offset| *offset != NONE)
}

/// Returns glibc's `__rseq_offset` if glibc registered areas. Both symbols are weak: without them
/// in the program their addresses are zero.
#[cfg(not(miri))]
fn library_offset() -> Option<isize> {
    let (offset, size): (*const isize, *const u32);
    // SAFETY: reads the addresses of two symbols from the table of the dynamic linker.
    unsafe {
        core::arch::asm!(
            ".weak __rseq_offset",
            ".weak __rseq_size",
            "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {size}, qword ptr [rip + __rseq_size@GOTPCREL]",
            offset = out(reg) offset,
            size = out(reg) size,
            options(nostack, readonly, preserves_flags),
        );
    }
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: glibc defines both as constants of these types (sys/rseq.h); the size is zero when it
    // registers no areas.
    unsafe { (*size != 0).then_some(*offset) }
}

/// Returns `None`: miri runs no assembly.
#[cfg(miri)]
fn library_offset() -> Option<isize> {
    None
}

fn membarrier(command: linux::membarrier_cmd) -> SysResult<()> {
    // SAFETY: the call touches no memory of ours.
    let result = unsafe { raw::syscall(linux::__NR_membarrier, [command as usize, 0, 0, 0, 0, 0]) };
    raw::checked("membarrier", result).map(|_| ())
}

fn register() -> SysResult<()> {
    membarrier(linux::membarrier_cmd::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ)
}

/// Restarts every section that a thread of this process is in, and returns when each has restarted.
/// Sections that complete after this call see all that was written before it, and after this call
/// the caller sees all that completed before.
pub fn restart_all() -> SysResult<()> {
    let restart = || membarrier(linux::membarrier_cmd::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ);
    // A child of `fork` may have to register again (EPERM).
    restart().or_else(|_| register().and_then(|()| restart()))
}

/// The head of a list, followed by the list's values. All zeros make a list that is shut.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ListHead {
    /// The number of values in the list. Written by the sections, and by the owner of a shut list.
    pub length: AtomicU32,
    /// The limits of the length: sections take values while there are more than the low half says,
    /// and add values while there are fewer than the high half says.
    pub limits: AtomicU32,
}

impl ListHead {
    /// Limits of a list that was open before and now allows no section to take or add a value.
    pub const SHUT: u32 = u16::MAX as u32;

    /// Returns the limits of a list that sections empty, and fill with up to `ceiling` values.
    pub const fn open_up_to(ceiling: u16) -> u32 {
        (ceiling as u32) << 16
    }
}

/// One list for each processor, in blocks that each hold a list at the same place.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// The [`ListHead`] of processor 0.
    pub base: *mut u8,
    /// The number of blocks, [`Blocks::STRIDE`] apart. Threads on processors above that number find
    /// every list shut.
    pub count: u32,
    /// The result of [`offset`].
    pub offset: isize,
}

impl Blocks {
    /// Bytes from one block to the next.
    pub const STRIDE: usize = 1 << STRIDE_SHIFT;
    /// A value that no list holds.
    pub const NONE: u32 = u32::MAX;
}

/// log2 of the stride: a shift is faster than a multiplication, on the way to every list.
const STRIDE_SHIFT: u32 = 16;

/// The frame of a section. In its lines `head` is the list's address. The lines end in the store of
/// the length, or leave early by `jmp 26b`: then `result` is what `none` makes it.
///
/// The abort address is preceded by the signature the C library registered (RSEQ_SIG of
/// sys/rseq.h), inside an undefined instruction.
#[cfg(not(miri))]
macro_rules! section {
    ($blocks:expr, $result:ident, $none:literal: $($line:literal,)*; $($operand:tt)*) => {
        core::arch::asm!(
            // struct rseq_cs: version and flags, start, length, abort address.
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "20:",
            ".long 0, 0",
            ".quad 22f, 23f - 22f, 24f",
            ".popsection",
            ".pushsection .text.rseq_abort, \"ax\"",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "24:",
            "jmp 21f",
            "26:",
            $none,
            "jmp 25f",
            ".popsection",
            "21:",
            // struct rseq: u32 cpu_id_start, u32 cpu_id, u64 rseq_cs.
            "lea {head}, [rip + 20b]",
            "mov qword ptr fs:[{offset} + 8], {head}",
            "22:",
            "mov {head:e}, dword ptr fs:[{offset} + 4]",
            // The processor number of a thread without an area is above any count.
            "cmp {head:e}, {count:e}",
            "jae 26b",
            "shl {head}, {shift}",
            "add {head}, {list}",
            $($line,)*
            "23:",
            "25:",
            result = out(reg) $result,
            head = out(reg) _,
            length = out(reg) _,
            list = in(reg) $blocks.base,
            offset = in(reg) $blocks.offset,
            count = in(reg) $blocks.count,
            shift = const STRIDE_SHIFT,
            $($operand)*
            options(nostack),
        )
    };
}

#[cfg(not(miri))]
impl Blocks {
    /// Takes the last value of the list of the calling thread's processor. `None` when the list is
    /// empty or shut.
    ///
    /// # Safety
    /// The lists are readable and writable, with room for as many 32-bit values behind each
    /// [`ListHead`] as its limits ever allow. The thread has a thread pointer of its own (see
    /// [`enable`]).
    #[inline]
    pub unsafe fn pop(self) -> Option<u32> {
        let value: u64;
        // SAFETY: by the caller's promise the head is a list whose length stays in its limits. The
        // section touches that list and the thread's own area only.
        unsafe {
            section!(self, value, "mov {result:e}, -1":
                "movzx {result:e}, word ptr [{head} + 4]",
                "mov {length:e}, dword ptr [{head}]",
                "cmp {length:e}, {result:e}",
                "jbe 26b",
                "mov {result:e}, dword ptr [{head} + {length} * 4 + 4]",
                "dec {length:e}",
                "mov dword ptr [{head}], {length:e}",
                ;
            );
        }
        Some(value as u32).filter(|value| *value != Self::NONE)
    }

    /// Returns whether `value`, which must not be [`Blocks::NONE`], was added to the list of the
    /// calling thread's processor: not when the list is full or shut.
    ///
    /// # Safety
    /// As for [`Blocks::pop`].
    #[inline]
    pub unsafe fn push(self, value: u32) -> bool {
        let added: u64;
        // SAFETY: as in `pop`; the value goes behind the others, where the limits leave room.
        unsafe {
            section!(self, added, "xor {result:e}, {result:e}":
                "movzx {result:e}, word ptr [{head} + 6]",
                "mov {length:e}, dword ptr [{head}]",
                "cmp {length:e}, {result:e}",
                "jae 26b",
                "mov dword ptr [{head} + {length} * 4 + 8], {value:e}",
                "inc {length:e}",
                "mov {result:e}, 1",
                "mov dword ptr [{head}], {length:e}",
                ;
                value = in(reg) value,
            );
        }
        added != 0
    }

    /// Takes up to `most` values from the end of a list into `to`, and returns their number.
    ///
    /// # Safety
    /// As for [`Blocks::pop`], and `to` is valid for writes of `most` values.
    pub unsafe fn pop_many(self, to: *mut u32, most: u32) -> u32 {
        let taken: u64;
        // SAFETY: as in `pop`; no more values are copied than the list has and `to` has room for.
        // The direction flag is clear, as the calling convention asks.
        unsafe {
            section!(self, taken, "xor {result:e}, {result:e}":
                "movzx esi, word ptr [{head} + 4]",
                "mov {length:e}, dword ptr [{head}]",
                "mov ecx, {length:e}",
                "sub ecx, esi",
                "jle 26b",
                "cmp ecx, {most:e}",
                "cmova ecx, {most:e}",
                "mov {result:e}, ecx",
                "sub {length:e}, ecx",
                "lea rsi, [{head} + {length} * 4 + 8]",
                "mov rdi, {to}",
                "rep movsd",
                "mov dword ptr [{head}], {length:e}",
                ;
                most = in(reg) most,
                to = in(reg) to,
                out("rcx") _,
                out("rsi") _,
                out("rdi") _,
            );
        }
        taken as u32
    }

    /// Adds up to `most` values to a list, the first ones at `from`, and returns their number.
    ///
    /// # Safety
    /// As for [`Blocks::pop`], and `from` is valid for reads of `most` values.
    pub unsafe fn push_many(self, from: *const u32, most: u32) -> u32 {
        let added: u64;
        // SAFETY: as in `pop_many`, the other way.
        unsafe {
            section!(self, added, "xor {result:e}, {result:e}":
                "movzx ecx, word ptr [{head} + 6]",
                "mov {length:e}, dword ptr [{head}]",
                "sub ecx, {length:e}",
                "jle 26b",
                "cmp ecx, {most:e}",
                "cmova ecx, {most:e}",
                "mov {result:e}, ecx",
                "lea rdi, [{head} + {length} * 4 + 8]",
                "mov rsi, {from}",
                "add {length:e}, ecx",
                "rep movsd",
                "mov dword ptr [{head}], {length:e}",
                ;
                most = in(reg) most,
                from = in(reg) from,
                out("rcx") _,
                out("rsi") _,
                out("rdi") _,
            );
        }
        added as u32
    }
}

/// Sections for miri, which runs no assembly: every list is shut.
#[cfg(miri)]
#[expect(clippy::missing_safety_doc, reason = "the promises are those of the sections above")]
#[expect(missing_docs, reason = "the descriptions are those of the sections above")]
impl Blocks {
    pub unsafe fn pop(self) -> Option<u32> {
        None
    }

    pub unsafe fn push(self, _value: u32) -> bool {
        false
    }

    pub unsafe fn pop_many(self, _to: *mut u32, _most: u32) -> u32 {
        0
    }

    pub unsafe fn push_many(self, _from: *const u32, _most: u32) -> u32 {
        0
    }
}
