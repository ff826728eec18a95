//! The items of a file, read by their words and braces: functions.
//!
//! All offsets and texts are of the code without comments (`RustFile::masked`).

use crate::masked::words;

/// A function, with or without a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function<'a> {
    /// The offset of `fn`.
    pub(crate) at: usize,
    /// The name.
    pub(crate) name: &'a str,
    /// The type behind `->`; empty for none.
    pub(crate) returns: &'a str,
}

/// Returns the functions in `code`, those inside others included.
pub(crate) fn functions(code: &str) -> Vec<Function<'_>> {
    let found = named(code, &["fn"]).into_iter().map(|(at, _, start, name)| Function {
        at,
        name,
        returns: returned(code, start + name.len()),
    });
    found.collect()
}

/// Returns the type that a function returns; `from` is the offset behind its name.
fn returned(code: &str, from: usize) -> &str {
    let skip = |at: usize| at + code[at..].len() - code[at..].trim_start().len();
    let mut at = skip(from);
    for open in ["<", "("] {
        if code[at..].starts_with(open) {
            at = skip(close(code, at) + 1);
        }
    }
    let Some(rest) = code.get(at..).and_then(|rest| rest.strip_prefix("->")) else { return "" };
    let end = rest.find(['{', ';']).unwrap_or(rest.len());
    let end = words(&rest[..end]).find(|(_, word)| *word == "where").map_or(end, |(at, _)| at);
    rest[..end].trim()
}

/// Returns the words of `kinds` that a name follows: offset, word, and offset and text of the name.
fn named<'a>(code: &'a str, kinds: &[&str]) -> Vec<(usize, &'a str, usize, &'a str)> {
    let words: Vec<_> = words(code).collect();
    let pairs = words.windows(2).filter(|pair| {
        let between = &code[pair[0].0 + pair[0].1.len()..pair[1].0];
        kinds.contains(&pair[0].1) && between.trim().is_empty()
    });
    pairs.map(|pair| (pair[0].0, pair[0].1, pair[1].0, pair[1].1)).collect()
}

/// Returns the offset of the sign that closes what the sign at `open` opens, or the end.
fn close(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    let bytes = code.as_bytes();
    for at in open..bytes.len() {
        match bytes[at] {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            // The head of an arrow closes nothing.
            b'>' if at > 0 && matches!(bytes[at - 1], b'-' | b'=') => {}
            b')' | b']' | b'}' | b'>' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    code.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_carry_what_they_return() {
        let code = "fn a(x: impl Fn(u8) -> bool) {} fn b<F: Fn(u8) -> u8>(f: F) -> bool where F: X \
                    {} fn c() -> Option<bool>; type D = fn(u8) -> bool; fn e()";
        let found: Vec<_> =
            functions(code).iter().map(|found| (found.name, found.returns)).collect();
        assert_eq!(found, [("a", ""), ("b", "bool"), ("c", "Option<bool>"), ("e", "")]);
    }
}
