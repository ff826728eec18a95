//! What `coldpress ctl` and a run say to each other: requests of any process that may connect, and
//! answers of any process that made a socket where runs have theirs.
#![no_main]

use coldpress_runtime::knobs::Knobs;
use coldpress_sys::AsFd;
use coldpress_sys::net;

#[path = "../../crates/coldpress/src/budget.rs"]
#[expect(dead_code, reason = "the command does more with it")]
mod budget;
#[path = "../../crates/coldpress/src/control.rs"]
#[expect(dead_code, reason = "the command does more with it")]
mod control;
#[path = "../../crates/coldpress/src/knobs.rs"]
#[expect(dead_code, reason = "the command does more with it")]
mod knobs;
#[path = "../../crates/coldpress/src/text.rs"]
mod text;
#[path = "../../crates/coldpress/src/view.rs"]
#[expect(dead_code, reason = "the command does more with it")]
mod view;

/// Turns knobs as the text says. What was refused has a cause and a way out.
fn turn(text: &str) {
    let ask = budget::Ask::parse("64M").expect("that is a size");
    let now = control::Changeable {
        budget: budget::Budget::find(ask).expect("64 MiB are allowed"),
        knobs: Knobs::default(),
        show_memory: view::Ask::Auto,
    };
    match now.turned(text) {
        Ok(turned) => _ = turned.turned(text).expect("what was allowed once is allowed again"),
        Err(failure) => assert!(!failure.cause.is_empty() && !failure.way_out.is_empty()),
    }
}

/// Has `ctl` read the bytes as an answer. What it shows has no character that a terminal obeys.
fn answer(bytes: &[u8]) {
    let (ours, theirs) = net::pair().expect("there are descriptors");
    net::send(theirs.as_fd(), bytes, &[]).expect("the packet is short");
    let told = control::exchange(&ours, &control::request(&[]), control::PATIENCE);
    if let Ok(Some(Ok(document))) = told {
        let shown = document.to_string();
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(text) = control::of_request(bytes) {
        turn(text);
    }
    let Some((kind, rest)) = bytes.split_first() else { return };
    match (kind % 2, std::str::from_utf8(rest)) {
        (0, Ok(text)) => turn(text),
        _ if !rest.is_empty() => answer(rest),
        _ => {}
    }
});
