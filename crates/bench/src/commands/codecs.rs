//! `coldpress-bench codecs`: the bytes and times of each codec on the pages of programs.
//!
//! The tables show what coldpress would do with these pages: young pages in WK, and pages that stay
//! in zstd with a dictionary of the program's own pages. Beside them stand all alternatives, groups
//! of neighbouring pages among them.

pub(super) mod options;
pub(super) mod programs;

use std::fs;
use std::path::Path;

use crate::codecs::contest::{Figures, measure as contest};
use crate::codecs::pages::{Pages, read};
use crate::codecs::process::pages_of;
use crate::codecs::sealing::{self, Sealing};
use crate::codecs::subject::{Grouped, Subject};
use crate::codecs::training::{Training, train};
use crate::plot::{Point, svg};
use crate::random::Random;
use crate::report::{Goal, Report, Table};
use crate::statistics::Sample;
use crate::ticks::Stopwatch;
use coldpress_codec::{Codec, CodecId, DEFAULT_DICTIONARY_LEVEL, DictionaryCodec};
use coldpress_common::failure::{Failure, Result};
use coldpress_sys::{Bytes, PAGE_BYTES, Page};
use serde_json::{Value, json};

use super::launch::failed;
use crate::progress::note;
use options::CodecsArgs;

/// The levels of zstd, with and without a dictionary.
const LEVELS: [i32; 5] = [1, 3, DEFAULT_DICTIONARY_LEVEL, 9, 19];
/// The numbers of pages in a group.
const GROUPS: [usize; 2] = [4, 16];
/// The levels of groups: one for young pages and one for pages that stay.
const GROUP_LEVELS: [i32; 2] = [1, DEFAULT_DICTIONARY_LEVEL];

/// The sizes of objects to encrypt: a typical compressed page, and a page as it is.
const SEALED: [Bytes; 2] = [Bytes(1400), Bytes(PAGE_BYTES)];

/// The goals for pages that stay: their bytes relative to LZ4's and to LZO's. The goal is about the
/// kernel's lzo-rle, which makes as many bytes as lzo or up to 3.5 % more.
const OF_LZ4_MAX: f64 = 0.75;
const OF_LZO_MAX: f64 = 0.85;
/// The goal for each call of training, in microseconds: a fault must not wait longer for it.
const TRAINING_US_MAX: f64 = 1000.0;

/// A codec that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Plain(CodecId),
    Trained { level: i32 },
    Grouped { pages: usize, level: i32, is_trained: bool },
}

/// The codec for pages that stay.
const AGED: Which = Which::Trained { level: DEFAULT_DICTIONARY_LEVEL };
/// The codec for young pages.
const WK: Which = Which::Plain(CodecId::Wk);
const LZ4: Which = Which::Plain(CodecId::Lz4);
const LZO: Which = Which::Plain(CodecId::Lzo);

impl Which {
    /// Returns all codecs, in the order of the tables.
    fn all() -> Vec<Self> {
        let mut all = vec![WK, LZ4, LZO];
        all.extend(LEVELS.map(|level| Self::Plain(CodecId::Zstd { level })));
        all.extend(LEVELS.map(|level| Self::Trained { level }));
        for pages in GROUPS {
            for level in GROUP_LEVELS {
                let with = |is_trained| Self::Grouped { pages, level, is_trained };
                all.extend([false, true].map(with));
            }
        }
        all
    }

    fn name(self) -> String {
        match self {
            Self::Plain(id) => id.to_string(),
            Self::Trained { level } => format!("zstd:{level} dictionary"),
            Self::Grouped { pages, level, is_trained } => {
                let dictionary = if is_trained { " dictionary" } else { "" };
                format!("zstd:{level}{dictionary}, groups of {pages}")
            }
        }
    }

    fn subject(self, training: &Training) -> Result<Box<dyn Subject>> {
        let dictionary = &training.dictionary;
        Ok(match self {
            Self::Plain(id) => Box::new(Codec::new(id).map_err(no_codec)?),
            Self::Trained { level } => {
                Box::new(DictionaryCodec::new(level, dictionary.clone()).map_err(no_codec)?)
            }
            Self::Grouped { pages, level, is_trained } => {
                let dictionary = is_trained.then_some(dictionary);
                Box::new(Grouped::new(pages, level, dictionary).map_err(no_codec)?)
            }
        })
    }
}

fn no_codec(error: impl std::fmt::Display) -> Failure {
    failed(format!("no codec: {error}"))
}

