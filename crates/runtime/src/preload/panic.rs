//! The last resort: a broken invariant ends the program, loudly, before a wrong byte can be read.

use core::fmt::Write;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicI32, Ordering};

use coldpress_sys::{BorrowedFd, program, raw};

use super::CONTROL;
use crate::link::Note;
use crate::wire::Loudness;

/// The link's descriptor in the service's file table, or -1; and the descriptor of the program's
/// process.
static LINK: AtomicI32 = AtomicI32::new(-1);
static PROGRAM: AtomicI32 = AtomicI32::new(-1);

/// Remembers where notes go, and which program must end with the service.
pub(super) fn note_link(link: i32, pidfd: i32) {
    // Relaxed, both: only the service reads them back.
    LINK.store(link, Ordering::Relaxed);
    PROGRAM.store(pidfd, Ordering::Relaxed);
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let mut note = Note::new(Loudness::Fatal);
    let _ = write!(note, "internal error, please report it: {info}");
    // Relaxed: the thread compares its own id.
    let in_service = CONTROL.life.alive().load(Ordering::Relaxed) == raw::thread_id();
    let fd = if in_service { LINK.load(Ordering::Relaxed) } else { -1 };
    if fd >= 0 {
        // SAFETY: this is the service, in whose file table the link is open for ever.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let _ = coldpress_sys::net::send(socket, note.bytes(), &[]);
        // Where the launcher is gone, no other process ends the program.
        // Relaxed: this process noted it.
        // SAFETY: noted together with the link, and open as long.
        program::kill(unsafe { BorrowedFd::borrow_raw(PROGRAM.load(Ordering::Relaxed)) });
    } else {
        raw::write_to_stderr(&note.bytes()[1..]);
    }
    raw::abort_process()
}
