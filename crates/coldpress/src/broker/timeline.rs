//! The timeline of a run: how it stood at moments of the whole run, and what happened.
//!
//! A sample is taken at looks at the tree, so that it wakes nobody: at most ten times a second
//! while anything runs, and once a second while nothing does. The points are on a grid
//! ([`super::grid`]), so a timeline covers a run of any length in a bounded number of them, and of
//! those of its processes ([`super::series`]). What counts events counts from the start of the run:
//! no point that is dropped takes a fault with it. The last point is the end of the run.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use coldpress_runtime::tally::Counter;
use coldpress_sys::Bytes;
use serde_json::{Map, Value, json};

use super::figures::{COUNTERS, GAUGES};
use super::grid::{Grid, nanoseconds};
use super::series::Series;
use super::standing::Standing;
use super::totals::{ratio, rounded};

/// The most points.
const POINTS_MAX: usize = 2000;
/// The most events. One more pushes out the oldest that only says who came or went, if there is
/// one: a build has thousands of these.
const EVENTS_MAX: usize = 500;
/// The longest text of an event.
const TEXT_MAX: usize = 512;

/// The figures of a run of this age.
#[derive(Clone, Debug)]
struct Point {
    age: Duration,
    gauges: [u64; GAUGES.len()],
    counters: [u64; COUNTERS.len()],
}

impl Point {
    fn of(age: Duration, now: &Standing) -> Self {
        let gauges = std::array::from_fn(|index| GAUGES[index].of(now));
        let counters = std::array::from_fn(|index| now.totals.get(COUNTERS[index]));
        Self { age, gauges, counters }
    }

    fn counted(&self, counter: Counter) -> u64 {
        COUNTERS.iter().position(|it| *it == counter).map_or(0, |index| self.counters[index])
    }

    /// Returns the ratio of what was stored until then.
    fn ratio(&self) -> f64 {
        let stored = self.counted(Counter::PagesStored);
        rounded(ratio(stored, self.counted(Counter::BytesStored)))
    }
}

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The budget was changed to this.
    Budget(Bytes),
    /// Knobs were turned, as this text says.
    Knobs(String),
    /// The user was warned, or would have been without `--quiet`.
    Warning(String),
    /// A process of this number and name joined.
    Joined(u32, String),
    /// A process of this number and name left.
    Left(u32, String),
}

impl Event {
    /// Whether the event says only that a process came or went.
    fn is_common(&self) -> bool {
        matches!(self, Self::Joined(..) | Self::Left(..))
    }

    fn document(&self, at: Duration) -> Value {
        let cut = |text: &str| text.chars().take(TEXT_MAX).collect::<String>();
        let (kind, name, value) = match self {
            Self::Budget(bytes) => ("budget", "bytes", bytes.0.into()),
            Self::Knobs(text) => ("knobs", "text", cut(text).into()),
            Self::Warning(text) => ("warning", "text", cut(text).into()),
            Self::Joined(_, name) => ("joined", "name", name.as_str().into()),
            Self::Left(_, name) => ("left", "name", name.as_str().into()),
        };
        let mut document = json!({ "time_ns": nanoseconds(at), "kind": kind });
        document[name] = value;
        if let Self::Joined(process, _) | Self::Left(process, _) = self {
            document["process"] = (*process).into();
        }
        document
    }
}

/// The points and the events of a run.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    began: Instant,
    points: Grid<Point>,
    /// The processes of the run.
    pub(super) series: Series,
    events: VecDeque<(Duration, Event)>,
    events_dropped: u64,
}

impl Timeline {
    /// Makes the timeline of a run that begins now.
    pub(super) fn begin() -> Self {
        Self {
            began: Instant::now(),
            points: Grid::new(POINTS_MAX),
            series: Series::new(),
            events: VecDeque::new(),
            events_dropped: 0,
        }
    }

    /// Returns how old the run is.
    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns whether a point may be taken.
    pub(super) fn is_due(&self) -> bool {
        self.points.is_due(self.age())
    }

    /// Adds a point for a run of this age, which stands as `now`.
    pub(super) fn add(&mut self, age: Duration, now: &Standing) {
        self.points.add(age, Point::of(age, now));
    }

    /// Notes what happened at `at`.
    pub(super) fn note(&mut self, at: Instant, event: Event) {
        if self.events.len() == EVENTS_MAX {
            let oldest = self.events.iter().position(|(_, event)| event.is_common());
            self.events.remove(oldest.unwrap_or(0));
            self.events_dropped += 1;
        }
        self.events.push_back((at.saturating_duration_since(self.began), event));
    }

