//! Two words that change together.
//!
//! Idea: x86-64 compares and exchanges 16 aligned bytes at once (CMPXCHG16B). All processors but
//! the very first of the kind have the instruction; where it is missing, a spin lock takes its
//! place. A model checker (`--cfg loom`) also sees a lock, and two loads.
//!
//! Invariant: words change by [`AtomicPair::compare_exchange`] only. So a pair that compared equal
//! existed as a whole, even when the words to compare with were loaded one by one.

/// Two 64-bit words, aligned so that they can be exchanged together.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct AtomicPair {
    words: Words,
}

#[cfg(not(loom))]
type Words = [core::sync::atomic::AtomicU64; 2];
#[cfg(loom)]
type Words = loom::sync::Mutex<(u64, u64)>;

#[cfg(not(loom))]
mod exchange {
    use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

    use super::AtomicPair;

    impl AtomicPair {
        /// Makes a pair of these words.
        pub const fn new(first: u64, second: u64) -> Self {
            Self { words: [AtomicU64::new(first), AtomicU64::new(second)] }
        }

        /// Returns both words, loaded one after the other: the pair need not have held both at one
        /// time.
        #[inline]
        pub fn load(&self) -> (u64, u64) {
            // Acquire on both pairs with the exchange that wrote the word.
            let first = self.words[0].load(Ordering::Acquire);
            (first, self.words[1].load(Ordering::Acquire))
        }

        /// Returns whether the pair was `old`, and makes it `new` if so.
        #[inline]
        pub fn compare_exchange(&self, old: (u64, u64), new: (u64, u64)) -> bool {
            if has_instruction() {
                // SAFETY: the processor has the instruction, and a pair is 16 aligned bytes that
                // live as long as the reference.
                unsafe { self.exchange_at_once(old, new) }
            } else {
                self.exchange_under_lock(old, new)
            }
        }

        /// Returns whether the pair was `old`, and makes it `new` if so, by the instruction.
        ///
        /// # Safety
        /// The processor must have CMPXCHG16B.
        #[inline]
        unsafe fn exchange_at_once(&self, old: (u64, u64), new: (u64, u64)) -> bool {
            let same: u8;
            // The locked instruction orders in both directions: as a Release, which pairs with the
            // Acquire in `load`, and as an Acquire, which pairs with the exchange before it.
            // SAFETY: the words are 16 bytes aligned to 16, by their type; the caller vouches for
            // the instruction. The compiler reserves rbx, so the code saves and restores it.
            unsafe {
                core::arch::asm!(
                    "xchg rsi, rbx",
                    "lock cmpxchg16b xmmword ptr [rdi]",
                    "mov rbx, rsi",
                    "sete r8b",
                    in("rdi") self.words.as_ptr(),
                    inout("rsi") new.0 => _,
                    in("rcx") new.1,
                    inout("rax") old.0 => _,
                    inout("rdx") old.1 => _,
                    out("r8b") same,
                    options(nostack),
                );
            }
            same != 0
        }

        #[cold]
        pub(super) fn exchange_under_lock(&self, old: (u64, u64), new: (u64, u64)) -> bool {
            // Several locks, so that different pairs rarely wait for each other.
            static LOCKS: [AtomicBool; 64] = [const { AtomicBool::new(false) }; 64];
            let lock = &LOCKS[(&raw const *self).addr() / size_of::<Self>() % LOCKS.len()];
            // Acquire pairs with the Release below: one exchange sees all of another one.
            while lock
                .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                core::hint::spin_loop();
            }
            let same = self.load() == old;
            if same {
                // Release pairs with the Acquire in `load`.
                self.words[0].store(new.0, Ordering::Release);
                self.words[1].store(new.1, Ordering::Release);
            }
            // Release pairs with the Acquire above.
            lock.store(false, Ordering::Release);
            same
        }
    }

    /// Returns whether the processor has CMPXCHG16B: bit 13 of ECX of CPUID leaf 1 (Intel SDM
    /// volume 2). miri has neither instruction.
    #[inline]
    fn has_instruction() -> bool {
        const UNKNOWN: u8 = 0;
        const MISSING: u8 = 1;
        const PRESENT: u8 = 2;
        static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
        if cfg!(miri) {
            return false;
        }
        // Relaxed: a fact about the processor, the same for every thread that finds it.
        let known = KNOWN.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return known == PRESENT;
        }
        let present = core::arch::x86_64::__cpuid(1).ecx & 1 << 13 != 0;
        // Relaxed: as above.
        KNOWN.store(if present { PRESENT } else { MISSING }, Ordering::Relaxed);
        present
    }
}

#[cfg(loom)]
impl AtomicPair {
    /// Makes a pair of these words.
    pub fn new(first: u64, second: u64) -> Self {
        Self { words: loom::sync::Mutex::new((first, second)) }
    }

    /// Returns both words, loaded one after the other: the pair need not have held both at one
    /// time.
    pub fn load(&self) -> (u64, u64) {
        let first = self.words.lock().expect("no holder panics").0;
        (first, self.words.lock().expect("no holder panics").1)
    }

    /// Returns whether the pair was `old`, and makes it `new` if so.
    pub fn compare_exchange(&self, old: (u64, u64), new: (u64, u64)) -> bool {
        let mut words = self.words.lock().expect("no holder panics");
        let same = *words == old;
        if same {
            *words = new;
        }
        same
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    //! The risk: words of two exchanges are mixed, or an exchange is lost.

    use super::*;

    fn count(exchange: impl Fn(&AtomicPair, (u64, u64), (u64, u64)) -> bool + Sync) {
        const TURNS: u64 = if cfg!(miri) { 50 } else { 20_000 };
        let pair = AtomicPair::new(0, 7);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..TURNS {
                        loop {
                            let old = pair.load();
                            if exchange(&pair, old, (old.0 + 1, old.1 + 3)) {
                                // A torn load never passes the comparison.
                                assert_eq!(old.0 * 3 + 7, old.1);
                                break;
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(pair.load(), (4 * TURNS, 12 * TURNS + 7));
    }

    #[test]
    fn exchanges_of_many_threads_all_count() {
        count(AtomicPair::compare_exchange);
    }

    #[test]
    fn exchanges_all_count_without_the_instruction() {
        count(AtomicPair::exchange_under_lock);
    }

    #[test]
    fn both_words_are_compared() {
        let pair = AtomicPair::new(1, 2);
        assert!(!pair.compare_exchange((1, 3), (9, 9)));
        assert!(!pair.compare_exchange((3, 2), (9, 9)));
        assert_eq!(pair.load(), (1, 2));
        assert!(pair.compare_exchange((1, 2), (9, 8)));
        assert_eq!(pair.load(), (9, 8));
        assert_eq!((align_of::<AtomicPair>(), size_of::<AtomicPair>()), (16, 16));
    }
}
