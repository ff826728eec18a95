//! Operations on every kind of pool, beside a map from handles to bytes.
#![no_main]

use coldpress_mem::pools::operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::run_bytes(bytes));
