//! Secrets: values in memory of their own that leave no trace, and random bytes.
//!
//! Invariants:
//! 1. A secret's pages are in no core file. As far as the system lets us lock one page, they are on
//!    no swap device. No child of `fork` has them, except a child that inherits all spans
//!    (`map::inherit_spans`), whose copy is not locked.
//! 2. The bytes of a secret are overwritten before its pages go back to the system, and so is the
//!    stack on which it was made.

use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
use core::sync::atomic::{Ordering, compiler_fence};

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::errno;
use crate::error::{SysError, SysResult};
use crate::map::Span;
use crate::page::{Bytes, PAGE_BYTES};

/// Bytes of stack that are overwritten after making a secret: several times what an expanded AES
/// key and the calls that make it take.
const STACK_WIPED: usize = 16 << 10;

/// Fills `bytes` with random bytes of the kernel (getrandom(2)), once the kernel has enough
/// entropy. Fails with `ENOSYS` or `EPERM` where a sandbox forbids the call.
pub fn fill_random(mut bytes: &mut [u8]) -> SysResult<()> {
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(0) => return Err(SysError { call: "getrandom", errno: errno::EIO }),
            Ok(count) => bytes = &mut bytes[count..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(SysError::of("getrandom")(errno)),
        }
    }
    Ok(())
}

/// A value in pages of its own.
#[derive(Debug)]
pub struct Secret<T> {
    place: NonNull<T>,
    span: Span,
}

// SAFETY: the secret owns its value, which may be sent.
unsafe impl<T: Send> Send for Secret<T> {}
// SAFETY: a shared secret gives shared references only.
unsafe impl<T: Sync> Sync for Secret<T> {}

impl<T> Secret<T> {
    /// Puts the result of `make` into new pages. Fails with the kernel's number, usually `ENOMEM`.
    /// `make` itself is responsible for copies outside its own stack.
    pub fn new(make: impl FnOnce() -> T) -> SysResult<Self> {
        assert!(align_of::<T>() <= PAGE_BYTES);
        let span = Span::reserve(Bytes(size_of::<T>().max(1)), Bytes(PAGE_BYTES))?;
        span.keep_secret()?;
        let place = span.base().cast::<T>();
        // SAFETY: the span is new, aligned to a page and at least as long as a `T`.
        unsafe { put(place, make) };
        wipe_stack();
        Ok(Self { place, span })
    }

    /// Returns the size of the memory it uses.
    pub fn memory(&self) -> Bytes {
        self.span.length()
    }

    /// Drops the value and overwrites its bytes.
    ///
    /// # Safety
    /// The value must not be used, nor dropped, afterwards.
    unsafe fn erase(&mut self) {
        // SAFETY: `new` put a value there, and the caller promises not to use it again.
        unsafe {
            self.place.drop_in_place();
            wipe(self.place.cast(), size_of::<T>());
        }
    }
}

impl<T> Deref for Secret<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: `new` put a value there, which lives as long as `self`.
        unsafe { self.place.as_ref() }
    }
}

impl<T> DerefMut for Secret<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and `self` is borrowed alone.
        unsafe { self.place.as_mut() }
    }
}

impl<T> Drop for Secret<T> {
    fn drop(&mut self) {
        // SAFETY: nothing uses the secret after its drop.
        unsafe { self.erase() }
    }
}

/// Puts a value in its place. Not inlined, so that the remains of `make` lie below the frame of the
/// caller, where [`wipe_stack`] overwrites them.
///
/// # Safety
/// `place` must be writable and aligned for a `T`.
#[inline(never)]
unsafe fn put<T>(place: NonNull<T>, make: impl FnOnce() -> T) {
    // SAFETY: the caller promises a writable, aligned place.
    unsafe { place.write(make()) }
}

/// Overwrites the stack below the caller's frame.
#[inline(never)]
fn wipe_stack() {
    let mut stack = MaybeUninit::<[u8; STACK_WIPED]>::uninit();
    let start = NonNull::from(&mut stack).cast();
    // SAFETY: the bytes belong to the variable above.
    unsafe { wipe(start, STACK_WIPED) };
}

