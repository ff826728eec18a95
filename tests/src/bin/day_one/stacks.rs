//! Stacks that can go away: those of threads and handlers with no room to spare, and of coroutines.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::ground::{Ground, fail};
use crate::program::outcome::{Outcome, exactly, failed, wrong};
use crate::program::pressure::Pressure;
use crate::program::random::mix;
use crate::program::{PAGE, raw};
use crate::{Case, Stop};

pub const CASES: &[Case] = &[
    Case { name: "tiny-thread", lay: ground, run: tiny_thread },
    Case { name: "tiny-handler", lay: ground, run: tiny_handler },
    Case { name: "coroutines-mapped", lay: ground, run: coroutines },
    Case { name: "coroutines-allocated", lay: block, run: coroutines },
];

/// Pages of a ground: 2 MiB.
const PAGES: usize = 512;
/// The page of the ground where a tiny stack begins.
const STACK: usize = 100;
/// Bytes of a mapping large enough to be managed.
const LARGE: usize = 256 << 10;

fn ground(owner: u32) -> Result<Ground, Stop> {
    Ground::map(owner, PAGES)
}

/// Lays ground in memory of malloc's heap, which is page-sized by chance only.
fn block(owner: u32) -> Result<Ground, Stop> {
    let base = unsafe { libc::malloc(PAGES * PAGE) };
    let mut ground = Ground::at(owner, base.expose_provenance(), PAGES);
    ground.fill(0..PAGES);
    Ok(ground)
}

/// Whether all went well on a tiny stack.
static FINE: AtomicBool = AtomicBool::new(false);
/// The first address of the ground, for code that gets no argument.
static GROUND: AtomicUsize = AtomicUsize::new(0);

/// Calls through libc that a memory manager may intercept, and touches pages that are away. Keeps
/// next to nothing on the stack. Returns whether all went well.
fn do_much_on_little() -> bool {
    // Relaxed: the ground was laid before the stack's user began.
    let base = GROUND.load(Ordering::Relaxed);
    for page in (PAGES / 2..PAGES).step_by(3) {
        unsafe { raw::pointer(base + page * PAGE + 9).read_volatile() };
    }
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    unsafe {
        let at = libc::mmap(null_mut(), LARGE, both, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return false;
        }
        at.cast::<u8>().write_volatile(7);
        let moved = libc::mremap(at, LARGE, 2 * LARGE, libc::MREMAP_MAYMOVE);
        if moved == libc::MAP_FAILED || moved.cast::<u8>().read_volatile() != 7 {
            return false;
        }
        let child = libc::fork();
        if child == 0 {
            libc::_exit(0);
        }
        let mut status = 1;
        libc::waitpid(child, &raw mut status, 0) == child
            && status == 0
            && libc::madvise(moved, LARGE, libc::MADV_FREE) == 0
            && libc::munmap(moved, 2 * LARGE) == 0
    }
}

/// Runs a thread with the smallest stack that libc gives, and all signals blocked. What lies around
/// its stack stays as it is.
fn tiny_thread(ground: &mut Ground, _: &Pressure) -> Outcome {
    extern "C" fn thread(_: *mut c_void) -> *mut c_void {
        let all = u64::MAX;
        let (call, how) = (libc::SYS_rt_sigprocmask, libc::SIG_SETMASK);
        unsafe { libc::syscall(call, how, &raw const all, null::<u64>(), 8) };
        // Relaxed: the join orders this store.
        FINE.store(do_much_on_little(), Ordering::Relaxed);
        null_mut()
    }
    let least = unsafe { libc::sysconf(libc::_SC_THREAD_STACK_MIN) };
    let length = usize::try_from(least).unwrap_or(4 * PAGE).next_multiple_of(PAGE);
    GROUND.store(ground.base, Ordering::Relaxed);
    FINE.store(false, Ordering::Relaxed);
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    let mut id: libc::pthread_t = unsafe { std::mem::zeroed() };
    let errors = unsafe {
        let at = &raw mut attributes;
        [
            libc::pthread_attr_init(at),
            libc::pthread_attr_setstack(at, ground.page(STACK), length),
            libc::pthread_create(&raw mut id, at, thread, null_mut()),
        ]
    };
    if errors != [0; 3] {
        return wrong(format!("no thread: {errors:?}"));
    }
    exactly("pthread_join", unsafe { libc::pthread_join(id, null_mut()) }, 0)?;
    unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    ground.expect_anything(STACK..STACK + length / PAGE);
    if FINE.load(Ordering::Relaxed) { Ok(()) } else { wrong("the thread failed") }
}

