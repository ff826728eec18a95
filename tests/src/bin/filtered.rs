//! Runs a program as a container would: under a seccomp profile, without the capabilities that
//! containers lack, as another user.
//!
//!     filtered [--profile FILE] [--refuse CALL=ERRNO]... [--kill CALL]... [--capabilities MASK]
//!              [--user ID] PROGRAM ARGS...
//!
//! FILE is one of `fixtures/seccomp`. CALL is the number of a call. A call named by `--refuse` or
//! `--kill` fails or kills whatever the profile says. MASK has a bit for each capability that
//! stays.
//!
//! The filter tests one rule after the other, so each jump passes only a few instructions: a jump
//! can pass 255 (bpf of filter.h), and a profile has a thousand.

use std::env;
use std::fs;
use std::io::{Error, Result};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The code of the instruction that loads a word of `struct seccomp_data`; below, those of the
/// other instructions.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Offsets in that structure of the number of the call, the machine, and the low half of the first
/// argument.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const ARGUMENTS: u32 = 16;
/// AUDIT_ARCH_X86_64 (linux/audit.h).
const X86_64: u32 = 0xc000_003e;
/// Number of capabilities: the last one of Linux 6.18, CAP_CHECKPOINT_RESTORE, is 40.
const CAPABILITIES: u64 = 41;

fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

/// The condition of a rule on one argument.
struct Condition {
    load: u32,
    mask: Option<u32>,
    jump: u16,
    /// Whether the jump tests the opposite of the rule's condition.
    is_contrary: bool,
    value: u32,
}

impl Condition {
    /// Parses `argN OPERATOR VALUE` or `argN & MASK == VALUE`. Values have 32 bits, like the
    /// arguments that profiles test.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let argument: u32 = words.next()?.strip_prefix("arg")?.parse().ok()?;
        let mut operator = words.next()?;
        let mut mask = None;
        if operator == "&" {
            mask = Some(words.next()?.parse().ok()?);
            operator = words.next()?;
        }
        let (jump, is_contrary) = match operator {
            "==" => (JUMP_IF_EQUAL, false),
            "!=" => (JUMP_IF_EQUAL, true),
            ">" => (JUMP_IF_GREATER, false),
            "<" => (JUMP_IF_AT_LEAST, true),
            _ => return None,
        };
        let value = words.next()?.parse().ok()?;
        Some(Self { load: ARGUMENTS + 8 * argument, mask, jump, is_contrary, value })
    }

    /// Returns instructions that skip `behind` more when the condition does not hold.
    fn instructions(&self, behind: u8) -> Vec<libc::sock_filter> {
        let mut code = vec![statement(LOAD, self.load)];
        code.extend(self.mask.map(|mask| statement(AND, mask)));
        let jump = statement(self.jump, self.value);
        code.push(if self.is_contrary {
            libc::sock_filter { jt: behind, ..jump }
        } else {
            libc::sock_filter { jf: behind, ..jump }
        });
        code
    }
}

/// Appends a rule: call `number` gets `verdict` when all `conditions` hold.
fn add(code: &mut Vec<libc::sock_filter>, number: u32, verdict: u32, conditions: &[Condition]) {
    let mut rule = vec![statement(RETURN, verdict)];
    for condition in conditions.iter().rev() {
        let behind = u8::try_from(rule.len()).expect("a rule is short");
        rule.splice(0..0, condition.instructions(behind));
    }
    if !conditions.is_empty() {
        // The next rule tests the number again.
        rule.push(statement(LOAD, NUMBER));
    }
    let length = u8::try_from(rule.len()).expect("a rule is short");
    code.push(libc::sock_filter { jf: length, ..statement(JUMP_IF_EQUAL, number) });
    code.append(&mut rule);
}

/// Appends the rules of the profile `text`, and returns the verdict for all other calls.
fn add_profile(code: &mut Vec<libc::sock_filter>, text: &str) -> Option<u32> {
    let mut default = libc::SECCOMP_RET_ALLOW;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (rule, conditions) = line.split_once(" if ").unwrap_or((line, ""));
        let mut words = rule.split_ascii_whitespace();
        let mut first = words.next()?;
        let is_default = first == "default";
        if is_default {
            first = words.next()?;
        }
        let verdict = match first {
            "allow" => libc::SECCOMP_RET_ALLOW,
            "errno" => libc::SECCOMP_RET_ERRNO | words.next()?.parse::<u32>().ok()?,
            _ => return None,
        };
        if is_default {
            default = verdict;
            continue;
        }
        let number = words.next()?.parse().ok()?;
        let conditions = conditions.split(" and ").filter(|text| !text.is_empty());
        let conditions: Option<Vec<_>> = conditions.map(Condition::parse).collect();
        add(code, number, verdict, &conditions?);
    }
    Some(default)
}

/// Puts the filter on this process and on what it executes.
fn install(code: &mut [libc::sock_filter]) -> Result<()> {
    let length = u16::try_from(code.len()).map_err(Error::other)?;
    let program = libc::sock_fprog { len: length, filter: code.as_mut_ptr() };
    // SAFETY: the first call takes numbers only; the second reads the filter, which outlives it.
    let result = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(Error::last_os_error());
        }
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if result < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// Leaves the programs of this process only the capabilities in `mask`.
fn keep_capabilities(mask: u64) -> Result<()> {
    for capability in (0..CAPABILITIES).filter(|capability| mask & (1 << capability) == 0) {
        // SAFETY: all arguments are numbers, no address among them.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        // An older kernel does not know the last capabilities.
        let error = Error::last_os_error();
        if result != 0 && error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
    }
    Ok(())
}

fn become_user(id: u32) -> Result<()> {
    // SAFETY: an empty list of groups, and numbers.
    let is_done = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(id, id, id) == 0
            && libc::setresuid(id, id, id) == 0
    };
    if is_done { Ok(()) } else { Err(Error::last_os_error()) }
}

fn main() -> Result<()> {
    let wrong = |what: &str| Error::other(format!("{what}: see the head of filtered.rs"));
    let mut words = env::args().skip(1).peekable();
    let (mut first, mut profile, mut user) = (Vec::new(), String::new(), None);
    while let Some(option) = words.next_if(|word| word.starts_with("--")) {
        let value = words.next().ok_or_else(|| wrong(&option))?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| wrong(&option));
        match option.as_str() {
            "--profile" => profile = fs::read_to_string(&value)?,
            "--refuse" => {
                let (call, errno) = value.split_once('=').ok_or_else(|| wrong(&option))?;
                let verdict = libc::SECCOMP_RET_ERRNO | number(errno)?;
                add(&mut first, number(call)?, verdict, &[]);
            }
            "--kill" => add(&mut first, number(&value)?, libc::SECCOMP_RET_KILL_PROCESS, &[]),
            "--capabilities" => {
                let digits = value.trim_start_matches("0x");
                keep_capabilities(u64::from_str_radix(digits, 16).map_err(Error::other)?)?;
            }
            "--user" => user = Some(number(&value)?),
            _ => return Err(wrong(&option)),
        }
    }
    let mut code = vec![
        statement(LOAD, MACHINE),
        libc::sock_filter { jt: 1, ..statement(JUMP_IF_EQUAL, X86_64) },
        statement(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        statement(LOAD, NUMBER),
    ];
    code.append(&mut first);
    let default = add_profile(&mut code, &profile).ok_or_else(|| wrong("the profile"))?;
    code.push(statement(RETURN, default));
    let program = words.next().ok_or_else(|| wrong("no program"))?;
    user.map_or(Ok(()), become_user)?;
    install(&mut code)?;
    Err(Command::new(program).args(words).exec())
}
