//! Types stay small enough to be understood as a whole.

use std::collections::BTreeMap;

use crate::items;
use crate::masked::line_of;
use crate::report::Report;
use crate::rust_file::RustFile;
use crate::tree::Tree;

/// The most fields of a type.
const FIELDS_MAX: usize = 24;
/// The most functions in all blocks of a type that are not a trait's.
const METHODS_MAX: usize = 40;

/// A type: its file, its line, from 1, and the number of its methods.
type Counted<'a> = (&'a str, usize, usize);

/// Counts the fields of each type of product code.
pub(crate) fn types_have_few_fields(tree: &Tree, report: &mut Report) {
    for file in product(tree) {
        let code = &file.masked.code;
        let types = items::types(code).into_iter();
        for found in types.filter(|found| matches!(found.kind, "struct" | "union")) {
            let (start, body) = found.body;
            let fields = items::elements(body).into_iter();
            let count = fields.filter(|(at, _)| !file.test[line_of(code, start + at)]).count();
            if count > FIELDS_MAX {
                let line = line_of(code, found.at) + 1;
                report.fail(&file.path, line, message(found.name, count, "fields", FIELDS_MAX));
            }
        }
    }
}

/// Counts the methods of each type of product code, over all files of its package.
pub(crate) fn types_have_few_methods(tree: &Tree, report: &mut Report) {
    // By package and name: the file and line of each type, with its methods.
    let mut types = BTreeMap::<(&str, &str), Vec<Counted<'_>>>::new();
    for file in product(tree) {
        let code = &file.masked.code;
        for found in items::types(code) {
            let line = line_of(code, found.at);
            if !file.test[line] {
                let of_name = types.entry((&file.package, found.name)).or_default();
                of_name.push((&file.path, line + 1, 0));
            }
        }
    }
    for file in product(tree) {
        for block in items::blocks(&file.masked.code).iter().filter(|block| !block.is_of_trait()) {
            let of_name = types.get_mut(&(file.package.as_str(), block.of)).into_iter().flatten();
            let nearest = of_name.max_by_key(|(path, ..)| shared(path, &file.path));
            if let Some((_, _, count)) = nearest {
                *count += methods(file, block);
            }
        }
    }
    for ((_, name), of_name) in types {
        for (path, line, count) in of_name.into_iter().filter(|found| found.2 > METHODS_MAX) {
            report.fail(path, line, message(name, count, "methods", METHODS_MAX));
        }
    }
}

/// Returns the files whose types are counted.
fn product(tree: &Tree) -> impl Iterator<Item = &RustFile> {
    tree.rust.iter().filter(|file| file.path.starts_with("crates/"))
}

/// Returns the number of functions right inside `block`, without those for tests.
fn methods(file: &RustFile, block: &items::Block) -> usize {
    let (start, body) = block.body;
    let is_outermost = |at: usize| {
        let count = |sign: char| body[..at].matches(sign).count();
        count('{') == count('}')
    };
    let is_test = |at: usize| file.test[line_of(&file.masked.code, start + at)];
    let functions = items::functions(body).into_iter().map(|function| function.at);
    functions.filter(|at| is_outermost(*at) && !is_test(*at)).count()
}

/// Returns the length of the path of modules that two files share: of two types of one name, a
/// block is of the nearer one.
fn shared(one: &str, other: &str) -> usize {
    let modules =
        |path: &str| path.trim_end_matches(".rs").trim_end_matches("/mod").to_owned() + "/";
    let (one, other) = (modules(one), modules(other));
    one.split('/').zip(other.split('/')).take_while(|(one, other)| one == other).count()
}

fn message(name: &str, count: usize, what: &str, most: usize) -> String {
    format!("`{name}` has {count} {what}, at most {most}: divide it by what it does")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;

    const MANIFEST: (&str, &str) = ("crates/mem/Cargo.toml", "[package]");
    const TAIL: &str = "divide it by what it does";

    #[test]
    fn a_type_with_many_fields_fails() {
        let run = |fields: usize, more: &str| {
            let text = format!("\nstruct A {{\n{}{more}}}\n", "    a: B<C, D>,\n".repeat(fields));
            findings(types_have_few_fields, &[MANIFEST, ("crates/mem/src/a.rs", &text)])
        };
        let many = format!("crates/mem/src/a.rs:2: `A` has 25 fields, at most 24: {TAIL}");
        assert_eq!(run(25, ""), [many]);
        assert!(run(24, "    #[cfg(test)]\n    b: u8,\n").is_empty());
    }

    fn block(head: &str, methods: usize) -> String {
        format!("{head} {{\n{}}}\n", "    fn a() { fn b() {} }\n".repeat(methods))
    }

    #[test]
    fn methods_are_counted_over_files_and_without_traits_and_tests() {
        let run = |more: &str| {
            let here = format!("pub struct A<T>(T);\n{}", block("impl<T> A<T>", 20));
            let there = format!("{}{more}", block("impl super::A<u8>", 20));
            let files =
                [MANIFEST, ("crates/mem/src/a.rs", &here), ("crates/mem/src/a/b.rs", &there)];
            findings(types_have_few_methods, &files)
        };
        let many = format!("crates/mem/src/a.rs:1: `A` has 41 methods, at most 40: {TAIL}");
        assert_eq!(run(&block("impl A<u8>", 1)), [many]);
        for more in ["impl X for A<u8>", "#[cfg(test)]\nimpl A<u8>", "impl B"] {
            assert!(run(&block(more, 9)).is_empty(), "{more}");
        }
    }

    #[test]
    fn a_block_is_of_the_nearer_type_of_its_name() {
        let type_and_block = format!("struct A;\n{}", block("impl A", 30));
        let files = [
            MANIFEST,
            ("crates/mem/src/a/mod.rs", &type_and_block),
            ("crates/mem/src/b.rs", &type_and_block),
            ("crates/mem/src/b/c.rs", &block("impl A", 11)),
        ];
        let found = findings(types_have_few_methods, &files);
        assert_eq!(
            found,
            [format!("crates/mem/src/b.rs:1: `A` has 41 methods, at most 40: {TAIL}")]
        );
    }
}
