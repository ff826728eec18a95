//! Locks and atomics for code that may use neither libc nor thread-local memory: a [`SpinLock`] for
//! sections of a few lines, a [`SleepLock`] for sections that may wait for a disk.
//!
//! Under a model checker (`--cfg loom`) the locks are the checker's own, so that it does not try
//! every number of spins of a waiter.

#[cfg(not(loom))]
pub use sleeping::{SleepGuard, SleepLock};
#[cfg(not(loom))]
pub use spinning::{Backoff, SpinGuard, SpinLock};
#[cfg(loom)]
pub use under_loom::{
    Backoff, SpinGuard as SleepGuard, SpinGuard, SpinLock as SleepLock, SpinLock,
};

#[cfg(not(loom))]
mod spinning {
    use core::cell::UnsafeCell;
    use core::marker::PhantomData;
    use core::ops::{Deref, DerefMut};
    use core::sync::atomic::{AtomicBool, Ordering};

    /// A spinning lock for sections of a few lines.
    ///
    /// The holder never waits for anything while holding it, so a waiter spins briefly and then
    /// yields.
    #[derive(Debug, Default)]
    pub struct SpinLock<T> {
        locked: AtomicBool,
        value: UnsafeCell<T>,
    }

    // SAFETY: the value is reached only through a guard, and at most one guard exists.
    unsafe impl<T: Send> Sync for SpinLock<T> {}

    impl<T> SpinLock<T> {
        /// Makes an unlocked lock around `value`.
        pub const fn new(value: T) -> Self {
            Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
        }

        /// Waits for the lock and takes it.
        pub fn lock(&self) -> SpinGuard<'_, T> {
            let mut backoff = Backoff::default();
            // Acquire pairs with the Release in `SpinGuard::drop`: this thread sees all that the
            // last holder wrote.
            while self
                .locked
                .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                backoff.wait();
            }
            SpinGuard { lock: self, _of_this_thread: PhantomData }
        }

        /// Takes the lock if no thread holds it.
        pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
            // Acquire pairs with the Release in `SpinGuard::drop`.
            self.locked
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
                .then(|| SpinGuard { lock: self, _of_this_thread: PhantomData })
        }

        /// Returns the value without locking: `&mut self` proves that no thread can hold the lock.
        pub fn get_mut(&mut self) -> &mut T {
            self.value.get_mut()
        }
    }

    /// A waiter's pace while another thread is about to finish: it spins, and now and then yields
    /// the processor.
    #[derive(Debug, Default)]
    pub struct Backoff(u32);

    impl Backoff {
        /// Waits for a moment.
        pub fn wait(&mut self) {
            self.0 = self.0.wrapping_add(1);
            if cfg!(miri) || self.0.is_multiple_of(128) {
                yield_now();
            }
            core::hint::spin_loop();
        }
    }

    /// Yields the processor to other threads.
    fn yield_now() {
        #[cfg(miri)]
        std::thread::yield_now();
        #[cfg(not(miri))]
        rustix::thread::sched_yield();
    }

    /// Access to the value of a [`SpinLock`]; dropping it unlocks.
    #[derive(Debug)]
    pub struct SpinGuard<'a, T> {
        lock: &'a SpinLock<T>,
        /// A marker that makes the guard `!Send`; other threads share the guard only as they share
        /// the value.
        _of_this_thread: PhantomData<*const ()>,
    }

    // SAFETY: a shared guard gives only shared access to the value.
    unsafe impl<T: Sync> Sync for SpinGuard<'_, T> {}

    impl<T> Deref for SpinGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            // SAFETY: this guard is the only one (see `lock`), so no `&mut` exists beside it.
            unsafe { &*self.lock.value.get() }
        }
    }

    impl<T> DerefMut for SpinGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: this guard is the only one (see `lock`), and it is borrowed mutably.
            unsafe { &mut *self.lock.value.get() }
        }
    }

    impl<T> Drop for SpinGuard<'_, T> {
        fn drop(&mut self) {
            // Release pairs with the Acquire in `SpinLock::lock`.
            self.lock.locked.store(false, Ordering::Release);
        }
    }
}

#[cfg(not(loom))]
mod sleeping {
    use core::cell::UnsafeCell;
    use core::marker::PhantomData;
    use core::ops::{Deref, DerefMut};
    use core::sync::atomic::{AtomicU32, Ordering};

    use crate::futex;

    const FREE: u32 = 0;
    const HELD: u32 = 1;
    /// The lock is held, and a thread may be sleeping until it is free.
    const AWAITED: u32 = 2;

    /// A lock whose waiters sleep (the second mutex of Drepper, Futexes Are Tricky, 2011).
    #[derive(Debug, Default)]
    pub struct SleepLock<T> {
        state: AtomicU32,
        value: UnsafeCell<T>,
    }

    // SAFETY: the value is reached only through a guard, and at most one guard exists.
    unsafe impl<T: Send> Sync for SleepLock<T> {}

