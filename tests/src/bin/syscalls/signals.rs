//! Signals: stacks, sets and records in the slot.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::arena::{SLOT, Slot, across, bytes_of, exactly, failed, put, split, wrong};
use crate::program::PAGE;
use crate::{Case, Outcome, plain};

pub const CASES: &[Case] = &[
    Case { name: "sigaltstack", prepare: plain, run: sigaltstack },
    Case { name: "sigprocmask-sigtimedwait", prepare: sets, run: sigtimedwait },
    Case { name: "signal-interrupts-nothing", prepare: plain, run: all_blocked },
];

/// Address of the handler's frame; 0 before the handler ran.
static FRAME: AtomicUsize = AtomicUsize::new(0);

/// Uses some pages of its stack and notes their address.
extern "C" fn handler(_: i32) {
    let mut room = [0u8; 3 * PAGE];
    for byte in room.iter_mut().step_by(64) {
        unsafe { std::ptr::from_mut(byte).write_volatile(1) };
    }
    // Relaxed: the handler runs on the thread that reads this.
    FRAME.store((&raw const room).addr(), Ordering::Relaxed);
}

fn sigaltstack(slot: &mut Slot) -> Outcome {
    let signal = libc::SIGUSR1;
    let mut old_stack: libc::stack_t = unsafe { std::mem::zeroed() };
    let stack = libc::stack_t { ss_sp: slot.at(0), ss_flags: 0, ss_size: SLOT };
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut old_action = action;
    action.sa_sigaction = handler as extern "C" fn(i32) as usize;
    action.sa_flags = libc::SA_ONSTACK;
    FRAME.store(0, Ordering::Relaxed);
    let result = unsafe {
        libc::sigaction(signal, &raw const action, &raw mut old_action)
            | libc::sigaltstack(&raw const stack, &raw mut old_stack)
    };
    exactly("sigaltstack", result, 0)?;
    let raised = unsafe { libc::raise(signal) };
    let result = unsafe {
        libc::sigaltstack(&raw const old_stack, std::ptr::null_mut())
            | libc::sigaction(signal, &raw const old_action, std::ptr::null_mut())
    };
    exactly("restoring", result, 0)?;
    exactly("raise", raised, 0)?;
    let frame = FRAME.load(Ordering::Relaxed);
    if !(slot.base..slot.base + SLOT).contains(&frame) {
        return wrong(format!("the handler ran at {frame:#x}"));
    }
    // The handler has not touched what lies far below its frame.
    let used = (frame - slot.base) / PAGE * PAGE;
    slot.learn(used, SLOT - used);
    let below = used.saturating_sub(4 * PAGE);
    slot.learn(below, used - below);
    Ok(())
}

/// Offsets of the set, the time and the record.
const SET: usize = split(3, 8);
const OLD: usize = split(9, 8);
const TIME: usize = across(12, 16);
const RECORD: usize = across(20, 128);

fn sets(_: usize, image: &mut [u8]) {
    let set = 1u64 << (libc::SIGUSR2 - 1);
    put(image, SET, &set);
    put(image, TIME, &[5u64, 0]);
}

/// Blocks a signal, sends it to this thread, and fetches it.
fn sigtimedwait(slot: &mut Slot) -> Outcome {
    let (set, old) = (slot.at::<u8>(SET), slot.at::<u8>(OLD));
    let (time, record) = (slot.at::<u8>(TIME), slot.at::<u8>(RECORD));
    let mask = libc::SYS_rt_sigprocmask;
    let before = current_mask();
    exactly("block", unsafe { libc::syscall(mask, libc::SIG_BLOCK, set, old, 8) }, 0)?;
    slot.expect(OLD, &bytes_of(&before));
    let raised = unsafe { libc::raise(libc::SIGUSR2) };
    let number = libc::SYS_rt_sigtimedwait;
    let got = unsafe { libc::syscall(number, set, record, time, 8) };
    let result = unsafe { libc::syscall(mask, libc::SIG_SETMASK, old, 0, 8) };
    exactly("raise", raised, 0)?;
    exactly("rt_sigtimedwait", got, libc::SIGUSR2 as usize)?;
    exactly("restore", result, 0)?;
    slot.learn(RECORD, 128);
    let signal: i32 = unsafe { slot.at::<i32>(RECORD).read() };
    if signal == libc::SIGUSR2 { Ok(()) } else { wrong(format!("the record says {signal}")) }
}

fn current_mask() -> u64 {
    let mut mask = 0u64;
    let none: *const u64 = std::ptr::null();
    let how = libc::SIG_BLOCK;
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, none, &raw mut mask, 8) };
    mask
}

/// Faults with every signal blocked, in the program and in the kernel.
fn all_blocked(slot: &mut Slot) -> Outcome {
    let (all, mut old) = (u64::MAX, 0u64);
    let number = libc::SYS_rt_sigprocmask;
    let how = libc::SIG_SETMASK;
    let result = unsafe { libc::syscall(number, how, &raw const all, &raw mut old, 8) };
    exactly("block all", result, 0)?;
    let compared = slot.compare();
    let result = unsafe { libc::syscall(number, how, &raw const old, 0, 8) };
    if result == 0 { compared } else { Err(failed("restore")) }
}
