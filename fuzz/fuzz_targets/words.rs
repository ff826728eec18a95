//! Words that a user, or /proc, says: sizes, codecs, knobs, lines of maps.
#![no_main]

use coldpress_codec::CodecChoice;
use coldpress_common::size::{parse_size, show};

#[path = "../../crates/coldpress/src/knobs.rs"]
#[expect(dead_code, reason = "the command does more with it")]
mod knobs;
#[path = "../../crates/coldpress/src/mappings.rs"]
#[expect(dead_code, reason = "the command does more with it")]
mod mappings;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(size) = parse_size(text) {
        assert!(!show(size).is_empty());
    }
    if let Ok(choice) = text.parse::<CodecChoice>() {
        assert_eq!(choice.to_string().parse::<CodecChoice>().ok(), Some(choice));
    }
    let _ = knobs::parse(text);
    if let Some(mapping) = mappings::Mapping::parse(text) {
        assert!(!mapping.range.is_empty());
    }
});
