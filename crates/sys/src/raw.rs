//! Bare system calls that rustix does not offer, for code that has no libc behind it.

use core::arch::asm;

use crate::errno;
use crate::error::{SysError, SysResult};
use crate::page::Bytes;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("coldpress runs on x86-64 Linux only so far");

/// Makes one system call by number.
///
/// # Safety
/// As for the call itself: the arguments must be what the kernel expects of call `number`.
pub unsafe fn syscall(number: u32, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the x86-64 Linux calling convention; rcx and r11 are clobbered by the instruction,
    // and the caller vouches for the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as usize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Returns the result of [`syscall`] as a number, or as the error of `call`.
pub fn checked(call: &'static str, result: isize) -> SysResult<usize> {
    // The kernel returns errors as -4095..=-1.
    if (-4095..0).contains(&result) {
        Err(SysError { call, errno: -result as i32 })
    } else {
        Ok(result as usize)
    }
}

/// Ends the process at once with SIGABRT's default action, whatever the program made of that
/// signal.
pub fn abort_process() -> ! {
    use linux_raw_sys::general as linux;
    // SAFETY: a zeroed kernel_sigaction is SIG_DFL with no flags and an empty mask; the signal set
    // is the one word the kernel asks for. The calls end the process.
    unsafe {
        let default_action = [0_usize; 4];
        let sigabrt = linux::SIGABRT as usize;
        let action = default_action.as_ptr() as usize;
        syscall(linux::__NR_rt_sigaction, [sigabrt, action, 0, 8, 0, 0]);
        let mask = 1_u64 << (sigabrt - 1);
        let set = &raw const mask as usize;
        syscall(linux::__NR_rt_sigprocmask, [linux::SIG_UNBLOCK as usize, set, 0, 8, 0, 0]);
        let pid = syscall(linux::__NR_getpid, [0; 6]) as usize;
        let tid = syscall(linux::__NR_gettid, [0; 6]) as usize;
        syscall(linux::__NR_tgkill, [pid, tid, sigabrt, 0, 0, 0]);
        syscall(linux::__NR_exit_group, [128 + sigabrt, 0, 0, 0, 0, 0]);
    }
    unreachable!("exit_group does not return")
}

/// Writes to the standard error of the process, as far as that file accepts it.
pub fn write_to_stderr(text: &[u8]) {
    // SAFETY: the text lives through the call; a closed descriptor is answered by EBADF.
    unsafe {
        let arguments = [2, text.as_ptr() as usize, text.len(), 0, 0, 0];
        syscall(linux_raw_sys::general::__NR_write, arguments);
    }
}

/// Blocks every signal for the calling thread and returns the mask it had.
pub fn block_signals() -> u64 {
    set_signal_mask(u64::MAX)
}

/// Returns the calling thread's signal mask.
pub fn signal_mask() -> u64 {
    let mask = block_signals();
    set_signal_mask(mask);
    mask
}

/// Sets the calling thread's signal mask and returns the old one.
pub fn set_signal_mask(mask: u64) -> u64 {
    use linux_raw_sys::general as linux;
    let mut old = 0_u64;
    let (new_set, old_set) = (&raw const mask as usize, &raw mut old as usize);
    // SAFETY: both sets are one 8-byte word, as the kernel's sigset_t is.
    unsafe {
        syscall(
            linux::__NR_rt_sigprocmask,
            [linux::SIG_SETMASK as usize, new_set, old_set, 8, 0, 0],
        );
    }
    old
}

/// Names the calling thread as `ps` and `top` show it.
pub fn name_thread(name: &core::ffi::CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Returns the id of the calling thread.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Returns the id of the calling process's parent, 0 if that is in another PID name space.
pub fn parent_id() -> u32 {
    rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get().cast_unsigned())
}

/// Returns the calling thread's pointer (`ARCH_GET_FS`, arch_prctl(2)): the address of its control
/// block, or 0 in a thread without a libc.
pub fn thread_pointer() -> usize {
    const ARCH_GET_FS: usize = 0x1003;
    let mut pointer = 0_usize;
    let arguments = [ARCH_GET_FS, (&raw mut pointer).expose_provenance(), 0, 0, 0, 0];
    // SAFETY: the kernel writes a word to `pointer`.
    unsafe { syscall(linux_raw_sys::general::__NR_arch_prctl, arguments) };
    pointer
}

/// Returns the address of the calling thread's control block: its first word, by the ABI, is its
/// own address (ELF Handling For Thread-Local Storage, x86-64).
pub fn thread_block() -> usize {
    let block: usize;
    // SAFETY: reads the word that every thread with a libc has there.
    unsafe { asm!("mov {}, fs:0", out(reg) block, options(nostack, readonly, pure)) };
    block
}

/// Returns how much this process may map, if that is limited (`RLIMIT_AS`).
pub fn address_limit() -> Option<Bytes> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As);
    limit.current.map(|bytes| Bytes(bytes as usize))
}

/// Returns the id of the calling process.
pub fn process_id() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// Returns whether `thread` belongs to `process`.
pub fn is_thread_of(process: u32, thread: u32) -> bool {
    // The answer for a thread that exists and belongs to another user.
    const EPERM: isize = -(errno::EPERM as isize);
    let arguments = [process as usize, thread as usize, 0, 0, 0, 0];
    // SAFETY: the arguments are numbers, and signal 0 is none.
    let result = unsafe { syscall(linux_raw_sys::general::__NR_tgkill, arguments) };
    result == 0 || result == EPERM
}

/// Ends `process` by SIGKILL, if the calling process may.
pub fn kill(process: u32) {
    use linux_raw_sys::general as linux;
    let arguments = [process as usize, linux::SIGKILL as usize, 0, 0, 0, 0];
    // SAFETY: kill takes two numbers, and reads no memory of ours.
    unsafe { syscall(linux::__NR_kill, arguments) };
}

/// Returns the number of the calling process's faults that needed no disk: ru_minflt.
pub fn minor_faults() -> u64 {
    use linux_raw_sys::general as linux;
    /// Index of ru_minflt in struct rusage: two timevals, then 14 longs, of which this is the
    /// fifth.
    const MINFLT: usize = 8;
    let mut usage = [0_u64; 18];
    // SAFETY: the buffer is as large as struct rusage (144 bytes on 64-bit Linux).
    unsafe { syscall(linux::__NR_getrusage, [0, usage.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    usage[MINFLT]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_carry_the_call() {
        // SAFETY: the call closes a descriptor that cannot exist.
        let result =
            unsafe { syscall(linux_raw_sys::general::__NR_close, [usize::MAX, 0, 0, 0, 0, 0]) };
        let error = checked("close", result).unwrap_err();
        assert_eq!(std::format!("{error}"), "close: EBADF");
    }
}
