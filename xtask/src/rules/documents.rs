//! Everything that a document names exists: links, and paths that start with a folder of the tree.

use super::crate_path;
use crate::graph::join;
use crate::report::Report;
use crate::tree::Tree;

/// The folders at the start of a path from the root.
const FOLDERS: &[&str] =
    &["crates/", "scripts/", "demo/", "xtask/", "tests/", "docs/", ".ci/", ".cargo/", ".github/"];
/// The crates whose source files a document may name in short: `zswap/store.rs`.
const CRATES: &[&str] = &[
    "sys",
    "mem",
    "codec",
    "backing",
    "zswap",
    "runtime",
    "common",
    "manual",
    "bench",
    "coldpress",
];

/// Checks every document.
pub(crate) fn mentioned_files_exist(tree: &Tree, report: &mut Report) {
    for file in tree.texts.iter().filter(|file| file.path.ends_with(".md")) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (index, line) in file.text.lines().enumerate() {
            let links = links(line).map(|target| (target, join(folder, target)));
            let paths = words(line).filter_map(|word| Some((word, path(word)?)));
            for (written, path) in links.chain(paths) {
                if !tree.paths.contains(&path) && !path.is_empty() {
                    report.fail(&file.path, index + 1, format!("`{written}` does not exist"));
                }
            }
        }
    }
}

/// Returns the targets of links to files.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// Returns the words that may be a path: signs that end a sentence stand behind it, not in it.
pub(super) fn words(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || "_./-".contains(char);
    line.split(move |char| !is_part(char)).map(|word| word.trim_end_matches(['.', '/', '-']))
}

/// Returns the path from the root that `word` stands for.
pub(super) fn path(word: &str) -> Option<String> {
    if FOLDERS.iter().any(|folder| word.starts_with(folder)) {
        return Some(word.into());
    }
    let (layer, inside) = word.split_once('/')?;
    let is_source = CRATES.contains(&layer) && word.ends_with(".rs");
    let path = format!("crates/{layer}/src/{}", inside.strip_prefix("src/").unwrap_or(inside));
    is_source.then_some(path).filter(|path| crate_path(path).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;

    #[test]
    fn a_document_names_only_what_exists() {
        let run = |text: &str| {
            let files =
                [("crates/mem/src/slab/mod.rs", ""), ("docs/a.md", text), ("README.md", "")];
            findings(mentioned_files_exist, &files)
        };
        for good in [
            "[read](../README.md#top), [site](https://example.org/x.md), [here](#part)",
            "`crates/mem/src/slab/` and crates/mem/src/slab/mod.rs.",
            "mem/slab/mod.rs, mem/src/slab/mod.rs; target/release/coldpress; and/or.rs",
        ] {
            assert!(run(good).is_empty(), "{good}: {:?}", run(good));
        }
        for bad in
            ["[read](README.md)", "see `crates/mem/src/slob`", "(mem/pools/mod.rs)", "scripts/x"]
        {
            assert_eq!(run(bad).len(), 1, "{bad}");
        }
    }
}
