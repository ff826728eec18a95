//! The top-level modules of a crate, which of them use which, and the circles among them.
//!
//! A module is a file or a folder right below the root of a target (`src/`, or `src/bin/NAME/`).
//! Tests do not count: they may look at everything.

use std::collections::{BTreeMap, BTreeSet};

use crate::masked;
use crate::tree::{RustFile, Tree};

/// The modules that each module of a target uses, by name.
pub(crate) type Uses = BTreeMap<String, BTreeSet<String>>;

/// Returns the targets of the crates under `crates/`, by their root folder, each with the uses
/// among its modules.
pub(crate) fn uses(tree: &Tree) -> BTreeMap<String, Uses> {
    let mut targets: BTreeMap<String, Uses> = BTreeMap::new();
    for file in &tree.rust {
        let Some((root, module)) = place(&file.path) else { continue };
        let used =
            targets.entry(root.to_owned()).or_default().entry(module.to_owned()).or_default();
        used.extend(names_used(file, root).map(str::to_owned));
    }
    for modules in targets.values_mut() {
        let known: BTreeSet<String> = modules.keys().cloned().collect();
        for (module, used) in modules.iter_mut() {
            used.retain(|name| known.contains(name) && name != module);
        }
    }
    targets
}

/// Returns the circles: groups of modules each of which uses all the others, directly or by way of
/// others.
pub(crate) fn circles(uses: &Uses) -> Vec<Vec<&str>> {
    let reached = |from: &str| -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        let mut next = vec![from.to_owned()];
        while let Some(name) = next.pop() {
            for used in &uses[&name] {
                if all.insert(used.clone()) {
                    next.push(used.clone());
                }
            }
        }
        all
    };
    let from: BTreeMap<&str, BTreeSet<String>> =
        uses.keys().map(|name| (name.as_str(), reached(name))).collect();
    let mut circles: Vec<Vec<&str>> = Vec::new();
    for (name, reached) in &from {
        if !reached.contains(*name) || circles.iter().any(|circle| circle.contains(name)) {
            continue;
        }
        let both = |other: &&str| reached.contains(*other) && from[*other].contains(*name);
        circles.push(from.keys().copied().filter(both).collect());
    }
    circles
}

/// Returns the root folder of the target that a file belongs to, and the file's module there.
fn place(path: &str) -> Option<(&str, &str)> {
    let inside = path.strip_prefix("crates/")?;
    let (_, rest) = inside.split_once('/')?;
    let rest = rest.strip_prefix("src/")?;
    let below = match rest.strip_prefix("bin/") {
        Some(target) => target.split_once('/')?.1,
        None => rest,
    };
    let root = &path[..path.len() - below.len()];
    let module = below.split(['/', '.']).next()?;
    (!matches!(module, "lib" | "main")).then_some((root, module))
}

/// Returns the modules right below the root that a file names, outside of tests.
fn names_used<'a>(file: &'a RustFile, root: &str) -> impl Iterator<Item = &'a str> {
    let code = &file.masked.code;
    // In a file right below the root `super` is the root, too.
    let is_top = !file.path[root.len()..].contains('/');
    let paths: &[&str] = if is_top { &["crate::", "super::"] } else { &["crate::"] };
    let used = paths.iter().flat_map(move |path| masked::names_behind(code, path));
    used.filter(|(at, _)| !file.test[masked::line_of(code, *at)]).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let manifest = ("crates/sys/Cargo.toml".to_owned(), "[package]".to_owned());
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Tree::new(files.chain([manifest]))
    }

    #[test]
    fn circles_are_found_and_tests_do_not_close_one() {
        let files = [
            ("crates/sys/src/lib.rs", "//! X.\nmod a; mod b; mod c; mod d;"),
            ("crates/sys/src/a.rs", "use crate::b::X;\n"),
            ("crates/sys/src/b.rs", "use super::{c::Y, d};\n"),
            ("crates/sys/src/c.rs", "use crate::a;\n"),
            ("crates/sys/src/d.rs", "#[cfg(test)]\nmod tests { use crate::a; }\n"),
        ];
        let targets = uses(&tree(&files));
        let sys = &targets["crates/sys/src/"];
        assert_eq!(circles(sys), [["a", "b", "c"]]);
        assert!(sys["d"].is_empty());
    }

    #[test]
    fn a_folder_is_one_module_and_a_binary_a_target_of_its_own() {
        let files = [
            ("crates/sys/src/a/mod.rs", "use super::b;\nuse crate::b;\n"),
            ("crates/sys/src/a/x.rs", "use super::b;\n"),
            ("crates/sys/src/b.rs", ""),
            ("crates/sys/src/bin/tool/b.rs", "use crate::c;\n"),
            ("crates/sys/src/bin/tool/c.rs", ""),
        ];
        let targets = uses(&tree(&files));
        assert_eq!(targets["crates/sys/src/"]["a"], BTreeSet::from(["b".to_owned()]));
        assert_eq!(targets["crates/sys/src/bin/tool/"]["b"], BTreeSet::from(["c".to_owned()]));
    }
}
