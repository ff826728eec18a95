//! T1, the table of the mail on xcfmalloc: zero-filled pages, and text that LZO1X compresses to 75
//! %.
//!
//! The mail's pools held more than compressed bytes. zcache put a header of 36 bytes before them
//! (`struct zv_hdr` in its 32-bit layout), and the kernel's LZO makes at least 44 bytes, because it
//! does not look for matches in the last 20. So each row appears twice: as in coldpress, and as in
//! the mail. The latter is compared with the mail's figures. The mail rejected pages above 7/8;
//! they are left out here.

use std::time::Duration;

use crate::pools::fill::Fill;
use crate::pools::sizes::Sizes;
use crate::pools::store::footprint;
use crate::pools::{Kind, PoolStats};
use crate::report::{Goal, Table};
use coldpress_common::failure::Result;
use coldpress_sys::PAGE_BYTES;
use serde_json::{Value, json};

use super::{Bench, Measured, row, table, traces};
use crate::commands::launch::failed;

/// The trace of the text, when the user gives one.
const TEXT: (&str, &str) = ("text75", "lzo1x");
/// The largest compressed page that is stored: `zv_max_zsize` in the mail.
const SIZE_MAX: u16 = (7 * PAGE_BYTES / 8) as u16;
/// The size of the header: pool number, object number of three words, index and sentinel.
const HEAD_BYTES: u16 = 4 + 24 + 4 + 4;
/// The size that the kernel's LZO makes of a page of zeros.
const ZERO_BYTES: u16 = 44;
/// The most by which our figures may differ from the mail's, in percentage points.
const NEAR: f64 = 0.7;
/// The figures of the mail: pool, contents, effective compression in percent.
const PUBLISHED: [(&str, Contents, f64); 4] = [
    ("xvmalloc", Contents::Zero, 1.93),
    ("xvmalloc", Contents::Text, 99.95),
    ("xcfmalloc", Contents::Zero, 3.72),
    ("xcfmalloc", Contents::Text, 78.11),
];
/// The goals without the header, with our LZO.
const GOALS: [(&str, Contents, f64); 3] = [
    ("zsmalloc-16", Contents::Text, 77.5),
    ("segment", Contents::Text, 76.3),
    ("segment", Contents::Zero, 1.6),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    Zero,
    Text,
}

impl Contents {
    fn name(self) -> &'static str {
        match self {
            Self::Zero => "zero-filled",
            Self::Text => "text",
        }
    }
}

/// One line of the table.
struct Line {
    kind: Kind,
    contents: Contents,
    is_mail: bool,
    stats: PoolStats,
    time: Duration,
}

impl Line {
    /// Returns the pages of the pool, with everything it takes, relative to the pages stored; in
    /// percent.
    fn effective(&self) -> f64 {
        100.0 * footprint(&self.stats).0 as f64 / (self.stats.objects * PAGE_BYTES) as f64
    }
}

