//! The findings of the rules.

use std::fmt;

/// One finding, shown as `file:line: message`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The path from the root of the tree.
    pub(crate) path: String,
    /// The line, from 1.
    pub(crate) line: usize,
    /// Whether the finding is a warning, which is shown but does not fail the run.
    pub(crate) warning: bool,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.warning { "warning: " } else { "" };
        write!(out, "{}:{}: {kind}{}", self.path, self.line, self.message)
    }
}

/// The findings of a run.
#[derive(Default)]
pub(crate) struct Report(Vec<Finding>);

impl Report {
    /// Adds a finding that fails the run; `line` counts from 1.
    pub(crate) fn fail(&mut self, path: &str, line: usize, message: impl Into<String>) {
        let finding = Finding { path: path.into(), line, warning: false, message: message.into() };
        self.0.push(finding);
    }

    /// Adds a finding that is only shown; `line` counts from 1.
    pub(crate) fn warn(&mut self, path: &str, line: usize, message: impl Into<String>) {
        let finding = Finding { path: path.into(), line, warning: true, message: message.into() };
        self.0.push(finding);
    }

    /// Returns the findings by path and line, each once.
    pub(crate) fn sorted(&self) -> Vec<Finding> {
        let mut findings = self.0.clone();
        findings.sort();
        findings.dedup();
        findings
    }

    /// Returns whether any finding fails the run.
    pub(crate) fn failed(&self) -> bool {
        self.0.iter().any(|finding| !finding.warning)
    }
}

/// Runs one rule over a tree made of `files` (path, text) and returns `path:line: message` lines.
#[cfg(test)]
pub(crate) fn findings(rule: crate::rules::Rule, files: &[(&str, &str)]) -> Vec<String> {
    let files = files.iter().map(|(path, text)| ((*path).into(), (*text).into()));
    let mut report = Report::default();
    rule(&crate::tree::Tree::new(files), &mut report);
    report.sorted().iter().map(Finding::to_string).collect()
}
