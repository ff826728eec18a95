//! The preload library: what happens inside a program before and beside its own code.
//!
//! The constructor reads three environment variables and takes over a few calls; everything else
//! waits until the program has mapped something (`starting`). The statics below are the only state.
//! They can be made fresh again, which the child of a `fork` does.

mod after;
mod alone;
mod asked;
mod calls;
mod code;
mod enter;
mod environment;
mod exec;
mod fork;
mod given;
mod imports;
mod inner;
mod interpose;
mod mapping;
mod memory;
mod panic;
mod remap;
mod site;
mod starters;
mod starting;
mod tools;
mod view;

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::fmt::Write;
use core::mem;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use coldpress_mem::frames::FrameAllocator;
use coldpress_mem::slab::Heap;
use coldpress_sys::beside::{self, Parent};
use coldpress_sys::cpu::{self, RseqArea};
use coldpress_sys::errno::EINVAL;
use coldpress_sys::map::{self, Span};
use coldpress_sys::{Bytes, PAGE_BYTES, SysError, SysResult, raw};

use self::environment::value_of;
use crate::control::Control;
use crate::link::Note;
use crate::policy::{self, Ring};
use crate::service::{self, Start};
use crate::wire::{
    BESIDE_STACKS_MAX, BUDGET_VARIABLE, Loudness, SERVICE_STACK_BYTES, SOCKET_PATH_MAX,
    SOCKET_VARIABLE, VIEW_VARIABLE, View,
};

static CONTROL: Control = Control::new();
static FRAMES: Fresh<FrameAllocator> = Fresh::new(FrameAllocator::new());
#[global_allocator]
static HEAP: Fresh<Heap<'static>> = Fresh::new(Heap::new(frames()));
static RUN: Fresh<Run> = Fresh::new(Run {
    socket: [0; SOCKET_PATH_MAX],
    budget: Bytes(0),
    view: View::Truth,
    stack_top: 0,
    main_area: None,
    is_forked: false,
    placed: 0..0,
    directory: None,
    beside_stacks: [[0; 2]; BESIDE_STACKS_MAX],
    start: None,
});
/// The control block of the service's thread. The service needs none, but code that looks for one
/// finds one that no other thread has. The first word is the block's address.
static BLOCK: [AtomicUsize; BLOCK_WORDS] = [const { AtomicUsize::new(0) }; BLOCK_WORDS];
/// The number of words in that block. What code looks for there, such as the guard of the stack,
/// lies in the first words.
const BLOCK_WORDS: usize = 64;

/// The bytes that the program's executable memory takes in limbo, at the budget that the run began
/// with.
static ROOM_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The findings of the constructor.
struct Run {
    socket: [u8; SOCKET_PATH_MAX],
    budget: Bytes,
    view: View,
    /// The address at which the service's stack begins.
    stack_top: usize,
    /// The rseq area of the main thread, which lives as long as the process.
    main_area: Option<RseqArea>,
    is_forked: bool,
    /// Where the library lies, if the command has put it there; else nowhere.
    placed: Range<usize>,
    /// The descriptor of the run's directory, for the first service of a program that cannot reach
    /// the directory by its path.
    directory: Option<i32>,
    /// What lies beside stacks, for the first service, if the command has told of it.
    beside_stacks: [[usize; 2]; BESIDE_STACKS_MAX],
    start: Option<Start>,
}

/// A static that is replaced while there is no service.
struct Fresh<T>(UnsafeCell<T>);

// SAFETY: `T`s here are shared by reference only, but for replacements, which happen while one
// thread exists or no service (`start_in_child`, `make_fresh`).
unsafe impl<T> Sync for Fresh<T> {}

impl<T> Fresh<T> {
    const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }
}

// SAFETY: every call goes to the heap inside, which is a global allocator.
unsafe impl GlobalAlloc for Fresh<Heap<'static>> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        unsafe { (*self.0.get()).alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        unsafe { (*self.0.get()).alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, object: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        unsafe { (*self.0.get()).realloc(object, layout, new_size) }
    }

    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { (*self.0.get()).dealloc(object, layout) }
    }
}

const fn frames() -> &'static FrameAllocator {
    // SAFETY: the allocator is replaced only while there is no service, which alone uses it.
    unsafe { &*FRAMES.0.get() }
}

