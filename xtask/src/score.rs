//! `cargo xtask score`: counts of how the tree reads, a row for each crate.
//!
//! The counts are of braces and words, not of a syntax tree, so figures are near and not exact;
//! they serve to compare one day with another. Only product code counts, except for comments.

use std::fmt::Write as _;

use crate::masked::{self, line_of, words};
use crate::modules;
use crate::prose::Prose;
use crate::rust_file::{RustFile, public_types};
use crate::tree::Tree;

/// The words that begin an assertion.
const ASSERTIONS: [&str; 6] =
    ["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"];
/// The integers without a unit.
const RAW: [&str; 10] = ["usize", "isize", "u8", "u16", "u32", "u64", "u128", "i32", "i64", "i128"];
/// The number of lines above which a function counts as long.
const LONG: usize = 50;

/// The counts of one crate.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    files: usize,
    lines: usize,
    public_types: usize,
    public_parameters: usize,
    raw_parameters: usize,
    functions: usize,
    long_functions: usize,
    longest_function: usize,
    assertions: usize,
    largest_file: usize,
}

/// The counts of words in comments.
#[derive(Debug, Default, PartialEq, Eq)]
struct Words {
    /// The sentences that begin with a headless "who".
    who: usize,
    /// The uses of "so" with "much", "many" or "long".
    so_much: usize,
    /// The uses of "told" and "tells".
    told: usize,
}

/// Returns the counts as tables.
pub(crate) fn score(tree: &Tree) -> String {
    let mut text = String::from(
        "crate       files  public types  lines a type  raw parameters %  functions  over 50  \
         longest  asserts a function  largest file\n",
    );
    let mut packages: Vec<&str> =
        tree.rust.iter().filter_map(|file| file.package.strip_prefix("crates/")).collect();
    packages.dedup();
    for package in packages {
        let home = format!("crates/{package}");
        let files = tree.rust.iter().filter(|file| file.package == home);
        let counts = count(files);
        let share = |part: usize, of: usize| part as f64 / of.max(1) as f64;
        writeln!(
            text,
            "{package:<10}  {:>5}  {:>12}  {:>12}  {:>16.0}  {:>9}  {:>7}  {:>7}  {:>18.2}  {:>12}",
            counts.files,
            counts.public_types,
            counts.lines / counts.public_types.max(1),
            100.0 * share(counts.raw_parameters, counts.public_parameters),
            counts.functions,
            counts.long_functions,
            counts.longest_function,
            share(counts.assertions, counts.functions),
            counts.largest_file,
        )
        .expect("a string takes it");
    }
    for (root, uses) in modules::uses(tree) {
        for circle in modules::circles(&uses) {
            writeln!(text, "circle of {} in {root}: {}", circle.len(), circle.join(", "))
                .expect("as above");
        }
    }
    let found = words_of(tree.rust.iter());
    writeln!(
        text,
        "comments: headless \"who\" {}, \"so much\" and its like {}, \"told\" {}",
        found.who, found.so_much, found.told
    )
    .expect("as above");
    text
}

fn count<'a>(files: impl Iterator<Item = &'a RustFile> + Clone) -> Counts {
    let mut counts = Counts { public_types: public_types(files.clone()), ..Counts::default() };
    for file in files {
        let product = file.code_lines().filter(|(_, _, is_test)| !is_test).count();
        counts.files += usize::from(product > 0);
        counts.lines += product;
        counts.largest_file = counts.largest_file.max(product);
        let code = &file.masked.code;
        let all: Vec<_> = words(code).filter(|(at, _)| !file.test[line_of(code, *at)]).collect();
        for (index, (at, word)) in all.iter().enumerate() {
            let is_public = index > 0 && all[index - 1].1 == "pub"
                || index > 1
                    && all[index - 2].1 == "pub"
                    && matches!(all[index - 1].1, "const" | "unsafe");
            if ASSERTIONS.contains(word) && code[at + word.len()..].starts_with('!') {
                counts.assertions += 1;
            } else if *word == "fn" {
                count_function(&mut counts, code, *at, is_public);
            }
        }
    }
    counts
}

fn count_function(counts: &mut Counts, code: &str, at: usize, is_public: bool) {
    let Some((open, end)) = masked::body(code, at) else { return };
    let lines = line_of(code, end) - line_of(code, at) + 1;
    counts.functions += 1;
    counts.longest_function = counts.longest_function.max(lines);
    counts.long_functions += usize::from(lines > LONG);
    if !is_public {
        return;
    }
    let head = &code[at..open];
    let parameters = head.find('(').map_or("", |start| &head[start + 1..]);
    let parameters = parameters.split("->").next().unwrap_or_default();
    for parameter in parameters.split(',') {
        let Some((_, kind)) = parameter.split_once(':') else { continue };
        counts.public_parameters += 1;
        let kind = kind.trim().trim_end_matches(')').trim();
        counts.raw_parameters += usize::from(RAW.contains(&kind));
    }
}

fn words_of<'a>(files: impl Iterator<Item = &'a RustFile>) -> Words {
    let mut found = Words::default();
    for file in files {
        let prose = Prose::of(file);
        let times =
            |of: &[&str]| of.iter().map(|word| prose.text.matches(word).count()).sum::<usize>();
        found.who += prose.headless().len();
        found.so_much += times(&["so much", "so many", "so long"]);
        found.told += times(&[" told", " tells "]);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Tree {
        let manifest = ("crates/sys/Cargo.toml".to_owned(), "[package]".to_owned());
        Tree::new([manifest, ("crates/sys/src/lib.rs".to_owned(), text.to_owned())])
    }

    #[test]
    fn product_code_is_counted_and_tests_are_not() {
        let tree = file(
            "//! X.\npub struct A;\nstruct B;\npub fn f(a: usize, b: &B) -> u8 {\n    \
             assert!(a > 0);\n    1\n}\nfn g() {}\n#[cfg(test)]\nmod tests {\n    \
             pub struct C;\n    fn h() { assert_eq!(1, 1); }\n}\n",
        );
        let counts = count(tree.rust.iter());
        assert_eq!((counts.public_types, counts.functions, counts.assertions), (1, 2, 1));
        assert_eq!((counts.public_parameters, counts.raw_parameters), (2, 1));
        assert_eq!(counts.longest_function, 4);
    }

    #[test]
    fn words_are_counted_across_lines_of_comments_alone() {
        let tree = file(
            "//! X.\n/// It is told. Who waits does so\n/// much; so\n/// many.\n\
             fn f() { \"told\"; }\n",
        );
        let found = words_of(tree.rust.iter());
        assert_eq!(found, Words { who: 1, so_much: 2, told: 1 });
    }
}
