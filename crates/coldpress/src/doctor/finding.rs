//! A verdict on one point, as a line for people and as JSON for programs.

use std::fmt;

use serde_json::json;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// All is well, or the finding is only for information.
    Ok,
    /// `coldpress run` works, but less well than it could.
    Warn,
    /// `coldpress run` cannot work.
    Fail,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// A finding on one point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The severity.
    pub(crate) level: Level,
    /// The point, in one or two words.
    pub(crate) what: &'static str,
    /// The finding, with the number that matters.
    pub(crate) finding: String,
    /// The cure, a command where there is one; always present unless the level is ok.
    pub(crate) fix: Option<String>,
}

impl Finding {
    /// Makes a finding that all is well.
    pub(crate) fn ok(what: &'static str, finding: impl Into<String>) -> Self {
        Self { level: Level::Ok, what, finding: finding.into(), fix: None }
    }

    /// Makes a finding that the point works, but not as well as after `fix`.
    pub(crate) fn warn(
        what: &'static str,
        finding: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { level: Level::Warn, what, finding: finding.into(), fix: Some(fix.into()) }
    }

    /// Makes a finding that nothing works before `fix`.
    pub(crate) fn fail(
        what: &'static str,
        finding: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { level: Level::Fail, ..Self::warn(what, finding, fix) }
    }
}

/// The line without its level, which `coldpress run` prints too.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.finding)?;
        match &self.fix {
            Some(fix) => write!(f, "; {fix}"),
            None => Ok(()),
        }
    }
}

/// Formats the findings as one line each.
pub(crate) fn text(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{:<4}  {finding}\n", finding.level.word())).collect()
}

/// Formats the findings as one document: `{"version": 1, "ok": BOOL, "checks": [{"level", "what",
/// "finding", "fix"}]}`.
pub(crate) fn json(findings: &[Finding]) -> String {
    let checks: Vec<_> = findings
        .iter()
        .map(|finding| {
            json!({
                "level": finding.level.word(),
                "what": finding.what,
                "finding": finding.finding,
                "fix": finding.fix,
            })
        })
        .collect();
    let ok = findings.iter().all(|finding| finding.level != Level::Fail);
    format!("{:#}\n", json!({ "version": 1, "ok": ok, "checks": checks }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_json_say_the_same() {
        let findings = [Finding::ok("a", "good"), Finding::fail("b", "bad \"1\"", "do c")];
        assert_eq!(text(&findings), "ok    a: good\nFAIL  b: bad \"1\"; do c\n");
        let document: serde_json::Value = serde_json::from_str(&json(&findings)).unwrap();
        assert_eq!(document["ok"], false);
        assert_eq!(document["checks"][0]["fix"], serde_json::Value::Null);
        assert_eq!(document["checks"][1]["finding"], "bad \"1\"");
    }
}
