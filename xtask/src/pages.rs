//! Pages that are made from the figures under `bench/results`: `docs/performance.md`, with the
//! newest of each benchmark, and `bench/results/index.md`, which lists all of them.
//!
//! `cargo xtask pages` writes both, and a rule of tidy fails when one of them is not fresh. The
//! input is what `coldpress-bench --out` writes: `- commit: X`, `## BENCHMARK`, and goals, as lines
//! `- goal: TEXT; met: FOUND` or as rows of a table whose head begins with `goal`. A goal with a
//! floor may be neither met nor missed, but between the two.

use std::fmt::Write as _;

use crate::report::Report;
use crate::tree::Tree;

/// The folder where figures are kept.
const RESULTS: &str = "bench/results/";
const INDEX: &str = "bench/results/index.md";
const PERFORMANCE: &str = "docs/performance.md";

/// A goal and what was found.
#[derive(Debug, PartialEq, Eq)]
struct Goal<'a> {
    text: String,
    found: &'a str,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Met,
    /// Above the floor, but not met.
    Between,
    Missed,
}

impl Verdict {
    fn of(word: &str) -> Option<Self> {
        match word {
            "met" => Some(Self::Met),
            "between" => Some(Self::Between),
            "MISSED" => Some(Self::Missed),
            _ => None,
        }
    }
}

/// The findings of one benchmark in a file.
#[derive(Debug, PartialEq, Eq)]
struct Section<'a> {
    benchmark: &'a str,
    goals: Vec<Goal<'a>>,
}

/// A file of figures.
struct Figures<'a> {
    path: &'a str,
    date: &'a str,
    commit: &'a str,
    sections: Vec<Section<'a>>,
}

/// Returns the pages, each by its path.
pub(crate) fn made(tree: &Tree) -> [(&'static str, String); 2] {
    let mut all: Vec<Figures<'_>> =
        tree.texts.iter().filter_map(|file| read(&file.path, &file.text)).collect();
    all.sort_by_key(|figures| std::cmp::Reverse((figures.date, figures.path)));
    [(PERFORMANCE, performance(&all, &pictures(tree))), (INDEX, index(&all))]
}

/// Checks that both pages are as they would be made now.
pub(crate) fn pages_are_fresh(tree: &Tree, report: &mut Report) {
    if !tree.texts.iter().any(|file| file.path.starts_with(RESULTS)) {
        return;
    }
    for (path, wanted) in made(tree) {
        let found = tree.texts.iter().find(|file| file.path == path);
        if found.is_none_or(|file| file.text != wanted) {
            report.fail(path, 1, "not fresh: run `cargo xtask pages`");
        }
    }
}

/// Returns the pictures of `coldpress-bench swap --svg`, the newest last.
fn pictures(tree: &Tree) -> Vec<&str> {
    let is_picture = |path: &&String| path.starts_with(RESULTS) && path.ends_with("-swap.svg");
    tree.paths.iter().filter(is_picture).map(String::as_str).collect()
}

/// Reads a file of figures; `None` when it is another file.
fn read<'a>(path: &'a str, text: &'a str) -> Option<Figures<'a>> {
    let inside = path.strip_prefix(RESULTS)?;
    let (_, name) = inside.split_once('/')?;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let (date, commit) = (value("- date: ")?, value("- commit: ")?);
    name.starts_with(date).then(|| Figures { path, date, commit, sections: sections(text) })
}

fn sections(text: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut is_table = false;
    for line in text.lines() {
        if let Some(benchmark) = line.strip_prefix("## ") {
            sections.push(Section { benchmark, goals: Vec::new() });
        }
        let Some(section) = sections.last_mut() else { continue };
        is_table = line.starts_with("| goal") || is_table && line.starts_with('|');
        let goal = if is_table { row(line) } else { sentence(line) };
        section.goals.extend(goal);
    }
    sections
}

/// Reads a goal in a line of its own.
fn sentence(line: &str) -> Option<Goal<'_>> {
    let text = line.strip_prefix("- goal: ")?;
    let split = |verdict| text.rsplit_once(verdict).map(|(text, found)| (text.to_owned(), found));
    let (verdict, (text, found)) = split("; met: ")
        .map(|it| (Verdict::Met, it))
        .or_else(|| split("; MISSED: ").map(|it| (Verdict::Missed, it)))?;
    Some(Goal { text, found, verdict })
}

/// Reads a goal in a row: text, what is wanted and perhaps a floor, what was found, the verdict,
/// and of what.
fn row(line: &str) -> Option<Goal<'_>> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let find = |(at, cell): (usize, &&str)| Some((at, Verdict::of(cell)?));
    let (at, verdict) = cells.iter().enumerate().skip(3).find_map(find)?;
    let (text, wanted, found) = (cells[0], cells[1..at - 1].join(", floor "), cells[at - 1]);
    let of = cells.get(at + 1).copied().unwrap_or_default();
    Some(Goal { text: format!("{text} {wanted} ({of})"), found, verdict })
}

