//! Where services and the launcher's helper meet: the bell on which the helper sleeps, and the desk
//! at which pages are posted for it (`store/posting.rs`).

use core::sync::atomic::{AtomicU32, Ordering, fence};

use coldpress_sys::shared::{self, Shared};
use coldpress_sys::{AsFd, BorrowedFd, Bytes, OwnedFd, SysResult, futex};
use coldpress_zswap::desk::Desk;

/// The name of the launcher's thread, as the kernel shows it.
pub const HELPER_THREAD: &str = "helper";

/// The place where a helper sleeps. It lies in the ledger because one helper serves all processes.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Bell {
    /// 1 while the helper sleeps.
    asleep: AtomicU32,
}

impl Bell {
    /// Wakes the helper if it sleeps.
    #[cfg(any(feature = "preload", test))]
    pub(crate) fn ring(&self) {
        // Pairs with the fence in `sleep_unless`. The service posts, then looks whether the helper
        // sleeps; the helper says that it sleeps, then looks whether something is posted. At least
        // one of them sees the other.
        fence(Ordering::SeqCst);
        // Relaxed, both: the fence orders them. The helper is usually awake, and a load leaves the
        // line in place.
        if self.asleep.load(Ordering::Relaxed) == 1 && self.asleep.swap(0, Ordering::Relaxed) == 1 {
            futex::wake_all(&self.asleep);
        }
    }

    /// Wakes the helper, even if a process has begun to wake it and ended before that was done.
    pub(crate) fn ring_again(&self) {
        // Relaxed: the helper sees the change it is woken for by other means.
        self.asleep.store(0, Ordering::Relaxed);
        futex::wake_all(&self.asleep);
    }

    /// Sleeps until the bell rings, unless there is something to do. Only the helper calls this
    /// function.
    pub(crate) fn sleep_unless(&self, is_something_to_do: impl FnOnce() -> bool) {
        // Relaxed: the fence below orders it.
        self.asleep.store(1, Ordering::Relaxed);
        // Pairs with the fence in `ring`: see there.
        fence(Ordering::SeqCst);
        if !is_something_to_do() {
            futex::wait(&self.asleep, 1, None);
        }
        // Relaxed: a ring without a cause does no harm.
        self.asleep.store(0, Ordering::Relaxed);
    }
}

/// Makes a desk, and returns a descriptor to hand to its process and the helper's own view.
pub fn make_desk() -> SysResult<(OwnedFd, Shared<Desk>)> {
    let fd = shared::create(c"coldpress-desk", Bytes(size_of::<Desk>()))?;
    let desk = map_desk(fd.as_fd())?;
    Ok((fd, desk))
}

/// Maps the desk that the launcher has made.
pub(crate) fn map_desk(fd: BorrowedFd<'_>) -> SysResult<Shared<Desk>> {
    // SAFETY: a desk is made of atomics, and zeroed memory is an empty one.
    unsafe { Shared::map(fd) }
}

#[cfg(test)]
mod tests {
    //! The risk: a helper that sleeps while there is something to do.

    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn who_rings_after_posting_is_heard() {
        const ROUNDS: u64 = 2_000;
        let (bell, posted, seen) = (Bell::default(), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                while seen.load(Ordering::Relaxed) < ROUNDS {
                    bell.sleep_unless(|| {
                        posted.load(Ordering::Relaxed) != seen.load(Ordering::Relaxed)
                    });
                    seen.store(posted.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            });
            for round in 1..=ROUNDS {
                posted.store(round, Ordering::Relaxed);
                bell.ring();
                let begun = Instant::now();
                while seen.load(Ordering::Relaxed) < round {
                    if begun.elapsed() > Duration::from_secs(10) {
                        // Lets the sleeping thread end, so that the test can.
                        posted.store(ROUNDS, Ordering::Relaxed);
                        bell.ring_again();
                        panic!("nobody heard round {round}");
                    }
                    thread::yield_now();
                }
            }
        });
    }
}
