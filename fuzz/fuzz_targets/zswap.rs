//! Verbs of a page store over all pools and backings, beside a map from keys to pages.
#![no_main]

#[path = "../../crates/zswap/tests/operations/mod.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::run(bytes));
