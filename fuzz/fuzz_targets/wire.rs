//! Packets of a process that joins a run, and of a launcher that may be another's.
//!
//! What is understood is said again in the same way, and understood again.
#![no_main]

use coldpress_runtime::wire::{Affinity, Loudness, View, Welcome, is_hello};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = is_hello(bytes);
    if let Some(welcome) = Welcome::decode(bytes) {
        assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
    }
    if let Some(affinity) = Affinity::decode(bytes) {
        assert_eq!(affinity.encode()[..], *bytes);
    }
    if let Some(loudness) = bytes.first().and_then(|byte| Loudness::decode(*byte)) {
        assert_eq!(loudness.encode(), bytes[0]);
    }
    if let Some((budget, view)) = std::str::from_utf8(bytes).ok().and_then(View::after_budget) {
        let again = format!("{}{}", budget.0, view.suffix());
        assert_eq!(View::after_budget(&again), Some((budget, view)));
    }
});
