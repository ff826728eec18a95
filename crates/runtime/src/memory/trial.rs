//! A page of our own that is taken away and brought back before any page of the program is. It
//! shows whether the kernel, and a filter of system calls, let this process do all of that.
//!
//! Without the trial, a refusal would be found when the budget is used up, or never. The trial is
//! made before any other range is registered, so no change of the address space can come between.
//! And it never touches a page that is away, because no thread but this one would serve that fault.

use coldpress_sys::errno::EIO;
use coldpress_sys::map::Span;
use coldpress_sys::uffd::{Mode, Progress, Stop, Userfaultfd};
use coldpress_sys::{Bytes, PAGE_BYTES, SysError, SysResult};

/// The number of tries to move the page: a fork of the program shares it with the child for a
/// moment, during which it cannot be moved.
const TRIES: usize = 16;
const PAGE: Bytes = Bytes(PAGE_BYTES);
/// The page came back with other bytes.
const OTHER_BYTES: SysError = SysError { call: "compare(a page that was away)", errno: EIO };

/// Registers a page, takes it away, brings it back and compares its bytes. Fails with the call that
/// was refused.
pub(crate) fn take_and_bring_back(uffd: &Userfaultfd) -> SysResult<()> {
    let span = Span::reserve(Bytes(2 * PAGE_BYTES), PAGE)?;
    span.forbid_huge_pages();
    let (page, aside) = (span.address(), span.address() + PAGE_BYTES);
    fill(&span);
    uffd.register(page, PAGE, Mode::Faults)?;
    let result = uffd
        .register(aside, PAGE, Mode::WriteProtect)
        .and_then(|()| take(uffd, &span))
        .and_then(|()| bring_back(uffd, &span));
    // The registration ends before the page is unmapped, because this thread would have to read the
    // event of that itself.
    let ended = uffd.unregister(page, Bytes(2 * PAGE_BYTES));
    if ended.is_err() {
        // A page that is still registered stays mapped.
        core::mem::forget(span);
    }
    result.and(ended)
}

/// Moves the first page of `span` to the place of the second.
fn take(uffd: &Userfaultfd, span: &Span) -> SysResult<()> {
    let (page, aside) = (span.address(), span.address() + PAGE_BYTES);
    let mut last = 0;
    for _ in 0..TRIES {
        // SAFETY: both pages are this function's own, and no thread touches the one that goes.
        let Progress { stop, .. } = unsafe { uffd.move_pages(aside, page, PAGE) };
        match stop {
            None => return Ok(()),
            Some(stop) => last = errno_of(stop),
        }
        // The page is still there; a write makes it this process's own again.
        fill(span);
    }
    Err(SysError { call: "ioctl(UFFDIO_MOVE)", errno: last })
}

/// Copies the second page of `span` back to the first, and compares its bytes.
fn bring_back(uffd: &Userfaultfd, span: &Span) -> SysResult<()> {
    let (page, aside) = (span.address(), span.address() + PAGE_BYTES);
    // SAFETY: the source was moved there, so it is present and stays so.
    let Progress { stop, .. } = unsafe { uffd.copy(page, aside as *const u8, PAGE) };
    if let Some(stop) = stop {
        return Err(SysError { call: "ioctl(UFFDIO_COPY)", errno: errno_of(stop) });
    }
    let is_same = (0..PAGE_BYTES / size_of::<usize>()).all(|index| {
        // SAFETY: the page is present, and no thread writes to it.
        let found = unsafe { span.base().as_ptr().cast::<usize>().add(index).read_volatile() };
        found == word(index)
    });
    if is_same { Ok(()) } else { Err(OTHER_BYTES) }
}

fn fill(span: &Span) {
    for index in 0..PAGE_BYTES / size_of::<usize>() {
        // SAFETY: the index is inside the first page, which is present or not registered yet.
        unsafe { span.base().as_ptr().cast::<usize>().add(index).write_volatile(word(index)) };
    }
}

/// Returns the word of the page at `index`; no two are the same.
fn word(index: usize) -> usize {
    index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the kernel's error number for `stop`, by linux/userfaultfd.h and errno.h.
fn errno_of(stop: Stop) -> i32 {
    match stop {
        Stop::Changing => 11,
        Stop::Present => 17,
        Stop::Busy => 16,
        Stop::Gone => 2,
        Stop::Unfit => 22,
        Stop::Failed(errno) => errno,
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a trial that passes whatever the kernel does.

    use coldpress_sys::uffd::FEATURES_NEEDED;

    use super::*;

    fn uffd(features: u64) -> Option<Userfaultfd> {
        let uffd = Userfaultfd::from_syscall(false).ok()?;
        uffd.handshake(features).ok().map(|_| uffd)
    }

    #[test]
    fn a_page_goes_and_comes_back_again_and_again() {
        let Some(uffd) = uffd(FEATURES_NEEDED) else {
            return std::eprintln!("skipped: no userfaultfd for this user");
        };
        for _ in 0..3 {
            take_and_bring_back(&uffd).unwrap();
        }
    }

    #[test]
    fn who_cannot_move_is_told_by_the_call() {
        let Some(uffd) = uffd(0) else {
            return std::eprintln!("skipped: no userfaultfd for this user");
        };
        // A descriptor without a handshake registers nothing.
        let fresh = Userfaultfd::from_syscall(false).unwrap();
        assert_eq!(take_and_bring_back(&fresh).unwrap_err().call, "ioctl(UFFDIO_REGISTER)");
        let span = Span::reserve(Bytes(2 * PAGE_BYTES), PAGE).unwrap();
        fill(&span);
        // Nothing is registered, so there is no target.
        assert_eq!(take(&uffd, &span).unwrap_err().call, "ioctl(UFFDIO_MOVE)");
    }
}
