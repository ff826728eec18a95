//! The other way into a program: the command maps this library into a process that stands still,
//! and has a thread of it make the one system call here (`coldpress`, inject.rs). That is how a
//! program comes to it that no loader of glibc starts.
//!
//! The call makes a process that shares the program's memory. It starts the service and ends, and
//! the thread of the program goes on. Nothing here knows the program's libc, if it has one: code of
//! ours runs in its threads only where the command has put a jump over one of its system calls.

use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicUsize;

use coldpress_sys::beside::{self, Parent};
use coldpress_sys::{map, raw};

use super::{CONTROL, RUN, mapping, note_room, site, start_service_below, starting};
use crate::wire::{BESIDE_STACKS_MAX, PUT_IN_VARIABLES_MAX, STUBS_BYTES};

/// The bytes of the stack on which the service is started.
const STACK_BYTES: usize = 16 << 10;

/// What the command fills in.
#[repr(C)]
struct Words {
    /// The addresses between which the command has put this library.
    placed: [usize; 2],
    /// 1 if calls that map memory come here, else 0.
    is_told_of_memory: usize,
    /// 1 if calls that start threads and programs do, else 0.
    is_told_of_starts: usize,
    /// The descriptor of the run's directory and 1, where the program cannot reach it by its path;
    /// else 0.
    directory: usize,
    /// Where memory begins and ends that lies above a thread's stack, in one mapping with it. Zeros
    /// follow.
    beside_stacks: [[usize; 2]; BESIDE_STACKS_MAX],
    /// The variables of the run, each with a zero at its end; zeros follow.
    variables: [u8; PUT_IN_VARIABLES_MAX],
}

/// The stack of the process that starts the service.
#[repr(C, align(16))]
struct Stack([u8; STACK_BYTES]);

/// A static that only one process uses, while no thread could.
struct Once<T>(UnsafeCell<T>);

// SAFETY: the command writes before any code of ours runs, and the process that is made here is
// the only one that reads, or that has the stack.
unsafe impl<T> Sync for Once<T> {}

static WORDS: Once<Words> = Once(UnsafeCell::new(Words {
    placed: [0; 2],
    is_told_of_memory: 0,
    is_told_of_starts: 0,
    directory: 0,
    beside_stacks: [[0; 2]; BESIDE_STACKS_MAX],
    variables: [0; PUT_IN_VARIABLES_MAX],
}));
static STACK: Once<Stack> = Once(UnsafeCell::new(Stack([0; STACK_BYTES])));

/// What the command has to know of this library: addresses, once they are relocated.
#[repr(C)]
struct Doors {
    words: &'static Once<Words>,
    /// The system call that makes the process.
    enter: unsafe extern "C" fn(),
    /// The code that makes a system call of the program's.
    came: unsafe extern "C" fn(),
    /// The code that lets a thread go before it starts another, or a program.
    loose: unsafe extern "C" fn(),
    /// Room for code that leads there, which the command writes.
    stubs: unsafe extern "C" fn(),
    /// The system call that makes the process which gives up what is left of a service.
    leave: unsafe extern "C" fn(),
    /// The number of threads in the code above.
    inside: &'static AtomicUsize,
}

#[unsafe(no_mangle)]
static COLDPRESS_DOORS: Doors = Doors {
    words: &WORDS,
    enter,
    came: site::came,
    loose: site::loose,
    stubs,
    leave,
    inside: &site::INSIDE,
};

/// The system call that the command has a thread make: `clone` with the program's memory, for a
/// process without a stack. What follows runs in that process; the thread never comes here.
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!(
        "syscall",
        "xor ebp, ebp",
        "lea rsp, [rip + {stack} + {bytes}]",
        "call {main}",
        "ud2",
        stack = sym STACK,
        bytes = const STACK_BYTES,
        main = sym main,
    )
}

/// As [`enter`], once the service has ended and no thread is in code of ours.
#[unsafe(naked)]
unsafe extern "C" fn leave() {
    naked_asm!(
        "syscall",
        "xor ebp, ebp",
        "lea rsp, [rip + {stack} + {bytes}]",
        "call {main}",
        "ud2",
        stack = sym STACK,
        bytes = const STACK_BYTES,
        main = sym end,
    )
}

/// Gives up all memory but that of the library, which the command unmaps.
unsafe extern "C" fn end() -> ! {
    // SAFETY: the service has ended, and the command has looked that no thread is in our code.
    unsafe { map::give_up_spans() };
    beside::exit_process(0)
}

/// Room for stubs. Nothing runs here before it is written.
#[unsafe(naked)]
unsafe extern "C" fn stubs() {
    naked_asm!(".fill {bytes}, 1, 0xcc", bytes = const STUBS_BYTES)
}

/// Starts the service, and ends with 0, or with the number of an error.
unsafe extern "C" fn main() -> ! {
    // SAFETY: the command has filled the words in, and nothing else uses them or the run.
    let (words, run) = unsafe { (&*WORDS.0.get(), &mut *RUN.0.get()) };
    let variables = words.variables.split(|byte| *byte == 0);
    if !run.read(variables.take_while(|variable| !variable.is_empty())) {
        beside::exit_process(coldpress_sys::errno::EINVAL as u8);
    }
    run.placed = words.placed[0]..words.placed[1];
    // The command has left room for the service's stack behind the library.
    run.stack_top = run.placed.end;
    note_room(run.budget);
    mapping::note_budget(run.budget);
    CONTROL.note_program(raw::parent_id());
    if words.is_told_of_starts == 0 {
        CONTROL.stay.keep_none();
    }
    starting::note_worth(run.budget, words.is_told_of_memory != 0);
    run.directory = words.directory.checked_sub(1).map(|number| number as i32);
    // Later the program does not have that descriptor.
    if !starting::is_worth_it() && run.directory.is_none() {
        // A thread of the program starts the service when it is.
        beside::exit_process(0);
    }
    run.beside_stacks = words.beside_stacks;
    CONTROL.life.end_start();
    // The service is an orphan as soon as this process has ended.
    let status = start_service_below(Parent::Caller).map_or_else(|error| error.errno as u8, |()| 0);
    beside::exit_process(status)
}