/// Runs a handler on a stack that holds the kernel's frame and two pages more.
fn tiny_handler(ground: &mut Ground, _: &Pressure) -> Outcome {
    extern "C" fn handler(_: c_int) {
        // Relaxed: the handler runs on the thread that reads this.
        FINE.store(do_much_on_little(), Ordering::Relaxed);
    }
    let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    let length = frame.max(libc::MINSIGSTKSZ).next_multiple_of(PAGE) + 2 * PAGE;
    GROUND.store(ground.base, Ordering::Relaxed);
    FINE.store(false, Ordering::Relaxed);
    let stack = libc::stack_t { ss_sp: ground.page(STACK), ss_flags: 0, ss_size: length };
    let mut old_stack: libc::stack_t = unsafe { std::mem::zeroed() };
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut old_action = action;
    action.sa_sigaction = handler as extern "C" fn(c_int) as usize;
    action.sa_flags = libc::SA_ONSTACK;
    let result = unsafe {
        libc::sigaltstack(&raw const stack, &raw mut old_stack)
            | libc::sigaction(libc::SIGUSR1, &raw const action, &raw mut old_action)
            | libc::raise(libc::SIGUSR1)
            | libc::sigaction(libc::SIGUSR1, &raw const old_action, null_mut())
            | libc::sigaltstack(&raw const old_stack, null_mut())
    };
    exactly("the calls for a handler", result, 0)?;
    ground.expect_anything(STACK..STACK + length / PAGE);
    if FINE.load(Ordering::Relaxed) { Ok(()) } else { wrong("the handler failed") }
}

/// Bytes of a coroutine's stack; below, the words that the coroutine fills on it.
const OWN_STACK: usize = 64 << 10;
const FILLED: usize = 6 * PAGE / 8;
/// Times that a coroutine is left and entered again.
const TURNS: u64 = 2;

/// A coroutine: where it continues, and whether it found wrong bytes.
struct Coroutine {
    context: libc::ucontext_t,
    number: u64,
    wrong: bool,
}

/// The coroutine that runs; below, where its scheduler continues.
static CURRENT: AtomicPtr<Coroutine> = AtomicPtr::new(null_mut());
static SCHEDULER: AtomicPtr<libc::ucontext_t> = AtomicPtr::new(null_mut());

unsafe extern "C" {
    fn getcontext(to: *mut libc::ucontext_t) -> c_int;
    fn makecontext(context: *mut libc::ucontext_t, function: extern "C" fn(), count: c_int, ...);
    fn swapcontext(from: *mut libc::ucontext_t, to: *const libc::ucontext_t) -> c_int;
}

/// Fills its stack, lets another coroutine run, and checks that the stack is as it was, again and
/// again.
extern "C" fn coroutine() {
    // Relaxed, here and below: all coroutines run on one thread.
    let own = CURRENT.load(Ordering::Relaxed);
    let number = unsafe { (*own).number };
    let mut room = [0_u64; FILLED];
    for turn in 0..TURNS {
        let word = |index: usize| mix(number << 32 | turn << 16 | index as u64);
        for (index, place) in room.iter_mut().enumerate() {
            unsafe { std::ptr::from_mut(place).write_volatile(word(index)) };
        }
        unsafe { swapcontext(&raw mut (*own).context, SCHEDULER.load(Ordering::Relaxed)) };
        let is_right = room.iter().enumerate().all(|(index, place)| unsafe {
            std::ptr::from_ref(place).read_volatile() == word(index)
        });
        unsafe { (*own).wrong |= !is_right };
    }
    unsafe { swapcontext(&raw mut (*own).context, SCHEDULER.load(Ordering::Relaxed)) };
}

/// Fills the ground with stacks, and walks other memory while no coroutine runs on them.
fn coroutines(ground: &mut Ground, pressure: &Pressure) -> Outcome {
    ground.compare()?;
    ground.expect_anything(0..PAGES);
    let mut scheduler: libc::ucontext_t = unsafe { std::mem::zeroed() };
    SCHEDULER.store(&raw mut scheduler, Ordering::Relaxed);
    let mut all = Vec::new();
    for number in 0..PAGES * PAGE / OWN_STACK {
        let context: libc::ucontext_t = unsafe { std::mem::zeroed() };
        all.push(Box::new(Coroutine { context, number: number as u64, wrong: false }));
        let own: *mut Coroutine = &raw mut **all.last_mut().expect("one was pushed");
        unsafe {
            exactly("getcontext", getcontext(&raw mut (*own).context), 0)?;
            (*own).context.uc_stack.ss_sp = ground.page::<u8>(0).add(number * OWN_STACK).cast();
            (*own).context.uc_stack.ss_size = OWN_STACK;
            makecontext(&raw mut (*own).context, coroutine, 0);
        }
    }
    for turn in 0..=TURNS {
        for own in &mut all {
            CURRENT.store(&raw mut **own, Ordering::Relaxed);
            let result = unsafe { swapcontext(&raw mut scheduler, &raw const own.context) };
            exactly("swapcontext", result, 0).map_err(|_| failed("swapcontext"))?;
        }
        pressure.walk();
        let (evicted, pages) = ground.evicted();
        eprintln!("stacks_evicted={evicted} of {pages} after turn {turn}");
    }
    match all.iter().find(|own| own.wrong) {
        None => Ok(()),
        Some(own) => Err(fail(
            "coroutine",
            &std::io::Error::other(format!("number {} found other bytes", own.number)),
        )),
    }
}
