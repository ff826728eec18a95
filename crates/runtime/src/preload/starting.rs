//! The time at which the service is started: not before the program has mapped something worth it.
//! Most programs are small and short, and one more process takes a tenth of a millisecond.
//!
//! Memory that grows unnoticed by us is served from the start: what system calls around libc map,
//! and what the program begins with.

use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicUsize, Ordering};

use coldpress_sys::proc::ResidentGauge;
use coldpress_sys::{Bytes, PageCount, beside, raw};
use linux_raw_sys::{auxvec, elf};

use super::{CONTROL, start_service};

/// The mapped memory that is worth a service, or a sixteenth of a small budget.
const WORTH_IT: Bytes = Bytes::mib(4);
const BUDGET_PART: usize = 16;
/// The type of a program header for notes (elf.h).
const PT_NOTE: u32 = 4;
/// The maker of a note in an ELF file, here Go's linker; the length of the name includes its zero.
const GO: [u8; 4] = *b"Go\0\0";

/// The number of mapped bytes that are worth a service.
static WORTH: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The number of bytes that were mapped so far.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    /// Whether the program has a sanitizer, whose memory grows around libc.
    fn coldpress_is_sanitized() -> c_int;
}

/// Begins to count, or starts the service at once. `is_told` says whether libc's own calls come to
/// us.
pub(super) fn begin(budget: Bytes, is_told: bool, image: Image) {
    let worth = worth_it(budget);
    note_worth(budget, true);
    // SAFETY: the shim compares addresses.
    let is_sanitized = unsafe { coldpress_is_sanitized() } != 0;
    if beside::is_reaper() {
        // The service of the image before an exec, if there was one, is this process's child.
        beside::reap_ended_clones();
    }
    if !is_told || is_sanitized || image.calls_around_libc || writable() >= worth {
        // Relaxed: as above.
        MAPPED.store(worth.0, Ordering::Relaxed);
        start();
    }
}

/// Returns the writable memory of this process, touched or not: what its files begin with as zeros,
/// and what it has mapped.
fn writable() -> Bytes {
    let pages = ResidentGauge::open().and_then(|gauge| gauge.writable());
    pages.map_or(Bytes(0), PageCount::bytes)
}

/// Notes what memory is worth a service in children of this program: none, unless we are told of
/// what they map.
pub(super) fn note_worth(budget: Bytes, is_told: bool) {
    let worth = if is_told { worth_it(budget) } else { Bytes(0) };
    // Relaxed: set before the program's first thread.
    WORTH.store(worth.0, Ordering::Relaxed);
}

/// Whether this program is worth a service already, which we are told of from now on.
pub(super) fn is_worth_it() -> bool {
    // Relaxed: as in `note_worth`.
    writable().0 >= WORTH.load(Ordering::Relaxed)
}

fn worth_it(budget: Bytes) -> Bytes {
    Bytes(WORTH_IT.0.min(budget.0 / BUDGET_PART))
}

/// Begins in a child of `fork`, which has the memory that its parent had.
pub(super) fn begin_in_child() {
    // Relaxed, both: there is one thread.
    MAPPED.store(0, Ordering::Relaxed);
    let worth = Bytes(WORTH.load(Ordering::Relaxed));
    if writable() >= worth {
        // Relaxed: as above.
        MAPPED.store(worth.0, Ordering::Relaxed);
        start();
    }
}

/// Counts memory that the calling thread has mapped and not touched, and starts the service once
/// that is worth it.
pub(super) fn note_mapped(length: Bytes) {
    // Relaxed, here and below: a sum that only decides when to start.
    let mapped = MAPPED.fetch_add(length.0, Ordering::Relaxed).saturating_add(length.0);
    if mapped >= WORTH.load(Ordering::Relaxed) && CONTROL.life.may_start() {
        start();
    }
}

/// Starts the service if what was mapped until now is worth it.
pub(super) fn go_on() {
    note_mapped(Bytes(0));
}

/// Starts the service, unless that was done before.
pub(super) fn start() {
    // A handler of the program's would wait for its own thread.
    let mask = raw::block_signals();
    if CONTROL.begin_start() {
        start_service();
        CONTROL.life.end_start();
    }
    raw::set_signal_mask(mask);
}

/// The features of interest in the program's file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Image {
    /// Whether the program has a runtime that makes its system calls itself.
    pub(super) calls_around_libc: bool,
}

impl Image {
    /// Returns the image of the program whose environment is `environment`.
    ///
    /// # Safety
    /// The environment must be as the kernel lays it out: its null is followed by the auxiliary
    /// vector, which gives the address of the program's headers (getauxval(3)).
    pub(super) unsafe fn behind(environment: *const *const c_char) -> Self {
        let mut at = environment;
        // SAFETY: the caller's promise: there is a null.
        unsafe {
            while !(*at).is_null() {
                at = at.add(1);
            }
            at = at.add(1);
        }
        let (mut headers, mut count, mut words) = (0, 0, at.cast::<[usize; 2]>());
        loop {
            // SAFETY: the vector lies there, and ends with a pair whose first word is 0.
            let [kind, value] = unsafe { *words };
            match kind as u32 {
                auxvec::AT_NULL => break,
                auxvec::AT_PHDR => headers = value,
                auxvec::AT_PHNUM => count = value,
                _ => {}
            }
            // SAFETY: this pair was not the last one.
            words = unsafe { words.add(1) };
        }
        if headers == 0 {
            return Self::default();
        }
        let first = core::ptr::with_exposed_provenance::<elf::Elf_Phdr>(headers);
        // SAFETY: the kernel has said where the headers are, and how many.
        Self::of(unsafe { core::slice::from_raw_parts(first, count) }, headers)
    }

    /// Returns the image with these program headers, which lie at `address`.
    fn of(headers: &[elf::Elf_Phdr], address: usize) -> Self {
        let of_headers = headers.iter().find(|header| header.p_type == elf::PT_PHDR);
        let moved = of_headers.map_or(0, |header| address.wrapping_sub(header.p_vaddr));
        let mut image = Self::default();
        for header in headers {
            if header.p_type == PT_NOTE {
                let notes = header.p_vaddr.wrapping_add(moved);
                let first = core::ptr::with_exposed_provenance::<u8>(notes);
                // SAFETY: the segment is mapped, and has this length.
                let notes = unsafe { core::slice::from_raw_parts(first, header.p_filesz) };
                image.calls_around_libc |= has_note_of(notes, GO);
            }
        }
        image
    }
}

/// Whether one of the notes is of `maker`. A note has the lengths of its name and of its contents,
/// its kind, then both, each padded to whole words (elf(5)).
fn has_note_of(mut notes: &[u8], maker: [u8; 4]) -> bool {
    const WORD: usize = size_of::<u32>();
    const HEAD: usize = 3 * WORD;
    while let Some((head, rest)) = notes.split_first_chunk::<HEAD>() {
        let length = |at: usize| {
            let word = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            u32::from_ne_bytes(word) as usize
        };
        if length(0) == maker.len() && rest.starts_with(&maker) {
            return true;
        }
        let whole = length(0).next_multiple_of(WORD) + length(WORD).next_multiple_of(WORD);
        notes = rest.get(whole..).unwrap_or_default();
    }
    false
}
