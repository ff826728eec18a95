//! The paths in code that begin with `crate`, `super` or `self`, or stand behind a `use`:
//! `super::a::{b, c::D}` is two.

use crate::masked;

/// A path: its offset, and its names. The names behind a `<` or a `*` are not among them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedPath<'a> {
    pub(crate) at: usize,
    pub(crate) names: Vec<&'a str>,
}

/// Returns the paths of `code`, which is without comments and strings.
pub(crate) fn paths(code: &str) -> Vec<NamedPath<'_>> {
    let (mut found, mut end, mut is_used) = (Vec::new(), 0, false);
    for (at, word) in masked::words(code) {
        // A `super` inside a path is a part of it.
        if at >= end && (is_used || matches!(word, "crate" | "super" | "self")) {
            let mut reader = Reader { code, at, begun: at, found: &mut found };
            reader.path(Vec::new());
            end = reader.at;
        }
        is_used = word == "use";
    }
    found.retain(|path| path.names.len() > 1);
    found
}

/// A reader that goes over one path, with all its groups.
struct Reader<'a, 'b> {
    code: &'a str,
    at: usize,
    /// The offset of the path that is being read.
    begun: usize,
    found: &'b mut Vec<NamedPath<'a>>,
}

impl<'a> Reader<'a, '_> {
    fn skip(&mut self, signs: &[char]) {
        let rest = &self.code[self.at..];
        self.at += rest.len() - rest.trim_start_matches(signs).len();
    }

    /// Reads a path, or the rest of one that begins with `names`.
    fn path(&mut self, mut names: Vec<&'a str>) {
        loop {
            self.skip(&[' ', '\n']);
            let rest = &self.code[self.at..];
            if rest.starts_with('{') {
                return self.group(&names);
            }
            let Some((0, name)) = masked::words(rest).next() else { break };
            names.push(name);
            self.at += name.len();
            if !self.code[self.at..].starts_with("::") {
                break;
            }
            self.at += "::".len();
        }
        self.found.push(NamedPath { at: self.begun, names });
    }

    /// Reads the paths between two braces, which all begin with `names`.
    fn group(&mut self, names: &[&'a str]) {
        self.at += 1;
        while self.at < self.code.len() {
            self.skip(&[' ', '\n', ',']);
            if self.code[self.at..].starts_with('}') {
                self.at += 1;
                return;
            }
            self.path(names.to_vec());
            // A `*`, or the other name behind an `as`.
            let rest = &self.code[self.at..];
            self.at += rest.find([',', '}']).unwrap_or(rest.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(code: &str) -> Vec<String> {
        paths(code).iter().map(|path| path.names.join(".")).collect()
    }

    #[test]
    fn groups_are_taken_apart_however_deep() {
        let code = "use crate::{\n    a::{self, B as C},\n    d,\n};\nuse super::*;\nuse e::f;";
        assert_eq!(names(code), ["crate.a.self", "crate.a.B", "crate.d", "e.f"]);
        assert_eq!(names("use super::{super::a, b::*};"), ["super.super.a", "super.b"]);
    }

    #[test]
    fn paths_in_expressions_end_with_their_names() {
        let code = "fn f() { super::a::b::<crate::C>(self.d); self::e::F { g: 1 } }";
        assert_eq!(names(code), ["super.a.b", "crate.C", "self.e.F"]);
        assert_eq!(paths(code)[1].at, code.find("crate").expect("it is there"));
    }
}
