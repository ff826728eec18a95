//! A Rust file as the rules see it: its text, split into code and comments, and which lines of it
//! are for tests only.

use crate::items;
use crate::masked::{self, Masked};

/// A Rust source file.
pub(crate) struct RustFile {
    /// The path from the root of the tree, with `/`.
    pub(crate) path: String,
    /// The folder of the file's package, for example `crates/mem`; empty for none.
    pub(crate) package: String,
    /// The text as it is.
    pub(crate) text: String,
    /// The text split into code and comments.
    pub(crate) masked: Masked,
    /// A mark for each line that is compiled for tests only.
    pub(crate) test: Vec<bool>,
    /// Whether a `mod` or a target leads here.
    pub(crate) reached: bool,
}

impl RustFile {
    pub(crate) fn new(path: String, text: String, package: String) -> Self {
        let masked = Masked::new(&text);
        let mut test = vec![is_test_path(&path); text.lines().count() + 1];
        for (start, end) in test_ranges(&masked.code) {
            let first = masked::line_of(&masked.code, start);
            test[first..=masked::line_of(&masked.code, end)].fill(true);
        }
        Self { path, package, text, masked, test, reached: false }
    }

    /// Marks the whole file as test code.
    pub(crate) fn mark_test(&mut self) {
        self.test.fill(true);
    }

    /// Returns the lines of code, from 1, each with whether it is test code.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let lines = self.masked.code.lines().enumerate();
        lines.map(|(index, code)| (index + 1, code, self.test[index]))
    }

    /// Returns the words of the code with their lines from 1.
    pub(crate) fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code_lines()
            .flat_map(|(line, code, _)| masked::words(code).map(move |(_, word)| (line, word)))
    }
}

/// Returns the number of types of `files` that other crates may name, without those for tests.
pub(crate) fn public_types<'a>(files: impl Iterator<Item = &'a RustFile>) -> usize {
    let of_file = |file: &RustFile| {
        let code = &file.masked.code;
        let found = items::public_types(code).into_iter();
        found.filter(|(at, _)| !file.test[masked::line_of(code, *at)]).count()
    };
    files.map(of_file).sum()
}

/// Returns whether a file holds tests only, by where it is.
fn is_test_path(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let folder =
        |name: &str| path.starts_with(&format!("{name}/")) || path.contains(&format!("/{name}/"));
    name == "tests.rs" || name.starts_with("loom_") || folder("tests") || folder("benches")
}

/// Returns the ranges of `code` under a `cfg(test)`: from the attribute to the end of its item.
fn test_ranges(code: &str) -> Vec<(usize, usize)> {
    let mut ranges = Vec::new();
    for (start, _) in code.match_indices("cfg(") {
        let inner = code[..start].ends_with("#![");
        if !inner && !code[..start].ends_with("#[") {
            continue;
        }
        let Some(length) = code[start..].find(']') else { continue };
        let attribute = &code[start..start + length];
        let for_tests = masked::words(attribute).any(|(_, word)| word == "test");
        // What a feature brings, too, is product code.
        let is_product = attribute.contains("any(") && attribute.contains("feature");
        if !for_tests || is_product || attribute.contains("not(test") {
            continue;
        }
        let after = start + length + 1;
        let end = match masked::body(code, after) {
            _ if inner => code.len(),
            Some((_, close)) => close,
            None => code[after..].find([';', '}']).map_or(code.len(), |found| after + found),
        };
        ranges.push((start, end));
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_lines(text: &str) -> Vec<usize> {
        let file = RustFile::new("crates/x/src/a.rs".into(), text.into(), "crates/x".into());
        file.code_lines().filter(|line| line.2).map(|line| line.0).collect()
    }

    #[test]
    fn test_code_is_told_from_product_code() {
        assert_eq!(test_lines("fn a() {}\n#[cfg(test)]\nmod tests {\n}\nfn b() {}\n"), [2, 3, 4]);
        assert_eq!(test_lines("#[cfg(test)]\nmod tests;\nfn b() {}\n"), [1, 2]);
        assert_eq!(test_lines("#[cfg(not(test))]\nfn b() {}\n"), [0_usize; 0]);
        assert_eq!(test_lines("#![cfg_attr(not(test), no_std)]\nfn b() {}\n"), [0_usize; 0]);
        let feature = "#[cfg(any(feature = \"c\", test))]\nmod a;\nfn b() {}\n";
        assert_eq!(test_lines(feature), [0_usize; 0]);
        assert_eq!(test_lines("#![cfg(test)]\nfn b() {}"), [1, 2]);
        assert_eq!(test_lines("struct A {\n#[cfg(test)]\nb: u8,\n}\nfn b() {}"), [2, 3, 4]);
    }
}
