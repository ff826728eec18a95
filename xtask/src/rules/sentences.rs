//! Sentences of comments name their subject.

use crate::prose::Prose;
use crate::report::Report;
use crate::tree::Tree;

/// Finds clauses that begin with a "who" that nobody stands before.
pub(crate) fn nobody_is_headless(tree: &Tree, report: &mut Report) {
    for file in &tree.rust {
        for line in Prose::of(file).headless() {
            let message = "a \"who\" without a head: name it (`a thread that waits`)";
            report.fail(&file.path, line, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;

    #[test]
    fn a_headless_who_fails_on_its_line() {
        let run = |text: &str| findings(nobody_is_headless, &[("crates/sys/src/a.rs", text)]);
        let found = run("//! X.\n\n/// It waits.\n/// Who waits sleeps.\nfn f() {}\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/sys/src/a.rs:4: "), "{found:?}");
        assert_eq!(
            run("// It is\n// read by\n    // who wants it.\n")[0].split(':').nth(1),
            Some("3")
        );
        assert_eq!(run("// Two: who reads; who writes.").len(), 1, "one finding for a line");
        assert!(run("// The thread that waits. Those who wait: \"Who\".").is_empty());
        assert!(run("fn f() { \". Who waits\" }").is_empty());
    }
}
