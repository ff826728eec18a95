//! The source tree as the rules see it: texts, Rust files, paths.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use crate::graph;
use crate::history::{self, History};
use crate::manifest;
use crate::rust_file::RustFile;

/// The folders that the rules skip: what was built, and what tests are fed.
const SKIPPED: &[&str] = &["target", "fixtures", "node_modules", "__pycache__"];
/// The hidden folders that hold source.
const HIDDEN_KEPT: &[&str] = &[".ci", ".cargo", ".github"];

/// A text file.
pub(crate) struct TextFile {
    /// The path from the root of the tree, with `/`.
    pub(crate) path: String,
    /// The whole text.
    pub(crate) text: String,
}

/// The source tree.
pub(crate) struct Tree {
    /// Every text file, Rust included, sorted by path.
    pub(crate) texts: Vec<TextFile>,
    /// The Rust files, sorted by path.
    pub(crate) rust: Vec<RustFile>,
    /// Every file and folder.
    pub(crate) paths: BTreeSet<String>,
    /// The commits.
    pub(crate) history: History,
}

impl Tree {
    /// Reads the tree under `root`. Files that are not UTF-8 are known by their path only.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        let mut names = Vec::new();
        read_folder(root, "", &mut files, &mut names)?;
        let mut tree = Self::new(files);
        tree.history = history::read(root);
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
        let mut rust: Vec<_> = rust.collect();
        let texts: Vec<_> = files.into_iter().map(|(path, text)| TextFile { path, text }).collect();
        let manifests: Vec<_> = texts
            .iter()
            .filter_map(|it| Some((package_of(&it.path, &it.text)?, &*it.text)))
            .collect();
        graph::resolve(&mut rust, &manifests);
        let mut tree = Self { texts, rust, paths: BTreeSet::new(), history: Ok(Vec::new()) };
        let names: Vec<_> = tree.texts.iter().map(|file| file.path.clone()).collect();
        names.into_iter().for_each(|name| tree.add_path(name));
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
        // A link to a folder counts as one.
        if entry.path().is_dir() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_nearest_package() {
        let files =
            [("Cargo.toml", "[workspace]"), ("a/Cargo.toml", "[package]"), ("a/src/b.rs", "")];
        let tree = Tree::new(files.map(|(path, text)| (path.into(), text.into())));
        assert_eq!(tree.rust[0].package, "a");
        assert!(tree.paths.contains("a/src"));
    }
}
