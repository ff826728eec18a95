//! A crate shows few types: each public one is a word that the readers of all crates above learn.

use crate::report::Report;
use crate::rust_file::public_types;
use crate::tree::Tree;

/// The most public types of each crate, bottom to top; a crate without a line may have none. 15 are
/// wanted. `sys` has a type for each thing of the kernel's, and `mem` four pools that are compared.
const PUBLIC_TYPES_MAX: &[(&str, usize)] = &[
    ("sys", 49),
    ("mem", 26),
    ("codec", 13),
    ("backing", 12),
    ("common", 6),
    ("zswap", 18),
    ("runtime", 18),
    ("bench", 10),
    ("coldpress", 0),
];

/// Counts the public types of each crate.
pub(crate) fn crates_show_few_types(tree: &Tree, report: &mut Report) {
    for (package, manifest) in tree.packages() {
        let Some(name) = package.strip_prefix("crates/") else { continue };
        let line = PUBLIC_TYPES_MAX.iter().find(|(of, _)| *of == name);
        let most = line.map_or(0, |(_, most)| *most);
        let files = tree.rust.iter().filter(|file| file.package == package);
        let count = public_types(files);
        if count > most {
            let message =
                format!("`{name}` has {count} public types, at most {most}: make one `pub(crate)`");
            report.fail(&manifest.path, 1, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;

    /// Runs the rule on a crate with a file of this text, and a file of another one.
    fn run(home: &str, text: &str, other: &str) -> Vec<String> {
        let files = [
            (format!("{home}/Cargo.toml"), "[package]"),
            (format!("{home}/src/lib.rs"), text),
            (format!("{home}/src/map_interpreted.rs"), other),
        ];
        findings(crates_show_few_types, &files.each_ref().map(|(path, text)| (&**path, *text)))
    }

    #[test]
    fn a_crate_with_many_public_types_fails() {
        let (_, most) = PUBLIC_TYPES_MAX[0];
        let types = |count: usize| -> String {
            (0..count).map(|number| format!("pub struct T{number};\n")).collect()
        };
        assert!(run("crates/sys", &types(most), "").is_empty());
        let wanted = format!(
            "crates/sys/Cargo.toml:1: `sys` has {} public types, at most {most}: make one \
             `pub(crate)`",
            most + 1
        );
        assert_eq!(run("crates/sys", &types(most), "pub trait U {}"), [wanted]);
    }

    #[test]
    fn a_crate_without_a_line_has_no_public_type() {
        let wanted = "crates/new/Cargo.toml:1: `new` has 1 public types, at most 0: make one \
                      `pub(crate)`";
        assert_eq!(run("crates/new", "pub enum A {}", ""), [wanted]);
        assert!(run("crates/new", "pub(crate) enum A {}", "").is_empty());
        assert!(run("tests", "pub enum A {}", "").is_empty());
    }
}
