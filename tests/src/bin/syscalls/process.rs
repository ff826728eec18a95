//! New programs whose path, arguments and environment lie in the slot; threads whose stack lies
//! there.

use std::ffi::{c_int, c_void};
use std::process::ExitCode;

use crate::arena::{A, SLOT, Slot, across, exactly, failed, put, split, wrong};
use crate::memory;
use crate::program::PAGE;
use crate::program::random::mix;
use crate::{Case, Outcome, Stop, plain};

pub const CASES: &[Case] = &[
    Case { name: "execve", prepare: words, run: execve },
    Case { name: "posix_spawn", prepare: words, run: posix_spawn },
    Case { name: "clone-stack", prepare: plain, run: clone_stack },
    Case { name: "thread-stack", prepare: plain, run: thread_stack },
];

/// First argument of this program as a process outside; below, as the program that a case starts.
pub const OUTSIDE: &str = "outside";
const ECHO: &str = "words";
/// Status of a helper that found everything right.
pub const RIGHT: i32 = 42;
/// Status of a helper that was not allowed to try.
pub const FORBIDDEN: i32 = 77;

/// Long arguments of the new program; below, the variable it must see.
const ARGUMENTS: usize = 10;
const VARIABLE: &str = "COLD_WORD";
/// Offsets of the lists, the path and the words.
const ARGV: usize = across(0, (ARGUMENTS + 3) * 8);
const ENVP: usize = across(30, 32);
const PATH: usize = split(1, 18);
const WORDS: usize = 3 * PAGE + 11;

fn argument(index: usize) -> String {
    format!("{index}-word-").repeat(400)
}

fn words(base: usize, image: &mut [u8]) {
    let mut at = WORDS;
    let mut place = |image: &mut [u8], text: &str| {
        image[at..at + text.len()].copy_from_slice(text.as_bytes());
        image[at + text.len()] = 0;
        let address = base + at;
        at += text.len() + 1;
        address
    };
    let mut list = vec![place(image, "syscalls"), place(image, ECHO)];
    list.extend((0..ARGUMENTS).map(|index| place(image, &argument(index))));
    list.push(0);
    for (index, word) in list.iter().enumerate() {
        put(image, ARGV + index * 8, word);
    }
    let variable = format!("{VARIABLE}={}", argument(99));
    let environment = [place(image, &variable), 0];
    put(image, ENVP, &environment);
    let path = b"/proc/self/exe\0";
    image[PATH..PATH + path.len()].copy_from_slice(path);
}

/// Returns the exit status of this process if it was started as a helper.
pub fn as_helper() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args().collect();
    let status = match words.get(1).map(String::as_str) {
        Some(OUTSIDE) => {
            let numbers: Vec<usize> = words[2..].iter().flat_map(|word| word.parse()).collect();
            memory::outside(&numbers)
        }
        Some(ECHO) => {
            let right = words.len() == ARGUMENTS + 2
                && words[2..].iter().enumerate().all(|(index, word)| *word == argument(index))
                && std::env::var(VARIABLE).is_ok_and(|word| word == argument(99));
            if right { RIGHT } else { 1 }
        }
        _ => return None,
    };
    Some(ExitCode::from(status as u8))
}

fn reap(call: &str, pid: i32) -> Outcome {
    if pid < 0 {
        return Err(failed(call));
    }
    let mut status = 0;
    let flags = libc::__WALL;
    exactly("waitpid", unsafe { libc::waitpid(pid, &raw mut status, flags) }, pid as usize)?;
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == RIGHT {
        return Ok(());
    }
    wrong(format!("{call}: the child's status is {status:#x}"))
}

/// Executes a program in a child that shares memory until it has become the new program: the child
/// makes only the call itself.
fn execve(slot: &mut Slot) -> Outcome {
    extern "C" fn child(slot: *mut c_void) -> c_int {
        let at = |offset| slot.cast::<u8>().wrapping_add(offset);
        unsafe {
            libc::execve(at(PATH).cast(), at(ARGV).cast(), at(ENVP).cast());
            libc::_exit(127)
        }
    }
    let mut stack = vec![0u128; 4096];
    let top = stack.as_mut_ptr_range().end.cast();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    reap("execve", unsafe { libc::clone(child, top, flags, slot.at(0)) })
}

fn posix_spawn(slot: &mut Slot) -> Outcome {
    let pid = across(28, 16);
    let (none, plain) = (std::ptr::null(), std::ptr::null());
    let (argv, envp) = (slot.at(ARGV), slot.at(ENVP));
    let error = unsafe { libc::posix_spawn(slot.at(pid), slot.at(PATH), none, plain, argv, envp) };
    exactly("posix_spawn", error, 0)?;
    slot.learn(pid, 4);
    reap("posix_spawn", unsafe { slot.at::<i32>(pid).read() })
}

/// Fills and checks some pages of the stack it runs on. Returns whether they were right.
#[inline(never)]
fn use_stack(pause: libc::timespec) -> bool {
    let mut room = [0u64; 8 * PAGE / 8];
    for (index, word) in room.iter_mut().enumerate() {
        unsafe { std::ptr::from_mut(word).write_volatile(mix(index as u64)) };
    }
    unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    let right = |(index, word): (usize, &u64)| unsafe {
        std::ptr::from_ref(word).read_volatile() == mix(index as u64)
    };
    room.iter().enumerate().all(right)
}

const PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };

fn clone_stack(slot: &mut Slot) -> Outcome {
    extern "C" fn child(_: *mut c_void) -> c_int {
        if use_stack(PAUSE) { RIGHT } else { 1 }
    }
    // The caller waits, because the child borrows its thread-local storage.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let pid = unsafe { libc::clone(child, slot.at(SLOT), flags, std::ptr::null_mut()) };
    reap("clone", pid)?;
    let used = SLOT - 12 * PAGE;
    slot.learn(used, 12 * PAGE);
    Ok(())
}

/// Runs a thread on the slot. libc puts the thread's own storage on this stack too, and the kernel
/// writes to it.
fn thread_stack(slot: &mut Slot) -> Outcome {
    extern "C" fn thread(_: *mut c_void) -> *mut c_void {
        std::ptr::without_provenance_mut(usize::from(use_stack(PAUSE)))
    }
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    let mut id: libc::pthread_t = unsafe { std::mem::zeroed() };
    let mut answer: *mut c_void = std::ptr::null_mut();
    let none = std::ptr::null_mut();
    let errors = unsafe {
        let at = &raw mut attributes;
        [
            libc::pthread_attr_init(at),
            libc::pthread_attr_setstack(at, slot.at(0), SLOT),
            libc::pthread_create(&raw mut id, at, thread, none),
        ]
    };
    if errors != [0; 3] {
        return Err(Stop::Fail(format!("no thread: {errors:?}")));
    }
    exactly("pthread_join", unsafe { libc::pthread_join(id, &raw mut answer) }, 0)?;
    unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    if answer.addr() != 1 {
        return wrong("the thread found other bytes on its stack");
    }
    // The thread never reached the far end of the stack.
    let used = 8 * PAGE + A;
    slot.learn(used, SLOT - used);
    Ok(())
}
