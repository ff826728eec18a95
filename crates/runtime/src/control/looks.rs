//! A thread that has mapped much asks to be looked at before it goes on.
//!
//! Until its memory is managed, a program is looked at every few milliseconds; but the
//! service may come late on a busy machine, and first touches fill gigabytes in a second. So a
//! thread that has mapped a part of the budget asks for a look, and waits for it.
//!
//! Looks are numbered by those who ask. The service reads the last number *before* it looks,
//! and writes it down after: who finds its own number there, or a later one, was looked at after
//! it asked.

use core::sync::atomic::{AtomicU32, Ordering};

use coldpress_sys::futex;

use super::{Control, LOOK_AGAIN_NS};

/// Who asked goes on after so many times [`LOOK_AGAIN_NS`] in any case: 100 ms.
const PATIENCE: usize = 10;

/// The words of those who ask and who looks.
pub struct Looks {
    /// How many looks were asked for.
    asked: AtomicU32,
    /// How many of them were answered.
    answered: AtomicU32,
}

impl Looks {
    pub(super) const fn new() -> Self {
        Self { asked: AtomicU32::new(0), answered: AtomicU32::new(0) }
    }

    /// Nobody has asked. For the child of `fork`, which has one thread.
    pub(super) fn reset(&self) {
        for word in [&self.asked, &self.answered] {
            // Relaxed: there is no other thread.
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The number of the last look that was asked for.
    pub fn asked(&self) -> u32 {
        // SeqCst pairs with `ask_for_look`: the mapping is there to be seen.
        self.asked.load(Ordering::SeqCst)
    }

    /// Lets those go on who asked for look `number` or an earlier one.
    pub fn answer(&self, number: u32) {
        // Relaxed: only the service writes it.
        if self.answered.load(Ordering::Relaxed) != number {
            // Release pairs with the Acquire in `ask_for_look`: what was registered is.
            self.answered.store(number, Ordering::Release);
            futex::wake_all(&self.answered);
        }
    }

    /// Sleeps until somebody asks for more than look `number`, at most `timeout_ns`.
    pub fn sleep(&self, number: u32, timeout_ns: u64) {
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
    /// Has the service look at what the calling thread has mapped; returns when it has, and
    /// has begun to manage the program if it is time.
    pub fn ask_for_look(&self) {
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
            let is_alone = self.alive().load(Ordering::Acquire) == 0;
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
    //! Risk: a thread goes on before it was looked at, or waits for ever.

    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn who_asks_waits_for_a_look_that_began_later() {
        let control = Control::new();
        control.note_owner();
        control.alive().store(1, Ordering::Relaxed);
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
        control.alive().store(1, Ordering::Relaxed);
        let begin = Instant::now();
        control.ask_for_look();
        assert!(begin.elapsed() >= Duration::from_millis(90));
    }
}