    /// Returns one JSON object: the figures of all points by name, and the events.
    pub(crate) fn document(&self) -> Value {
        let moments = || self.points.moments.iter();
        let column = |figure: &dyn Fn(&Point) -> Value| moments().map(figure).collect();
        let mut points: Map<String, Value> = Map::new();
        points.insert("time_ns".to_owned(), column(&|point| nanoseconds(point.age).into()));
        points.insert("ratio".to_owned(), column(&|point| point.ratio().into()));
        for (index, gauge) in GAUGES.iter().enumerate() {
            points.insert(gauge.name.to_owned(), column(&|point| point.gauges[index].into()));
        }
        for (index, counter) in COUNTERS.iter().enumerate() {
            points.insert(counter.key().to_owned(), column(&|point| point.counters[index].into()));
        }
        let events = self.events.iter().map(|(at, event)| event.document(*at));
        json!({
            "interval_ms": self.points.interval().as_millis() as u64,
            "points": points,
            "processes": self.series.document(),
            "events": events.collect::<Value>(),
            "events_dropped": self.events_dropped,
        })
    }
}

/// Formats a timeline, which is long: each figure and each event on a line of its own.
pub(crate) fn text_of(timeline: &Value) -> String {
    let line = |(name, value): (&String, &Value)| match value {
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("    \"{name}\": {value}"));
            format!("  \"{name}\": {{\n{}\n  }}", members.collect::<Vec<_>>().join(",\n"))
        }
        Value::Array(values) if !values.is_empty() => {
            let values = values.iter().map(|value| format!("    {value}"));
            format!("  \"{name}\": [\n{}\n  ]", values.collect::<Vec<_>>().join(",\n"))
        }
        _ => format!("  \"{name}\": {value}"),
    };
    let members = timeline.as_object().into_iter().flatten().map(line);
    format!("{{\n{}\n}}", members.collect::<Vec<_>>().join(",\n"))
}

#[cfg(test)]
mod tests {
    //! The risk: a warning is lost among processes, or the timeline tells otherwise than the
    //! report.

    use super::*;
    use crate::budget::Budget;
    use crate::control::Changeable;
    use crate::view;
    use coldpress_runtime::knobs::Knobs;

    fn standing(used: usize) -> Standing {
        let (budget, knobs) = (Budget::fixed(Bytes::mib(64)), Knobs::default());
        let settings = Changeable { budget, knobs, show_memory: view::Ask::Auto };
        Standing { used: Bytes(used), ..Standing::at_start(settings) }
    }

    /// Samples a run of a second, at looks 50 ms apart.
    fn of_a_second() -> Timeline {
        let mut timeline = Timeline::begin();
        for look in 0..=20 {
            let age = Duration::from_millis(50) * look;
            if timeline.points.is_due(age) {
                timeline.add(age, &standing(look as usize));
            }
        }
        timeline
    }

    #[test]
    fn who_comes_and_goes_pushes_out_no_warning() {
        let mut timeline = Timeline::begin();
        let warning = || Event::Warning("x".repeat(2 * TEXT_MAX));
        for process in 0..2 * EVENTS_MAX as u32 {
            timeline.note(Instant::now(), Event::Joined(process, "cc1".to_owned()));
            if process == 3 {
                timeline.note(Instant::now(), warning());
            }
        }
        let document = timeline.document();
        let events = document["events"].as_array().unwrap();
        assert_eq!((events.len(), &document["events_dropped"]), (EVENTS_MAX, &json!(501)));
        assert_eq!(events[0]["text"].as_str().unwrap().len(), TEXT_MAX);
        assert_eq!(events[EVENTS_MAX - 1]["process"], 999);
        for _ in 0..2 * EVENTS_MAX {
            timeline.note(Instant::now(), warning());
        }
        assert_eq!(timeline.events.len(), EVENTS_MAX);
    }

    #[test]
    fn the_text_is_the_document() {
        let mut timeline = of_a_second();
        timeline.note(Instant::now(), Event::Knobs("codec=lzo\n\"x\"".to_owned()));
        let document = timeline.document();
        let text = text_of(&document);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), document);
        assert!(text.lines().any(|line| line.starts_with("    \"used_bytes\": [0,2,4,")), "{text}");
        let figures = document["points"].as_object().unwrap();
        assert_eq!(figures.len(), 2 + GAUGES.len() + COUNTERS.len());
        assert!(figures.values().all(|values| values.as_array().unwrap().len() == 11));
    }
}
