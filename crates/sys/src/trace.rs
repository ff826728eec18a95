//! A thread of another process that stands still, and makes system calls that it did not ask for
//! (ptrace(2)). For the command, which puts its library into programs that no loader helps with.
//!
//! Only stops at system calls are used. They send no signal, so nothing of what the program has
//! made of its signals changes. The calls are made by an instruction that is in the program
//! anyway, with all signals blocked. At the end the thread has its registers and mask back, and no
//! tracer. A thread is traced by one thread of the tracer, which must make all calls here.

mod calls;
mod frames;
mod hold;

use std::format;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use linux_raw_sys::general as linux;
use linux_raw_sys::ptrace;

use crate::errno;
use crate::error::{SysError, SysResult};
use crate::raw::{self, checked, syscall};

/// linux/ptrace.h: requests and options that the bindings have by other types.
const PTRACE_TRACEME: usize = ptrace::PTRACE_TRACEME as usize;
const PTRACE_GETREGS: usize = 12;
const PTRACE_SETREGS: usize = 13;
const PTRACE_SYSCALL: usize = ptrace::PTRACE_SYSCALL as usize;
const PTRACE_CONT: usize = ptrace::PTRACE_CONT as usize;
const PTRACE_DETACH: usize = ptrace::PTRACE_DETACH as usize;
const PTRACE_SETOPTIONS: usize = ptrace::PTRACE_SETOPTIONS as usize;
const PTRACE_GETSIGMASK: usize = ptrace::PTRACE_GETSIGMASK as usize;
const PTRACE_SETSIGMASK: usize = ptrace::PTRACE_SETSIGMASK as usize;
/// Stops at system calls are told from SIGTRAP by a bit of the signal.
const TELL_CALLS: usize = ptrace::PTRACE_O_TRACESYSGOOD as usize;
/// A program that has not begun ends with its tracer.
const END_WITH_TRACER: usize = ptrace::PTRACE_O_EXITKILL as usize;
const AT_CALL: i32 = linux::SIGTRAP as i32 | 0x80;
const MASK_BYTES: usize = size_of::<u64>();
/// The code segment of 64-bit programs (`__USER_CS`, asm/segment.h).
const CODE_64: u64 = 0x33;
/// The entry of the auxiliary vector that leads to the vDSO (getauxval(3)).
const AT_SYSINFO_EHDR: u64 = 33;
/// The bytes of the vDSO among which the instruction is looked for. Each function there ends in
/// the system call that it stands for.
const VDSO_BYTES: usize = 2 * crate::PAGE_BYTES;
/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The registers of a thread, in the order of `struct user_regs_struct` (sys/user.h).
type Registers = [u64; 27];
/// The places there of the registers that matter.
const R10: usize = 7;
const R9: usize = 8;
const R8: usize = 9;
const RAX: usize = 10;
const RDX: usize = 12;
const RSI: usize = 13;
const RDI: usize = 14;
/// The number of the call that the thread is in, or a negative number.
const CALL: usize = 15;
const RIP: usize = 16;
const CS: usize = 17;
const RSP: usize = 19;
const FS_BASE: usize = 21;