fn heap_bytes() -> Bytes {
    // SAFETY: the heap is replaced only while there is no service, which alone calls this.
    unsafe { (*HEAP.0.get()).large_bytes() }
}

/// The entry by which glibc calls the constructor with the program's arguments, before `main` and
/// before the program has started any thread.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

extern "C" fn constructor(
    _argument_count: c_int,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    // The loader of another libc passes no arguments either.
    if !imports::are_complete() || tools::is_under_valgrind() {
        return;
    }
    // SAFETY: one thread exists, so the static is ours.
    let run = unsafe { &mut *RUN.0.get() };
    // SAFETY: glibc passes the environment as a list of strings that ends with a null.
    let found = unsafe { read_environment(environment, run) };
    starters::resolve();
    if found {
        CONTROL.note_owner();
        run.main_area = rseq_area();
        interpose::resolve();
        given::resolve();
        mapping::note_budget(run.budget);
        note_room(run.budget);
        view::begin(run.view);
        let told = inner::take_over();
        if !told.of_forks {
            fork::register();
        }
        // SAFETY: as above; after the list comes what the kernel reports about the program.
        let image = unsafe { starting::Image::behind(environment) };
        if told.of_programs && !image.calls_around_libc {
            // SAFETY: as above; there is one thread.
            unsafe { exec::take_out(environment) };
        }
        starting::begin(run.budget, told.of_memory, image);
    }
}

/// Notes what executable memory may take in limbo in a run of this budget.
fn note_room(budget: Bytes) {
    let room = Ring::side_bytes(policy::target(budget.pages_down()));
    // Relaxed: no other thread of ours runs yet.
    ROOM_BYTES.store(room.0, Ordering::Relaxed);
}

/// Returns whether this is a run of ours, and fills `run` in from the environment.
///
/// # Safety
/// `environment` must be null, or a list of C strings that ends with a null.
unsafe fn read_environment(environment: *const *const c_char, run: &mut Run) -> bool {
    if environment.is_null() {
        return false;
    }
    // SAFETY: the list ends with a null, where the iterator ends too; before it are C strings.
    let entries = (0..).map_while(|index| unsafe {
        let entry = *environment.add(index);
        (!entry.is_null()).then(|| CStr::from_ptr(entry).to_bytes())
    });
    run.read(entries)
}

impl Run {
    /// Makes the socket's path lead through the descriptor that this service has of the run's
    /// directory, if it has one: for itself, and for the services of children.
    fn go_by_descriptor(&mut self) {
        let Some(directory) = self.directory.take() else { return };
        let mut name = [0; SOCKET_PATH_MAX];
        let at = run_directory().len();
        name[..SOCKET_PATH_MAX - at].copy_from_slice(&self.socket[at..]);
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        let mut note = Note::new(Loudness::Verbose);
        let _ = write!(note, "/proc/{}/fd/{directory}", raw::process_id());
        let start = &note.bytes()[1..];
        let length = start.len() + name.to_bytes().len();
        if length >= SOCKET_PATH_MAX {
            return;
        }
        self.socket = [0; SOCKET_PATH_MAX];
        self.socket[..start.len()].copy_from_slice(start);
        self.socket[start.len()..length].copy_from_slice(name.to_bytes());
        if let Some(start) = &mut self.start {
            (start.socket, start.directory) = (socket_of_run(), Some(directory));
        }
    }

    /// Returns whether this is a run of ours, and fills it in from these variables.
    fn read<'e>(&mut self, entries: impl Iterator<Item = &'e [u8]>) -> bool {
        let (mut socket, mut budget, mut is_refused) = (false, false, false);
        for bytes in entries {
            if let Some(path) = value_of(bytes, SOCKET_VARIABLE)
                && path.len() < SOCKET_PATH_MAX
            {
                self.socket[..path.len()].copy_from_slice(path);
                self.socket[path.len()..].fill(0);
                socket = true;
            } else if let Some(text) = value_of(bytes, BUDGET_VARIABLE)
                && let Some(found) = core::str::from_utf8(text).ok().and_then(View::after_budget)
            {
                (self.budget, self.view) = found;
                budget = true;
            } else if let Some(value) = value_of(bytes, VIEW_VARIABLE) {
                is_refused = view::is_refused(value);
            }
        }
        if is_refused {
            self.view = View::Truth;
        }
        socket && budget
    }
}

