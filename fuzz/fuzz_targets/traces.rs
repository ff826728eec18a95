//! Files that claim to be a trace of touches, or of frames, as the benchmarks read them.
#![no_main]

#[path = "../../crates/bench/src/frames/trace.rs"]
#[expect(dead_code, reason = "the benchmarks do more with it")]
mod frames;
#[path = "../../crates/bench/src/policy/trace.rs"]
#[expect(dead_code, reason = "the benchmarks do more with it")]
mod touches;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(trace) = touches::Trace::read(&mut &bytes[..]) {
        let mut again = Vec::new();
        trace.write(&mut again).expect("there is memory");
        assert!(touches::Trace::read(&mut &again[..]).is_ok_and(|read| read == trace));
    }
    let _ = frames::Trace::read(&mut &bytes[..]);
});
