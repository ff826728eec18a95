//! Lines, words and leftovers.

use crate::masked;
use crate::report::Report;
use crate::tree::{TextFile, Tree};

/// The most columns of a line.
const COLUMNS_MAX: usize = 100;

/// The macros that mark unfinished work.
const LEFTOVER_MACROS: &[&str] = &["todo", "unimplemented", "dbg"];
/// The words in comments that mark unfinished work.
const LEFTOVER_WORDS: &[&str] = &["TODO", "FIXME", "XXX"];

/// The words not to use in comments and documents, and what to write instead.
const BANNED: &[(&str, &str)] = &[
    ("utilize", "use"),
    ("leverage", "use"),
    ("in order to", "to"),
    ("simply", "leave it out"),
    ("obviously", "leave it out, or say why"),
    ("basically", "leave it out"),
    ("sanity check", "check"),
    ("blacklist", "deny list"),
    ("whitelist", "allow list"),
    ("for now", "say what holds; comments keep no diary"),
    ("used to be", "say what holds; comments keep no diary"),
    ("swap out", "store, or write back"),
    ("swap in", "load"),
];

/// The starts of paths that exist on one machine only. Written in halves: this file is checked too.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/tmp", "/t-")];

/// Returns whether a file is code: Rust, scripts, and what steers the build.
fn is_code(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    matches!(ending, "rs" | "toml" | "py" | "sh" | "c" | "h")
        || name == "Makefile"
        || path.starts_with("scripts/")
        || path.starts_with(".ci/")
}

fn is_document(path: &str) -> bool {
    path.ends_with(".md")
}

/// The folder that the benchmarks write into; it holds figures only.
const RESULTS: &str = "bench/results/";

/// Returns the lines of the text files written by us, with their numbers.
fn lines(tree: &Tree) -> impl Iterator<Item = (&TextFile, usize, &str)> {
    let ours = tree.texts.iter().filter(|file| {
        !file.path.starts_with(RESULTS) && (is_code(&file.path) || is_document(&file.path))
    });
    ours.flat_map(|file| {
        file.text.lines().enumerate().map(move |(index, line)| (file, index + 1, line))
    })
}

/// Checks that lines have at most [`COLUMNS_MAX`] columns and no space at their ends, and that code
/// is ASCII. A line may be longer when it holds a web address, or is a row of a table or a picture.
pub(crate) fn lines_are_short_and_plain(tree: &Tree, report: &mut Report) {
    for (file, line, text) in lines(tree) {
        let columns = text.chars().count();
        let prose = text.trim_start().trim_start_matches("//!").trim_start_matches("///");
        let is_row = prose.trim_start().starts_with('|') && prose.ends_with('|');
        let is_picture = text.starts_with("![");
        if columns > COLUMNS_MAX && !text.contains("://") && !is_row && !is_picture {
            report.fail(&file.path, line, format!("{columns} columns, at most {COLUMNS_MAX}"));
        }
        if text.ends_with([' ', '\t', '\r']) {
            report.fail(&file.path, line, "space at the end of the line");
        }
        let odd = text.chars().find(|char| !char.is_ascii());
        if let Some(odd) = odd.filter(|_| is_code(&file.path)) {
            report.fail(&file.path, line, format!("`{odd}` is not ASCII"));
        }
    }
}

/// Checks that no mark of unfinished work is left, and that no test is switched off.
pub(crate) fn nothing_is_left_over(tree: &Tree, report: &mut Report) {
    for file in &tree.rust {
        for (index, comment) in file.masked.comments.lines().enumerate() {
            for (_, word) in masked::words(comment).filter(|(_, word)| is_leftover(word)) {
                report.fail(&file.path, index + 1, format!("`{word}`: finish it, or leave it out"));
            }
        }
        for (line, code, _) in file.code_lines() {
            if code.contains("#[ignore") {
                report.fail(&file.path, line, "a test switched off: mend it, or take it out");
            }
            for (at, word) in masked::words(code) {
                let is_macro = code[at + word.len()..].starts_with('!');
                if is_macro && LEFTOVER_MACROS.contains(&word) {
                    report.fail(&file.path, line, format!("`{word}!` is left over"));
                }
            }
        }
    }
    for (file, line, text) in lines(tree).filter(|(file, ..)| !file.path.ends_with(".rs")) {
        if masked::words(text).any(|(_, word)| is_leftover(word)) {
            report.fail(&file.path, line, "a mark of unfinished work");
        }
    }
}

