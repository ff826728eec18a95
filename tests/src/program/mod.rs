//! The shared parts of the target programs in `src/bin`, included by `#[path]`: they need raw
//! system calls, which the library of the tests forbids itself. The target programs are ordinary
//! programs that know nothing of coldpress: the same command must pass when it is run alone.
//!
//! 1. All that a program expects of memory is derived (`pattern`), never remembered as bytes.
//! 2. Random choices come from one printed seed (`random`).
#![allow(dead_code, reason = "each program uses a part of it")]

pub mod args;
pub mod outcome;
pub mod pattern;
pub mod pressure;
pub mod random;
pub mod raw;

/// Bytes of a page of the machines these programs run on.
pub const PAGE: usize = 4096;