/// Has the program that `command` starts stop at its exec, for [`Tracee::at_exec`] of the thread
/// that starts it. A program that some other process traces already, or where a filter refuses,
/// does not stop.
pub fn stop_at_exec(command: &mut Command) {
    let ask = || {
        // The kernel announces the exec by SIGTRAP. A traced process stops at any other signal too,
        // also at one that it ignores, so all others are blocked; the tracer restores the mask.
        let mask = raw::set_signal_mask(!(1 << (linux::SIGTRAP - 1)));
        // SAFETY: no address is given.
        let result = unsafe { syscall(linux::__NR_ptrace, [PTRACE_TRACEME, 0, 0, 0, 0, 0]) };
        if result != 0 {
            raw::set_signal_mask(mask);
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only, which a child of fork may.
    unsafe { command.pre_exec(ask) };
}

/// A traced thread that stands still, and its memory. Dropping it lets the thread go on as it was.
#[derive(Debug)]
pub struct Tracee {
    thread: u32,
    memory: Option<File>,
    /// The address of an instruction `syscall`.
    syscall_at: usize,
    saved: Registers,
    mask: u64,
    /// A signal that came meanwhile, and that nothing can block.
    late: i32,
    is_there: bool,
    /// Whether the thread was stopped while it ran, or waited in a system call.
    was_running: bool,
}

impl Tracee {
    /// Waits until the child `process`, started by the calling thread after [`stop_at_exec`],
    /// stops at an exec that `is_it` accepts. `mask` is the signal mask that the program shall
    /// have. Fails with ECHILD when the process has ended, which is left to be waited for; with
    /// EPERM when the process does not stop for this one.
    pub fn at_exec(process: u32, mask: u64, is_it: impl Fn() -> bool) -> SysResult<Self> {
        if !is_traced_here(process) {
            return Err(SysError { call: "ptrace", errno: errno::EPERM });
        }
        loop {
            let signal = wait_for_stop(process, Ended::Stays)?.signal;
            if signal == linux::SIGTRAP as i32 && is_it() {
                break;
            }
            let passed = if signal == linux::SIGTRAP as i32 { 0 } else { signal };
            request(PTRACE_CONT, process, 0, passed as usize)?;
        }
        request(PTRACE_SETOPTIONS, process, 0, TELL_CALLS | END_WITH_TRACER)?;
        // From here on, the thread goes on when this is dropped.
        let mut tracee = Self::stopped(process, mask)?;
        tracee.prepare_calls()?;
        Ok(tracee)
    }

    /// Opens the program's memory, and finds the instruction by which it can make calls. From here
    /// on, the program ends when this process does: its registers may be others than its own.
    pub fn prepare_calls(&mut self) -> SysResult<()> {
        let path = format!("/proc/{}/mem", self.thread);
        let memory = File::options().read(true).write(true).open(path).map_err(of_io("open"))?;
        self.syscall_at = syscall_in_vdso(self.thread, &memory)?;
        self.memory = Some(memory);
        request(PTRACE_SETOPTIONS, self.thread, 0, TELL_CALLS | END_WITH_TRACER)
    }

    /// Takes over a thread that has just stopped, and blocks its signals. It has `mask` at the end.
    fn stopped(thread: u32, mask: u64) -> SysResult<Self> {
        let mut saved: Registers = [0; _];
        let read = request(PTRACE_GETREGS, thread, 0, saved.as_mut_ptr().expose_provenance());
        if let Err(error) = read {
            let _ = request(PTRACE_DETACH, thread, 0, 0);
            return Err(error);
        }
        let tracee = Self {
            thread,
            memory: None,
            syscall_at: 0,
            saved,
            mask,
            late: 0,
            is_there: true,
            was_running: false,
        };
        tracee.set_mask(u64::MAX)?;
        Ok(tracee)
    }

    /// Ends the thread's process, which does not go on before that.
    pub fn end(&mut self) {
        crate::signals::send(self.thread, linux::SIGKILL as i32);
        self.is_there = false;
    }

    /// Reads the program's memory at `address`.
    pub fn read(&self, address: usize, bytes: &mut [u8]) -> SysResult<()> {
        self.memory()?.read_exact_at(bytes, address as u64).map_err(of_io("pread"))
    }

    /// Writes to the program's memory at `address`, to a page of its own if it is one of a file.
    pub fn write(&self, address: usize, bytes: &[u8]) -> SysResult<()> {
        self.memory()?.write_all_at(bytes, address as u64).map_err(of_io("pwrite"))
    }

    fn memory(&self) -> SysResult<&File> {
        self.memory.as_ref().ok_or(SysError { call: "open", errno: errno::EBADF })
    }

    /// Whether the thread is in the mode of 64-bit programs, whose calls this module makes.
    pub fn is_64_bit(&self) -> bool {
        self.saved[CS] == CODE_64
    }

    /// Has the thread make system call `number` by the instruction `syscall` at address `at`.
    /// Returns the kernel's answer; `call` names the call in errors.
    fn call_at(
        &mut self,
        at: usize,
        call: &'static str,
        number: u32,
        arguments: [usize; 6],
    ) -> SysResult<usize> {
        let mut registers = self.saved;
        let places = [RDI, RSI, RDX, R10, R8, R9];
        for (place, argument) in places.into_iter().zip(arguments) {
            registers[place] = argument as u64;
        }
        // No call that the kernel might make again.
        (registers[CALL], registers[RAX]) = (u64::MAX, number.into());
        registers[RIP] = at as u64;
        self.set_registers(&registers)?;
        // The thread stops when it begins the call, and when it has made it.
        self.go_to_stop()?;
        self.go_to_stop()?;
        let place = registers.as_mut_ptr().expose_provenance();
        request(PTRACE_GETREGS, self.thread, 0, place)?;
        checked(call, registers[RAX] as isize)
    }

    /// Lets the thread run to its next stop at a system call.
    fn go_to_stop(&mut self) -> SysResult<()> {
        loop {
            request(PTRACE_SYSCALL, self.thread, 0, 0)?;
            match wait_for_stop(self.thread, self.ended()) {
                Ok(Stop { signal: AT_CALL, .. }) => return Ok(()),
                // The others are blocked.
                Ok(stop) if !stop.is_event => self.late = stop.signal,
                Ok(_) => {}
                Err(error) => {
                    self.is_there = false;
                    return Err(error);
                }
            }
        }
    }

    /// What becomes of the thread once it has ended: one that ran belongs to another process.
    fn ended(&self) -> Ended {
        if self.was_running { Ended::Goes } else { Ended::Stays }
    }

    fn set_registers(&self, registers: &Registers) -> SysResult<()> {
        let place = core::ptr::from_ref(registers).expose_provenance();
        request(PTRACE_SETREGS, self.thread, 0, place)
    }

    fn set_mask(&self, mask: u64) -> SysResult<()> {
        let place = (&raw const mask).expose_provenance();
        request(PTRACE_SETSIGMASK, self.thread, MASK_BYTES, place)
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if self.is_there {
            // Each fails only when the thread was killed meanwhile.
            if self.was_running {
                let _ = self.go_to_where_calls_begin_again();
            }
            let _ = self.set_registers(&self.saved);
            let _ = self.set_mask(self.mask);
            let _ = request(PTRACE_DETACH, self.thread, 0, self.late as usize);
        }
    }
}

/// Ends this process at its request of the number that a variable names, for tests; its parent, if
/// the number comes behind `parent:`.
#[cfg(debug_assertions)]
fn end_where_told() {
    use core::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: a count.
    let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    let told = std::env::var("COLDPRESS_TEST_ENDS_AT_TRACE").unwrap_or_default();
    let (process, number) = match told.strip_prefix("parent:") {
        Some(number) => (raw::parent_id(), number),
        None => (raw::process_id(), &*told),
    };
    if number.parse() == Ok(count) {
        crate::signals::send(process, linux::SIGKILL as i32);
    }
}

/// Makes a request about a traced thread. `address` and `data` must be what it takes.
fn request(request: usize, thread: u32, address: usize, data: usize) -> SysResult<()> {
    #[cfg(debug_assertions)]
    end_where_told();
    // SAFETY: of the requests here, the kernel writes to memory of ours only for GETREGS, and the
    // callers give the place of a value of that type.
    let result =
        unsafe { syscall(linux::__NR_ptrace, [request, thread as usize, address, data, 0, 0]) };
    checked("ptrace", result).map(|_| ())
}

/// The way in which a thread stopped.
#[derive(Clone, Copy, Debug)]
struct Stop {
    signal: i32,
    /// Whether the thread stopped because it was asked to, or with its whole process.
    is_event: bool,
}

/// What is to become of a thread that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// It is this process's child, which waits for it elsewhere.
    Stays,
    /// It goes: until then another thread of its process cannot exec.
    Goes,
}

/// Waits until the thread stops.
fn wait_for_stop(thread: u32, ended: Ended) -> SysResult<Stop> {
    loop {
        if let Some(stop) = stop_of(thread, 0, ended)? {
            return Ok(stop);
        }
    }
}

/// Whether the calling thread traces `process`.
fn is_traced_here(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.and_then(|tracer| tracer.trim().parse().ok()) == Some(raw::thread_id())
}

/// Returns how the thread has stopped; `None` if it has not yet. Fails with ECHILD when it ended.
fn stop_of(thread: u32, options: u32, ended: Ended) -> SysResult<Option<Stop>> {
    const ENDED: SysError = SysError { call: "wait4", errno: errno::ECHILD };
    if ended == Ended::Stays {
        // `si_signo`, `si_errno` and `si_code` of a siginfo_t (waitid(2)).
        let mut info = [0_i32; 32];
        let place = info.as_mut_ptr().expose_provenance();
        let what = linux::WEXITED | linux::WSTOPPED | linux::WNOWAIT | linux::__WALL | options;
        let words = [linux::P_PID as usize, thread as usize, place, what as usize, 0, 0];
        // SAFETY: the kernel writes a siginfo_t, of 128 bytes.
        let result = unsafe { syscall(linux::__NR_waitid, words) };
        match checked("waitid", result) {
            Err(error) if error.errno == errno::EINTR => return Ok(None),
            Err(error) => return Err(error),
            Ok(_) if info[0] == 0 => return Ok(None),
            // CLD_EXITED, CLD_KILLED, CLD_DUMPED.
            Ok(_) if (1..=3).contains(&info[2]) => return Err(ENDED),
            Ok(_) => {}
        }
    }
    let options = options | linux::__WALL;
    let mut status = 0_i32;
    let place = (&raw mut status).expose_provenance();
    let words = [thread as usize, place, options as usize, 0, 0, 0];
    // SAFETY: the kernel writes the status to a word of ours.
    let result = unsafe { syscall(linux::__NR_wait4, words) };
    match checked("wait4", result) {
        Err(error) if error.errno == errno::EINTR => Ok(None),
        Err(error) => Err(error),
        Ok(0) => Ok(None),
        // A stop has 0x7f in the low byte, then the signal, then the event (wait(2)).
        Ok(_) if status & 0xff == 0x7f => {
            Ok(Some(Stop { signal: status >> 8 & 0xff, is_event: status >> 16 != 0 }))
        }
        Ok(_) => Err(ENDED),
    }
}

/// Returns the address of an instruction `syscall` in the vDSO of `process`.
fn syscall_in_vdso(process: u32, memory: &File) -> SysResult<usize> {
    const NONE: SysError = SysError { call: "vdso", errno: errno::ENOSYS };
    let words = fs::read(format!("/proc/{process}/auxv")).map_err(of_io("open"))?;
    let mut pairs = words.as_chunks::<16>().0.iter().map(|pair| {
        let (kind, value) = pair.split_at(size_of::<u64>());
        [kind, value].map(|word| word.try_into().map_or(0, u64::from_le_bytes))
    });
    let [_, start] = pairs.find(|[kind, _]| *kind == AT_SYSINFO_EHDR).ok_or(NONE)?;
    let mut code = [0; VDSO_BYTES];
    let count = memory.read_at(&mut code, start).map_err(|_| NONE)?;
    let found = code[..count].windows(SYSCALL.len()).position(|bytes| bytes == SYSCALL);
    found.map(|at| start as usize + at).ok_or(NONE)
}

/// Makes a failure of the standard library one of system call `call`.
fn of_io(call: &'static str) -> impl Fn(std::io::Error) -> SysError {
    move |error| SysError { call, errno: error.raw_os_error().unwrap_or(errno::EFAULT) }
}

#[cfg(test)]
mod tests {
    //! The risk: a program begins with other registers, signals or memory than without a tracer, or
    //! is left standing still.

    use std::process::Stdio;
    use std::string::String;
    use std::time::{Duration, Instant};
    use std::vec::Vec;

    use super::*;

    /// Starts a program that stops at its exec.
    fn stopped(words: &[&str]) -> (std::process::Child, Tracee) {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdout(Stdio::piped());
        stop_at_exec(&mut command);
        let child = command.spawn().unwrap();
        let tracee = Tracee::at_exec(child.id(), 1 << (linux::SIGUSR2 - 1), || true).unwrap();
        (child, tracee)
    }

    fn output(child: std::process::Child) -> String {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_program_that_stops_at_its_exec_makes_calls_and_begins() {
        let (child, mut tracee) = stopped(&["grep", "-E", "SigBlk|TracerPid", "/proc/self/status"]);
        assert!(tracee.is_64_bit());
        let place = tracee.reserve(0, 2 * crate::PAGE_BYTES).unwrap();
        tracee.write(place, b"/bin/sh\0").unwrap();
        let mut read = [0; 8];
        tracee.read(place, &mut read).unwrap();
        assert_eq!(&read, b"/bin/sh\0");
        let file = tracee.open(place).unwrap();
        let second = place + crate::PAGE_BYTES;
        tracee.map_file(second..second + crate::PAGE_BYTES, file, 0, true).unwrap();
        tracee.close(file).unwrap();
        let mut head = [0; 4];
        tracee.read(second, &mut head).unwrap();
        assert_eq!(&head, b"\x7fELF");
        // A page of a file is written to as one of the program's own.
        tracee.write(second, b"ours").unwrap();
        assert!(!tracee.is_reaper(place).unwrap());
        tracee.give_up(place, 2 * crate::PAGE_BYTES).unwrap();
        assert!(tracee.open(place).is_err(), "the path is gone");
        drop(tracee);
        let said = output(child);
        let words: Vec<_> = said.split_ascii_whitespace().collect();
        assert_eq!(words, ["TracerPid:", "0", "SigBlk:", "0000000000000800"]);
    }

    #[test]
    fn a_waiting_program_is_held_and_waits_on_as_long_as_it_would_have() {
        for script in ["sleep 0.4", "read -r line < /dev/zero & sleep 0.4; kill $!"] {
            let begun = Instant::now();
            let child = Command::new("/bin/sh").args(["-c", script]).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(100));
            for _ in 0..20 {
                let mut tracee = Tracee::hold(child.id(), child.id()).unwrap();
                assert!(tracee.may_make_calls());
                tracee.prepare_calls().unwrap();
                let place = tracee.reserve(0, crate::PAGE_BYTES).unwrap();
                tracee.give_up(place, crate::PAGE_BYTES).unwrap();
            }
            output(child);
            let took = begun.elapsed();
            assert!(took >= Duration::from_millis(400), "{script}: {took:?}");
        }
    }

    #[test]
    fn a_traced_program_is_not_held_by_another() {
        let (child, tracee) = stopped(&["true"]);
        let other = std::thread::spawn({
            let process = child.id();
            move || Tracee::hold(process, process).map(drop)
        });
        assert_eq!(other.join().unwrap().map_err(|error| error.errno), Err(errno::EPERM));
        drop(tracee);
        output(child);
    }

    #[test]
    fn a_program_that_is_killed_meanwhile_is_an_error() {
        let (mut child, mut tracee) = stopped(&["true"]);
        child.kill().unwrap();
        assert!(tracee.reserve(0, crate::PAGE_BYTES).is_err());
        drop(tracee);
        let _ = child.wait();
    }
}
