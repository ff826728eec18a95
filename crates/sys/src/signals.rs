//! Signals that this process was started to ignore, as `nohup` makes it ignore SIGHUP, and a shell
//! makes a background job ignore SIGINT. A program that this process starts in turn must ignore the
//! same signals, but a handler of ours ends that, and so does the one of the standard library for
//! SIGPIPE. For the command, which has a libc; the runtime changes no signal.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::unix::process::CommandExt;
use std::process::Command;

use linux_raw_sys::general as linux;

use crate::raw::syscall;

/// Bit N - 1 for each signal N that was ignored when this process began.
static AT_START: AtomicU64 = AtomicU64::new(0);
/// All signals. libc installs a handler of its own for a signal without a name.
const SIGNALS: core::ops::RangeInclusive<u32> = 1..=64;
/// `SIG_IGN` of signal(7).
const IGNORED: usize = 1;
/// Words of `struct kernel_sigaction`: the handler comes first. With SIG_IGN, all other words may
/// be zero.
const ACTION_WORDS: usize = size_of::<linux::kernel_sigaction>() / size_of::<usize>();

/// Runs `note` before `main`, and before the standard library prepares anything.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    let mut ignored = 0;
    for signal in SIGNALS {
        let mut action = [0_usize; ACTION_WORDS];
        let of = ptr::null::<usize>().expose_provenance();
        let to = action.as_mut_ptr().expose_provenance();
        let words = [signal as usize, of, to, size_of::<u64>(), 0, 0];
        // SAFETY: the kernel writes one action to `action`, and changes none.
        let result = unsafe { syscall(linux::__NR_rt_sigaction, words) };
        if result == 0 && action[0] == IGNORED {
            ignored |= 1 << (signal - 1);
        }
    }
    // Relaxed: there is one thread.
    AT_START.store(ignored, Ordering::Relaxed);
}

/// Sends `signal` to a process, if it is there.
pub(crate) fn send(process: u32, signal: i32) {
    // SAFETY: no address is given.
    unsafe { syscall(linux::__NR_kill, [process as usize, signal as usize, 0, 0, 0, 0]) };
}

/// Makes the program that `command` starts, or is replaced by, ignore the signals that this process
/// was started to ignore.
pub fn hand_on_ignored(command: &mut Command) {
    // Relaxed: the value was written before `main`.
    let ignored = AT_START.load(Ordering::Relaxed);
    if ignored == 0 {
        return;
    }
    let ignore = move || {
        for signal in SIGNALS.filter(|signal| ignored & (1 << (signal - 1)) != 0) {
            let mut action = [0_usize; ACTION_WORDS];
            action[0] = IGNORED;
            let of = action.as_ptr().expose_provenance();
            let words = [signal as usize, of, 0, size_of::<u64>(), 0, 0];
            // SAFETY: the kernel reads one action, which calls nothing.
            unsafe { syscall(linux::__NR_rt_sigaction, words) };
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls on its own stack, and nothing
    // else.
    unsafe { command.pre_exec(ignore) };
}

#[cfg(test)]
mod tests {
    //! The risk: a signal that a program was started to ignore ends it.
    use super::*;

    #[test]
    fn what_was_ignored_at_the_start_is_told_from_what_the_library_ignores() {
        let ignored = AT_START.load(Ordering::Relaxed);
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let now = u64::from_str_radix(line.trim(), 16).unwrap();
        // Threads have given libc's own signals, which lie above the named ones, a handler.
        let (sigpipe, named) = (1 << (13 - 1), (1 << 31) - 1);
        assert_eq!((now | sigpipe) & named, (ignored | sigpipe) & named, "nobody changed others");
    }
}
