//! `starters`: starts threads and programs in every way that libc offers, each right after a storm
//! of touches, and looks at the processors that they get.
//!
//!     starters [--bytes TOTAL] [--times N]
//!     starters --show
//!
//! Each thread or program that it starts must be allowed the same processors as this program when
//! it began. This program must get the same answer when it asks. Prints `ok WAY` for each way; and
//! how often the kernel, asked through /proc, allowed the stormy thread itself one processor only.
//! With `--show` it prints the processors it is allowed.
//!
//! Past libc, coldpress cannot intercept: the program also prints how often a bare system call saw
//! one processor, and how often a child did that a bare call made.
#![allow(clippy::undocumented_unsafe_blocks, reason = "calls to libc are what is tested")]
#![allow(unreachable_pub, reason = "the shared modules serve several programs")]

#[path = "../program/mod.rs"]
mod program;

use std::ffi::{CStr, CString, c_int};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, mem, ptr};

use program::args::Args;
use program::random::mix;
use program::{PAGE, raw};

/// Length of a storm: long enough to be noticed.
const STORM: Duration = Duration::from_millis(30);

fn main() -> ExitCode {
    let args = Args::parse(&["show"], &["bytes", "times"]);
    if args.has("show") {
        print!("{}", allowed());
        return ExitCode::SUCCESS;
    }
    let bytes = args.bytes("bytes", 64 << 20).next_multiple_of(PAGE);
    let times = args.value("times", 5_u32);
    let truth = allowed();
    let processors = processors();
    let mut storm = Storm::over(bytes);
    let mut right = true;
    for (name, way) in WAYS {
        for _ in 0..times {
            storm.blow();
            let found = way();
            if found != truth {
                println!("FAIL {name}: {} in place of {}", found.trim(), truth.trim());
                right = false;
            }
        }
        println!("ok {name}");
    }
    for _ in 0..times {
        storm.blow();
        right &= self::processors() == processors;
        storm.blow();
        right &= of_pthread() == processors;
        right &= std::thread::available_parallelism().is_ok_and(|count| count.get() == processors);
    }
    let (mut seen, mut passed_on) = (0, 0);
    for _ in 0..4 * times {
        storm.blow();
        seen += u32::from(bare_processors() == 1);
        passed_on += u32::from(processors_of_bare_child() == 1);
    }
    println!("one processor seen by {seen} bare calls and {passed_on} bare children");
    storm.blow();
    right &= own_choice_stays(&mut storm);
    println!("kept {} of {} storms", storm.kept, storm.storms);
    println!("starters: {}", if right { "OK" } else { "FAILED" });
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A source of storms: touches of pages in no order.
struct Storm {
    start: usize,
    pages: usize,
    next: u64,
    storms: u32,
    kept: u32,
}

impl Storm {
    /// Fills memory with words that compress to about a third.
    fn over(bytes: usize) -> Self {
        let start = raw::map(bytes).expect("cannot map");
        let words = bytes / 8;
        for index in 0..words {
            let word = if index % 4 == 0 { mix(index as u64) } else { 0 };
            unsafe { raw::pointer(start + index * 8).cast::<u64>().write(word) };
        }
        Self { start, pages: bytes / PAGE, next: 0, storms: 0, kept: 0 }
    }

    /// Touches pages for the length of a storm.
    fn blow(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < STORM {
            self.next += 1;
            let page = mix(self.next) as usize % self.pages;
            let found = unsafe { raw::pointer(self.start + page * PAGE).cast::<u64>().read() };
            assert_eq!(found, mix((page * PAGE / 8) as u64), "page {page} is wrong");
        }
        self.storms += 1;
        self.kept += u32::from(!allowed().contains(['-', ',']));
    }
}

/// Returns the processors that the calling thread is allowed, by the kernel's word in /proc: no
/// library can change that answer.
fn allowed() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    format!("{}\n", line.expect("Linux tells").trim())
}

/// Returns how many processors libc says that this thread may use.
fn processors() -> usize {
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set), 0);
        libc::CPU_COUNT(&set) as usize
    }
}

/// Returns the same number by another function.
fn of_pthread() -> usize {
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        let own = libc::pthread_self();
        assert_eq!(libc::pthread_getaffinity_np(own, size_of_val(&set), &raw mut set), 0);
        libc::CPU_COUNT(&set) as usize
    }
}

/// Makes a system call by the bare instruction, which is in no function of libc's.
unsafe fn bare(number: libc::c_long, arguments: [usize; 3]) -> isize {
    let [first, second, third] = arguments;
    let result;
    unsafe {
        std::arch::asm!(
            "syscall", inlateout("rax") number as isize => result, in("rdi") first,
            in("rsi") second, in("rdx") third, lateout("rcx") _, lateout("r11") _
        );
    }
    result
}

/// Returns how many processors the kernel says that this thread may use.
fn bare_processors() -> u32 {
    let mut set = [0_u64; 16];
    let arguments = [0, size_of_val(&set), set.as_mut_ptr().addr()];
    let length = unsafe { bare(libc::SYS_sched_getaffinity, arguments) };
    assert!(length > 0, "the kernel tells");
    set.iter().map(|word| word.count_ones()).sum()
}

