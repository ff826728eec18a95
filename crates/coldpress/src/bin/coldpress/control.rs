//! What `coldpress ctl` and the launcher say to each other: one packet there, one back.
//!
//! The request is [`GREETING`], then a line `NAME=VALUE` for each knob to be turned. The answer is
//! a JSON document: the figures of the run after that, or [`refusal`] and nothing has changed.
//! Texts rather than layouts, so that two versions of coldpress understand each other.

use coldpress_runtime::knobs::Knobs;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::knobs;

/// The first bytes of a request: "cpc" and the version of these packets.
const GREETING: &[u8] = b"cpc\x01";
/// Longest request: every knob, turned often.
pub(crate) const REQUEST_MAX: usize = 4096;
/// Longest answer; it takes some 10 KiB.
pub(crate) const ANSWER_MAX: usize = 128 << 10;

/// The request to turn knobs as `settings` say, if any.
pub(crate) fn request(settings: &[String]) -> Vec<u8> {
    let lines: String = settings.iter().map(|setting| format!("{setting}\n")).collect();
    [GREETING, lines.as_bytes()].concat()
}

/// The text of a request; `None` when it is none.
pub(crate) fn of_request(packet: &[u8]) -> Option<&str> {
    packet.strip_prefix(GREETING).and_then(|text| std::str::from_utf8(text).ok())
}

/// The knobs of a run after the request `text`. Fails at the first setting that is wrong.
pub(crate) fn turn(mut knobs: Knobs, text: &str) -> Result<Knobs, Failure> {
    for line in text.lines() {
        let (knob, word) = knobs::parse(line).map_err(|cause| {
            Failure::ours(cause, "nothing was changed; see `coldpress ctl --help`")
        })?;
        knobs.set(knob, word);
    }
    Ok(knobs)
}

/// The answer that says what is wrong.
pub(crate) fn refusal(failure: &Failure) -> Value {
    json!({ "error": { "cause": failure.cause, "way_out": failure.way_out } })
}

/// What an answer says: the document, or what is wrong. `None` when it is no answer.
pub(crate) fn of_answer(packet: &[u8]) -> Option<Result<Value, Failure>> {
    let document: Value = serde_json::from_slice(packet).ok()?;
    let Some(error) = document.get("error") else { return Some(Ok(document)) };
    let part = |name: &str| error.get(name).and_then(Value::as_str);
    Some(Err(Failure::ours(part("cause")?, part("way_out")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_survive_the_wire_and_strangers_do_not() {
        let settings = ["writeback=off".to_owned(), "codec=lzo".to_owned()];
        let packet = request(&settings);
        assert_eq!(of_request(&packet), Some("writeback=off\ncodec=lzo\n"));
        assert_eq!(of_request(&request(&[])), Some(""));
        assert_eq!(of_request(b"GET / HT"), None);
        assert_eq!(of_answer(b"hello"), None);
        let answer = json!({ "knobs": { "writeback": "off" } });
        assert_eq!(of_answer(answer.to_string().as_bytes()), Some(Ok(answer)));
        let failure = Failure::ours("no", "yes");
        let packet = refusal(&failure).to_string();
        assert_eq!(of_answer(packet.as_bytes()), Some(Err(failure)));
    }

    #[test]
    fn one_wrong_setting_turns_nothing() {
        let knobs = Knobs::default();
        let failure = turn(knobs, "writeback=off\nmax_pool_percent=91").unwrap_err();
        assert!(failure.cause.contains("1 to 90"), "{failure}");
        let turned = turn(knobs, "max_pool_percent=9\nmax_pool_percent=7").unwrap();
        let mut expected = knobs;
        assert!(expected.set(coldpress_runtime::knobs::Knob::MaxPoolPercent, 7));
        assert_eq!(turned, expected);
        assert_eq!(turn(knobs, "").unwrap(), knobs);
    }
}
