//! Files and functions stay readable. Tests may be long: they are read one at a time.

use crate::masked;
use crate::report::Report;
use crate::tree::Tree;

/// The number of lines of product code above which a file deserves a thought.
const FILE_LINES_WARN: usize = 500;
/// The most lines of product code in a file.
const FILE_LINES_MAX: usize = 800;
/// The most lines from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Counts the lines of product code of each file.
pub(crate) fn files_are_short(tree: &Tree, report: &mut Report) {
    for file in &tree.rust {
        let lines = file.code_lines().filter(|(_, _, test)| !test).count();
        let message = format!("{lines} lines of product code: split it by what it does");
        if lines > FILE_LINES_MAX {
            report.fail(&file.path, 1, message);
        } else if lines > FILE_LINES_WARN {
            report.warn(&file.path, 1, message);
        }
    }
}

/// Counts the lines of each function that is product code.
pub(crate) fn functions_are_short(tree: &Tree, report: &mut Report) {
    for file in &tree.rust {
        let code = &file.masked.code;
        let words: Vec<_> = masked::words(code).collect();
        for pair in words.windows(2) {
            let [(start, "fn"), (at, name)] = pair else { continue };
            // `fn(u8) -> u8` is a type: what follows the word must be a name.
            if !code[start + 2..*at].trim().is_empty() {
                continue;
            }
            let Some((_, end)) = masked::body(code, *at) else { continue };
            let first = masked::line_of(code, *start);
            let lines = masked::line_of(code, end) - first + 1;
            if lines > FUNCTION_LINES_MAX && !file.test[first] {
                let message = format!("`{name}` has {lines} lines, at most {FUNCTION_LINES_MAX}");
                report.fail(&file.path, first + 1, message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;

    #[test]
    fn long_files_warn_then_fail_and_tests_do_not_count() {
        let run = |lines: usize, tail: &str| {
            let text = format!("{}{tail}", "// x\n".repeat(lines));
            findings(files_are_short, &[("crates/mem/src/a.rs", &text)])
        };
        assert!(run(500, "").is_empty());
        assert!(run(501, "")[0].starts_with("crates/mem/src/a.rs:1: warning: 501"));
        assert!(run(801, "")[0].starts_with("crates/mem/src/a.rs:1: 801"));
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(900));
        assert!(run(500, &tests).is_empty());
    }

    #[test]
    fn long_functions_fail() {
        let run = |body: usize, head: &str| {
            let text = format!("\n{head} {{\n{}}}\n", "    a;\n".repeat(body));
            findings(functions_are_short, &[("crates/mem/src/a.rs", &text)])
        };
        assert!(run(68, "fn f(x: [u8; 2])").is_empty());
        let found = run(69, "pub(crate) unsafe fn f(x: [u8; 2])");
        assert_eq!(found, ["crates/mem/src/a.rs:2: `f` has 71 lines, at most 70"]);
        assert!(run(69, "#[cfg(test)] fn f()").is_empty());
        assert!(run(69, "impl A { type B = fn(u8); } struct C").is_empty());
    }
}
