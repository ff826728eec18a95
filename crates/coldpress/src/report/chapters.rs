//! The pictures of a report: of which figures each is made, and in which words.

use coldpress_common::size::show;
use coldpress_zswap::SIZE_CLASS_BYTES;

use super::curve::{Curve, Forecast};
use super::figures::{self, Class, Figures, Points};
use super::picture::{Drawing, Picture, Series, Table};
use super::scale::{Base, Scale};
use super::words::{self, count, of, percent, size, time};

/// The most moments in a picture: a pixel each on a telephone.
const MOMENTS_MAX: usize = 300;
/// The most spans of a run of which rates are told.
const SPANS_MAX: u64 = 40;
/// The most rows of a table.
const ROWS_MAX: usize = 60;
const NS: f64 = 1e9;
/// How a value is written.
type Text = fn(f64) -> String;

/// Some moments of a timeline: each stands for those since the one before it.
pub(super) struct Moments<'a> {
    points: &'a Points,
    at: Vec<usize>,
}

impl<'a> Moments<'a> {
    /// Chooses moments: of neighbours that would lie on one place, the one that held most, and the
    /// end, which has all that was counted.
    pub(super) fn of(figures: &'a Figures) -> Self {
        let points = &figures.run.timeline.points;
        let all: Vec<_> = (0..points.count()).collect();
        let together = all.len().div_ceil(MOMENTS_MAX).max(1);
        let most = |some: &[usize]| some.iter().copied().max_by_key(|at| points.used_bytes[*at]);
        let mut at: Vec<_> = all.chunks(together).filter_map(most).collect();
        at.extend(all.last().filter(|end| at.last() != Some(end)));
        Self { points, at }
    }

    /// Returns whether there is too little to draw.
    pub(super) fn is_point(&self) -> bool {
        self.at.len() < 2
    }

    fn seconds(&self) -> Vec<f64> {
        self.at.iter().map(|at| self.points.time_ns[*at] as f64 / NS).collect()
    }

    fn across(&self) -> Scale {
        let seconds = self.seconds();
        let most = seconds.iter().copied().fold(0.0, f64::max);
        let least = seconds.iter().copied().fold(most, f64::min);
        Scale::below(least, most, Base::Ten, words::seconds)
    }

    fn values(&self, of: impl Fn(usize) -> u64) -> Vec<f64> {
        self.at.iter().map(|at| of(*at) as f64).collect()
    }

    /// Returns how fast a counter grew before each moment, by the second. Processes tell now and
    /// then what they have counted, so this looks back over a part of the run. Before the first
    /// moment nothing is known.
    fn rates(&self, counter: &[u64]) -> Vec<f64> {
        let times = &self.points.time_ns;
        let lasted =
            times.last().zip(times.first()).map_or(0, |(end, first)| end.saturating_sub(*first));
        let rate = |at: &usize| {
            let since = times[*at].saturating_sub(lasted / SPANS_MAX);
            let before = times.partition_point(|time| *time <= since).saturating_sub(1).min(*at);
            let passed = times[*at].saturating_sub(times[before]) as f64 / NS;
            let grown = counter[*at].saturating_sub(counter[before]) as f64;
            if passed > 0.0 { grown / passed } else { 0.0 }
        };
        self.at.iter().map(rate).collect()
    }

    /// Returns some rows of a table: the time, and each series' text at it.
    fn table(&self, series: &[&Series], text: Text) -> Table {
        let every = self.at.len().div_ceil(ROWS_MAX).max(1);
        let seconds = self.seconds();
        let row = |at: usize| {
            let values = series.iter().map(|series| text(series.values[at]));
            std::iter::once(time((seconds[at] * NS) as u64)).chain(values).collect()
        };
        let rows: Vec<Vec<_>> = (0..self.at.len()).rev().step_by(every).map(row).collect();
        let (shown, all) = (rows.len(), self.points.count());
        let heads = std::iter::once("time".to_owned());
        Table {
            heads: heads.chain(series.iter().map(|series| series.name.clone())).collect(),
            rows: rows.into_iter().rev().collect(),
            note: if shown < all {
                format!("{shown} of {all} moments; --stats has them all.")
            } else {
                String::new()
            },
        }
    }

