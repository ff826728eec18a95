//! A seccomp filter made of a list of allowed calls, as systemd makes one of `SystemCallFilter=`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::failed;
use super::program::outcome::{Outcome, Stop, wrong};

/// Offset of the number of the call in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
/// Codes of instructions. The distance of a jump has 8 bits, which limits the instructions it can
/// pass; so each call has its own answer.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Starts `program` under the filter that `file` lists. Returns only with a failure.
pub fn start(action: &str, file: &str, program: &str, args: &[&str]) -> Outcome {
    let refusal = match action {
        "errno" => libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        "kill" => libc::SECCOMP_RET_KILL_PROCESS,
        _ => return wrong(format!("no action {action}")),
    };
    let text = fs::read_to_string(file).map_err(|error| Stop::Fail(error.to_string()))?;
    let numbers: Vec<u32> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(' ').next()?.parse().ok())
        .collect();
    if numbers.is_empty() {
        return wrong(format!("{file} lists no call"));
    }
    let mut filter = vec![instruction(LOAD, 0, NUMBER_AT)];
    for number in numbers {
        filter.push(instruction(JUMP_IF_EQUAL, 1, number));
        filter.push(instruction(RETURN, 0, libc::SECCOMP_RET_ALLOW));
    }
    filter.push(instruction(RETURN, 0, refusal));
    let program_of_filter =
        libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let mode = libc::SECCOMP_MODE_FILTER;
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program_of_filter, 0, 0) != 0
        {
            return Err(failed("prctl"));
        }
    }
    wrong(format!("{program}: {}", Command::new(program).args(args).exec()))
}

/// Makes an instruction that skips `skip` more if it does not find `value`.
fn instruction(code: u16, skip: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: skip, k: value }
}