/// Returns the path of the run's socket.
fn socket_of_run() -> &'static CStr {
    // SAFETY: the path is written before the program's first thread, or by the service that alone
    // reads it then.
    let socket = unsafe { &(*RUN.0.get()).socket };
    CStr::from_bytes_until_nul(socket).unwrap_or_default()
}

/// Returns the directory of the run, in which its socket lies.
fn run_directory() -> &'static [u8] {
    // SAFETY: the path is written before the program's first thread, and only read then.
    let socket = unsafe { &(*RUN.0.get()).socket };
    let end = socket.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    &socket[..end]
}

/// Starts the service. Without one the program is unmanaged, which is always correct.
fn start_service() {
    let _ = try_start_service();
}

fn try_start_service() -> SysResult<()> {
    start_service_below(parent()?)
}

/// Starts the service as a child of `parent`.
fn start_service_below(parent: Parent) -> SysResult<()> {
    // SAFETY: there is no service now, and one thread starts it, so the static is ours.
    let stack_top = unsafe { &mut (*RUN.0.get()).stack_top };
    // The address is chosen anew for each service, so that many services stay where there is room.
    map::keep_apart(cpu::ticks() as usize ^ (&raw const CONTROL).addr());
    make_room();
    // The last service's stack, if there was one, has no user: the kernel has reported that
    // service's end.
    if *stack_top == 0 {
        let stack = Span::reserve(Bytes(SERVICE_STACK_BYTES), Bytes(PAGE_BYTES))?;
        *stack_top = stack.address() + stack.length().0;
        mem::forget(stack);
    }
    // SAFETY: there is no service, and nothing else uses the stack, which stays.
    unsafe { start_process(parent, service_main) }
}

/// Notes that the program has mapped executable memory, which needs room of its own in limbo.
fn want_room() {
    CONTROL.room.want();
    // Otherwise the thread that starts a service makes the room.
    if CONTROL.life.has_begun() {
        make_room();
    }
}

/// Makes the room, if it is wanted and addresses are not limited: limited ones are the program's.
fn make_room() {
    if CONTROL.room.is_wanted() && raw::address_limit().is_none() {
        // Relaxed: set before the program's first thread.
        CONTROL.room.make(Bytes(ROOM_BYTES.load(Ordering::Relaxed)));
    }
}

/// Returns the parent of a service that the calling thread of the program starts.
fn parent() -> SysResult<Parent> {
    if beside::children_are_elsewhere() {
        return Err(SysError { call: "clone", errno: EINVAL });
    }
    Ok(if beside::is_reaper() { Parent::Caller } else { Parent::Reaper })
}

/// Starts a service that runs `main` on the stack noted in [`RUN`].
///
/// # Safety
/// There must be no service, and the stack must stay and have no other user.
unsafe fn start_process(parent: Parent, main: extern "C" fn() -> !) -> SysResult<()> {
    // SAFETY: there is no service now, and one thread starts it, so the static is ours.
    let run = unsafe { &mut *RUN.0.get() };
    run.start = Some(Start {
        socket: socket_of_run(),
        directory: None,
        control: &CONTROL,
        frames: frames(),
        heap_bytes,
        main_area: run.main_area,
        own: own(run),
        beside_stacks: mem::replace(&mut run.beside_stacks, [[0; 2]; BESIDE_STACKS_MAX]),
        is_forked: run.is_forked,
        note_link: panic::note_link,
    });
    // Relaxed: read by a process that is made after this store.
    BLOCK[0].store(BLOCK.as_ptr().expose_provenance(), Ordering::Relaxed);
    let mask = raw::block_signals();
    // SAFETY: the stack has no other user, by the caller's promise; block and word are statics;
    // signals are blocked.
    let result = unsafe {
        let top = ptr::with_exposed_provenance_mut::<u8>(run.stack_top);
        beside::spawn_beside(parent, top, BLOCK.as_ptr().cast(), main, CONTROL.life.alive())
    };
    raw::set_signal_mask(mask);
    result
}