/// The figures of all codecs on one program.
struct Case {
    pages: Pages,
    training: Training,
    codecs: Vec<(Which, Figures)>,
}

impl Case {
    fn figures(&self, which: Which) -> Option<&Figures> {
        self.codecs.iter().find(|(other, _)| *other == which).map(|(_, figures)| figures)
    }

    /// Returns the bytes of codec `which` relative to those of codec `of`.
    fn ratio(&self, which: Which, of: Which) -> Option<f64> {
        Some(self.figures(which)?.bytes / self.figures(of)?.bytes)
    }
}

/// Runs the benchmark and returns its report.
pub(super) fn measure(args: &CodecsArgs) -> Result<Report> {
    let most = if args.common.quick { 32 } else { args.count as usize };
    let draw = |text: &str| match &args.svg {
        Some(file) => fs::write(file, text)
            .map_err(|error| failed(format!("cannot write {}: {error}", file.display()))),
        None => Ok(()),
    };
    // Writes the picture's file before minutes of work, so that a file that cannot be written is
    // known at once.
    draw("")?;
    let (kinds, left_out) = collect(args, most)?;
    let watch = Stopwatch::learn();
    let mut cases = Vec::new();
    for pages in kinds {
        note(format!("codecs: {}", pages.name));
        cases.push(case(pages, &watch)?);
    }
    let mut tables: Vec<Table> = cases.iter().map(to_table).collect();
    let all = overall(&cases);
    draw(&picture(&all))?;
    tables.push(frontier(&all));
    tables.push(trainings(&cases));
    let sealings = sealings(&watch)?;
    tables.push(table_of_sealings(&sealings));
    let goals = goals(&cases);
    let about = format!(
        "Pages of programs, {most} at most of each to train a dictionary on and as many others to\n\
         measure; pages of one repeated word are left out. Young pages are in wk, so their loads\n\
         take what wk takes; pages that stay are to be in {}. A load is that of one page: of a\n\
         group, all its pages are decompressed. Groups are those of libzstd with any memory it\n\
         wants.{left_out}",
        AGED.name()
    );
    let numbers = json!({
        "pages_max": most,
        "programs": cases.iter().map(to_json).collect::<Vec<_>>(),
        "sealing": sealings.iter().map(sealing_to_json).collect::<Vec<_>>(),
    });
    Ok(Report { name: "codecs", about, tables, goals, numbers })
}

/// Returns the pages that the user named, or those of programs and of a model; and a text that
/// names what is missing.
fn collect(args: &CodecsArgs, most: usize) -> Result<(Vec<Pages>, String)> {
    // Some pages hold one repeated word, and half of the rest is for training.
    let wanted = most * 3;
    let (mut kinds, mut left_out) = (Vec::new(), Vec::new());
    let mut add = |name: &str, pages: std::result::Result<Vec<Page>, String>| {
        let split = pages.map(|pages| Pages::split(name, &pages, most));
        match split {
            Ok(pages) if pages.is_enough() => kinds.push(pages),
            Ok(_) => left_out.push(format!("{name} (too few pages)")),
            Err(error) => left_out.push(format!("{name} ({error})")),
        }
    };
    if args.pages.is_empty() && args.pid.is_empty() {
        programs::each(wanted, &mut add);
        kinds.push(Pages::text(most));
    } else {
        for path in &args.pages {
            let (name, pages) = read(path).map_err(|error| unreadable(path, &error))?;
            add(&name, Ok(pages));
        }
        for pid in &args.pid {
            let pages = pages_of(*pid, wanted, &mut Random::new(5));
            add(&format!("process {pid}"), Ok(pages.map_err(|error| not_ours(*pid, &error))?));
        }
    }
    if kinds.is_empty() {
        return Err(failed(format!("no pages to measure: {}", left_out.join(", "))));
    }
    let left_out = match &left_out[..] {
        [] => String::new(),
        left_out => format!("\nLeft out: {}.", left_out.join(", ")),
    };
    Ok((kinds, left_out))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    failed(format!("{}: {error}", path.display()))
}

fn not_ours(pid: u32, error: &std::io::Error) -> Failure {
    failed(format!("cannot read the pages of process {pid}: {error}"))
}

