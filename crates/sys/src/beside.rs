//! Processes beside the caller: they share its memory and nothing else.
//!
//! Such a process has its own descriptors, directories, signal handlers and rights, and its own
//! thread group. So what its maker does to itself (a filter on all threads, other rights, a stop by
//! a debugger, `unshare`) does not reach it. No `wait` of its maker should see it either: the
//! program there never made a child that it knows of.

use core::arch::naked_asm;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use linux_raw_sys::general as linux;

use crate::errno;
use crate::error::{SysError, SysResult};
use crate::raw::{checked, process_id, syscall};

/// The parent of a process of [`spawn_beside`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// The nearest reaper of orphans above the caller: an intermediate process makes the new one
    /// and ends at once, so that no wait of the caller can see it.
    Reaper,
    /// The caller, which sees the process only by the flags `__WALL` and `__WCLONE`: for a caller
    /// that is such a reaper itself.
    Caller,
}

/// Starts a process that shares the caller's memory and nothing else: descriptors, signal handlers,
/// directories and rights are copies, and it has a thread group of its own. It runs `main` on
/// `stack_top` (16-byte aligned), with `thread_block` as its thread pointer.
///
/// No debugger of the caller follows it (`CLONE_UNTRACED`), and its end sends no signal. The word
/// `alive` holds its number until it ends; then the kernel sets the word to zero and wakes it as a
/// futex.
///
/// # Safety
/// `stack_top` must be the end of a stack that nothing else uses until the process has ended.
/// `thread_block` must point to memory whose first word is its own address; like `alive`, it must
/// outlive the process. All signals should be blocked during the call, so that no handler of the
/// program ever runs there. The process must use no libc and no thread-local memory.
pub unsafe fn spawn_beside(
    parent: Parent,
    stack_top: *mut u8,
    thread_block: *const usize,
    main: extern "C" fn() -> !,
    alive: &AtomicU32,
) -> SysResult<()> {
    let shared = linux::CLONE_VM | linux::CLONE_UNTRACED;
    let settings = linux::CLONE_PARENT_SETTID | linux::CLONE_CHILD_CLEARTID | linux::CLONE_SETTLS;
    let between = match parent {
        // The intermediate process has the caller's stack meanwhile, and does not use it.
        Parent::Reaper => (shared | linux::CLONE_VFORK) as usize,
        Parent::Caller => 0,
    };
    let (flags, word) = ((shared | settings) as usize, alive.as_ptr() as usize);
    // SAFETY: the caller vouches for stack, block, function and word; see `clone_beside` for the
    // convention.
    let result = unsafe {
        clone_beside(between, flags, stack_top, word, main as usize, thread_block as usize)
    };
    let process = checked("clone", result)?;
    if parent == Parent::Caller {
        return Ok(());
    }
    match reap(process) {
        // The intermediate process has ended by itself, with an error number or 0 as its status.
        Some(0) => Ok(()),
        Some(status) => Err(SysError { call: "clone", errno: (status >> 8 & 0xff) as i32 }),
        // Another thread of this process has waited for it.
        // Relaxed: the kernel wrote the word before the intermediate process ended, which that
        // thread has seen.
        None if alive.load(Ordering::Relaxed) != 0 => Ok(()),
        None => Err(SysError { call: "clone", errno: errno::ECHILD }),
    }
}

/// Waits for a child of any kind, reaps it, and returns its status; `None` when there is no such
/// child.
fn reap(process: usize) -> Option<u32> {
    let mut status = 0_u32;
    let place = (&raw mut status).expose_provenance();
    loop {
        // SAFETY: the kernel writes the status to a word of ours.
        let result = unsafe {
            syscall(linux::__NR_wait4, [process, place, linux::__WALL as usize, 0, 0, 0])
        };
        match result {
            // EINTR.
            -4 => {}
            result if result < 0 => return None,
            _ => return Some(status),
        }
    }
}

/// Reaps ended children of the calling process that [`spawn_beside`] made for the image before its
/// last exec.
pub fn reap_ended_clones() {
    let options = (linux::__WCLONE | linux::WNOHANG) as usize;
    // SAFETY: no address is given, so the kernel writes nowhere.
    while unsafe { syscall(linux::__NR_wait4, [usize::MAX, 0, options, 0, 0, 0]) } > 0 {}
}

/// Makes two calls of `clone` with nothing between them that needs a stack. The first, left out
/// when `between` is 0, makes the intermediate process, which makes the second call and ends.
/// `flags`, `stack_top`, `word` (parent_tid and child_tid) and `block` (tls) belong to the second
/// call, whose process calls `main()`.
#[unsafe(naked)]
unsafe extern "C" fn clone_beside(
    between: usize,
    flags: usize,
    stack_top: *mut u8,
    word: usize,
    main: usize,
    block: usize,
) -> isize {
    naked_asm!(
        // The kernel keeps all registers but rax, rcx and r11, so the arguments of the second call
        // wait in registers that a function must restore.
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov rbx, rsi", // flags
        "mov r12, rdx", // stack
        "mov r13, rcx", // word
        "mov r14, r8",  // main
        "mov r15, r9",  // block
        "test rdi, rdi",
        "jz 2f",
        "xor esi, esi",
        "xor edx, edx",
        "xor r10d, r10d",
        "xor r8d, r8d",
        "mov eax, 56", // clone
        "syscall",
        "test rax, rax",
        "jnz 4f",
        // The intermediate process: rdi is not 0, which ebp remembers.
        "mov ebp, 1",
        "jmp 3f",
        "2:",
        "push rbp",
        "xor ebp, ebp",
        "3:",
        "mov rdi, rbx",
        "mov rsi, r12",
        "mov rdx, r13",
        "mov r10, r13",
        "mov r8, r15",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jz 6f",
        "test ebp, ebp",
        "jnz 5f",
        "pop rbp",
        "4:", // the caller
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "ret",
        "5:", // the intermediate process: ends with 0, or with the number of the error
        "xor edi, edi",
        "neg rax",
        "cmovns edi, eax",
        "mov eax, 60", // exit
        "syscall",
        "ud2",
        "6:",
        "xor ebp, ebp",
        "call r14",
        "ud2",
    )
}

