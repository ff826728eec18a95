//! The metrics of a run, as monitoring systems read them.
//!
//! There are two formats of the same lines. OpenMetrics names a family without `_total` and has
//! units and an end. The text format of Prometheus, which its file collector and `promtool` read,
//! has neither. No library writes both, so this does. A name says its unit, in bytes, seconds,
//! pages or none, and each sample has the program and the process that leads the run, so that
//! several runs can be collected in one place.
//!
//! Source: <https://prometheus.io/docs/specs/om/open_metrics_spec/>, and for the other
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::Write as _;

use coldpress_runtime::tally::{Counter, Group};

use super::figures::GAUGES;
use super::standing::Standing;

/// The first part of each name.
const PREFIX: &str = "coldpress_";
/// The units that end a name and have a line of their own.
const UNITS: &[&str] = &["bytes", "seconds", "ratio"];
/// The classes of a histogram of latencies that are reported: from 1 us on. Shorter ones are in the
/// first of them.
const FIRST_CLASS: usize = 9;
const NS: f64 = 1e9;
const MS: f64 = 1e3;

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    OpenMetrics,
    Prometheus,
}

impl Format {
    /// Returns the name of the format, as HTTP has it.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The run that metrics are of.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// The name of the program.
    program: String,
    /// The keeper's process.
    process: u32,
}

impl Subject {
    /// Returns the run of `program` that this process leads.
    pub(crate) fn led_here(program: &str) -> Self {
        Self { program: program.to_owned(), process: std::process::id() }
    }

    /// Returns the name of the program.
    pub(super) fn program(&self) -> &str {
        &self.program
    }

    /// Returns the labels of every sample, without the braces.
    fn labels(&self) -> String {
        let mut program = String::new();
        for char in self.program.chars() {
            match char {
                '\\' => program.push_str("\\\\"),
                '"' => program.push_str("\\\""),
                '\n' => program.push_str("\\n"),
                _ => program.push(char),
            }
        }
        format!("program=\"{program}\",pid=\"{}\"", self.process)
    }
}

/// The kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The lines so far.
struct Page {
    text: String,
    format: Format,
    labels: String,
}

impl Page {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.text.write_fmt(line).expect("a string takes what is written");
        self.text.push('\n');
    }

    /// Writes the head of a family. Returns the name of its samples.
    fn head(&mut self, name: &str, kind: Kind, meaning: &str) -> String {
        let family = format!("{PREFIX}{name}");
        let total = if kind == Kind::Counter { "_total" } else { "" };
        let sample = format!("{family}{total}");
        let is_open = self.format == Format::OpenMetrics;
        let named = if is_open { &family } else { &sample };
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.line(format_args!("# HELP {named} {meaning}"));
        self.line(format_args!("# TYPE {named} {kind}"));
        let unit = UNITS.iter().find(|unit| family.ends_with(&format!("_{unit}")));
        if let Some(unit) = unit.filter(|_| is_open) {
            self.line(format_args!("# UNIT {named} {unit}"));
        }
        sample
    }

    /// Writes a family of one sample.
    fn one(&mut self, name: &str, kind: Kind, meaning: &str, value: impl std::fmt::Display) {
        let sample = self.head(name, kind, meaning);
        let labels = self.labels.clone();
        self.line(format_args!("{sample}{{{labels}}} {value}"));
    }

    /// Writes a counter of processes under the name, with the unit and in the words of metrics.
    fn counter(&mut self, counter: Counter, count: u64) {
        let meaning = counter.meaning().replace('`', "").replace("Nanoseconds", "Seconds");
        let meaning = meaning.replace("milliseconds", "seconds").replace("_ns", "_seconds");
        let key = counter.key();
        let seconds = |unit: &str, of_second: f64| {
            let name = key.strip_suffix(unit).map(|key| format!("{key}_seconds"));
            name.map(|name| (name, count as f64 / of_second))
        };
        if counter == Counter::HugeBlocksAvailable {
            self.one(key, Kind::Gauge, &meaning, count);
        } else if let Some((name, value)) = seconds("_ns", NS).or_else(|| seconds("_ms", MS)) {
            self.one(&name, Kind::Counter, &meaning, value);
        } else {
            self.one(key, Kind::Counter, &meaning, count);
        }
    }

    /// Writes the counters of the stores, which have one family, by name.
    fn events(&mut self, counts: &[u64]) {
        let meaning = "What the stores of compressed pages have counted, by name.";
        let sample = self.head("zswap_events", Kind::Counter, meaning);
        let labels = self.labels.clone();
        for (name, count) in Group::Zswap.names().iter().zip(counts) {
            // Bytes are no events.
            if !name.ends_with("_bytes") {
                self.line(format_args!("{sample}{{{labels},event=\"{name}\"}} {count}"));
            }
        }
    }

    /// Writes a histogram of latencies, which sum up to `sum_ns`.
    fn latencies(&mut self, name: &str, meaning: &str, classes: &[u64], sum_ns: u64) {
        let sample = self.head(name, Kind::Histogram, meaning);
        let labels = self.labels.clone();
        let mut count = 0;
        for (class, more) in classes.iter().enumerate() {
            count += more;
            // The last class has no bound.
            if class >= FIRST_CLASS && class + 1 < classes.len() {
                let bound = Group::FaultNs.bound(class) as f64 / NS;
                self.line(format_args!("{sample}_bucket{{{labels},le=\"{bound}\"}} {count}"));
            }
        }
        let sum = sum_ns as f64 / NS;
        self.line(format_args!("{sample}_bucket{{{labels},le=\"+Inf\"}} {count}"));
        self.line(format_args!("{sample}_sum{{{labels}}} {sum}"));
        self.line(format_args!("{sample}_count{{{labels}}} {count}"));
    }
}

