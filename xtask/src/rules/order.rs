//! The order of modules that the essay of a crate gives is the order of its imports.
//!
//! The essay of a `lib.rs` or `main.rs` may have a list headed "The modules from below". Each of
//! its numbered lines is a group of modules, named in backquotes; nothing else there is one word in
//! lower case. A module imports from its own group and from those before it.

use std::collections::{BTreeMap, BTreeSet};

use crate::masked::{line_of, names_behind};
use crate::modules;
use crate::report::Report;
use crate::rust_file::RustFile;
use crate::tree::Tree;

/// The words that head a list.
const HEADING: &str = "The modules from below";

/// A group of modules: the line of its number, from 1, and its text.
type Group = (usize, String);

/// Checks each crate whose essay has such a list.
pub(crate) fn imports_follow_the_essay(tree: &Tree, report: &mut Report) {
    let is_root =
        |file: &&RustFile| file.path.ends_with("/lib.rs") || file.path.ends_with("/main.rs");
    for root in tree.rust.iter().filter(is_root) {
        let groups = groups(root);
        if groups.is_empty() {
            continue;
        }
        let files = files(tree, root);
        let known: BTreeSet<&str> = files.iter().map(|(module, _)| *module).collect();
        let heights = heights(root, &groups, &known, report);
        for (module, file) in files {
            for (line, used) in imports(root, file, &known) {
                let (Some(own), Some(other)) = (heights.get(module), heights.get(used)) else {
                    continue;
                };
                if other > own {
                    let message = format!("`{module}` ({own}) imports `{used}` ({other}), which");
                    let message = format!("{message} {} has above it", root.path);
                    report.fail(&file.path, line, message);
                }
            }
        }
    }
}

/// Returns the groups of the list in the essay of `root`.
fn groups(root: &RustFile) -> Vec<Group> {
    let essay = root.masked.comments.lines().enumerate();
    let essay = essay.take_while(|(_, line)| line.starts_with("//!"));
    let list = essay.skip_while(|(_, line)| !line.contains(HEADING)).skip(1);
    let mut groups: Vec<Group> = Vec::new();
    for (index, line) in list {
        let text = line.trim_start_matches("//!");
        let is_number =
            |word: &str| word.ends_with('.') && word[..word.len() - 1].parse::<usize>().is_ok();
        if text.split_whitespace().next().is_some_and(is_number) {
            groups.push((index + 1, text.to_owned()));
        } else if let Some((_, group)) = groups.last_mut() {
            if !text.starts_with("   ") {
                break;
            }
            group.push_str(text);
        }
    }
    groups
}

/// Returns the number of each module's group. Reports modules that no group names or that two name,
/// and names of none.
fn heights<'a>(
    root: &RustFile,
    groups: &'a [Group],
    known: &BTreeSet<&str>,
    report: &mut Report,
) -> BTreeMap<&'a str, usize> {
    let mut heights = BTreeMap::new();
    for (index, (line, text)) in groups.iter().enumerate() {
        let is_part =
            |char: char| char == '_' || char.is_ascii_lowercase() || char.is_ascii_digit();
        let is_name = |word: &&str| {
            word.starts_with(|char: char| char.is_ascii_lowercase()) && word.chars().all(is_part)
        };
        for name in text.split('`').skip(1).step_by(2).filter(is_name) {
            if !known.contains(name) {
                report.fail(&root.path, *line, format!("`{name}` is no module of this crate"));
            } else if heights.insert(name, index + 1).is_some_and(|before| before != index + 1) {
                report.fail(&root.path, *line, format!("`{name}` is in two groups"));
            }
        }
    }
    for module in known.iter().filter(|module| !heights.contains_key(*module)) {
        report.fail(&root.path, groups[0].0, format!("`{module}` is in no group"));
    }
    heights
}

/// Returns the files below `root` that are not for tests only, each with its top-level module.
fn files<'a>(tree: &'a Tree, root: &RustFile) -> Vec<(&'a str, &'a RustFile)> {
    let folder = &root.path[..=root.path.rfind('/').unwrap_or(0)];
    let product = tree.rust.iter().filter(|file| file.test.iter().any(|is_test| !is_test));
    let placed = product.filter_map(|file| Some((modules::place(file)?, file)));
    placed
        .filter(|((home, _), _)| *home == folder)
        .map(|((_, module), file)| (module, file))
        .collect()
}

