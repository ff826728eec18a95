//! Calls that act on memory itself, from inside and from another process.

use std::process::Command;

use crate::arena::{A, B, N, SLOT_PAGES, Slot, exactly, failed, incoming, same, wrong};
use crate::files::pipe;
use crate::process;
use crate::program::{PAGE, raw};
use crate::{Case, Outcome, Stop, plain};

pub const CASES: &[Case] = &[
    Case { name: "getrandom", prepare: plain, run: getrandom },
    Case { name: "process_vm_readv", prepare: plain, run: vm_readv },
    Case { name: "process_vm_writev", prepare: plain, run: vm_writev },
    Case { name: "process_vm-from-outside", prepare: plain, run: vm_outside },
    Case { name: "vmsplice-out", prepare: plain, run: vmsplice_out },
    Case { name: "vmsplice-in", prepare: plain, run: vmsplice_in },
    Case { name: "mlock", prepare: plain, run: mlock },
    Case { name: "mlock-onfault", prepare: plain, run: mlock_onfault },
    Case { name: "populate-read", prepare: plain, run: populate_read },
    Case { name: "populate-write", prepare: plain, run: populate_write },
];

/// Pages of half a slot.
const HALF: usize = SLOT_PAGES / 2;

fn getrandom(slot: &mut Slot) -> Outcome {
    let before = slot.wanted(A, N).to_vec();
    exactly("getrandom", unsafe { libc::getrandom(slot.at(A), N, 0) }, N)?;
    slot.learn(A, N);
    // Each stretch of 64 bytes is new: the odds against it are 2^-512.
    let pieces = before.chunks_exact(64).zip(slot.wanted(A, N).chunks_exact(64));
    for (index, (old, new)) in pieces.enumerate() {
        if old == new || new.iter().all(|byte| *byte == 0) {
            return wrong(format!("bytes from {} on were not filled", index * 64));
        }
    }
    Ok(())
}

fn vector(at: usize, length: usize) -> libc::iovec {
    libc::iovec { iov_base: raw::pointer(at).cast(), iov_len: length }
}

fn vm_readv(slot: &mut Slot) -> Outcome {
    let (local, remote) = (vector(slot.base + B, N), vector(slot.base + A, N));
    let pid = std::process::id() as i32;
    let (local, remote) = (&raw const local, &raw const remote);
    let count = unsafe { libc::process_vm_readv(pid, local, 1, remote, 1, 0) };
    exactly("process_vm_readv", count, N)?;
    let bytes = slot.wanted(A, N).to_vec();
    slot.expect(B, &bytes);
    Ok(())
}

fn vm_writev(slot: &mut Slot) -> Outcome {
    let (local, remote) = (vector(slot.base + B, N), vector(slot.base + A, N));
    let pid = std::process::id() as i32;
    let (local, remote) = (&raw const local, &raw const remote);
    let count = unsafe { libc::process_vm_writev(pid, local, 1, remote, 1, 0) };
    exactly("process_vm_writev", count, N)?;
    let bytes = slot.wanted(B, N).to_vec();
    slot.expect(A, &bytes);
    Ok(())
}

/// Lets another process read A and write it, inverted, to B.
fn vm_outside(slot: &mut Slot) -> Outcome {
    let text = |error: std::io::Error| Stop::Fail(error.to_string());
    let words = [std::process::id() as usize, slot.base + A, slot.base + B, N];
    let exe = std::env::current_exe().map_err(text)?;
    let status = Command::new(exe)
        .arg(process::OUTSIDE)
        .args(words.map(|word| word.to_string()))
        .status()
        .map_err(text)?;
    match status.code() {
        Some(process::RIGHT) => {}
        Some(process::FORBIDDEN) => return Err(Stop::Skip("ptrace is restricted".to_owned())),
        _ => return wrong(format!("the other process: {status}")),
    }
    let bytes: Vec<u8> = slot.wanted(A, N).iter().map(|byte| !byte).collect();
    slot.expect(B, &bytes);
    Ok(())
}

