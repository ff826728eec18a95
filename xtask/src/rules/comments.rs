//! Everything that a comment names exists: source files, and what belongs to a type of the tree.
//! Documents are held to the same; of their paths and links `documents` checks more.

use std::collections::{BTreeMap, BTreeSet};

use super::documents;
use crate::graph::join;
use crate::items::{self, elements};
use crate::masked::words;
use crate::report::Report;
use crate::tree::Tree;

/// What a type may have by a `derive`.
const DERIVED: &[&str] = &["clone", "cmp", "default", "eq", "fmt", "hash", "partial_cmp"];

/// Checks that each Rust file that a comment names is there. It may be named by the end of its
/// path, from the folder of the comment, or in short (`zswap/store.rs`).
pub(crate) fn files_in_comments_exist(tree: &Tree, report: &mut Report) {
    let ends: BTreeSet<&str> = tree.rust.iter().flat_map(|file| ends(&file.path)).collect();
    for (file, text) in prose(tree) {
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (index, line) in text.lines().enumerate() {
            let names = documents::words(line).filter(|word| word.ends_with(".rs"));
            for name in names.filter(|name| !ends.contains(name) && *name != ".rs") {
                let short = documents::path(name).is_some_and(|path| tree.paths.contains(&path));
                if !short && !tree.paths.contains(&join(folder, name)) {
                    report.fail(file, index + 1, format!("`{name}` does not exist"));
                }
            }
        }
    }
}

/// Returns the comments of each Rust file, and each document, with their paths.
fn prose(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    let comments = tree.rust.iter().map(|file| (file.path.as_str(), file.masked.comments.as_str()));
    let documents = tree.texts.iter().filter(|file| file.path.ends_with(".md"));
    comments.chain(documents.map(|file| (file.path.as_str(), file.text.as_str())))
}

/// Returns a path and all ends of it that begin with a whole name.
fn ends(path: &str) -> impl Iterator<Item = &str> {
    let inner = path.match_indices('/').map(|(at, _)| &path[at + 1..]);
    std::iter::once(path).chain(inner)
}

/// Checks that each `Type::name` in backquotes is defined, if the tree defines the type.
pub(crate) fn members_in_comments_exist(tree: &Tree, report: &mut Report) {
    let members = members(tree);
    for (file, text) in prose(tree) {
        for (index, line) in text.lines().enumerate() {
            for path in line.split('`').filter_map(path) {
                let Some((of, name)) = path.rsplit_once("::") else { continue };
                let of = of.rsplit("::").next().unwrap_or(of);
                let is_there =
                    |names: &BTreeSet<&str>| names.contains(name) || DERIVED.contains(&name);
                if members.get(of).is_some_and(|names| !is_there(names)) {
                    report.fail(file, index + 1, format!("`{of}` has no `{name}`"));
                }
            }
        }
    }
}

/// Returns what stands in backquotes, if it is a path of names only, without its `()`.
fn path(quoted: &str) -> Option<&str> {
    let path = quoted.strip_suffix("()").unwrap_or(quoted);
    let is_part = |char: char| char == '_' || char == ':' || char.is_ascii_alphanumeric();
    path.chars().all(is_part).then_some(path)
}

/// Returns the names that belong to each type and trait of the tree.
fn members(tree: &Tree) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut members: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in &tree.rust {
        for found in items::types(&file.masked.code) {
            let names = members.entry(found.name).or_default();
            match found.kind {
                "trait" => names.extend(defined(found.body.1)),
                _ => names
                    .extend(elements(found.body.1).into_iter().filter_map(|(_, text)| name(text))),
            }
        }
    }
    let traits = members.clone();
    for file in &tree.rust {
        for block in items::blocks(&file.masked.code) {
            let Some(names) = members.get_mut(block.of) else { continue };
            names.extend(defined(block.body.1));
            let of_trait = block.of_trait.and_then(|of_trait| traits.get(of_trait));
            names.extend(of_trait.into_iter().flatten());
        }
    }
    members
}

/// Returns the names that the items of a block or a trait define.
fn defined(body: &str) -> impl Iterator<Item = &str> {
    let words: Vec<_> = words(body).map(|(_, word)| word).collect();
    let pairs: Vec<_> = words
        .windows(2)
        .filter(|pair| matches!(pair[0], "fn" | "const" | "type"))
        .map(|pair| pair[1])
        .collect();
    pairs.into_iter()
}

/// Returns the name of a field or a variant.
fn name(element: &str) -> Option<&str> {
    let mut rest = element;
    while let Some(attribute) = rest.strip_prefix("#[") {
        rest = attribute.split_once(']')?.1.trim_start();
    }
    let mut names = words(rest).map(|(_, word)| word);
    names.find(|word| !matches!(*word, "pub" | "crate" | "super" | "in"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;

    #[test]
    fn a_file_that_a_comment_names_is_there() {
        let run = |path: &str, text: &str| {
            let files =
                [("crates/mem/src/slab/mod.rs", ""), ("crates/mem/build.rs", ""), (path, text)];
            findings(files_in_comments_exist, &files)
        };
        for good in
            ["slab/mod.rs", "mem/slab/mod.rs", "`mod.rs`.", "(../build.rs)", "a.rs", "`.rs`"]
        {
            let found = run("crates/mem/src/a.rs", &format!("/// {good}\n"));
            assert!(found.is_empty(), "{good}: {found:?}");
        }
        for bad in ["slob/mod.rs", "lab/mod.rs", "od.rs", "../a.rs", "mem/src/b.rs"] {
            let found = run("crates/mem/src/a.rs", &format!("\nfn f() {{}} // {bad}\n"));
            assert_eq!(found, [format!("crates/mem/src/a.rs:2: `{bad}` does not exist")]);
        }
        assert!(run("crates/mem/src/a.rs", "const A: &str = \"b.rs\";").is_empty());
        assert_eq!(run("docs/a.md", "See `b.rs`.").len(), 1);
    }

    #[test]
    fn what_a_comment_says_of_a_type_is_there() {
        let code = "pub struct A<T> { #[cfg(x)] pub(crate) field: T, }\nenum E { One(u8), Two }\n\
                    pub trait Verb { const LIMIT: u8; fn act(&self) { } }\n\
                    impl<T> A<T> { pub const fn new() {} const MOST: u8 = 1; }\n\
                    impl Verb for E {}\nimpl Iterator for E { type Item = u8; }\n";
        let run = |comment: &str| {
            let text = format!("{code}// {comment}\n");
            findings(members_in_comments_exist, &[("crates/mem/src/a.rs", &text)])
        };
        for good in [
            "`A::new`, [`A::field`], `A::MOST` and `crate::a::A::new()`",
            "`E::One`, `E::Two`, `E::act`, `E::LIMIT`, `E::Item` and `Verb::act`",
            "`A::default`, `Box::leak`, `mem::take`, A::old and `A::old(1)`",
        ] {
            assert!(run(good).is_empty(), "{good}: {:?}", run(good));
        }
        let found = run("[`A::old`]");
        assert_eq!(found, ["crates/mem/src/a.rs:7: `A` has no `old`"]);
        for bad in ["`x::A::old()`", "`E::new`", "`Verb::new` waits"] {
            assert_eq!(run(bad).len(), 1, "{bad}");
        }
    }
}
