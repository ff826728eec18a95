//! Text from other processes, made fit to be printed.
//!
//! A process of a run, or an impostor of a launcher, may say anything, and a terminal obeys some of
//! it: control characters of ASCII and of Latin-1 (ECMA-48), and those of Unicode that change the
//! order of what is shown (UAX 9). This module shows them as escapes instead.

use serde_json::Value;

/// Returns `text` as one line that a terminal only shows.
pub(crate) fn printable(text: &str) -> String {
    let shown = |char: char| match char {
        '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => char.is_control(),
    };
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        if shown(char) {
            line.extend(char.escape_unicode());
        } else {
            line.push(char);
        }
    }
    line
}

/// Returns the document with every text and name in it made printable.
pub(crate) fn printable_document(document: Value) -> Value {
    match document {
        Value::String(text) => Value::String(printable(&text)),
        Value::Array(values) => values.into_iter().map(printable_document).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            members.map(|(name, value)| (printable(&name), printable_document(value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a terminal does what a stranger says.

    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        let text = "wk\x1b]0;owned\x07\r\n\u{9b}2J\u{202e}\x7f caf\u{e9}";
        let shown = "wk\\u{1b}]0;owned\\u{7}\\u{d}\\u{a}\\u{9b}2J\\u{202e}\\u{7f} caf\u{e9}";
        assert_eq!(printable(text), shown);
        let document = json!({ "a\x1b": [{ "b": "c\n" }, 7, null] });
        let shown = json!({ "a\\u{1b}": [{ "b": "c\\u{a}" }, 7, null] });
        assert_eq!(printable_document(document), shown);
    }
}