/// Measures all codecs on one program.
fn case(pages: Pages, watch: &Stopwatch) -> Result<Case> {
    let name = &pages.name;
    let training = train(&pages.train, DEFAULT_DICTIONARY_LEVEL, watch).map_err(no_codec)?;
    let training = training.ok_or_else(|| failed(format!("pages of {name} have nothing alike")))?;
    let mut codecs = Vec::new();
    for which in Which::all() {
        let figures = contest(&mut *which.subject(&training)?, &pages.test, watch);
        let wrong = || failed(format!("{}: a page of {name} came back wrong", which.name()));
        codecs.push((which, figures.ok_or_else(wrong)?));
    }
    Ok(Case { pages, training, codecs })
}

fn to_table(case: &Case) -> Table {
    let title = format!("{}, {} pages", case.pages.name, case.pages.test.len());
    let mut table = Table::new(&[
        &title,
        "bytes",
        "ratio",
        "of lz4",
        "of lzo",
        "raw",
        "store p50",
        "p99",
        "load p50",
        "p99",
    ]);
    for (which, figures) in &case.codecs {
        let share =
            |of| case.ratio(*which, of).map_or_else(String::new, |share| format!("{share:.3}"));
        let us = |sample: &Sample, percent| format!("{:.1}", sample.percentile(percent));
        table.row(vec![
            which.name(),
            format!("{:.0}", figures.bytes),
            format!("{:.2}", 4096.0 / figures.bytes),
            share(LZ4),
            share(LZO),
            figures.raw.to_string(),
            us(&figures.store_us, 50.0),
            us(&figures.store_us, 99.0),
            us(&figures.load_us, 50.0),
            us(&figures.load_us, 99.0),
        ]);
    }
    table
}

/// The figures of a codec over all programs: means of ratios and times.
struct Overall {
    which: Which,
    of_lz4: f64,
    of_lzo: f64,
    store_us: f64,
    load_us: f64,
    /// Whether no other codec beats this one in both bytes and load time.
    is_frontier: bool,
}

