//! The machine and the state of the sources: a figure without them says nothing.

use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

const UNKNOWN: &str = "unknown";

/// The facts that a figure depends on.
pub struct Machine {
    processor: String,
    /// The name and text of each fact, the processor's among them.
    facts: Vec<(&'static str, String)>,
    /// The date, as `2026-03-01`, in UTC.
    date: String,
    commit: String,
}

impl Machine {
    /// Asks /proc, /sys and git for the facts.
    pub fn look() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let processor = field(&cpuinfo, "model name").unwrap_or(std::env::consts::ARCH).to_owned();
        let is_virtual = cpuinfo.contains(" hypervisor");
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs() / 86_400);
        let (date, commit) = (date_of_day(days), commit());
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or(UNKNOWN).to_owned();
        let facts = vec![
            ("processor", processor.clone()),
            ("cores", cores.to_string()),
            ("virtual machine", if is_virtual { "yes" } else { "not known" }.to_owned()),
            ("memory", memory),
            ("kernel", read("/proc/sys/kernel/osrelease")),
            ("huge pages", read("/sys/kernel/mm/transparent_hugepage/enabled")),
            ("load before", read("/proc/loadavg")),
            ("coldpress", env!("CARGO_PKG_VERSION").to_owned()),
            ("commit", commit.clone()),
            ("date", date.clone()),
        ];
        Self { processor, facts, date, commit }
    }

    /// Returns a folder name for machines like this one, which does not reveal the owner.
    pub(crate) fn slug(&self) -> String {
        slug(&self.processor)
    }

    /// Returns a file name without its ending.
    pub(crate) fn file_stem(&self) -> String {
        format!("{}-{}", self.date, self.commit)
    }

    /// Returns the facts for people.
    pub(crate) fn text(&self) -> String {
        self.facts.iter().map(|(name, text)| format!("- {name}: {text}\n")).collect()
    }

    /// Returns the facts for programs, as JSON.
    pub(crate) fn json(&self) -> Value {
        self.facts.iter().map(|(name, text)| (name.replace(' ', "_"), json!(text))).collect()
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| UNKNOWN.to_owned(), |text| text.trim().to_owned())
}

/// Returns the text behind `name` and a colon, of the first line that has it.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

/// Returns the words of a text in lower case, with one dash between them.
fn slug(text: &str) -> String {
    let word = |char: char| if char.is_ascii_alphanumeric() { char } else { ' ' };
    let text: String = text.to_ascii_lowercase().chars().map(word).collect();
    text.split_ascii_whitespace().collect::<Vec<_>>().join("-")
}

/// Returns the commit checked out where the command was started, marked when files differ from it.
fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match git(&["rev-parse", "--short=12", "HEAD"]) {
        Some(commit) if git(&["diff", "--quiet", "HEAD"]).is_some() => commit,
        Some(commit) => format!("{commit}-changed"),
        None => UNKNOWN.to_owned(),
    }
}

/// Returns the date of a day counted from 1970-01-01, as `2026-03-01`.
///
/// Source: "days to civil", <https://howardhinnant.github.io/date_algorithms.html>, for dates after
/// 1970. Its years start in March, so that the leap day is the last of a year.
fn date_of_day(days: u64) -> String {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, date) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_453, "2025-12-31"),
            (20_454, "2026-01-01"),
        ] {
            assert_eq!(date_of_day(days), date);
        }
    }

    #[test]
    fn folders_are_plain_words() {
        assert_eq!(slug("AMD EPYC 7B13  64-Core"), "amd-epyc-7b13-64-core");
        assert_eq!(slug("Intel(R) Xeon(R) CPU @ 2.20GHz"), "intel-r-xeon-r-cpu-2-20ghz");
    }

    #[test]
    fn fields_are_found_in_proc_files() {
        let text = "processor\t: 0\nmodel name\t: AMD: EPYC\nMemTotal:   7 kB\n";
        assert_eq!(field(text, "model name"), Some("AMD: EPYC"));
        assert_eq!(field(text, "MemTotal"), Some("7 kB"));
        assert_eq!(field(text, "model"), None);
    }
}