/// Measures T1.
pub(super) fn measure(bench: &Bench) -> Result<Measured> {
    let zero = Sizes {
        corpus: "zero".to_owned(),
        codec: TEXT.1.to_owned(),
        sizes: vec![traces::compressed(&[0; PAGE_BYTES])?],
    };
    let given = bench.traces.iter().find(|trace| (&*trace.corpus, &*trace.codec) == TEXT);
    let mut text = given.map_or_else(|| traces::text(&bench.scale), |trace| Ok(trace.clone()))?;
    text.sizes.retain(|size| *size <= SIZE_MAX);
    if text.sizes.is_empty() {
        return Err(failed(format!("{}: no page shrinks to {SIZE_MAX} bytes", text.name())));
    }
    let (mut lines, mut tables) = (Vec::new(), Vec::new());
    for (contents, sizes) in [(Contents::Zero, &zero), (Contents::Text, &text)] {
        for is_mail in [false, true] {
            let mut sizes = sizes.repeated(bench.scale.mail);
            if is_mail {
                sizes.iter_mut().for_each(|size| *size = HEAD_BYTES + ZERO_BYTES.max(*size));
            }
            let first = lines.len();
            for kind in &bench.pools {
                let work = Fill { sizes: &sizes, with_classes: false };
                let filled = bench.run(*kind, sizes.len(), work)?;
                let (stats, time) = (filled.stats, filled.time);
                lines.push(Line { kind: *kind, contents, is_mail, stats, time });
            }
            let bytes = sizes.iter().map(|size| f64::from(*size)).sum::<f64>() / sizes.len() as f64;
            let how = if is_mail { " as in the mail" } else { "" };
            let title = format!("T1: {}, {bytes:.0} bytes{how}", contents.name());
            tables.push(to_table(&title, &lines[first..]));
        }
    }
    let about = format!(
        "the mail's program: pages stored, pages of the pool and of its metadata, and both by\n\
         pages stored; the time of storing alone. Same-filled pages are not detected. Text: {}.\n\
         \"As in the mail\": with zcache's head of {HEAD_BYTES} bytes, and {ZERO_BYTES} bytes for \
         zeros, by the\nkernel's LZO; it had, with 32-bit descriptors and no handles, xvmalloc\n\
         1.93 % and 99.95 %, xcfmalloc 3.72 % and 78.11 %.",
        text.name()
    );
    let goals = published(&lines).chain(goals(&lines)).collect();
    Ok(Measured { about, tables, goals, numbers: lines.iter().map(to_json).collect() })
}

fn to_table(title: &str, lines: &[Line]) -> Table {
    let columns = ["pages stored", "pool pages", "metadata", "effective", "without metadata", "ms"];
    let mut table = table(title, columns);
    for line in lines {
        let PoolStats { objects, frames, metadata, .. } = line.stats;
        let cells = [
            objects.to_string(),
            frames.0.to_string(),
            metadata.pages_up().0.to_string(),
            format!("{:.2} %", line.effective()),
            format!("{:.2} %", 100.0 * frames.0 as f64 / objects.max(1) as f64),
            format!("{:.1}", 1e3 * line.time.as_secs_f64()),
        ];
        table.row(row(line.kind.name(), cells));
    }
    table
}

fn find<'l>(lines: &'l [Line], pool: &str, contents: Contents, is_mail: bool) -> Option<&'l Line> {
    lines.iter().find(|line| {
        line.kind.name() == pool && line.contents == contents && line.is_mail == is_mail
    })
}

/// Returns the goals that the mail's pools come out as in the mail.
fn published(lines: &[Line]) -> impl Iterator<Item = Goal> {
    PUBLISHED.into_iter().filter_map(|(pool, contents, percent)| {
        let found = find(lines, pool, contents, true)?.effective();
        let (text, off) = (contents.name(), found - percent);
        Some(Goal {
            text: format!("T1: {pool}, {text}: within {NEAR} points of the mail's {percent} %"),
            found: format!("{found:.2} % with its head, {off:+.2}"),
            met: off.abs() <= NEAR,
        })
    })
}

fn goals(lines: &[Line]) -> impl Iterator<Item = Goal> {
    GOALS.into_iter().filter_map(|(pool, contents, percent)| {
        let found = find(lines, pool, contents, false)?.effective();
        Some(Goal {
            text: format!("T1: {pool}, {}: at most {percent} %, with metadata", contents.name()),
            found: format!("{found:.2} %"),
            met: found <= percent,
        })
    })
}

fn to_json(line: &Line) -> Value {
    json!({
        "pool": line.kind.name(),
        "contents": line.contents.name(),
        "is_mail": line.is_mail,
        "pages_stored": line.stats.objects,
        "bytes_stored": line.stats.bytes_stored.0,
        "pool_pages": line.stats.frames.0,
        "metadata_bytes": line.stats.metadata.0,
        "effective_percent": line.effective(),
        "ns": line.time.as_nanos() as u64,
    })
}