fn is_leftover(word: &str) -> bool {
    LEFTOVER_WORDS.contains(&word)
}

/// Checks that comments and documents do without the [`BANNED`] words.
pub(crate) fn words_are_plain(tree: &Tree, report: &mut Report) {
    let mut check = |path: &str, text: &str| {
        for (index, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for (word, instead) in BANNED.iter().filter(|(word, _)| has_words(&line, word)) {
                report.fail(path, index + 1, format!("`{word}`: {instead}"));
            }
        }
    };
    for file in &tree.rust {
        check(&file.path, &file.masked.comments);
    }
    for file in tree.texts.iter().filter(|file| is_document(&file.path)) {
        check(&file.path, &file.text);
    }
}

/// Returns whether `wanted` stands in `line` as whole words.
fn has_words(line: &str, wanted: &str) -> bool {
    line.match_indices(wanted).any(|(start, _)| {
        let is_letter = |char: char| char.is_alphanumeric() || char == '_';
        !line[..start].ends_with(is_letter) && !line[start + wanted.len()..].starts_with(is_letter)
    })
}

/// Checks that no file names a path that exists on one machine only.
pub(crate) fn no_path_of_one_machine(tree: &Tree, report: &mut Report) {
    for (file, line, text) in lines(tree) {
        for path in MACHINE_PATHS {
            // `/proc/PID/root/` only holds such a path inside.
            let whole =
                |start: usize| !text[..start].ends_with(|char: char| char.is_alphanumeric());
            if text.match_indices(path).any(|(start, _)| whole(start)) {
                report.fail(&file.path, line, format!("`{path}` is a path of one machine"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;

    #[test]
    fn long_lines_and_odd_signs_fail() {
        let run = |path: &str, text: &str| findings(lines_are_short_and_plain, &[(path, text)]);
        assert!(run("a.rs", &"x".repeat(100)).is_empty());
        assert_eq!(run("a.rs", &"x".repeat(101)), ["a.rs:1: 101 columns, at most 100"]);
        assert!(run("a.md", &format!("| {} |", "x".repeat(101))).is_empty());
        assert!(run("a.rs", &format!("//! | {} |", "x".repeat(101))).is_empty());
        assert!(run("a.rs", &format!("// https://x.org/{}", "x".repeat(101))).is_empty());
        assert!(run("bench/results/x/a.md", &"x".repeat(101)).is_empty());
        assert_eq!(run("scripts/a", "# \u{e9}").len(), 1);
        assert!(run("a.md", "\u{e9}").is_empty());
        assert_eq!(run("Makefile", "a: \n").len(), 1);
        assert!(run("Cargo.lock", "\u{e9} ").is_empty());
    }

    #[test]
    fn leftovers_fail() {
        let run = |text: &str| findings(nothing_is_left_over, &[("a.rs", text)]).len();
        assert_eq!(run("fn f() { todo!() }"), 1);
        assert_eq!(run("fn f() { dbg!(1) } // FIXME"), 2);
        assert_eq!(run("#[ignore = \"slow\"]\n#[test]\nfn f() {}"), 1);
        assert_eq!(run("fn f() { todo(\"todo!\", \"XXX\") } // todos"), 0);
        assert_eq!(findings(nothing_is_left_over, &[("a.py", "# TODO x")]).len(), 1);
    }

    #[test]
    fn banned_words_fail_with_their_replacement() {
        let run = |path: &str, text: &str| findings(words_are_plain, &[(path, text)]);
        assert_eq!(run("a.rs", "// In order to x"), ["a.rs:1: `in order to`: to"]);
        assert!(run("a.rs", "let simply = \"simply\"; // simplyx").is_empty());
        assert_eq!(run("a.md", "Utilize").len(), 1);
    }

    #[test]
    fn paths_of_one_machine_fail() {
        let run = |text: &str| findings(no_path_of_one_machine, &[("a.sh", text)]).len();
        assert_eq!(run(concat!("cd /ho", "me/x")), 1);
        assert_eq!(run(concat!("cat /proc/1/ro", "ot/x")), 0);
    }
}