    /// Returns a picture of what was there at each moment.
    fn picture(
        &self,
        [id, title]: [&'static str; 2],
        description: String,
        areas: Vec<Series>,
        lines: Vec<Series>,
        (base, text, beside): (Base, Text, Text),
    ) -> Picture {
        let height = |at: usize| areas.iter().map(|area| area.values[at]).sum::<f64>();
        let areas_most = (0..self.at.len()).map(height).fold(0.0, f64::max);
        let lines_most = lines.iter().flat_map(|line| line.values.iter().copied());
        let most = lines_most.fold(areas_most, f64::max);
        let series: Vec<_> = areas.iter().chain(&lines).collect();
        let table = self.table(&series, text);
        let up = Scale::new(0.0, most * 1.04, base, beside);
        let (across, xs) = (self.across(), self.seconds());
        let drawing = Drawing::Curves { across, up, xs, areas, lines };
        Picture { id, title: title.to_owned(), description, drawing, table }
    }
}

fn series(name: &str, class: &'static str, values: Vec<f64>) -> Series {
    Series { name: name.to_owned(), class, values }
}

fn bytes_text(bytes: f64) -> String {
    size(figures::bytes(bytes as u64))
}

fn count_text(number: f64) -> String {
    count(number as u64)
}

/// Leaves out what is zero at all moments.
fn some(series: Vec<Series>) -> Vec<Series> {
    series.into_iter().filter(|it| it.values.iter().any(|value| *value > 0.0)).collect()
}

/// Memory that was held, against the budget.
pub(super) fn held(figures: &Figures, moments: &Moments<'_>) -> Picture {
    let points = moments.points;
    let areas = some(vec![
        series("in place", "place", moments.values(|at| points.resident_bytes[at])),
        series("just taken", "limbo", moments.values(|at| points.limbo_bytes[at])),
        series("compressed", "pool", moments.values(|at| points.pool_held_bytes[at])),
        series("shared", "shared", moments.values(|at| points.shared_bytes[at])),
        series("not managed", "unmanaged", moments.values(|at| points.unmanaged_bytes[at])),
        series("other and our own", "other", moments.values(|at| points.other(at))),
    ]);
    let budget = series("budget", "budget", moments.values(|at| points.budget_bytes[at]));
    let description = format!(
        "Areas upon each other over time, and the budget as a line. At most {} were held.",
        show(figures.peak())
    );
    let title = ["held", "Memory held, against the budget"];
    moments.picture(title, description, areas, vec![budget], (Base::Binary, bytes_text, bytes_text))
}

/// Memory that the program asked for, by where it lay.
pub(super) fn asked(figures: &Figures, moments: &Moments<'_>) -> Picture {
    let points = moments.points;
    let areas = some(vec![
        series("in place", "place", moments.values(|at| points.resident_bytes[at])),
        series("just taken", "limbo", moments.values(|at| points.limbo_bytes[at])),
        series("compressed", "pool", moments.values(|at| points.away(at)[0])),
        series("on disk", "disk", moments.values(|at| points.away(at)[1])),
        series("shared", "shared", moments.values(|at| points.shared_bytes[at])),
        series("not managed", "unmanaged", moments.values(|at| points.unmanaged_bytes[at])),
    ]);
    let budget = series("budget", "budget", moments.values(|at| points.budget_bytes[at]));
    let description = format!(
        "Areas upon each other over time: pages by where they lay, before compression. At most {} \
         were asked for.",
        show(figures.asked())
    );
    let title = ["asked", "Memory asked for, by where it lay"];
    moments.picture(title, description, areas, vec![budget], (Base::Binary, bytes_text, bytes_text))
}

/// Faults by the second.
pub(super) fn faults(figures: &Figures, moments: &Moments<'_>) -> Picture {
    let points = moments.points;
    let areas = some(vec![
        series("first touches", "first-touch", moments.rates(&points.first_touch_faults)),
        series("pages just taken", "limbo", moments.rates(&points.limbo_faults)),
        series("pages compressed or on disk", "pool", moments.rates(&points.major_faults)),
    ]);
    let description = format!(
        "Areas upon each other over time. There were {} faults, {} of them on pages that were \
         compressed or on disk.",
        count(figures.faults.all),
        count(figures.faults.major)
    );
    let title = ["faults", "Faults a second"];
    moments.picture(title, description, areas, Vec::new(), (Base::Ten, count_text, words::short))
}

/// Waits over time.
pub(super) fn stall(figures: &Figures, moments: &Moments<'_>) -> Picture {
    let part = moments.rates(&moments.points.stall_ns).into_iter().map(|rate| rate / NS).collect();
    let areas = vec![series("waiting for pages", "pool", part)];
    let description = format!(
        "An area over time. In all, threads waited {} in a run of {}.",
        time(figures.faults.stall_ns),
        time(figures.run.wall_ns)
    );
    let title = ["stall", "Waits for pages of all threads together, by the time that passed"];
    moments.picture(title, description, areas, Vec::new(), (Base::Ten, percent, percent))
}

/// Where the time went.
pub(super) fn parts(figures: &Figures) -> Picture {
    let faults = &figures.faults;
    let kinds = [
        ("waiting: pages just taken", "limbo", faults.limbo_stall_ns),
        ("waiting: compressed pages", "pool", faults.pool_stall_ns),
        ("waiting: pages on disk", "disk", faults.disk_stall_ns),
        ("waiting: the turn of a process", "unmanaged", Some(faults.turn_wait_ns)),
    ];
    let known: u64 = kinds.iter().filter_map(|kind| kind.2).fold(0, u64::saturating_add);
    let rest = faults.stall_ns.saturating_sub(known);
    // Statistics of an older build have no kinds.
    let of_rest = match faults.pool_stall_ns {
        Some(_) => "waiting: all else",
        None => "waiting for pages",
    };
    // Where threads waited at one time, nothing tells how long the program did not wait.
    let alone = figures.run.wall_ns.checked_sub(faults.stall_ns).filter(|_| !figures.is_several());
    let all = [("the program", "place", alone)]
        .into_iter()
        .chain(kinds)
        .chain([(of_rest, "first-touch", Some(rest))])
        .filter_map(|(name, class, ns)| Some((name, class, ns.filter(|ns| *ns > 0)?)));
    let whole = alone.map_or(faults.stall_ns, |_| figures.run.wall_ns).max(1) as f64;
    let words = |ns: u64| format!("{} ({})", time(ns), percent(ns as f64 / whole));
    let parts: Vec<_> =
        all.map(|(name, class, ns)| (series(name, class, vec![ns as f64]), words(ns))).collect();
    let rows = parts.iter().map(|(part, words)| vec![part.name.clone(), words.clone()]).collect();
    let list: Vec<_> =
        parts.iter().map(|(part, words)| format!("{}: {words}", part.name)).collect();
    Picture {
        id: "parts",
        title: match alone {
            Some(_) => "Where the time went".to_owned(),
            None => "What threads waited for".to_owned(),
        },
        description: format!("One bar in parts. {}.", list.join("; ")),
        drawing: Drawing::Parts(parts),
        table: Table {
            heads: vec!["part".to_owned(), "time".to_owned()],
            rows,
            note: String::new(),
        },
    }
}

/// What a histogram counts, and how it is told.
struct Kind {
    id: &'static str,
    title: &'static str,
    class: &'static str,
    /// How a value of a class stands to the bound of the class.
    bound: &'static str,
    unit: [&'static str; 2],
    text: fn(u64) -> String,
    /// The classes that the statistics may have: they leave out those without an entry.
    next: fn(u64) -> u64,
}

fn histogram(kind: &Kind, classes: &[Class]) -> Option<Picture> {
    let (first, last) = (classes.first()?, classes.last()?);
    let mut all: Vec<Class> = vec![*first];
    while let Some(end) = all.last().map(|class| class.below).filter(|end| *end < last.below) {
        let below = (kind.next)(end).max(end + 1);
        let known = classes.iter().find(|class| class.below > end && class.below <= below);
        all.push(Class { below, count: known.map_or(0, |class| class.count) });
        if all.len() > ROWS_MAX {
            return None;
        }
    }
    let values: Vec<_> = all.iter().map(|class| class.count as f64).collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    let sum = all.iter().fold(0, |sum: u64, class| sum.saturating_add(class.count));
    let rows = all.iter().map(|class| vec![(kind.text)(class.below), count(class.count)]).collect();
    Some(Picture {
        id: kind.id,
        title: kind.title.to_owned(),
        description: format!(
            "A histogram of {}, from {} to {}.",
            of(sum, kind.unit[0], kind.unit[1]),
            (kind.text)(first.below),
            (kind.text)(last.below)
        ),
        drawing: Drawing::Bars {
            up: Scale::new(0.0, most * 1.04, Base::Ten, words::short),
            labels: all.iter().map(|class| (kind.text)(class.below)).collect(),
            bars: Series { name: kind.unit[1].to_owned(), class: kind.class, values },
        },
        table: Table {
            heads: vec![kind.bound.to_owned(), kind.unit[1].to_owned()],
            rows,
            note: String::new(),
        },
    })
}

/// How well pages compressed, how old they became, and how long faults took.
pub(super) fn histograms(figures: &Figures) -> Vec<Picture> {
    let all = &figures.run.histograms;
    let twice: fn(u64) -> u64 = |below| below.saturating_mul(2);
    let age: fn(u64) -> String = |ms| words::brief(ms.saturating_mul(1_000_000));
    let bytes: fn(u64) -> String = |bytes| count(bytes.saturating_sub(1));
    let pages = ["page", "pages"];
    [
        (
            Kind {
                id: "sizes",
                title: "Pages by their bytes after compression: up to each",
                class: "pool",
                bound: "up to",
                unit: pages,
                text: bytes,
                next: |below| below.saturating_add(SIZE_CLASS_BYTES as u64),
            },
            &all.stored_size,
        ),
        (
            Kind {
                id: "ages",
                title: "Pages that came back from the pool, by their time there: below each",
                class: "place",
                bound: "below",
                unit: pages,
                text: age,
                next: twice,
            },
            &all.loaded_age_ms,
        ),
        (
            Kind {
                id: "flushed",
                title: "Pages that went on to the disk, by their time in the pool: below each",
                class: "disk",
                bound: "below",
                unit: pages,
                text: age,
                next: twice,
            },
            &all.flushed_age_ms,
        ),
        (
            Kind {
                id: "latencies",
                title: "Faults by how long they took: below each",
                class: "first-touch",
                bound: "below",
                unit: ["fault", "faults"],
                text: words::brief,
                next: twice,
            },
            &all.fault_ns,
        ),
    ]
    .iter()
    .filter_map(|(kind, classes)| histogram(kind, classes))
    .collect()
}

/// The expected time against the budget.
pub(super) fn curve(curve: &Curve) -> Option<Picture> {
    let (first, last) = (curve.forecasts.first()?, curve.forecasts.last()?);
    let xs: Vec<_> = curve.forecasts.iter().map(|it| it.budget.0 as f64).collect();
    let values: Vec<_> = curve.forecasts.iter().map(|it| it.time_ns).collect();
    let row = |it: &Forecast| {
        vec![words::size(it.budget), time(it.time_ns as u64), time(it.stall_ns as u64)]
    };
    let every = curve.forecasts.len().div_ceil(ROWS_MAX / 4).max(1);
    Some(Picture {
        id: "curve",
        title: "Expected time against the budget".to_owned(),
        description: format!(
            "A falling line, from {} with {} to {} with {}.",
            time(first.time_ns as u64),
            size(first.budget),
            time(last.time_ns as u64),
            size(last.budget)
        ),
        drawing: Drawing::Curves {
            across: Scale::below(xs[0], last.budget.0 as f64, Base::Binary, bytes_text),
            up: Scale::new(0.0, first.time_ns * 1.04, Base::Ten, |ns| words::seconds(ns / NS)),
            xs,
            areas: Vec::new(),
            lines: vec![series("expected time", "pool", values)],
        },
        table: Table {
            heads: ["budget", "time", "waiting"].map(str::to_owned).to_vec(),
            rows: curve.forecasts.iter().step_by(every).map(row).collect(),
            note: String::new(),
        },
    })
}

#[cfg(test)]
mod tests {
    //! The risk: a picture leaves out the moment that held most, or shows a rate that never was.