/// Overwrites `length` bytes, even though no code reads them afterwards.
///
/// # Safety
/// They must be writable.
unsafe fn wipe(start: NonNull<u8>, length: usize) {
    for offset in 0..length {
        // SAFETY: the caller promises that `length` bytes are writable.
        unsafe { ptr::write_volatile(start.as_ptr().add(offset), 0) };
    }
    // SeqCst, of the compiler's order only: nothing that follows moves in front of the writes.
    compiler_fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    //! The risk: a key is found in a core file, in a child, or in memory that was given back.

    use std::fs;

    use super::*;

    /// Returns the flags of the mapping that holds `address` (proc(5), `VmFlags`).
    fn flags_of(address: usize) -> Vec<String> {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in smaps.lines() {
            let first = line.split_whitespace().next().unwrap_or_default();
            if let Some((start, end)) = first.split_once('-') {
                let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16));
                inside = (start.unwrap()..end.unwrap()).contains(&address);
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
                return flags.split_whitespace().map(str::to_owned).collect();
            }
        }
        panic!("no mapping at {address:#x}")
    }

    #[test]
    fn secrets_are_neither_dumped_nor_inherited_and_locked_if_allowed() {
        let secret = Secret::new(|| [7_u8; 100]).unwrap();
        assert_eq!((secret[0], secret[99]), (7, 7));
        assert_eq!(secret.memory(), Bytes(PAGE_BYTES));
        let flags = flags_of(secret.place.as_ptr().addr());
        assert!(["dd", "dc"].iter().all(|flag| flags.iter().any(|other| other == flag)));
        let limits = fs::read_to_string("/proc/self/limits").unwrap();
        let limit = limits.lines().find(|line| line.starts_with("Max locked memory")).unwrap();
        if !limit.contains(" 0 ") {
            assert!(flags.iter().any(|flag| flag == "lo"), "{flags:?}, {limit}");
        }
    }

    #[test]
    fn a_dropped_value_leaves_no_byte() {
        static DROPS: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);
        struct Counted(#[expect(dead_code, reason = "only its bytes are looked at")] [u8; 64]);
        impl Drop for Counted {
            fn drop(&mut self) {
                DROPS.fetch_add(1, Ordering::Relaxed);
            }
        }
        let secret = Secret::new(|| Counted([9; 64])).unwrap();
        let mut secret = core::mem::ManuallyDrop::new(secret);
        let bytes = secret.place.cast::<[u8; 64]>();
        // SAFETY: the secret is not used afterwards except for its bytes, which stay mapped.
        unsafe {
            assert_eq!(bytes.read(), [9; 64]);
            secret.erase();
            assert_eq!(bytes.read(), [0; 64]);
        }
        assert_eq!(DROPS.load(Ordering::Relaxed), 1);
        drop(Secret::new(|| Counted([9; 64])).unwrap());
        assert_eq!(DROPS.load(Ordering::Relaxed), 2);
    }

    /// Returns byte `index` of a pattern that lies nowhere in memory unless it is made.
    fn pattern(index: usize) -> u8 {
        (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ 0x5a
    }

    /// Returns whether 64 bytes of the pattern lie in the `length` bytes below this call's frame.
    #[inline(never)]
    fn is_on_the_stack(length: usize) -> bool {
        let here = 0_u8;
        let top = ptr::from_ref(&here).expose_provenance();
        let byte = |address: usize| {
            // SAFETY: mapped stack of this thread, which is 2 MiB long; no other thread writes to
            // it.
            unsafe { ptr::read_volatile(ptr::with_exposed_provenance::<u8>(address)) }
        };
        (top - length..top - 64).any(|at| (0..64).all(|index| byte(at + index) == pattern(index)))
    }

    #[test]
    fn nothing_is_left_on_the_stack_it_was_made_on() {
        let make = || {
            let mut value = [0; 256];
            (0..256).for_each(|index| value[index] = pattern(index));
            std::hint::black_box(value)
        };
        #[inline(never)]
        fn used(make: impl FnOnce() -> [u8; 256]) -> u8 {
            std::hint::black_box(make())[3]
        }
        used(make);
        assert!(is_on_the_stack(STACK_WIPED), "the search finds nothing");
        let secret = Secret::new(make).unwrap();
        assert!(!is_on_the_stack(STACK_WIPED));
        assert_eq!(secret[255], pattern(255));
    }

    #[test]
    fn random_bytes_differ() {
        let mut seen = [[0; 32]; 3];
        for bytes in &mut seen[1..] {
            fill_random(bytes).unwrap();
        }
        assert!(seen[0] != seen[1] && seen[1] != seen[2] && seen[0] != seen[2]);
        fill_random(&mut []).unwrap();
    }
}
