//! The command `coldpress-bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    coldpress_bench::run()
}