extern "C" fn service_main() -> ! {
    let run = RUN.0.get();
    // SAFETY: the thread that starts the service has filled this in, and changes it only after the
    // service has ended.
    if unsafe { (*run).directory.is_some() } {
        // SAFETY: only a program into which the command has put the library has a descriptor, for
        // its first service. Of what is changed its threads read the socket alone, in a child, and
        // a fork waits until the service goes on.
        unsafe { (*run).go_by_descriptor() };
    }
    // SAFETY: as above; from here on nothing of it changes.
    if let Some(start) = unsafe { &(*run).start } {
        service::run(start);
    }
    beside::exit_process(0)
}

/// Starts a service that takes over, in the child of a `fork` that inherits all our state. Returns
/// when the service has taken over.
fn start_heir() {
    CONTROL.reset(true);
    CONTROL.life.end_start();
    // SAFETY: this process has one thread; the service's stack, a copy, is not used any more.
    let result = unsafe {
        begin_child();
        parent().and_then(|parent| start_process(parent, heir_main))
    };
    if result.is_ok() {
        CONTROL.wait_for_heir();
        return;
    }
    // SAFETY: there is one thread; the fork was granted, and no service has taken over.
    unsafe {
        if let Some(start) = &(*RUN.0.get()).start {
            service::do_without(start);
        }
    }
}

extern "C" fn heir_main() -> ! {
    // SAFETY: `start_process` has filled the static in; the fork was granted, and this service is
    // the one that takes over.
    unsafe {
        if let Some(start) = &(*RUN.0.get()).start {
            service::run_as_heir(start);
        }
    }
    beside::exit_process(0)
}

/// Notes that this process comes from a fork; its one thread is the main one.
///
/// # Safety
/// This process must have one thread and no service.
unsafe fn begin_child() {
    site::forget_others();
    // SAFETY: the caller's promise.
    let run = unsafe { &mut *RUN.0.get() };
    (run.is_forked, run.main_area) = (true, rseq_area());
    run.beside_stacks = [[0; 2]; BESIDE_STACKS_MAX];
}

/// Starts afresh in the child of `fork`, which has inherited neither the service nor any span of
/// ours.
fn start_in_child() {
    CONTROL.reset(false);
    map::forget_spans();
    // SAFETY: this process has one thread. All are overwritten without a drop, as what they point
    // to is not mapped here.
    unsafe {
        begin_child();
        // A stack of our own is not mapped here; one that the command has made is.
        (*RUN.0.get()).stack_top = (*RUN.0.get()).placed.end;
        ptr::write(FRAMES.0.get(), FrameAllocator::new());
        ptr::write(HEAP.0.get(), Heap::new(frames()));
    }
    starting::begin_in_child();
}

/// Makes the statics fresh, so that another service may be started: the last one was stopped, and
/// has dropped all it had.
fn make_fresh() {
    // SAFETY: there is no service, and no other code allocates from the heap, so neither is in use.
    // The frames go with the allocator, hence the heap on them must not look at them any more.
    unsafe {
        ptr::write(HEAP.0.get(), Heap::new(frames()));
        *FRAMES.0.get() = FrameAllocator::new();
    }
}

/// Returns the page that holds `address`.
fn page_of(address: usize) -> Range<usize> {
    let start = address & !(PAGE_BYTES - 1);
    start..start + PAGE_BYTES
}

unsafe extern "C" {
    fn coldpress_rseq_offset(offset: *mut isize) -> c_int;
    fn coldpress_own_data(start: *mut *mut c_char, end: *mut *mut c_char);
}

/// Returns the rseq area of the calling thread, for as long as the thread lives.
fn rseq_area() -> Option<RseqArea> {
    let mut offset = 0;
    // SAFETY: the shim writes glibc's own offset. This function's text says how long the area may
    // be kept.
    unsafe { (coldpress_rseq_offset(&raw mut offset) != 0).then(|| RseqArea::of_current(offset)) }
}

/// Returns the ranges that the service leaves alone: the library's data, and the page that the
/// kernel reads for the main thread.
fn own(run: &Run) -> [Range<usize>; 2] {
    let data = if run.placed.is_empty() { own_data() } else { run.placed.clone() };
    [data, run.main_area.map_or(0..0, |area| page_of(area.address()))]
}

fn own_data() -> Range<usize> {
    let (mut start, mut end) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the shim writes two addresses.
    unsafe { coldpress_own_data(&raw mut start, &raw mut end) };
    let start = start.addr() & !(PAGE_BYTES - 1);
    start..end.addr().next_multiple_of(PAGE_BYTES)
}
