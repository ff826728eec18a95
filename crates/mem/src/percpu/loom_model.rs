//! The risk: draining the lists of a processor takes a value that a section takes too, or misses
//! one, in some order of their loads and stores.
//!
//! This is a model, because no checker runs the assembly. A section ends in an exchange that fails
//! when the kernel restarted it; [`Processor::restart_all`] counts the restarts. The order of loads
//! and stores follows the sections and `drain_all`.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use loom::thread;

const SHUT: usize = usize::MAX;

/// One processor's list: `limits` is the least length.
struct Processor {
    limits: AtomicUsize,
    /// The number of restarts, and below it the length, in 8 bits.
    length: AtomicU32,
    values: [AtomicU32; 2],
}

impl Processor {
    fn with_two_values() -> Self {
        Self {
            limits: AtomicUsize::new(0),
            length: AtomicU32::new(2),
            values: [AtomicU32::new(10), AtomicU32::new(11)],
        }
    }

    /// Takes a value as a section does: it commits only when it was not restarted.
    fn pop(&self) -> Option<u32> {
        loop {
            // Acquire pairs with the Release of the restart: a section that began after it sees the
            // limits before it.
            let restarts = self.length.load(Ordering::Acquire) >> 8;
            // Acquire pairs with the Release of the opening.
            let floor = self.limits.load(Ordering::Acquire);
            let word = self.length.load(Ordering::Acquire);
            if word >> 8 != restarts {
                continue;
            }
            let length = word as usize & 0xff;
            if length <= floor {
                return None;
            }
            let value = self.values[length - 1].load(Ordering::Relaxed);
            let commit =
                self.length.compare_exchange(word, word - 1, Ordering::AcqRel, Ordering::Relaxed);
            if commit.is_ok() {
                return Some(value);
            }
        }
    }

    fn restart_all(&self) {
        self.length.fetch_add(1 << 8, Ordering::AcqRel);
    }

    fn drain(&self) -> Vec<u32> {
        self.limits.store(SHUT, Ordering::Relaxed);
        self.restart_all();
        let word = self.length.load(Ordering::Acquire);
        let values = &self.values[..word as usize & 0xff];
        let drained = values.iter().map(|value| value.load(Ordering::Relaxed)).collect();
        self.length.store(word & !0xff, Ordering::Release);
        // Release pairs with the Acquire of a section, which sees open lists empty.
        self.limits.store(0, Ordering::Release);
        drained
    }
}

#[test]
fn a_value_is_popped_or_drained_once() {
    loom::model(|| {
        let processor = Arc::new(Processor::with_two_values());
        let popper = {
            let processor = Arc::clone(&processor);
            thread::spawn(move || [processor.pop(), processor.pop()])
        };
        let mut all = processor.drain();
        all.extend(popper.join().unwrap().into_iter().flatten());
        all.sort_unstable();
        assert_eq!(all, [10, 11]);
    });
}
