//! A thread that has mapped much memory asks for a look before it goes on.
//!
//! Until its memory is managed, the service looks at a program every few milliseconds. But on a
//! busy machine the service may come late, and first touches fill gigabytes in a second. So a
//! thread that has mapped a part of the budget asks for a look, and waits for it.
//!
//! The threads that ask number the looks. The service reads the last number *before* it looks, and
//! writes it down after the look. A thread that finds its own number there, or a later one, was
//! looked at after it had asked.

use core::sync::atomic::{AtomicU32, Ordering};

use coldpress_sys::futex;

use super::{Control, LOOK_AGAIN_NS};

/// The number of waits of [`LOOK_AGAIN_NS`] after which a thread that asked goes on in any case:
/// together 100 ms.
const PATIENCE: usize = 10;

/// The words of the threads that ask and of the service that looks.
pub(crate) struct Looks {
    /// The number of looks that were asked for.
    asked: AtomicU32,
    /// The number of the last look that was answered.
    answered: AtomicU32,
}

impl Looks {
    pub(super) const fn new() -> Self {
        Self { asked: AtomicU32::new(0), answered: AtomicU32::new(0) }
    }

    /// Forgets all requests. For the child of `fork`, which has one thread.
    pub(super) fn reset(&self) {
        for word in [&self.asked, &self.answered] {
            // Relaxed: there is no other thread.
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the number of the last look that was asked for.
    pub(crate) fn asked(&self) -> u32 {
        // SeqCst pairs with `ask_for_look`: the asking thread's mapping is there to be seen.
        self.asked.load(Ordering::SeqCst)
    }

    /// Lets the threads go on that asked for look `number` or an earlier one.
    pub(crate) fn answer(&self, number: u32) {
        // Relaxed: only the service writes it.
        if self.answered.load(Ordering::Relaxed) != number {
            // Release pairs with the Acquire in `ask_for_look`: the asking thread finds its memory
            // registered.
            self.answered.store(number, Ordering::Release);
            futex::wake_all(&self.answered);
        }
    }

    /// Sleeps until a thread asks for a look after `number`, at most `timeout_ns`.
    pub(crate) fn sleep(&self, number: u32, timeout_ns: u64) {
        futex::wait(&self.asked, number, Some(timeout_ns));
    }

    /// Wakes the service.
    pub(super) fn wake(&self) {
        // SeqCst pairs with `asked`.
        self.asked.fetch_add(1, Ordering::SeqCst);
        futex::wake_all(&self.asked);
    }
}

impl Control {
    /// Has the service look at what the calling thread has mapped. Returns when the service has
    /// looked, and has begun to manage the program if it is time for that.
    pub(crate) fn ask_for_look(&self) {
        if !self.is_owner() {
            return;
        }
        let looks = &self.looks;
        // SeqCst pairs with `asked`.
        let number = looks.asked.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        futex::wake_all(&looks.asked);
        for _ in 0..PATIENCE {
            if self.is_managing() {
                return;
            }
            // Acquire pairs with the kernel's clearing store when the service ends.
            let is_alone = self.life.alive().load(Ordering::Acquire) == 0;
            // Acquire pairs with the Release in `answer`.
            let answered = looks.answered.load(Ordering::Acquire);
            if is_alone || answered.wrapping_sub(number) as i32 >= 0 {
                return;
            }
            futex::wait(&looks.answered, answered, Some(LOOK_AGAIN_NS));
        }
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a thread goes on before it was looked at, or waits for ever.

    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn who_asks_waits_for_a_look_that_began_later() {
        let control = Control::new();
        control.note_owner();
        control.life.alive().store(1, Ordering::Relaxed);
        let before = control.looks.asked();
        thread::scope(|scope| {
            let asker = scope.spawn(|| control.ask_for_look());
            while control.looks.asked() == before {
                thread::yield_now();
            }
            control.looks.answer(before);
            thread::sleep(Duration::from_millis(5));
            assert!(!asker.is_finished());
            control.looks.answer(before + 1);
            asker.join().unwrap();
        });
    }

    #[test]
    fn nobody_waits_for_a_service_that_is_gone_or_never_answers() {
        let control = Control::new();
        control.note_owner();
        control.ask_for_look();
        control.life.alive().store(1, Ordering::Relaxed);
        let begin = Instant::now();
        control.ask_for_look();
        assert!(begin.elapsed() >= Duration::from_millis(90));
    }
}
