//! Every atomic ordering has a reason near it: the operation it pairs with, or why it needs none.
//! `Relaxed` pairs with nothing, so its reason may stand once, in the head of the file.

use crate::report::Report;
use crate::tree::Tree;

/// The orderings of atomics; those of comparisons have other names.
const ORDERINGS: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst", RELAXED];
const RELAXED: &str = "Relaxed";
/// The words of a reason, which has one of them: the paired operation, or why there is no pair.
const REASONS: &[&str] =
    &["pair", "acquire", "release", "relaxed", "order", "lock", "counter", "statistic", "sees"];
/// The number of lines above the use, or above a run of lines that all use one, within which its
/// comment must end.
const LINES_ABOVE: usize = 6;

/// Finds orderings with no reason on their line or the lines above it.
pub(crate) fn orderings_are_explained(tree: &Tree, report: &mut Report) {
    for file in &tree.rust {
        let comments: Vec<_> = file.masked.comments.lines().collect();
        let mut head = comments.iter().take_while(|comment| comment.starts_with("//!"));
        let relaxed_in_head = head.any(|comment| comment.contains(RELAXED));
        // The number of lines up to this one that use an ordering, without a break.
        let mut run = 0;
        for (line, code, test) in file.code_lines() {
            if code.contains("Ordering::{") || code.contains("Ordering::*") {
                report.fail(&file.path, line, "write `Ordering::X` in full where it is used");
            }
            run = if orderings(code).next().is_some() { run + 1 } else { 0 };
            if test || orderings(code).all(|name| relaxed_in_head && name == RELAXED) {
                continue;
            }
            let near = &comments[line.saturating_sub(LINES_ABOVE + run)..line];
            if !near.iter().any(|comment| gives_reason(comment)) {
                let message = "an ordering without a reason: name the operation it pairs with";
                report.fail(&file.path, line, message);
            }
        }
    }
}

fn gives_reason(comment: &str) -> bool {
    let comment = comment.to_lowercase();
    REASONS.iter().any(|word| comment.contains(word))
}

/// Returns the orderings of atomics that a line of code names.
fn orderings(code: &str) -> impl Iterator<Item = &'static str> {
    let named = |rest: &str| ORDERINGS.iter().copied().find(|name| rest.starts_with(name));
    code.split("Ordering::").skip(1).filter_map(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;

    #[test]
    fn an_ordering_needs_a_comment_near_it() {
        let run = |text: &str| findings(orderings_are_explained, &[("crates/sys/src/a.rs", text)]);
        let bare = "fn f() {\n    a.load(Ordering::Acquire);\n}\n";
        assert_eq!(run(bare).len(), 1);
        assert_eq!(run(&bare.repeat(2)).len(), 2);
        let uses = "a.load(Ordering::Relaxed);\n".repeat(9);
        assert!(run(&format!("// statistics\n{uses}")).is_empty());
        assert!(run(&format!("//! All is Relaxed: counters.\n\n\n{uses}")).is_empty());
        assert_eq!(run(&format!("//! All is Relaxed.\n{}{bare}", "\n".repeat(9))).len(), 1);
        assert_eq!(run(&format!("/// The size.\n{bare}")).len(), 1);
        assert_eq!(run(&format!("// far\n{}{bare}", "\n".repeat(5))).len(), 1);
        assert!(
            run(&format!("// Pairs with the release in `g`.\n{}{bare}", "\n".repeat(4))).is_empty()
        );
        assert!(run("a.load(Ordering::Relaxed); // a statistic").is_empty());
        assert!(run("match a.cmp(&b) { Ordering::Less => {} }").is_empty());
        assert!(run("#[cfg(test)]\nfn f() { a.load(Ordering::Relaxed); }").is_empty());
        assert_eq!(run("// x\nuse core::sync::atomic::Ordering::*;").len(), 1);
    }
}