/// Returns the same number in a child, which calls nothing of libc's either.
fn processors_of_bare_child() -> c_int {
    let child = unsafe { bare(libc::SYS_fork, [0; 3]) };
    if child == 0 {
        let count = bare_processors();
        unsafe { bare(libc::SYS_exit_group, [count as usize, 0, 0]) };
    }
    let mut status = 0;
    let found = unsafe { libc::waitpid(child as libc::pid_t, &raw mut status, 0) };
    assert_eq!(found, child as libc::pid_t);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

/// Returns whether a set of processors that the program chooses after a storm holds through the
/// next.
fn own_choice_stays(storm: &mut Storm) -> bool {
    let first = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &set));
        let first = first.expect("it runs somewhere");
        let mut only: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(first, &mut only);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&only), &raw const only), 0);
        first
    };
    storm.blow();
    std::thread::sleep(STORM);
    allowed().trim() == first.to_string()
}

type Way = fn() -> String;

const WAYS: &[(&str, Way)] = &[
    ("pthread_create", || std::thread::spawn(allowed).join().expect("it reads a file")),
    ("posix_spawn", || shown(&mut this_program())),
    ("fork and exec", || {
        use std::os::unix::process::CommandExt;
        let mut command = this_program();
        // The standard library forks when there is work to do before exec.
        unsafe { command.pre_exec(|| Ok(())) };
        shown(&mut command)
    }),
    ("fork", || {
        from_child(|pipe| {
            let child = unsafe { libc::fork() };
            if child == 0 {
                write_to(pipe, &allowed());
                unsafe { libc::_exit(0) };
            }
            child
        })
    }),
    ("vfork and execl", || from_child(|pipe| unsafe { vfork_and(exec, pipe) })),
    ("system", || {
        let file = std::env::temp_dir().join(format!("starters-{}", std::process::id()));
        let command = CString::new(format!("{} > {}", shell_words(), file.display()));
        assert_eq!(unsafe { libc::system(command.expect("no zero").as_ptr()) }, 0);
        let text = fs::read_to_string(&file).expect("it was written");
        fs::remove_file(file).expect("it is there");
        text
    }),
    ("popen", || unsafe {
        let command = CString::new(shell_words()).expect("no zero");
        let file = libc::popen(command.as_ptr(), c"r".as_ptr());
        assert!(!file.is_null(), "{}", io::Error::last_os_error());
        let mut line = [0; 256];
        assert!(!libc::fgets(line.as_mut_ptr(), 256, file).is_null());
        assert_eq!(libc::pclose(file), 0);
        CStr::from_ptr(line.as_ptr()).to_string_lossy().into_owned()
    }),
];

fn program_path() -> CString {
    let path = std::env::current_exe().expect("it has a path");
    CString::new(path.into_os_string().into_encoded_bytes()).expect("no zero")
}

/// Returns the words that run this program with `--show` from a shell.
fn shell_words() -> String {
    format!("'{}' --show", program_path().to_string_lossy())
}

fn this_program() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command.arg("--show").stdout(Stdio::piped());
    command
}

fn shown(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the text that a child writes into the pipe that it is started with.
fn from_child(start: fn(libc::c_int) -> libc::pid_t) -> String {
    let mut ends = [0; 2];
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let [read, write] = ends;
    let child = start(write);
    unsafe { libc::close(write) };
    let read = unsafe { OwnedFd::from_raw_fd(read) };
    let text = io::read_to_string(fs::File::from(read)).expect("text");
    assert_eq!(unsafe { libc::waitpid(child, ptr::null_mut(), 0) }, child);
    text
}

/// Runs `act(pipe)`, which must not return, in a child by `vfork`. Returns the child's id. The
/// child shares this frame, so no compiler may make it.
#[unsafe(naked)]
unsafe extern "C" fn vfork_and(
    act: extern "C" fn(libc::c_int) -> !,
    pipe: libc::c_int,
) -> libc::pid_t {
    std::arch::naked_asm!(
        "push rbx",
        "push rbp",
        "sub rsp, 8",
        "mov rbx, rdi",
        "mov ebp, esi",
        "call vfork@PLT",
        "test eax, eax",
        "jnz 2f",
        "mov edi, ebp",
        "call rbx",
        "ud2",
        "2:",
        "add rsp, 8",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

fn write_to(pipe: libc::c_int, text: &str) {
    let length = unsafe { libc::write(pipe, text.as_ptr().cast(), text.len()) };
    assert_eq!(length, text.len() as isize);
}

/// Executes this program with `--show`, with the pipe as its output.
extern "C" fn exec(pipe: libc::c_int) -> ! {
    let null: *const libc::c_char = ptr::null();
    let path = c"/proc/self/exe".as_ptr();
    unsafe {
        libc::dup2(pipe, 1);
        libc::execl(path, path, c"--show".as_ptr(), null);
        libc::_exit(1)
    }
}