    impl<T> SleepLock<T> {
        /// Makes an unlocked lock around `value`.
        pub const fn new(value: T) -> Self {
            Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
        }

        /// Waits for the lock and takes it.
        pub fn lock(&self) -> SleepGuard<'_, T> {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            // Acquire pairs with the Release in `SleepGuard::drop`.
            while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
                futex::wait(&self.state, AWAITED, None);
            }
            SleepGuard { lock: self, _of_this_thread: PhantomData }
        }

        /// Takes the lock if no thread holds it.
        pub fn try_lock(&self) -> Option<SleepGuard<'_, T>> {
            // Acquire pairs with the Release in `SleepGuard::drop`.
            self.state
                .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
                .then(|| SleepGuard { lock: self, _of_this_thread: PhantomData })
        }

        /// Returns the value without locking: `&mut self` proves that no thread can hold the lock.
        pub fn get_mut(&mut self) -> &mut T {
            self.value.get_mut()
        }
    }

    /// Access to the value of a [`SleepLock`]; dropping it unlocks.
    #[derive(Debug)]
    pub struct SleepGuard<'a, T> {
        lock: &'a SleepLock<T>,
        /// A marker that makes the guard `!Send`; other threads share the guard only as they share
        /// the value.
        _of_this_thread: PhantomData<*const ()>,
    }

    // SAFETY: a shared guard gives only shared access to the value.
    unsafe impl<T: Sync> Sync for SleepGuard<'_, T> {}

    impl<T> Deref for SleepGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            // SAFETY: this guard is the only one (see `lock`), so no `&mut` exists beside it.
            unsafe { &*self.lock.value.get() }
        }
    }

    impl<T> DerefMut for SleepGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: this guard is the only one (see `lock`), and it is borrowed mutably.
            unsafe { &mut *self.lock.value.get() }
        }
    }

    impl<T> Drop for SleepGuard<'_, T> {
        fn drop(&mut self) {
            // Release pairs with the Acquire in `SleepLock::lock` and `try_lock`.
            if self.lock.state.swap(FREE, Ordering::Release) == AWAITED {
                futex::wake_all(&self.lock.state);
            }
        }
    }
}

#[cfg(loom)]
mod under_loom {
    use core::ops::{Deref, DerefMut};

    /// A waiter's pace: it lets the other threads of the model run.
    #[derive(Debug, Default)]
    pub struct Backoff;

    impl Backoff {
        /// Waits for a moment.
        pub fn wait(&mut self) {
            loom::thread::yield_now();
        }
    }

    /// A lock of the model checker.
    #[derive(Debug)]
    pub struct SpinLock<T>(loom::sync::Mutex<T>);

    /// Access to the value of a [`SpinLock`]; dropping it unlocks.
    #[derive(Debug)]
    pub struct SpinGuard<'a, T>(loom::sync::MutexGuard<'a, T>);

    impl<T> SpinLock<T> {
        /// Makes an unlocked lock around `value`.
        pub fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        /// Waits for the lock and takes it.
        pub fn lock(&self) -> SpinGuard<'_, T> {
            SpinGuard(self.0.lock().expect("no holder panics"))
        }

        /// Takes the lock if no thread holds it.
        pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
            self.0.try_lock().ok().map(SpinGuard)
        }

        /// Returns the value without locking: `&mut self` proves that no thread can hold the lock.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().expect("no holder panics")
        }
    }

    impl<T: Default> Default for SpinLock<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T> Deref for SpinGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.0
        }
    }

    impl<T> DerefMut for SpinGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    //! The risk: two holders at a time, or a waiter that is never woken.

    use super::*;

    /// Stamps out the tests for one kind of lock.
    macro_rules! suite {
        ($name:ident, $lock:ident) => {
            mod $name {
                use super::*;

                #[test]
                fn a_lock_that_is_held_is_not_taken_and_stays_held() {
                    let mut lock = $lock::new(0);
                    let guard = lock.lock();
                    assert!(lock.try_lock().is_none() && lock.try_lock().is_none());
                    drop(guard);
                    assert!(lock.try_lock().is_some() && lock.try_lock().is_some());
                    *lock.get_mut() += 1;
                    assert_eq!(*lock.lock(), 1);
                }

                #[test]
                fn increments_of_many_threads_all_count() {
                    let lock = $lock::new(0_u64);
                    std::thread::scope(|scope| {
                        for _ in 0..4 {
                            scope.spawn(|| {
                                for number in 0..10_000 {
                                    let mut value = lock.lock();
                                    if number % 1000 == 0 {
                                        std::thread::yield_now();
                                    }
                                    *value += 1;
                                }
                            });
                        }
                    });
                    assert_eq!(*lock.lock(), 40_000);
                }
            }
        };
    }

    suite!(of_spinning, SpinLock);
    suite!(of_sleeping, SleepLock);
}
