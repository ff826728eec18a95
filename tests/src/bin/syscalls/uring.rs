//! io_uring: the kernel reads and writes the slot at a time of its own choice, also through
//! registered buffers.

use io_uring::{IoUring, opcode, squeue, types};

use crate::arena::{A, B, Fd, N, Slot, exactly, incoming, same, wrong};
use crate::files::{contents, direct_file, file, pipe};
use crate::program::PAGE;
use crate::{Case, Outcome, Stop, plain};

pub const CASES: &[Case] = &[
    Case { name: "uring-read", prepare: plain, run: read },
    Case { name: "uring-write", prepare: plain, run: write },
    Case { name: "uring-pipe-late", prepare: plain, run: pipe_late },
    Case { name: "uring-read-fixed", prepare: plain, run: read_fixed },
    Case { name: "uring-write-fixed", prepare: plain, run: write_fixed },
    Case { name: "uring-direct", prepare: plain, run: direct },
];

fn ring() -> Result<IoUring, Stop> {
    IoUring::new(8).map_err(|error| Stop::Skip(format!("no io_uring: {error}")))
}

fn fail(error: &std::io::Error) -> Stop {
    Stop::Fail(error.to_string())
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) -> Outcome {
    match unsafe { ring.submission().push(entry) } {
        Ok(()) => Ok(()),
        Err(_) => wrong("the ring is full"),
    }
}

/// Submits one call and waits for it; the call must move `length` bytes.
fn one(ring: &mut IoUring, entry: squeue::Entry, length: usize) -> Outcome {
    push(ring, &entry)?;
    ring.submit_and_wait(1).map_err(|error| fail(&error))?;
    finish(ring, length)
}

fn finish(ring: &mut IoUring, length: usize) -> Outcome {
    let Some(done) = ring.completion().next() else { return wrong("no completion") };
    match done.result() {
        error @ ..0 => Err(fail(&std::io::Error::from_raw_os_error(-error))),
        count => exactly("the completion", count, length),
    }
}

fn read(slot: &mut Slot) -> Outcome {
    let mut ring = ring()?;
    let bytes = incoming(N, 31);
    let fd = file(&bytes)?;
    let entry = opcode::Read::new(types::Fd(fd.0), slot.at(A), N as u32).build();
    one(&mut ring, entry, N)?;
    slot.expect(A, &bytes);
    Ok(())
}

fn write(slot: &mut Slot) -> Outcome {
    let mut ring = ring()?;
    let fd = file(&[])?;
    // A worker thread of the kernel writes, and faults in our stead.
    let entry = opcode::Write::new(types::Fd(fd.0), slot.at(A), N as u32)
        .build()
        .flags(squeue::Flags::ASYNC);
    one(&mut ring, entry, N)?;
    same("the file", &contents(&fd, 0, N)?, slot.wanted(A, N))
}

/// Submits a read before there is anything to read.
fn pipe_late(slot: &mut Slot) -> Outcome {
    let mut ring = ring()?;
    let (read, write) = pipe(2 * N)?;
    let entry = opcode::Read::new(types::Fd(read.0), slot.at(B), N as u32).build();
    push(&mut ring, &entry)?;
    ring.submit().map_err(|error| fail(&error))?;
    let bytes = incoming(N, 32);
    let count = unsafe { libc::write(write.0, bytes.as_ptr().cast(), N) };
    exactly("filling the pipe", count, N)?;
    ring.submit_and_wait(1).map_err(|error| fail(&error))?;
    finish(&mut ring, N)?;
    slot.expect(B, &bytes);
    Ok(())
}

/// Registers both halves of the slot, which pins them from here on.
fn register(ring: &IoUring, slot: &Slot) -> Outcome {
    let half = |at| libc::iovec { iov_base: slot.at(at), iov_len: 16 * PAGE };
    let buffers = [half(0), half(16 * PAGE)];
    unsafe { ring.submitter().register_buffers(&buffers) }.map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ENOMEM | libc::EPERM) => Stop::Skip(format!("no room to lock: {error}")),
            _ => fail(&error),
        }
    })
}

fn read_fixed(slot: &mut Slot) -> Outcome {
    let mut ring = ring()?;
    register(&ring, slot)?;
    for (buffer, at, salt) in [(0, A, 33), (1, B, 34)] {
        // Time in which other memory's demands could take the pages away.
        std::thread::sleep(std::time::Duration::from_millis(5));
        let bytes = incoming(N, salt);
        let fd = file(&bytes)?;
        let target = types::Fd(fd.0);
        let entry = opcode::ReadFixed::new(target, slot.at(at), N as u32, buffer).build();
        one(&mut ring, entry, N)?;
        slot.expect(at, &bytes);
        slot.compare()?;
    }
    Ok(())
}

fn write_fixed(slot: &mut Slot) -> Outcome {
    let mut ring = ring()?;
    register(&ring, slot)?;
    let fd = file(&[])?;
    for (buffer, at) in [(0, A), (1, B)] {
        std::thread::sleep(std::time::Duration::from_millis(5));
        // The program writes after the registration: the pinned page must be the one it writes.
        let bytes = incoming(64, at as u64);
        unsafe { slot.at::<u8>(at + 5 * PAGE).copy_from_nonoverlapping(bytes.as_ptr(), 64) };
        slot.expect(at + 5 * PAGE, &bytes);
        let target = types::Fd(fd.0);
        let entry = opcode::WriteFixed::new(target, slot.at(at), N as u32, buffer).build();
        one(&mut ring, entry, N)?;
        same("the file", &contents(&fd, 0, N)?, slot.wanted(at, N))?;
    }
    Ok(())
}

/// Has several direct transfers in flight at once, out of cold pages and into them.
fn direct(slot: &mut Slot) -> Outcome {
    let mut ring = ring()?;
    let fd: Fd = direct_file()?;
    let piece = 4 * PAGE;
    let offsets = [0, piece, 2 * piece, 3 * piece];
    for into in [false, true] {
        for offset in offsets {
            let (target, length) = (types::Fd(fd.0), piece as u32);
            let entry = if into {
                let at = slot.at(16 * PAGE + offset);
                opcode::Read::new(target, at, length).offset(offset as u64).build()
            } else {
                let at = slot.at(offset);
                opcode::Write::new(target, at, length).offset(offset as u64).build()
            };
            push(&mut ring, &entry)?;
        }
        ring.submit_and_wait(offsets.len()).map_err(|error| fail(&error))?;
        for _ in offsets {
            finish(&mut ring, piece)?;
        }
    }
    let bytes = slot.wanted(0, 16 * PAGE).to_vec();
    slot.expect(16 * PAGE, &bytes);
    Ok(())
}