/// Does the other process's part, and returns its exit status.
pub fn outside(words: &[usize]) -> i32 {
    let [pid, from, to, length] = *words else { return 1 };
    let mut bytes = vec![0u8; length];
    let local = vector(bytes.as_mut_ptr().expose_provenance(), length);
    let (from, to) = (vector(from, length), vector(to, length));
    let (local, from, to) = (&raw const local, &raw const from, &raw const to);
    let count = unsafe { libc::process_vm_readv(pid as i32, local, 1, from, 1, 0) };
    if count < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM) {
        return process::FORBIDDEN;
    }
    if usize::try_from(count) != Ok(length) {
        eprintln!("process_vm_readv gave {count}: {}", std::io::Error::last_os_error());
        return 1;
    }
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    let count = unsafe { libc::process_vm_writev(pid as i32, local, 1, to, 1, 0) };
    if usize::try_from(count) == Ok(length) { process::RIGHT } else { 1 }
}

fn vmsplice_out(slot: &mut Slot) -> Outcome {
    let (read, write) = pipe(1 << 18)?;
    let from = vector(slot.base + A, N);
    let count = unsafe { libc::vmsplice(write.0, &raw const from, 1, 0) };
    exactly("vmsplice", count, N)?;
    let mut bytes = vec![0u8; N];
    let count = unsafe { libc::read(read.0, bytes.as_mut_ptr().cast(), N) };
    exactly("emptying the pipe", count, N)?;
    same("the pipe", &bytes, slot.wanted(A, N))
}

fn vmsplice_in(slot: &mut Slot) -> Outcome {
    let (read, write) = pipe(1 << 18)?;
    let bytes = incoming(N, 21);
    let count = unsafe { libc::write(write.0, bytes.as_ptr().cast(), N) };
    exactly("filling the pipe", count, N)?;
    let to = vector(slot.base + B, N);
    let count = unsafe { libc::vmsplice(read.0, &raw const to, 1, 0) };
    exactly("vmsplice", count, N)?;
    slot.expect(B, &bytes);
    Ok(())
}

fn resident(slot: &Slot, pages: usize) -> Outcome {
    let count = unsafe { raw::resident_pages(slot.base, pages * PAGE) };
    let count = count.map_err(|error| Stop::Fail(error.to_string()))?;
    exactly("pages in memory", count as i64, pages)
}

fn mlock(slot: &mut Slot) -> Outcome {
    let length = HALF * PAGE;
    exactly("mlock", unsafe { libc::mlock(slot.at(0), length) }, 0)?;
    // Locked pages are in memory, and stay there.
    let first = resident(slot, HALF);
    std::thread::sleep(std::time::Duration::from_millis(5));
    let second = resident(slot, HALF);
    let compared = slot.compare();
    exactly("munlock", unsafe { libc::munlock(slot.at(0), length) }, 0)?;
    first.and(second).and(compared)
}

fn mlock_onfault(slot: &mut Slot) -> Outcome {
    let length = HALF * PAGE;
    let flags = libc::MLOCK_ONFAULT;
    exactly("mlock2", unsafe { libc::mlock2(slot.at(0), length, flags) }, 0)?;
    let compared = slot.compare();
    let locked = resident(slot, HALF);
    exactly("munlock", unsafe { libc::munlock(slot.at(0), length) }, 0)?;
    compared.and(locked)
}

/// Asks the kernel to read the pages in. Other memory's demands may take pages out again at once:
/// only the bytes are judged.
fn populate_read(slot: &mut Slot) -> Outcome {
    populate(slot, libc::MADV_POPULATE_READ)
}

fn populate_write(slot: &mut Slot) -> Outcome {
    populate(slot, libc::MADV_POPULATE_WRITE)
}

fn populate(slot: &Slot, advice: i32) -> Outcome {
    match unsafe { libc::madvise(slot.at(0), SLOT_PAGES * PAGE, advice) } {
        0 => Ok(()),
        _ => Err(failed("madvise")),
    }
}