fn performance(all: &[Figures<'_>], pictures: &[&str]) -> String {
    let mut page = "# Performance\n\nMade by `cargo xtask pages` from the newest figures of each \
                    benchmark. Goals that are missed are\nmarked. How to read each benchmark \
                    stands in [bench/README.md](../bench/README.md); why a goal is\nmissed, and \
                    what was tried, in [lessons.md](lessons.md).\n"
        .to_owned();
    if let Some(picture) = pictures.last() {
        let alt = "Touches a second in each order, over coldpress and over the kernel's swap";
        write!(page, "\n![{alt}](../{picture})\n").expect("a string takes it");
    }
    let mut done: Vec<&str> = Vec::new();
    for figures in all {
        for section in figures.sections.iter().filter(|section| !section.goals.is_empty()) {
            // What compares two builds says nothing of one.
            if done.contains(&section.benchmark) || section.benchmark.ends_with("-against") {
                continue;
            }
            done.push(section.benchmark);
            let (benchmark, path, date) = (section.benchmark, figures.path, figures.date);
            write!(page, "\n## {benchmark}\n\nOf [{date}](../{path}).\n\n").expect("as above");
            page.push_str("| goal | found | |\n| --- | --- | --- |\n");
            for Goal { text, found, verdict } in &section.goals {
                let verdict = match verdict {
                    Verdict::Met => "met",
                    Verdict::Between => "above its floor",
                    Verdict::Missed => "**missed**",
                };
                writeln!(page, "| {text} | {found} | {verdict} |").expect("as above");
            }
        }
    }
    page
}

fn index(all: &[Figures<'_>]) -> String {
    let mut page = "# All figures\n\nMade by `cargo xtask pages`, the newest first. \
                    [../README.md](../README.md) says how to read them.\n\n\
                    | date | commit | benchmarks | goals met | missed | file |\n\
                    | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for Figures { path, date, commit, sections } in all {
        let names: Vec<_> = sections.iter().map(|section| section.benchmark).collect();
        let goals = || sections.iter().flat_map(|section| &section.goals);
        let count = |verdict| goals().filter(|goal| goal.verdict == verdict).count();
        let (met, missed) = (count(Verdict::Met), count(Verdict::Missed));
        let file = path.strip_prefix(RESULTS).unwrap_or(path);
        let names = names.join(", ");
        writeln!(page, "| {date} | {commit} | {names} | {met} | {missed} | [{file}]({file}) |")
            .expect("a string takes it");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Figures\n\n- commit: abc\n- date: 2026-01-02\n\n## fault\n\n\
        - goal: median < 12 us; met: 10 us\n- goal: p99 < 1; MISSED: 2\n\n## swap\n\n\
        | goal, by zram | wanted | found | verdict | of |\n| --- | --- | --- | --- | --- |\n\
        | touches/s | >= 1.5 | 1.4 | MISSED | mean |\n\n| other | 1 |\n";

    fn tree(files: &[(&str, &str)]) -> Tree {
        Tree::new(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())))
    }

    #[test]
    fn goals_are_read_in_both_forms() {
        let figures = read("bench/results/cpu/2026-01-02-abc.md", TEXT).unwrap();
        assert_eq!((figures.date, figures.commit), ("2026-01-02", "abc"));
        let found: Vec<_> = figures.sections.iter().flat_map(|it| &it.goals).collect();
        let goal = |text: &str, found, verdict| Goal { text: text.to_owned(), found, verdict };
        assert_eq!(
            found,
            [
                &goal("median < 12 us", "10 us", Verdict::Met),
                &goal("p99 < 1", "2", Verdict::Missed),
                &goal("touches/s >= 1.5 (mean)", "1.4", Verdict::Missed),
            ]
        );
    }

    #[test]
    fn a_goal_with_a_floor_is_met_or_missed_or_between() {
        let text = TEXT.replace("| >= 1.5 | 1.4 | MISSED |", "| >= 1.5 | >= 1.3 | 1.4 | between |");
        let figures = read("bench/results/cpu/2026-01-02-abc.md", &text).unwrap();
        let goal = figures.sections[1].goals.first().unwrap();
        assert_eq!(goal.text, "touches/s >= 1.5, floor >= 1.3 (mean)");
        assert_eq!((goal.found, goal.verdict), ("1.4", Verdict::Between));
        let [(_, page), (_, index)] =
            made(&tree(&[("bench/results/cpu/2026-01-02-abc.md", &text)]));
        assert!(page.contains("| 1.4 | above its floor |"), "{page}");
        assert!(index.contains("| fault, swap | 1 | 1 |"), "{index}");
    }

    #[test]
    fn the_newest_figures_of_each_benchmark_are_shown() {
        let older = TEXT.replace("2026-01-02", "2026-01-01").replace("10 us", "11 us");
        let only = older.replace("## swap", "## fit");
        let [(_, page), (_, index)] = made(&tree(&[
            ("bench/results/cpu/2026-01-01-abc.md", &only),
            ("bench/results/cpu/2026-01-02-abc.md", TEXT),
        ]));
        assert!(page.contains("10 us") && !page.contains("11 us"), "{page}");
        assert!(page.contains("## fit") && page.contains("**missed**"), "{page}");
        assert!(index.find("2026-01-02") < index.find("2026-01-01"), "{index}");
    }

    #[test]
    fn a_page_that_is_not_fresh_is_reported() {
        let figures = ("bench/results/cpu/2026-01-02-abc.md", TEXT);
        let [(performance, one), (index, two)] = made(&tree(&[figures]));
        let run = |files: &[(&str, &str)]| {
            let mut report = Report::default();
            pages_are_fresh(&tree(files), &mut report);
            report.sorted().len()
        };
        assert_eq!(run(&[figures, (performance, &one), (index, &two)]), 0);
        assert_eq!(run(&[figures, (performance, &one)]), 1);
        assert_eq!(run(&[("README.md", "")]), 0);
    }
}
