//! The commits of the tree, as far as they are checked: those behind [`FIRST_UNCHECKED`].

use std::path::Path;
use std::process::Command;

/// The last commit from before the rules of titles and bodies.
const FIRST_UNCHECKED: &str = "b81076755e4a9037fa8358ebbaa3d2cc4598cb93";
/// What git writes of each commit: its hash and its message, with a byte behind each that neither
/// has.
const FORMAT: &str = "--format=%H%x1f%B%x1e";

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    /// The whole hash.
    pub(crate) hash: String,
    /// The title, an empty line and the body.
    pub(crate) message: String,
}

/// The commits, the newest first, or why they are not known.
pub(crate) type History = Result<Vec<Commit>, String>;

/// Reads the commits of the tree under `root`.
pub(crate) fn read(root: &Path) -> History {
    // Git walks up until there is a repository, which may be one around the tree.
    if !root.join(".git").exists() {
        return Err("this is no clone".into());
    }
    if git(root, &["rev-parse", "--is-shallow-repository"])?.trim() != "false" {
        return Err("this clone is shallow; `git fetch --unshallow` brings all of it".into());
    }
    let range = format!("{FIRST_UNCHECKED}..HEAD");
    Ok(parse(&git(root, &["log", "--no-merges", FORMAT, &range])?))
}

/// Returns what git says.
fn git(root: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new("git").arg("-C").arg(root).args(words).output();
    let output = output.map_err(|error| format!("git cannot start: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git: {}", text.lines().next().unwrap_or("no reason given")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads what git wrote by [`FORMAT`].
fn parse(text: &str) -> Vec<Commit> {
    let commits = text.split('\x1e').filter_map(|commit| commit.trim_start().split_once('\x1f'));
    let commit = |(hash, message): (&str, &str)| Commit {
        hash: hash.into(),
        message: message.trim_end().into(),
    };
    commits.map(commit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_several_lines_stay_together() {
        let text = "aa\x1fmem: one\n\nBody.\nMore.\n\x1e\nbb\x1fsys: two\n\x1e\n";
        let commit =
            |hash: &str, message: &str| Commit { hash: hash.into(), message: message.into() };
        assert_eq!(
            parse(text),
            [commit("aa", "mem: one\n\nBody.\nMore."), commit("bb", "sys: two")]
        );
    }

    #[test]
    fn what_is_no_clone_says_so() {
        assert_eq!(read(Path::new("/proc")), Err("this is no clone".into()));
    }
}
