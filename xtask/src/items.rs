//! The items of a file, read by their words and braces: functions, types, and blocks of `impl`.
//!
//! All offsets and texts are of the code without comments (`RustFile::masked`).

use crate::masked::{body, words};

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

/// A `struct`, `union`, `enum` or `trait`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Type<'a> {
    /// The offset of its first word.
    pub(crate) at: usize,
    /// The first word.
    pub(crate) kind: &'a str,
    /// The name.
    pub(crate) name: &'a str,
    /// What stands in its braces, with its offset; empty without braces.
    pub(crate) body: (usize, &'a str),
}

/// A block of `impl`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    /// The name of the type, without its path and its parameters.
    pub(crate) of: &'a str,
    /// The name of the trait, if it is one's.
    pub(crate) of_trait: Option<&'a str>,
    /// What stands in its braces, with its offset.
    pub(crate) body: (usize, &'a str),
}

impl Block<'_> {
    /// Returns whether the block gives a type the functions of a trait.
    pub(crate) fn is_of_trait(&self) -> bool {
        self.of_trait.is_some()
    }
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

/// Returns the types in `code`.
pub(crate) fn types(code: &str) -> Vec<Type<'_>> {
    let found = named(code, &["struct", "union", "enum", "trait"]).into_iter();
    found
        .map(|(at, kind, start, name)| Type { at, kind, name, body: inside(code, start) })
        .collect()
}

/// Returns the names of the types in `code` that other crates may name, aliases included, with the
/// offsets of their first words.
pub(crate) fn public_types(code: &str) -> Vec<(usize, &str)> {
    let is_public = |at: usize| {
        let before = code[..at].trim_end();
        let before = before.strip_suffix("unsafe").map_or(before, str::trim_end);
        before.ends_with("pub")
    };
    let found = named(code, &["struct", "union", "enum", "trait", "type"]).into_iter();
    found.filter(|found| is_public(found.0)).map(|(at, _, _, name)| (at, name)).collect()
}

/// Returns the blocks of `impl` in `code`.
pub(crate) fn blocks(code: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    for (at, _) in words(code).filter(|(_, word)| *word == "impl") {
        // `impl X` as the type of a parameter or a result stands behind other signs.
        let before = code[..at].trim_end();
        let before = before.strip_suffix("unsafe").map_or(before, str::trim_end);
        let is_item = before.is_empty() || before.ends_with(['{', '}', ';', ']']);
        let Some((open, end)) = body(code, at).filter(|_| is_item) else { continue };
        let head = code[at + "impl".len()..open].trim_start();
        let head = if head.starts_with('<') { &head[close(head, 0) + 1..] } else { head };
        let limits = words(head).find(|(_, word)| *word == "where");
        let head = limits.map_or(head, |(at, _)| &head[..at]);
        let is_for = |(at, word): &(usize, &str)| {
            *word == "for" && !head[at + word.len()..].starts_with('<')
        };
        let (of_trait, of) = match words(head).find(is_for) {
            Some((at, word)) => (Some(last_name(&head[..at])), &head[at + word.len()..]),
            None => (None, head),
        };
        found.push(Block { of: last_name(of), of_trait, body: (open + 1, &code[open + 1..end]) });
    }
    found
}

/// Returns the last name of a path, without its parameters: `Store` of `&mut zswap::Store<'_, P>`.
fn last_name(path: &str) -> &str {
    let path = path.split('<').next().unwrap_or(path);
    words(path).last().map_or("", |(_, word)| word)
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

/// Returns what stands in the braces of the item at `from`, with its offset.
fn inside(code: &str, from: usize) -> (usize, &str) {
    body(code, from).map_or((from, ""), |(open, end)| (open + 1, &code[open + 1..end]))
}

/// Splits what stands in braces at its commas; returns the elements with their offsets.
pub(crate) fn elements(body: &str) -> Vec<(usize, &str)> {
    let (mut start, mut found) = (0, Vec::new());
    let mut at = 0;
    while at < body.len() {
        match body.as_bytes()[at] {
            b'(' | b'[' | b'{' | b'<' => at = close(body, at),
            b',' => {
                found.push((start, &body[start..at]));
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    found.push((start, &body[start.min(body.len())..]));
    let blank = |text: &str| text.len() - text.trim_start().len();
    let found = found.into_iter().map(|(start, text)| (start + blank(text), text.trim()));
    found.filter(|(_, text)| !text.is_empty()).collect()
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

    #[test]
    fn public_types_are_those_without_a_limit() {
        let code = "pub struct A; pub(crate) struct B; struct C; pub unsafe trait D { type E; } \
                    pub type F = u8; pub union G {} pub(super) enum H {} pub fn i() -> J {}";
        let found: Vec<_> = public_types(code).into_iter().map(|(_, name)| name).collect();
        assert_eq!(found, ["A", "D", "F", "G"]);
        assert_eq!(public_types("pub struct A;"), [(4, "A")]);
    }

    #[test]
    fn blocks_carry_their_type_and_trait() {
        let code = "impl<P: Fn() -> u8> Store<P> { fn a() {} }\nunsafe impl<T> x::Send for \
                    &y::B<T> where T: for<'a> X<'a> { }\nfn f(x: impl C) -> impl D { }\n\
                    #[x]\nimpl E {a}";
        let found: Vec<_> = blocks(code).iter().map(|block| (block.of, block.of_trait)).collect();
        assert_eq!(found, [("Store", None), ("B", Some("Send")), ("E", None)]);
    }

    #[test]
    fn elements_end_at_commas_outside_of_types() {
        let found =
            types("struct A { a: B<C, D>, #[x] b: fn(u8, u8) -> [u8; 2],\n} struct E(u8, u8);");
        assert_eq!((found.len(), found[1].body.1), (2, ""));
        let elements: Vec<_> = elements(found[0].body.1).into_iter().map(|found| found.1).collect();
        assert_eq!(elements, ["a: B<C, D>", "#[x] b: fn(u8, u8) -> [u8; 2]"]);
    }
}
