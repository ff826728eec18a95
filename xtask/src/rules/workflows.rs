//! Workflows do what `make` does, from actions that nobody can change under us.
//!
//! A workflow may read the repository, is ended when a newer one of its branch begins, and gives
//! each job a limit. Its steps are targets of the Makefile, so that each lane runs the same on any
//! machine. Actions are named by the hash of a commit: a tag can be moved.

use crate::report::Report;
use crate::tree::{TextFile, Tree};

/// The folder of the workflows.
const WORKFLOWS: &str = ".github/workflows/";
/// The folder of the actions that others use from here.
const ACTIONS: &str = ".github/actions/";
/// Letters of the hash of a commit.
const HASH_LETTERS: usize = 40;
/// What stands for the words of each list `lane: [..]` of a workflow.
const LANE: &str = "${{ matrix.lane }}";
/// What each workflow has, as a line of its own.
const WANTED: &[&str] = &["permissions:", "  contents: read", "concurrency:"];

/// Checks every workflow.
pub(crate) fn workflows_run_make(tree: &Tree, report: &mut Report) {
    let makefile = tree.texts.iter().find(|file| file.path == "Makefile");
    let targets: Vec<_> = makefile.map(|file| targets(&file.text).collect()).unwrap_or_default();
    for file in files(tree, WORKFLOWS) {
        for line in WANTED {
            if !file.text.lines().any(|it| it.trim_end() == *line) {
                report.fail(&file.path, 1, format!("no line `{line}`"));
            }
        }
        let count = |key| values(file, key).count();
        if count("runs-on") != count("timeout-minutes") {
            report.fail(&file.path, 1, "not one `timeout-minutes` for each `runs-on`");
        }
        let lanes: Vec<_> = values(file, "lane").map(|(_, text)| words_of(text)).collect();
        for (line, text) in values(file, "run") {
            let text = text.replace(LANE, lanes.join(" ").trim());
            if let Err(why) = is_make(&text, &targets) {
                report.fail(&file.path, line, why);
            }
        }
        for (index, line) in file.text.lines().enumerate() {
            if line.trim_end().ends_with(": write") || line.contains("write-all") {
                report.fail(&file.path, index + 1, "a workflow may only read");
            }
        }
    }
}

/// Checks that every action is named by a hash, with its version behind.
pub(crate) fn actions_are_pinned(tree: &Tree, report: &mut Report) {
    for file in files(tree, WORKFLOWS).chain(files(tree, ACTIONS)) {
        for (line, text) in values(file, "uses") {
            if !is_pinned(text) {
                report.fail(&file.path, line, format!("`{text}`: write `NAME@HASH # vVERSION`"));
            }
        }
    }
}

fn files<'a>(tree: &'a Tree, folder: &'a str) -> impl Iterator<Item = &'a TextFile> {
    tree.texts.iter().filter(move |file| file.path.starts_with(folder))
}

/// Returns the names of the rules of a Makefile.
fn targets(makefile: &str) -> impl Iterator<Item = &str> {
    let names = makefile.lines().filter_map(|line| line.split_once(':'));
    let is_name = |name: &&str| name.chars().all(|char| char.is_ascii_lowercase() || char == '-');
    names.map(|(name, _)| name).filter(|name| !name.is_empty()).filter(is_name)
}

/// Returns the values of a key, with the lines that they are in.
fn values<'a>(file: &'a TextFile, key: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    file.text.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim_start().trim_start_matches("- ");
        let value = line.strip_prefix(key)?.strip_prefix(':')?;
        Some((index + 1, value.trim()))
    })
}

/// Returns the words of a list in brackets.
fn words_of(list: &str) -> String {
    list.trim_matches(['[', ']']).replace(',', "")
}

/// Fails for what is no command `make` of `targets`, with variables perhaps.
fn is_make(command: &str, targets: &[&str]) -> Result<(), String> {
    let words = command.strip_prefix("sudo ").unwrap_or(command);
    let kept = words.split_once(' ').filter(|(word, _)| word.starts_with("--preserve-env="));
    let words = kept.map_or(words, |(_, words)| words);
    let Some(words) = words.strip_prefix("make ") else {
        return Err(format!("`{command}`: a step is `make TARGET`, on one line"));
    };
    let mut words = words.split(' ').filter(|word| !word.contains('='));
    match words.find(|word| !targets.contains(word)) {
        Some(word) => Err(format!("`{word}` is no target of the Makefile")),
        None => Ok(()),
    }
}

/// Returns whether an action is of this tree, or named by the hash of a commit and a version.
fn is_pinned(action: &str) -> bool {
    if action.starts_with("./") {
        return true;
    }
    let Some((_, rest)) = action.split_once('@') else { return false };
    let Some((hash, version)) = rest.split_once(" # v") else { return false };
    let is_hash = hash.len() == HASH_LETTERS && hash.chars().all(|char| char.is_ascii_hexdigit());
    is_hash && version.starts_with(|char: char| char.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;
    use crate::rules::Rule;

    const GOOD: &str = "name: a
permissions:
  contents: read
concurrency:
  group: a
jobs:
  check:
    runs-on: ubuntu-24.04
    timeout-minutes: 20
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
      - uses: ./.github/actions/setup
      - run: make check
      - name: long
        run: sudo --preserve-env=CI make long-test SECONDS=5
  others:
    runs-on: ubuntu-24.04
    timeout-minutes: 20
    strategy:
      matrix:
        lane: [check, long-test]
    steps:
      - run: make ${{ matrix.lane }}
";

    fn run(rule: Rule, text: &str) -> Vec<String> {
        let makefile = "check: a ## b\nlong-test:\n\tcargo x:y\nA := b\n";
        findings(rule, &[("Makefile", makefile), (".github/workflows/a.yml", text)])
    }

    fn all(text: &str) -> Vec<String> {
        [run(workflows_run_make, text), run(actions_are_pinned, text)].concat()
    }

    #[test]
    fn a_workflow_of_make_passes() {
        assert_eq!(all(GOOD), [""; 0]);
    }

    #[test]
    fn a_workflow_that_does_anything_else_fails() {
        for (from, to) in [
            ("make check", "make chekc"),
            ("make check", "cargo test"),
            ("make check", "|"),
            ("[check, long-test]", "[check, long]"),
            ("make long-test", "make check;"),
            ("  contents: read", "  contents: write"),
            ("concurrency:", "concurrent:"),
            ("    timeout-minutes: 20\n", ""),
            ("3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1", "v7"),
            ("3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1", "3d3c42e # v7.0.1"),
            (" # v7.0.1", ""),
        ] {
            let bad = GOOD.replacen(from, to, 1);
            assert_ne!(bad, GOOD);
            assert!(!all(&bad).is_empty(), "{from} -> {to}");
        }
    }
}
