//! A chain of exec, each of whose programs holds memory: `execs COUNT [PROGRAM [ARGS]]`. The last
//! program compares its memory, and prints how many services there are for programs of this file.
//! Or it becomes PROGRAM once it has printed `ready` and its input has ended.

use std::env;
use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes held: enough that a service starts.
const HELD: usize = 8 << 20;
/// The time that the services of earlier programs may take to end, on a busy machine.
const ENDED_BY: Duration = Duration::from_secs(2);

/// Returns the number of processes that have a service's name and run this file.
fn services() -> usize {
    let own = fs::read_link("/proc/self/exe").expect("/proc is there");
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    let is_one = |entry: &fs::DirEntry| {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        name == "coldpress\n" && fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == own)
    };
    entries.filter(is_one).count()
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().collect();
    let count: u32 = words[1].parse().expect("a number");
    let memory: Vec<u8> = (0..HELD).map(|at| (at % 251) as u8).collect();
    let own = env::current_exe().expect("/proc is there");
    let mut command = match (count, words.get(2)) {
        (0, None) => {
            let begun = Instant::now();
            while services() > 1 && begun.elapsed() < ENDED_BY {
                thread::sleep(Duration::from_millis(1));
            }
            let took = begun.elapsed();
            let is_whole = memory.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8);
            println!("{}, services {}", if is_whole { "whole" } else { "wrong" }, services());
            eprintln!("the last one but this ended within {took:?}");
            return ExitCode::SUCCESS;
        }
        (0, Some(program)) => {
            println!("ready");
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            let mut command = Command::new(program);
            command.args(&words[3..]);
            command
        }
        (count, _) => {
            let mut command = Command::new(own);
            command.arg((count - 1).to_string()).args(&words[2..]);
            command
        }
    };
    // This read keeps the memory from being optimised away.
    assert_eq!(memory[HELD - 1], ((HELD - 1) % 251) as u8);
    let error = command.exec();
    eprintln!("exec: {error}");
    ExitCode::FAILURE
}
