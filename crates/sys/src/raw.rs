//! Bare system calls and threads: what rustix does not offer, for a thread that has no libc behind
//! it.

use core::arch::{asm, naked_asm};

use crate::error::{SysError, SysResult};

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("coldpress runs on x86-64 Linux only so far");

/// One system call by number.
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

/// The result of [`syscall`] as a number or the error of `call`.
pub fn checked(call: &'static str, result: isize) -> SysResult<usize> {
    // The kernel returns errors as -4095..=-1.
    if (-4095..0).contains(&result) {
        Err(SysError { call, errno: -result as i32 })
    } else {
        Ok(result as usize)
    }
}

/// What a raw thread runs; it must not return.
pub type ThreadMain = extern "C" fn(usize) -> !;

/// Starts a thread of this process on `stack_top` (16-byte aligned), which runs `main(argument)`.
///
/// The thread shares everything with its creator, thread-local memory included, so it must use
/// none: no libc, no `thread_local!`. The word `alive` becomes zero, and is woken as a futex, when
/// the thread ends. Returns the thread's id.
///
/// # Safety
/// `stack_top` must be the end of a stack that nobody else uses until the thread has ended, `alive`
/// must outlive the thread, and all signals should be blocked during the call, so that no handler
/// of the program ever runs on the new thread.
pub unsafe fn spawn(
    stack_top: *mut u8,
    main: ThreadMain,
    argument: usize,
    alive: *const core::sync::atomic::AtomicU32,
) -> SysResult<u32> {
    use linux_raw_sys::general as linux;
    // Not CLONE_FS: after a chroot of the program /proc must still be found, and name spaces of
    // mounts are closed to threads that share it.
    let flags = linux::CLONE_VM
        | linux::CLONE_FILES
        | linux::CLONE_SIGHAND
        | linux::CLONE_THREAD
        | linux::CLONE_SYSVSEM
        | linux::CLONE_PARENT_SETTID
        | linux::CLONE_CHILD_CLEARTID;
    // SAFETY: the caller vouches for stack, function and word; see `clone_thread` for the
    // convention.
    let result =
        unsafe { clone_thread(flags as usize, stack_top, alive as usize, main as usize, argument) };
    checked("clone", result).map(|id| id as u32)
}

/// `clone(flags, stack, parent_tid = word, child_tid = word)`; the child calls `main(argument)`.
#[unsafe(naked)]
unsafe extern "C" fn clone_thread(
    flags: usize,
    stack_top: *mut u8,
    word: usize,
    main: usize,
    argument: usize,
) -> isize {
    naked_asm!(
        // rdi flags, rsi stack, rdx parent_tid, r10 child_tid, r8 tls (unused); 56 is clone.
        "mov r9, rcx", // main: rcx is lost in the system call, r9 and r8 are not
        "mov r10, rdx",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "xor ebp, ebp",
        "mov rdi, r8",
        "call r9",
        "ud2",
    )
}

/// Ends the calling thread only.
pub fn exit_thread() -> ! {
    // SAFETY: exit(0) ends this thread; nothing after it runs.
    unsafe { syscall(linux_raw_sys::general::__NR_exit, [0; 6]) };
    unreachable!("exit does not return")
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

/// Writes to the standard error of the process, as far as it takes it.
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

/// Gives the calling thread a file table of its own in which nothing is open but `kept`, in any
/// order.
///
/// What the program closes then stays closed for everybody else (a pipe's end is seen), and what
/// the thread opens does not appear among the program's descriptors.
pub fn private_files(kept: impl Iterator<Item = i32> + Clone) -> SysResult<()> {
    use linux_raw_sys::general as linux;
    // SAFETY: the table is copied, and nobody else's descriptors are touched.
    let result =
        unsafe { syscall(linux::__NR_unshare, [linux::CLONE_FILES as usize, 0, 0, 0, 0, 0]) };
    checked("unshare(CLONE_FILES)", result)?;
    let mut from = 0;
    loop {
        let next = kept.clone().map(i32::unsigned_abs).filter(|file| *file >= from).min();
        let end = next.unwrap_or(u32::MAX);
        if from < end {
            // SAFETY: this thread uses none of them.
            let result = unsafe {
                syscall(linux::__NR_close_range, [from as usize, end as usize - 1, 0, 0, 0, 0])
            };
            checked("close_range", result)?;
        }
        match next {
            Some(file) => from = file + 1,
            None => return Ok(()),
        }
    }
}

/// Names the calling thread as `ps` and `top` show it.
pub fn name_thread(name: &core::ffi::CStr) {
    let _ = rustix::thread::set_name(name);
}

/// The id of the calling thread.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Where the calling thread's control block is: its first word, by the ABI, is its own address
/// (ELF Handling For Thread-Local Storage, x86-64).
pub fn thread_block() -> usize {
    let block: usize;
    // SAFETY: reads the word that every thread with a libc has there.
    unsafe { asm!("mov {}, fs:0", out(reg) block, options(nostack, readonly, pure)) };
    block
}

/// The id of the calling process.
pub fn process_id() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// Whether `thread` is one of the calling process.
pub fn is_own_thread(thread: u32) -> bool {
    let arguments = [process_id() as usize, thread as usize, 0, 0, 0, 0];
    // SAFETY: the arguments are numbers, and signal 0 is none.
    unsafe { syscall(linux_raw_sys::general::__NR_tgkill, arguments) == 0 }
}

/// The largest resident size this process ever had: files and anonymous memory together, exec
/// included.
pub fn resident_peak() -> crate::Bytes {
    crate::Bytes::kib(usage()[4])
}

/// Faults of this process, all threads together, that needed no disk: ru_minflt.
pub fn minor_faults() -> u64 {
    usage()[8] as u64
}

/// struct rusage of this process: two timevals (32 bytes), then ru_maxrss in KiB and 13 more longs.
fn usage() -> [usize; 18] {
    use linux_raw_sys::general as linux;
    let mut usage = [0_usize; 18];
    // SAFETY: the buffer is as large as struct rusage (144 bytes on 64-bit Linux).
    unsafe { syscall(linux::__NR_getrusage, [0, usage.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    usage
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    static RAN: AtomicU32 = AtomicU32::new(0);
    static ALIVE: AtomicU32 = AtomicU32::new(1);

    extern "C" fn body(argument: usize) -> ! {
        // Release pairs with the Acquire load of the test below.
        RAN.store(argument as u32, Ordering::Release);
        exit_thread()
    }

    #[test]
    fn a_raw_thread_runs_ends_and_tells() {
        let span = crate::map::Span::reserve(crate::Bytes::kib(64), crate::Bytes(4096)).unwrap();
        let mask = block_signals();
        // SAFETY: the stack is this test's own and outlives the thread, as it waits for its end.
        let id = unsafe {
            let top = span.base().as_ptr().add(span.length().0);
            spawn(top, body, 42, &raw const ALIVE).unwrap()
        };
        set_signal_mask(mask);
        assert_ne!(id, thread_id());
        while ALIVE.load(Ordering::Acquire) != 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(RAN.load(Ordering::Acquire), 42);
    }

    #[test]
    fn errors_carry_the_call() {
        // SAFETY: closing a descriptor that cannot exist.
        let result =
            unsafe { syscall(linux_raw_sys::general::__NR_close, [usize::MAX, 0, 0, 0, 0, 0]) };
        let error = checked("close", result).unwrap_err();
        assert_eq!(std::format!("{error}"), "close: EBADF");
        assert!(resident_peak() > crate::Bytes::mib(1));
    }
}