    use serde_json::json;

    use super::super::example;
    use super::*;

    /// A run of points a tenth of a second apart, which ends right after its last one. It holds
    /// most at its second-last point, and waits a half of the time.
    fn long(count: u64) -> Figures {
        let mut document = example::document();
        let tenth = 100_000_000;
        let mut times: Vec<u64> = (5..count + 4).map(|point| point * tenth).collect();
        times.push(times[times.len() - 1] + 1000);
        let points = document["timeline"]["points"].as_object_mut().unwrap();
        for column in points.values_mut() {
            *column = json!(vec![1; times.len()]);
        }
        points["stall_ns"] = times.iter().map(|time| time / 2).collect();
        points["time_ns"] = json!(times);
        points["used_bytes"][times.len() - 2] = json!(9);
        Figures::read(&document.to_string()).unwrap()
    }

    #[test]
    fn the_moment_that_held_most_is_shown_and_so_is_the_end() {
        for count in [2, 3, 40, 299, 300, 301, 1999, 2000] {
            let figures = long(count);
            let moments = Moments::of(&figures);
            let used = moments.values(|at| figures.run.timeline.points.used_bytes[at]);
            assert!(used.contains(&9.0), "{count}: {used:?}");
            assert_eq!(moments.at.last(), Some(&(count as usize - 1)));
            assert!(used.len() <= MOMENTS_MAX + 1, "{count}: {}", used.len());
        }
    }

    #[test]
    fn rates_are_those_of_the_counter_from_the_first_moment_to_the_end() {
        for count in [3, 40, 2000] {
            let figures = long(count);
            let rates = Moments::of(&figures).rates(&figures.run.timeline.points.stall_ns);
            let (first, others) = rates.split_first().unwrap();
            assert!([0.0, 0.5 * NS].contains(first), "{count}: {first}");
            let wrong = others.iter().find(|rate| (**rate - 0.5 * NS).abs() > 1e3);
            assert_eq!(wrong, None, "{count}");
        }
    }
}
