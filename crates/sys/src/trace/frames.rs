//! Where a thread goes on that stands still: at its next instruction, and where the handlers of
//! signals that it is in come back to.

use core::ops::Range;
use std::format;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::vec;

use super::{CODE_64, FS_BASE, RIP, RSP, Tracee};

/// The bytes above the end of a thread's stack among which frames of signals are looked for: what
/// handlers have called lies below their frames, and is rarely that deep.
const SEARCHED_BYTES: usize = 256 << 10;
const WORD_BYTES: usize = size_of::<u64>();

impl Tracee {
    /// Returns where a libc has its descriptor of the thread: at the upper end of the thread's
    /// stack, unless the program has given the stack.
    pub fn thread_pointer(&self) -> usize {
        self.saved[FS_BASE] as usize
    }

    /// Returns whether the thread goes on in `code`, at once or when a signal handler has returned.
    pub fn goes_on_in(&self, code: &Range<usize>) -> bool {
        if code.contains(&(self.saved[RIP] as usize)) {
            return true;
        }
        // What cannot be looked at may be there.
        let Ok(memory) = File::open(format!("/proc/{}/mem", self.thread)) else { return true };
        let mut bytes = vec![0; SEARCHED_BYTES];
        let at = self.saved[RSP].next_multiple_of(WORD_BYTES as u64);
        let mut length = 0;
        // A read ends where the stack's mapping does.
        while let Ok(count @ 1..) = memory.read_at(&mut bytes[length..], at + length as u64) {
            length += count;
        }
        length == 0 || has_frame(bytes[..length].as_chunks().0, code)
    }
}

/// Returns whether `words` of a stack hold the frame of a signal that came in `code`. A frame has
/// the registers in the order of `struct sigcontext` (asm/sigcontext.h): the address of the
/// instruction, the flags, and the segments, of which that of the code is the lowest.
fn has_frame(words: &[[u8; WORD_BYTES]], code: &Range<usize>) -> bool {
    words.array_windows().any(|[address, _, segments]| {
        code.contains(&usize::from_ne_bytes(*address))
            && u64::from_ne_bytes(*segments) & 0xffff == CODE_64
    })
}

#[cfg(test)]
mod tests {
    //! The risk: code is taken away to which a signal handler comes back.

    use core::sync::atomic::{AtomicU64, Ordering};

    use std::vec::Vec;

    use super::*;

    const SIGUSR2: i32 = 12;
    /// The word of a `ucontext_t` that is the address of the interrupted instruction (ucontext.h).
    const ADDRESS: usize = 21;
    static INTERRUPTED: AtomicU64 = AtomicU64::new(0);
    static STACK: [AtomicU64; 512] = [const { AtomicU64::new(0) }; _];

    unsafe extern "C" {
        fn signal(number: i32, handler: extern "C" fn(i32, *const u8, *const u64)) -> usize;
        fn raise(number: i32) -> i32;
    }

    /// Notes what interrupted code the kernel names, and the words of the stack. The kernel gives a
    /// handler all three arguments, however it was installed.
    extern "C" fn note(_number: i32, _what: *const u8, context: *const u64) {
        // Relaxed, everywhere: one thread reads what it has written itself.
        // SAFETY: a context has more words than that.
        let address = unsafe { *context.add(ADDRESS) };
        INTERRUPTED.store(address, Ordering::Relaxed);
        for (at, word) in STACK.iter().enumerate() {
            // SAFETY: the stack goes on above, with what the thread had called.
            word.store(unsafe { *context.add(at) }, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_frame_of_a_real_signal_is_found() {
        // SAFETY: no other test has this signal; the handler makes no call.
        let raised = unsafe { (signal(SIGUSR2, note), raise(SIGUSR2)).1 };
        assert_eq!(raised, 0);
        // Relaxed: see above.
        let words: Vec<_> =
            STACK.iter().map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        let at = INTERRUPTED.load(Ordering::Relaxed) as usize;
        assert!(at != 0 && has_frame(&words, &(at..at + 1)), "{at:x} {words:x?}");
        assert!(!has_frame(&words, &(at + 1..at + 2)) && !has_frame(&words[..2], &(at..at + 1)));
        // The address alone, as a call leaves it, is no frame.
        let is_code = |word: &[u8; WORD_BYTES]| u64::from_ne_bytes(*word) & 0xffff == CODE_64;
        let called = words.iter().map(|word| if is_code(word) { [0; WORD_BYTES] } else { *word });
        assert!(!has_frame(&called.collect::<Vec<_>>(), &(at..at + 1)));
    }

    #[test]
    fn a_thread_that_waits_goes_on_where_it_waits() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // Until it sleeps, its stack is that of its start.
        while !std::fs::read_to_string(format!("/proc/{}/syscall", child.id()))
            .unwrap()
            .starts_with("230 ")
        {
            std::thread::yield_now();
        }
        let tracee = Tracee::hold(child.id(), child.id()).unwrap();
        let at = tracee.goes_on_at();
        assert!(tracee.goes_on_in(&(at..at + 1)) && !tracee.goes_on_in(&(at + 1..at + 2)));
        drop(tracee);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