/// Returns the figures of each codec over all programs.
fn overall(cases: &[Case]) -> Vec<Overall> {
    let mean = |figure: &dyn Fn(&Case) -> Option<f64>| {
        let logs: Vec<f64> = cases.iter().filter_map(figure).map(f64::ln).collect();
        (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
    };
    let mut all: Vec<Overall> = Which::all()
        .into_iter()
        .map(|which| Overall {
            which,
            of_lz4: mean(&|case| case.ratio(which, LZ4)),
            of_lzo: mean(&|case| case.ratio(which, LZO)),
            store_us: mean(&|case| Some(case.figures(which)?.store_us.median())),
            load_us: mean(&|case| Some(case.figures(which)?.load_us.median())),
            is_frontier: false,
        })
        .collect();
    let figures: Vec<[f64; 2]> = all.iter().map(|one| [one.of_lz4, one.load_us]).collect();
    for (index, one) in all.iter_mut().enumerate() {
        let is_beaten = figures.iter().enumerate().any(|(other, [size, load])| {
            other != index && *size <= one.of_lz4 && *load <= one.load_us
        });
        one.is_frontier = !is_beaten;
    }
    all
}

/// Returns the table of all codecs, which marks those worth considering.
fn frontier(all: &[Overall]) -> Table {
    let mut table =
        Table::new(&["all programs", "of lz4", "of lzo", "store p50", "load p50", "frontier"]);
    for one in all {
        table.row(vec![
            one.which.name(),
            format!("{:.3}", one.of_lz4),
            format!("{:.3}", one.of_lzo),
            format!("{:.1}", one.store_us),
            format!("{:.1}", one.load_us),
            if one.is_frontier { "*" } else { "" }.to_owned(),
        ]);
    }
    table
}

/// Returns the same as a picture, with names for the codecs on the frontier only.
fn picture(all: &[Overall]) -> String {
    let point = |one: &Overall| Point {
        name: if one.is_frontier { one.which.name() } else { String::new() },
        x: one.load_us,
        y: one.of_lz4,
        is_marked: one.is_frontier,
    };
    let points: Vec<Point> = all.iter().map(point).collect();
    let axes = ["us to load one page, p50, mean of programs", "bytes, by those of lz4"];
    svg("Codecs: bytes and the time of a load; none beats those in red in both", axes, &points)
}

fn trainings(cases: &[Case]) -> Table {
    let mut table = Table::new(&[
        "training",
        "bytes",
        "offers",
        "p50 us",
        "most",
        "steps",
        "p50 us",
        "most",
        "adopt us",
        "trainer KiB",
        "codec KiB",
    ]);
    for Case { pages, training, .. } in cases {
        let Training { dictionary, offers, steps, offer_us, step_us, adopt_us, .. } = training;
        let us = |us: f64| format!("{us:.1}");
        table.row(vec![
            pages.name.clone(),
            dictionary.content().len().to_string(),
            offers.to_string(),
            us(offer_us.median()),
            us(offer_us.most()),
            steps.to_string(),
            us(step_us.median()),
            us(step_us.most()),
            us(*adopt_us),
            (training.trainer.0 >> 10).to_string(),
            (training.codec.0 >> 10).to_string(),
        ]);
    }
    table
}

/// Measures the cost of encryption.
fn sealings(watch: &Stopwatch) -> Result<Vec<Sealing>> {
    let measure = |length| match sealing::measure(length, watch) {
        Ok(Some(sealing)) => Ok(sealing),
        Ok(None) => Err(failed("an encrypted object came back wrong".to_owned())),
        Err(error) => Err(failed(format!("nothing can be encrypted: {error}"))),
    };
    SEALED.into_iter().map(measure).collect()
}

fn table_of_sealings(sealings: &[Sealing]) -> Table {
    let mut table =
        Table::new(&["encryption for the disk, bytes", "seal p50 ns", "p99", "open p50 ns", "p99"]);
    for Sealing { length, seal_ns, open_ns } in sealings {
        let ns = |sample: &Sample, percent| format!("{:.0}", sample.percentile(percent));
        table.row(vec![
            length.0.to_string(),
            ns(seal_ns, 50.0),
            ns(seal_ns, 99.0),
            ns(open_ns, 50.0),
            ns(open_ns, 99.0),
        ]);
    }
    table
}

fn sealing_to_json(sealing: &Sealing) -> Value {
    let Sealing { length, seal_ns, open_ns } = sealing;
    let ns = |sample: &Sample| json!({ "p50": sample.median(), "p99": sample.percentile(99.0) });
    json!({ "bytes": length.0, "seal_ns": ns(seal_ns), "open_ns": ns(open_ns) })
}

fn goals(cases: &[Case]) -> Vec<Goal> {
    let size = |of: Which, most: f64| {
        let ratios = cases.iter().filter_map(|case| Some((case.ratio(AGED, of)?, case)));
        let (worst, case) = ratios.max_by(|one, other| one.0.total_cmp(&other.0))?;
        Some(Goal {
            text: format!(
                "pages that stay take at least {:.0} % less than in {}, of every program",
                100.0 * (1.0 - most),
                of.name()
            ),
            found: format!("at worst {:.1} % less ({})", 100.0 * (1.0 - worst), case.pages.name),
            met: worst <= most,
        })
    };
    let longest = |training: &Training| {
        training
            .offer_us
            .percentile(99.0)
            .max(training.step_us.percentile(99.0))
            .max(training.adopt_us)
    };
    let slowest = cases.iter().map(|case| longest(&case.training)).fold(0.0, f64::max);
    let training = Goal {
        text: format!("each call of training takes at most {TRAINING_US_MAX} us at p99"),
        found: format!("at worst {slowest:.0} us"),
        met: slowest <= TRAINING_US_MAX,
    };
    [size(LZ4, OF_LZ4_MAX), size(LZO, OF_LZO_MAX), Some(training)].into_iter().flatten().collect()
}

fn to_json(case: &Case) -> Value {
    let us = |sample: &Sample| {
        json!({
            "p50": sample.percentile(50.0),
            "p99": sample.percentile(99.0),
            "most": sample.most(),
            "mean": sample.mean(),
        })
    };
    let codec = |(which, figures): &(Which, Figures)| {
        json!({
            "codec": which.name(),
            "bytes": figures.bytes,
            "raw_pages": figures.raw,
            "of_lz4": case.ratio(*which, LZ4),
            "of_lzo": case.ratio(*which, LZO),
            "store_us": us(&figures.store_us),
            "load_us": us(&figures.load_us),
        })
    };
    let Case { pages, training, codecs } = case;
    json!({
        "program": pages.name,
        "pages": pages.test.len(),
        "training_pages": pages.train.len(),
        "same_filled_pages": pages.same_filled,
        "codecs": codecs.iter().map(codec).collect::<Vec<_>>(),
        "training": {
            "dictionary_bytes": training.dictionary.content().len(),
            "offer_us": us(&training.offer_us),
            "step_us": us(&training.step_us),
            "adopt_us": training.adopt_us,
            "trainer_bytes": training.trainer.0,
            "codec_bytes": training.codec.0,
        },
    })
}