/// Ends the calling process without running exit handlers.
pub fn exit_process(status: u8) -> ! {
    // SAFETY: exit_group ends the process; nothing after it runs.
    unsafe {
        syscall(linux_raw_sys::general::__NR_exit_group, [status.into(), 0, 0, 0, 0, 0]);
    }
    unreachable!("exit_group does not return")
}

/// Closes every descriptor of the calling process but `kept`, which may be in any order.
///
/// A process made with copies of another's descriptors ([`spawn_beside`]) would otherwise keep open
/// what the other one closes: readers of a pipe would not see its end.
pub fn close_files(kept: impl Iterator<Item = i32> + Clone) -> SysResult<()> {
    let mut from = 0;
    loop {
        let next = kept.clone().map(i32::unsigned_abs).filter(|file| *file >= from).min();
        let end = next.unwrap_or(u32::MAX);
        if from < end {
            let arguments = [from as usize, end as usize - 1, 0, 0, 0, 0];
            // SAFETY: the caller uses none of the descriptors in this range.
            let result = unsafe { syscall(linux::__NR_close_range, arguments) };
            checked("close_range", result)?;
        }
        match next {
            Some(file) => from = file + 1,
            None => return Ok(()),
        }
    }
}

/// Takes the calling process out of its original process group, so that no signal to the group
/// reaches it, and out of its directory, so that it keeps nothing mounted.
///
/// It stays in its session: in one of its own it would also be in a scheduler group of its own
/// (autogroup, sched(7)), where its nice value would not count against the program's.
pub fn leave_surroundings() {
    // The kernel refuses this only to a session leader, and a process just made is none.
    let _ = rustix::process::setpgid(None, None);
    let _ = rustix::process::chdir(c"/");
}

/// Returns whether orphans below the calling process become its children: it is the first process
/// of its PID name space, or has asked for them (`PR_SET_CHILD_SUBREAPER`).
pub fn is_reaper() -> bool {
    /// linux/prctl.h.
    const PR_GET_CHILD_SUBREAPER: usize = 37;
    let mut is_one = 0_i32;
    let arguments = [PR_GET_CHILD_SUBREAPER, (&raw mut is_one).expose_provenance(), 0, 0, 0, 0];
    // SAFETY: the kernel writes an int to `is_one`.
    unsafe { syscall(linux::__NR_prctl, arguments) };
    is_one != 0 || process_id() == 1
}

/// Returns whether children of the calling process are in another PID name space than the process
/// itself: the first child is then the init of that name space, and all others end with it.
pub fn children_are_elsewhere() -> bool {
    let place = |path: &core::ffi::CStr| {
        let mut buffer = [MaybeUninit::uninit(); 64];
        let link = rustix::fs::readlinkat_raw(rustix::fs::CWD, path, &mut buffer).ok()?;
        let mut name = [0; 64];
        name[..link.0.len()].copy_from_slice(link.0);
        Some(name)
    };
    place(c"/proc/thread-self/ns/pid") != place(c"/proc/thread-self/ns/pid_for_children")
}

#[cfg(test)]
mod tests {
    //! The risk: a child turns up in the wait of a program that never made it, or a process never
    //! ends.

    use std::time::Duration;

    use super::*;
    use crate::raw::{block_signals, set_signal_mask};

    static RAN: AtomicU32 = AtomicU32::new(0);
    static ALIVE: AtomicU32 = AtomicU32::new(0);

    extern "C" fn body() -> ! {
        // Release pairs with the Acquire load of the test below.
        RAN.store(process_id(), Ordering::Release);
        exit_process(0)
    }

    #[test]
    fn a_process_beside_shares_memory_ends_and_is_nobodys_child() {
        let span = crate::map::Span::reserve(crate::Bytes::kib(64), crate::Bytes(4096)).unwrap();
        let mut block = std::boxed::Box::new([0_usize; 64]);
        block[0] = block.as_ptr().expose_provenance();
        for parent in [Parent::Reaper, Parent::Caller] {
            let mask = block_signals();
            // SAFETY: stack, block and word are this test's own and outlive the process, because
            // the test waits for its end.
            unsafe {
                let top = span.base().as_ptr().add(span.length().0);
                spawn_beside(parent, top, block.as_ptr(), body, &ALIVE).unwrap();
            }
            set_signal_mask(mask);
            // Acquire pairs with the kernel's clearing store.
            while ALIVE.load(Ordering::Acquire) != 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Acquire pairs with the Release in `body`.
            let process = RAN.swap(0, Ordering::Acquire);
            assert!(process != 0 && process != process_id());
            let waited = reap(process as usize);
            assert_eq!(waited, (parent == Parent::Caller).then_some(0), "{parent:?}");
        }
    }
}
