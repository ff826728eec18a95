//! A function that answers yes or no says what it answers, in the words of all others.

use crate::items;
use crate::masked::line_of;
use crate::report::Report;
use crate::rust_file::RustFile;
use crate::tree::Tree;

/// The words that the documentation of such a function may begin with.
const BEGINNINGS: &[&str] = &["Returns whether", "Whether"];

/// Checks the documentation of each function of product code that returns `bool`, if it has any.
pub(crate) fn answers_say_whether(tree: &Tree, report: &mut Report) {
    let crates = tree.rust.iter().filter(|file| file.path.starts_with("crates/"));
    for file in crates {
        let code = &file.masked.code;
        for function in items::functions(code).iter().filter(|found| found.returns == "bool") {
            let line = line_of(code, function.at);
            let Some((first, text)) = documentation(file, line) else { continue };
            if !file.test[line] && !BEGINNINGS.iter().any(|words| text.starts_with(words)) {
                let message =
                    format!("`{}` returns `bool`: begin with \"Returns whether\"", function.name);
                report.fail(&file.path, first + 1, message);
            }
        }
    }
}

/// Returns the documentation of the item at `line`, and the line at which it begins. All lines
/// count from 0.
fn documentation(file: &RustFile, line: usize) -> Option<(usize, String)> {
    let code: Vec<_> = file.masked.code.lines().collect();
    let comments: Vec<_> = file.masked.comments.lines().map(str::trim).collect();
    let mut lines = Vec::new();
    // Inside an attribute of several lines, read from its end.
    let mut inside = false;
    for above in (0..line).rev() {
        let here = code[above].trim();
        if let Some(text) = comments[above].strip_prefix("///") {
            lines.push((above, text.trim()));
        } else if here.starts_with("#[") || inside {
            inside = !here.starts_with("#[");
        } else if here.ends_with(")]") {
            inside = true;
        } else if !here.is_empty() || comments[above].is_empty() {
            break;
        }
    }
    let first = lines.last()?.0;
    let text: Vec<_> = lines.iter().rev().map(|(_, text)| *text).collect();
    Some((first, text.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;

    #[test]
    fn an_answer_begins_with_whether() {
        let run = |path: &str, text: &str| findings(answers_say_whether, &[(path, text)]);
        let sys = |text: &str| run("crates/sys/src/a.rs", text);
        for good in [
            "/// Returns whether it is so.\nfn f() -> bool { true }",
            "/// Whether it is so.\n#[inline]\n// Hot.\n#[cfg_attr(\n    a,\n    b(c)\n)]\n\
             pub(crate) const fn f(self) -> bool;",
            "/// Returns\n/// whether it is so.\nfn f() -> bool { true }",
            "fn f() -> bool { true }",
            "/// Takes it.\nfn f(g: impl Fn() -> bool) { true }",
            "#[cfg(test)]\nmod tests {\n    /// Takes it.\n    fn f() -> bool { true }\n}",
        ] {
            assert!(sys(good).is_empty(), "{good}: {:?}", sys(good));
        }
        let bad = "/// True if it is so.\n/// More.\n#[must_use]\nfn f() -> bool { true }\n";
        assert_eq!(
            sys(&format!("\n{bad}")),
            ["crates/sys/src/a.rs:2: `f` returns `bool`: begin with \"Returns whether\""]
        );
        assert!(run("xtask/src/a.rs", bad).is_empty());
    }
}