/// Returns the modules that product code of `file` imports, each with its line, from 1. What `root`
/// itself imports by `use module::Name` counts as of that module, for `crate::Name` leads there.
fn imports<'a>(
    root: &RustFile,
    file: &'a RustFile,
    known: &BTreeSet<&'a str>,
) -> Vec<(usize, &'a str)> {
    let code = &file.masked.code;
    let is_top =
        modules::place(file).is_some_and(|(home, _)| !file.path[home.len()..].contains('/'));
    let mut through: BTreeMap<&str, &str> = BTreeMap::new();
    for module in known {
        for lead in ["use ", "use self::", "use crate::"] {
            let path = format!("{lead}{module}::");
            let names = names_behind(&root.masked.code, &path);
            through.extend(names.into_iter().map(|(_, name)| (name, *module)));
        }
    }
    let paths: &[&str] = if is_top { &["crate::", "super::"] } else { &["crate::"] };
    let named = paths.iter().flat_map(|path| names_behind(code, path));
    named
        .map(|(at, name)| (line_of(code, at), known.get(name).or(through.get(name))))
        .filter_map(|(line, module)| Some((line + 1, *module?)))
        .filter(|(line, _)| !file.test[line - 1])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;

    const ROOT: &str = "//! Layer.\n//!\n//! The modules from below:\n//!\n//! 1. Names: `key` and \
                        [`error`],\n//!    `Key::new` aside, with `seal`.\n//! 2. `store`.\n//!\n\
                        //! `other` words.\n\nmod key;\npub use error::{KeyError, LoadError};\n";

    fn run(root: &str, files: &[(&str, &str)]) -> Vec<String> {
        let folder = "crates/zswap/src";
        let mut all = vec![("crates/zswap/Cargo.toml".to_owned(), "[package]")];
        all.push((format!("{folder}/lib.rs"), root));
        let text = |name: &str| files.iter().find(|file| file.0 == name).map_or("", |file| file.1);
        let names = ["key", "error", "seal", "store"];
        all.extend(names.map(|name| (format!("{folder}/{name}.rs"), text(name))));
        let more = files.iter().filter(|file| file.0.contains('.'));
        all.extend(more.map(|(name, text)| (format!("{folder}/{name}"), *text)));
        let all: Vec<_> = all.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        findings(imports_follow_the_essay, &all)
    }

    #[test]
    fn imports_of_earlier_groups_and_of_the_own_pass() {
        let files = [
            ("key", "use crate::error::KeyError;\n#[cfg(test)]\nmod tests { use crate::store; }"),
            ("error", "use super::seal;\nuse crate::LoadError;"),
            ("store", "use crate::{KeyError, Store, key::Key};"),
            ("tests.rs", "use crate::store;"),
        ];
        assert!(run(ROOT, &files).is_empty(), "{:?}", run(ROOT, &files));
        assert!(run("//! Layer.", &[("key", "use crate::store;")]).is_empty(), "no list");
    }

    #[test]
    fn an_import_of_a_later_group_fails_by_each_spelling() {
        for (file, text, line) in [
            ("key", "\nuse crate::store::Stored;", 2),
            ("key", "use super::{error, store};", 1),
            ("key", "fn f() { crate::store::g() }", 1),
            ("seal/deep.rs", "use crate::{\n    store};", 2),
        ] {
            let found = run(ROOT, &[(file, text)]);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].contains(&format!(".rs:{line}: ")), "{found:?}");
        }
        let through = ROOT.replace("error::{", "store::{");
        let found = run(&through, &[("key", "use crate::KeyError;")]);
        let wanted = "`key` (1) imports `store` (2), which crates/zswap/src/lib.rs has above it";
        assert_eq!(found, [format!("crates/zswap/src/key.rs:1: {wanted}")]);
    }

    #[test]
    fn each_module_is_in_one_group() {
        let wrong = |from: &str, to: &str| run(&ROOT.replace(from, to), &[]);
        let root = "crates/zswap/src/lib.rs";
        assert_eq!(wrong("`seal`", "seal"), [format!("{root}:5: `seal` is in no group")]);
        assert_eq!(wrong("2. `s", "2. `key`, `s"), [format!("{root}:7: `key` is in two groups")]);
        let none = format!("{root}:7: `stove` is no module of this crate");
        assert_eq!(wrong("2. `s", "2. `stove`, `s"), [none]);
    }
}
