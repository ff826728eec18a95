//! The source tree as the rules see it: texts, Rust files split into code and comments, paths.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use crate::graph;
use crate::manifest;
use crate::masked::{self, Masked};

/// The folders that the rules skip: what was built, and what tests are fed.
const SKIPPED: &[&str] = &["target", "fixtures", "node_modules", "__pycache__"];
/// The hidden folders that hold source.
const HIDDEN_KEPT: &[&str] = &[".ci", ".cargo"];

/// A text file.
pub(crate) struct TextFile {
    /// The path from the root of the tree, with `/`.
    pub(crate) path: String,
    /// The whole text.
    pub(crate) text: String,
}

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
    fn new(path: String, text: String, package: String) -> Self {
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

/// The source tree.
pub(crate) struct Tree {
    /// Every text file, Rust included, sorted by path.
    pub(crate) texts: Vec<TextFile>,
    /// The Rust files, sorted by path.
    pub(crate) rust: Vec<RustFile>,
    /// Every file and folder.
    pub(crate) paths: BTreeSet<String>,
}

impl Tree {
    /// Reads the tree under `root`. Files that are not UTF-8 are known by their path only.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        let mut names = Vec::new();
        read_folder(root, "", &mut files, &mut names)?;
        let mut tree = Self::new(files);
        names.into_iter().for_each(|name| tree.add_path(name));
        Ok(tree)
    }

    /// Makes a tree of `files`: paths and texts.
    pub(crate) fn new(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort();
        let packages = files.iter().filter_map(|(path, text)| package_of(path, text));
        let packages: Vec<_> = packages.map(str::to_string).collect();
        let rust = files.iter().filter(|(path, _)| path.ends_with(".rs")).map(|(path, text)| {
            let homes = packages.iter().filter(|home| path.starts_with(&format!("{home}/")));
            let package = homes.max_by_key(|home| home.len()).cloned().unwrap_or_default();
            RustFile::new(path.clone(), text.clone(), package)
        });
        let rust = rust.collect();
        let texts: Vec<_> = files.into_iter().map(|(path, text)| TextFile { path, text }).collect();
        let mut tree = Self { texts, rust, paths: BTreeSet::new() };
        let names: Vec<_> = tree.texts.iter().map(|file| file.path.clone()).collect();
        names.into_iter().for_each(|name| tree.add_path(name));
        graph::resolve(&mut tree);
        tree
    }

    /// Adds a path and the folders above it.
    fn add_path(&mut self, path: String) {
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.add_path(folder.into());
        }
        self.paths.insert(path);
    }

    /// Returns the packages: folder and manifest.
    pub(crate) fn packages(&self) -> impl Iterator<Item = (&str, &TextFile)> {
        let found = self.texts.iter().map(|file| (package_of(&file.path, &file.text), file));
        found.filter_map(|(folder, file)| Some((folder?, file)))
    }
}

/// Returns the folder of a package, when the file is its manifest.
fn package_of<'a>(path: &'a str, text: &str) -> Option<&'a str> {
    let folder = path.strip_suffix("/Cargo.toml")?;
    manifest::is_package(text).then_some(folder)
}

fn read_folder(
    root: &Path,
    folder: &str,
    files: &mut Vec<(String, String)>,
    names: &mut Vec<String>,
) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let hidden = name.starts_with('.') && !HIDDEN_KEPT.contains(&name.as_str());
        if entry.file_type()?.is_dir() {
            names.push(path.clone());
            if !hidden && !SKIPPED.contains(&name.as_str()) {
                read_folder(root, &path, files, names)?;
            }
        } else if let Ok(text) = String::from_utf8(fs::read(entry.path())?) {
            files.push((path, text));
        } else {
            names.push(path);
        }
    }
    Ok(())
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
        if !for_tests || attribute.contains("not(test") {
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
        assert_eq!(test_lines("#![cfg(test)]\nfn b() {}"), [1, 2]);
        assert_eq!(test_lines("struct A {\n#[cfg(test)]\nb: u8,\n}\nfn b() {}"), [2, 3, 4]);
    }

    #[test]
    fn a_file_belongs_to_the_nearest_package() {
        let files =
            [("Cargo.toml", "[workspace]"), ("a/Cargo.toml", "[package]"), ("a/src/b.rs", "")];
        let tree = Tree::new(files.map(|(path, text)| (path.into(), text.into())));
        assert_eq!(tree.rust[0].package, "a");
        assert!(tree.paths.contains("a/src"));
    }
}
