//! `mremap` as the program calls it.

use core::ffi::{c_int, c_void};
use core::ops::Range;

use coldpress_sys::errno::EFAULT;
use coldpress_sys::proc::Mappings;
use coldpress_sys::{Bytes, PAGE_BYTES, raw};
use linux_raw_sys::general as linux;

use super::CONTROL;
use super::imports::libc_result;
use super::mapping::note_mapped;

/// The end of the programs' addresses, with page tables of four levels.
const ADDRESSES_MAX: usize = (1 << 47) - PAGE_BYTES;

/// Makes the system call `mremap(2)`.
pub(super) fn remap(arguments: [usize; 5]) -> isize {
    let [address, _, _, flags, _] = arguments;
    let stays = flags as u32 & linux::MREMAP_DONTUNMAP != 0;
    let result = move_range(arguments);
    // The service must not wait for a word that does not come.
    if stays && result > 0 && CONTROL.is_managing() {
        CONTROL.hint(address, Bytes(0));
    }
    result
}

/// Moves a range, as `mremap` with these arguments does.
///
/// Since Linux 6.17 one call moves several mappings. But it ends with EFAULT at the first one that
/// a userfaultfd watches, when others have been moved (mm/mremap.c, `remap_move`). So the mappings
/// are moved one by one, as Linux does where none is watched. Older versions report a move that
/// shortens a mapping with its old length, so the end is unmapped first, which is what Linux does
/// anyway.
fn move_range(arguments: [usize; 5]) -> isize {
    let call = |arguments: [usize; 5]| {
        let [address, old, new, flags, target] = arguments;
        let once = || {
            // SAFETY: the program's own call, or a part of it.
            unsafe { raw::syscall(linux::__NR_mremap, [address, old, new, flags, target, 0]) }
        };
        // A bar of what lay there before may have divided the mapping for a moment (`bars`). The
        // service has put that right when the hint returns. With MREMAP_FIXED the first call may
        // have unmapped the target, where another thread has mapped something since.
        match once() {
            refused
                if refused == -(EFAULT as isize)
                    && flags as u32 & linux::MREMAP_FIXED == 0
                    && CONTROL.is_managing() =>
            {
                CONTROL.hint(address, Bytes(0));
                once()
            }
            result => result,
        }
    };
    let [address, old, new, flags, target] = arguments;
    let end = address.wrapping_add(old);
    let length = old.min(new);
    let stays = flags as u32 & linux::MREMAP_DONTUNMAP != 0;
    let kind = flags as u32 & !linux::MREMAP_DONTUNMAP;
    let is_ours = kind == linux::MREMAP_MAYMOVE | linux::MREMAP_FIXED
        && CONTROL.is_managing()
        && address < end
        && (target.wrapping_add(length) <= address || address.wrapping_add(length) <= target);
    if is_ours && !stays && new < old && shorten(address, old, new, target) {
        return move_range([address, new, new, flags, target]);
    }
    if !is_ours || old != new {
        return call(arguments);
    }
    let Ok(mappings) = Mappings::open() else { return call(arguments) };
    // The part of the range in the mapping at an address.
    let piece = |at: usize| {
        let piece_end = mappings.end_at(at).ok().filter(|_| at < end)?.min(end);
        Some(at..piece_end)
    };
    let pieces = || core::iter::successors(piece(address), |last| piece(last.end));
    // The loop below is for a range that is wholly mapped, by several mappings; the kernel handles
    // others.
    if pieces().nth(1).is_none() || pieces().last().is_none_or(|last| last.end != end) {
        return call(arguments);
    }
    for Range { start, end: piece_end } in pieces() {
        let length = piece_end - start;
        let result = call([start, length, length, flags, target + (start - address)]);
        if result < 0 {
            return result;
        }
    }
    target as isize
}

/// Returns whether it has unmapped what lies beyond `new` of a mapping. Does so only if the kernel
/// would, to move the mapping to `target`.
fn shorten(address: usize, old: usize, new: usize, target: usize) -> bool {
    let is_whole = [address, new, target].iter().all(|bytes| bytes.is_multiple_of(PAGE_BYTES));
    let mut seen = 0_u8;
    let arguments = [address, PAGE_BYTES, (&raw mut seen).expose_provenance(), 0, 0, 0];
    // SAFETY: one byte is written for one page; an error says that it is not mapped.
    let is_mapped = || unsafe { raw::syscall(linux::__NR_mincore, arguments) } == 0;
    let may = new > 0 && is_whole && target < ADDRESSES_MAX - new && is_mapped();
    let arguments = [address + new, old - new, 0, 0, 0, 0];
    // SAFETY: the program's own call does this too.
    may && unsafe { raw::syscall(linux::__NR_munmap, arguments) } == 0
}

/// Takes the place of libc's `mremap(2)`. The last argument is there only when the flags ask for
/// it.
///
/// # Safety
/// The same as for libc's own function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mremap(
    address: *mut c_void,
    old_length: usize,
    new_length: usize,
    flags: c_int,
    target: *mut c_void,
) -> *mut c_void {
    let arguments = [address.addr(), old_length, new_length, flags as usize, target.addr()];
    let grown = Bytes(new_length.saturating_sub(old_length));
    if grown > Bytes(0) && !CONTROL.is_managing() {
        note_mapped(grown);
    }
    core::ptr::with_exposed_provenance_mut(libc_result(remap(arguments)) as usize)
}
