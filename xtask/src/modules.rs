//! The modules of each folder, which of them use which, and the circles among them.
//!
//! A module is a file or a folder beside others: right below the root of a target (`src/`, or
//! `src/bin/NAME/`), or in the folder of a module. A path counts between the two modules where the
//! ways from the root to its file and to what it names part. So a module may use those inside it,
//! and these may use what it has itself; but a name that it only takes from one inside it stands
//! for that one. Tests do not count: they may look at everything.

use std::collections::{BTreeMap, BTreeSet};

use crate::masked;
use crate::paths;
use crate::rust_file::RustFile;
use crate::tree::Tree;

/// The modules that each module of a folder uses, by name.
pub(crate) type Uses = BTreeMap<String, BTreeSet<String>>;

/// The names that a module takes from those inside it, each with the one.
type Taken<'a> = BTreeMap<&'a str, &'a str>;

/// A file as a module of its target.
struct Module<'a> {
    /// The root folder of the target.
    root: &'a str,
    /// The names of the modules around this one, and its own; none for the root itself.
    way: Vec<&'a str>,
    /// The ways to all that the file names, outside of tests.
    used: Vec<Vec<&'a str>>,
}

/// Returns the folders of the packages, by path, each with the uses among its modules.
pub(crate) fn uses(tree: &Tree) -> BTreeMap<String, Uses> {
    let modules: Vec<_> = tree.rust.iter().filter_map(Module::new).collect();
    let mut folders: BTreeMap<String, Uses> = BTreeMap::new();
    for Module { root, way, .. } in &modules {
        for (depth, name) in way.iter().enumerate() {
            let inside = folders.entry(folder(root, &way[..depth])).or_default();
            inside.entry((*name).to_owned()).or_default();
        }
    }
    let taken: BTreeMap<String, Taken<'_>> = modules
        .iter()
        .filter_map(|module| {
            let home = folder(module.root, &module.way);
            let taken = module.taken(folders.get(&home)?);
            Some((home, taken))
        })
        .collect();
    for Module { root, way, used } in &modules {
        for used in used {
            let parts = |at: &usize| Some(&way[*at]) != used.get(*at);
            let Some(depth) = (0..way.len()).find(parts) else { continue };
            let home = folder(root, &way[..depth]);
            let inside = folders.get_mut(&home).expect("made above");
            let Some(name) = used.get(depth) else { continue };
            let is_module = inside.contains_key(*name);
            let of_parent = || taken.get(&home)?.get(name).copied();
            let other = if is_module { Some(*name) } else { of_parent() };
            if let Some(other) = other.filter(|other| *other != way[depth]) {
                inside.get_mut(way[depth]).expect("made above").insert(other.to_owned());
            }
        }
    }
    folders
}

/// Returns the root folder of the target that a file belongs to, and the module right below it that
/// holds the file; `None` for the root itself and outside of the crates.
pub(crate) fn place(file: &RustFile) -> Option<(&str, &str)> {
    let Module { root, way, .. } = Module::new(file)?;
    let module = way.first()?;
    file.path.starts_with("crates/").then_some((root, module))
}

/// Returns the folder of the module that `way` leads to.
fn folder(root: &str, way: &[&str]) -> String {
    way.iter().fold(root.to_owned(), |folder, name| format!("{folder}{name}/"))
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

impl<'a> Module<'a> {
    /// Returns `None` for a file that is not below `src/`.
    fn new(file: &'a RustFile) -> Option<Self> {
        let inside = file.path.strip_prefix(&file.package)?.strip_prefix("/src/")?;
        let below = match inside.strip_prefix("bin/") {
            Some(target) => target.split_once('/')?.1,
            None => inside,
        };
        let root = &file.path[..file.path.len() - below.len()];
        let mut way: Vec<_> = below.strip_suffix(".rs")?.split('/').collect();
        if matches!(way[..], ["lib" | "main"] | [.., "mod"]) {
            way.pop();
        }
        let used = ways(file, &way);
        Some(Self { root, way, used })
    }

    /// Returns the names that this module takes from those `inside` it.
    fn taken(&self, inside: &Uses) -> Taken<'a> {
        let ways = self.used.iter().filter_map(|used| used.strip_prefix(&self.way[..]));
        let taken = ways.filter_map(|way| match way {
            [first, .., last] if inside.contains_key(*first) => Some((*last, *first)),
            _ => None,
        });
        taken.collect()
    }
}

/// Returns the ways to what a file names that is the module at the end of `own`, outside of tests.
fn ways<'a>(file: &'a RustFile, own: &[&'a str]) -> Vec<Vec<&'a str>> {
    let code = &file.masked.code;
    let inline = inline_modules(code);
    let mut ways = Vec::new();
    for path in paths::paths(code) {
        if file.test[masked::line_of(code, path.at)] {
            continue;
        }
        let around = inline.iter().filter(|(start, end, _)| (*start..*end).contains(&path.at));
        let mut way: Vec<_> = own.iter().copied().chain(around.map(|module| module.2)).collect();
        for name in path.names {
            match name {
                "crate" => way.clear(),
                "super" => drop(way.pop()),
                "self" => {}
                name => way.push(name),
            }
        }
        ways.push(way);
    }
    ways
}

/// Returns the modules that are inside the code of a file, from the outside: where each begins and
/// ends, and its name.
fn inline_modules(code: &str) -> Vec<(usize, usize, &str)> {
    let words: Vec<_> = masked::words(code).collect();
    let named = words.windows(2).filter(|pair| pair[0].1 == "mod");
    let bodies = named.filter_map(|pair| Some((masked::body(code, pair[0].0)?, pair[1].1)));
    bodies.map(|((start, end), name)| (start, end, name)).collect()
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

    #[test]
    fn a_circle_inside_a_folder_is_found_by_every_spelling() {
        let files = [
            ("crates/sys/src/a/mod.rs", "pub use c::Y;\nuse self::b::X;\nconst Z: u8 = 0;\n"),
            ("crates/sys/src/a/b.rs", "use super::{Y, Z};\n"),
            ("crates/sys/src/a/c.rs", "fn f() { crate::a::d::g() }\n"),
            ("crates/sys/src/a/d.rs", "mod e;\nmod inner { use super::super::f; }\n"),
            ("crates/sys/src/a/d/e.rs", "use super::super::b::X;\n"),
            ("crates/sys/src/a/f.rs", ""),
        ];
        let folders = uses(&tree(&files));
        let uses = &folders["crates/sys/src/a/"];
        assert_eq!(circles(uses), [["b", "c", "d"]]);
        assert!(uses["d"].contains("f"));
    }

    #[test]
    fn a_module_may_use_those_inside_it_and_they_what_it_has_itself() {
        let files = [
            ("crates/sys/src/a.rs", "mod b;\nuse b::X;\npub struct Y;\n"),
            ("crates/sys/src/a/b.rs", "use super::{X, Y};\nuse crate::a::Y as Z;\n"),
        ];
        let folders = uses(&tree(&files));
        assert_eq!(circles(&folders["crates/sys/src/"]), [[""; 0]; 0]);
        assert_eq!(circles(&folders["crates/sys/src/a/"]), [[""; 0]; 0]);
    }
}