/// Returns the metrics of a run that stands as `now`.
pub(crate) fn text(subject: &Subject, now: &Standing, format: Format) -> String {
    let totals = &now.totals;
    let mut page = Page { text: String::new(), format, labels: subject.labels() };
    let build = page.head("build_info", Kind::Gauge, "The version of coldpress.");
    let (labels, version) = (page.labels.clone(), env!("CARGO_PKG_VERSION"));
    page.line(format_args!("{build}{{{labels},version=\"{version}\"}} 1"));
    page.one("run_seconds", Kind::Gauge, "The age of the run.", totals.lasted().as_secs_f64());
    for gauge in GAUGES {
        let kind = if gauge.name.ends_with("processes") { Kind::Counter } else { Kind::Gauge };
        page.one(gauge.name, kind, gauge.meaning, gauge.of(now));
    }
    let meaning = "Pages stored since the start, before compression to after; 0 without any.";
    page.one("compression_ratio", Kind::Gauge, meaning, totals.ratio());
    for counter in Counter::ALL {
        page.counter(*counter, totals.get(*counter));
    }
    page.events(totals.group(Group::Zswap));
    let meaning = "Time from reading a page fault to placing its page.";
    let stalled = totals.get(Counter::StallNs);
    page.latencies("fault_duration_seconds", meaning, totals.group(Group::FaultNs), stalled);
    if format == Format::OpenMetrics {
        page.line(format_args!("# EOF"));
    }
    page.text
}

#[cfg(test)]
mod tests {
    //! The risk: a monitoring system refuses all metrics of a run, or takes one for another.

    use std::collections::BTreeSet;

    use coldpress_runtime::knobs::Knobs;
    use coldpress_sys::Bytes;

    use super::*;
    use crate::budget::Budget;
    use crate::control::Changeable;
    use crate::view;

    fn text_of(program: &str, format: Format) -> String {
        let (budget, knobs) = (Budget::fixed(Bytes::mib(64)), Knobs::default());
        let settings = Changeable { budget, knobs, show_memory: view::Ask::Off };
        let now = Standing { used: Bytes(4711), ..Standing::at_start(settings) };
        let subject = Subject { program: program.to_owned(), process: 7 };
        text(&subject, &now, format)
    }

    /// Returns the families of a text, each with its kind.
    fn families(text: &str) -> Vec<(&str, &str)> {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types.map(|line| line.split_once(' ').unwrap()).collect()
    }

    #[test]
    fn open_metrics_name_families_without_total_and_end() {
        let text = text_of("job", Format::OpenMetrics);
        assert!(text.ends_with("\n# EOF\n") && !text.contains("\n\n"));
        for part in [
            "# TYPE coldpress_used_bytes gauge\n# UNIT coldpress_used_bytes bytes\n\
             coldpress_used_bytes{program=\"job\",pid=\"7\"} 4711\n",
            "# TYPE coldpress_faults counter\n\
             coldpress_faults_total{program=\"job\",pid=\"7\"} 0\n",
            "# UNIT coldpress_stall_seconds seconds\ncoldpress_stall_seconds_total{",
            "# TYPE coldpress_saved_page_seconds counter\n",
            "# TYPE coldpress_huge_blocks_available gauge\n",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn the_format_of_prometheus_names_samples_and_has_no_end() {
        let text = text_of("job", Format::Prometheus);
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"));
        assert!(text.contains("# TYPE coldpress_faults_total counter\ncoldpress_faults_total{"));
        let counters = families(&text).into_iter().filter(|(_, kind)| *kind == "counter");
        assert!(counters.clone().count() > 30);
        assert!(counters.into_iter().all(|(name, _)| name.ends_with("_total")), "{text}");
    }

    #[test]
    fn each_sample_belongs_to_the_family_before_it_and_each_family_is_there_once() {
        for format in [Format::OpenMetrics, Format::Prometheus] {
            let text = text_of("job", format);
            let names: Vec<_> = families(&text).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
            let (mut family, mut samples) = ("", BTreeSet::new());
            for line in text.lines() {
                match line.strip_prefix("# HELP ") {
                    Some(head) => family = head.split(' ').next().unwrap(),
                    None if line.starts_with('#') => {}
                    None => {
                        assert!(line.starts_with(family), "{line} after {family}");
                        assert!(samples.insert(line.rsplit_once(' ').unwrap().0), "{line}");
                    }
                }
            }
            assert!(samples.len() > names.len());
        }
    }

    #[test]
    fn no_name_of_a_program_ends_its_label() {
        let text = text_of("a\"b\\c\nd", Format::OpenMetrics);
        assert!(text.contains("{program=\"a\\\"b\\\\c\\nd\",pid=\"7\"} 4711\n"));
    }
}
