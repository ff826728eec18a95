//! A commit says what it does in a title, and why in a body.

use crate::report::Report;
use crate::tree::Tree;

/// The most columns of a title.
const TITLE_MAX: usize = 72;
/// The commits from before this rule that do not keep it.
const BEFORE: &[&str] = &[
    "99c52af", "b0a57fa", "b1134d2", "b1f6fce", "bf89e82", "d882400", "da6141d", "b294969",
    "e7fbe86", "8ca0882", "ff8b9eb", "c08bdce", "7917c4f", "7596d71", "b81ae53", "c1b13fb",
    "b2c6980", "8fd0eb2", "cc6fba1", "3a73227", "ca73904", "0be01de", "25aeb8f",
];

/// Checks the message of every commit, where the history is here.
pub(crate) fn commits_say_what_and_why(tree: &Tree, report: &mut Report) {
    let commits = match &tree.history {
        Ok(commits) => commits,
        Err(why) => return report.warn(".git", 1, format!("commits are not checked: {why}")),
    };
    let is_new = |hash: &str| !BEFORE.iter().any(|before| hash.starts_with(before));
    for commit in commits.iter().filter(|commit| is_new(&commit.hash)) {
        let place = format!("commit {}", &commit.hash[..commit.hash.len().min(12)]);
        let mut lines = commit.message.lines();
        let title = lines.next().unwrap_or_default();
        let columns = title.chars().count();
        if columns > TITLE_MAX {
            report.fail(&place, 1, format!("a title of {columns} columns, at most {TITLE_MAX}"));
        }
        if !has_layer(title) {
            report.fail(&place, 1, "no layer in front of the title: `pools: do ...`");
        }
        if title.ends_with('.') {
            report.fail(&place, 1, "a title ends without a full stop");
        }
        if lines.next().is_some_and(|line| !line.trim().is_empty()) {
            report.fail(&place, 2, "no empty line behind the title");
        }
        if !lines.any(|line| !line.trim().is_empty()) {
            report.fail(&place, 3, "no body: say what was wrong, why this way, what proves it");
        }
    }
}

/// Returns whether words in small letters, and what is done there, make the title.
fn has_layer(title: &str) -> bool {
    let Some((layers, rest)) = title.split_once(": ") else { return false };
    let is_part = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-';
    let is_layer = |layer: &str| !layer.is_empty() && layer.chars().all(is_part);
    layers.split(", ").all(is_layer) && !rest.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Commit;

    /// Returns what the rule says of a commit.
    fn run(hash: &str, message: &str) -> Vec<String> {
        let mut tree = Tree::new([]);
        tree.history = Ok(vec![Commit { hash: hash.into(), message: message.into() }]);
        let mut report = Report::default();
        commits_say_what_and_why(&tree, &mut report);
        report.sorted().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn good_commits_pass() {
        for good in [
            "mem: keep a free block\n\nIt was lost.",
            "runtime, zswap: name the helper\n\nTwo words were used.\n\nSigned-off-by: a",
        ] {
            assert_eq!(run("0123456789abcdef", good), [""; 0], "{good}");
        }
        assert_eq!(run("b294969b10ac", "preload: give the range"), [""; 0]);
    }

    #[test]
    fn bad_commits_fail_where_they_are_bad() {
        let long = format!("mem: {}\n\nBody.", "x".repeat(TITLE_MAX));
        for (bad, line) in [
            (&*long, 1),
            ("keep a free block\n\nIt was lost.", 1),
            ("Mem: keep a free block\n\nIt was lost.", 1),
            ("mem,zswap: keep\n\nIt was lost.", 1),
            ("mem: keep a free block.\n\nIt was lost.", 1),
            ("mem: keep a free block\nIt was lost.\n\nBody.", 2),
            ("mem: keep a free block", 3),
            ("mem: keep a free block\n\n  \n", 3),
        ] {
            let found = run("0123456789abcdef", bad);
            assert_eq!(found.len(), 1, "{bad}: {found:?}");
            assert!(found[0].starts_with(&format!("commit 0123456789ab:{line}: ")), "{found:?}");
        }
    }

    #[test]
    fn a_history_that_is_not_here_is_a_warning() {
        let mut tree = Tree::new([]);
        tree.history = Err("this clone is shallow".into());
        let mut report = Report::default();
        commits_say_what_and_why(&tree, &mut report);
        assert!(!report.failed());
        let wanted = ".git:1: warning: commits are not checked: this clone is shallow";
        assert_eq!(report.sorted()[0].to_string(), wanted);
    }
}
