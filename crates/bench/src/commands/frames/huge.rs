//! The table of the mail on fragmentation: the huge pages available while seven programs run, after
//! they have ended, and after a sweep; with one zone and with two.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::thread;
use std::time::Instant;

use crate::frames::FrameSource;
use crate::frames::generate::Model;
use crate::frames::replay::{Asked, Course, Mix, Replay};
use crate::frames::trace::Trace;
use crate::ours;
use crate::report::{Goal, Table};
use crate::statistics::{Paired, Side, alternate};
use coldpress_common::failure::Result;
use coldpress_sys::cpu;
use serde_json::{Value, json};

use super::FrameCounts;
use super::options::FramesArgs;
use crate::commands::launch::failed;

/// The number of programs at once, equal to that of the mail's kernel builds.
const PROGRAMS: usize = 7;
/// The number of frames of a generated program: seven programs fill 235 of 250 blocks.
const MODEL_FRAMES: usize = 17_200;
/// The number of frames of a generated program in tests.
const MODEL_FRAMES_SMALL: usize = 500;
/// The goal: whole blocks at rest, in percent of free memory, with two zones.
const SHARE_GOAL: f64 = 95.0;
/// The goal: the time of the replay with two zones relative to one zone.
const COST_GOAL: f64 = 1.02;

/// The four courses: with one zone and with two, each without and with moved frames.
struct Courses {
    /// The courses with one zone: memory as it is, and after frames were moved out of the way.
    one: [Course; 2],
    two: [Course; 2],
}

/// A row's title and the function that picks its numbers.
type Time = (&'static str, fn(&Course) -> Asked);

/// The three times at which huge pages are asked for.
const TIMES: [Time; 3] = [
    ("during", |course| course.during),
    ("at rest, before the sweep", |course| course.before),
    ("at rest, after the sweep", |course| course.after),
];

/// Measures huge pages, on one processor: each processor keeps frames ready, so counts would depend
/// on where the scheduler runs the thread.
pub(super) fn measure(args: &FramesArgs) -> Result<FrameCounts> {
    let on_one_processor = || {
        cpu::run_on(cpu::current()).map_err(|error| failed(error.to_string()))?;
        measure_here(args)
    };
    thread::scope(|scope| scope.spawn(on_one_processor).join())
        .map_err(|_| failed("the replay panicked".to_owned()))?
}

fn measure_here(args: &FramesArgs) -> Result<FrameCounts> {
    let traces = traces(args)?;
    let programs: Vec<&Trace> = traces.iter().cycle().take(PROGRAMS).collect();
    let mix = Mix::new(&programs, 1);
    let (blocks, core) = mix.blocks();
    let course = |zones, moving| -> Result<Course> {
        let source = source(blocks, zones)?;
        Ok(Replay::new(&mix, &*source).course(&mix, moving))
    };
    let courses = Courses {
        one: [course(None, false)?, course(None, true)?],
        two: [course(Some(core), false)?, course(Some(core), true)?],
    };
    let pairs = alternate(args.turns(), |side| {
        let zones = (side == Side::Managed).then_some(core);
        cost(&mix, &*source(blocks, zones)?)
    })?;
    let cost = Paired::new(&pairs, |ns| *ns).ok_or_else(|| failed("no pair".to_owned()))?;
    let what = if args.trace.is_empty() { "generated traces" } else { "recorded traces" };
    let about = format!(
        "huge pages of 2 MiB to be had in {blocks} blocks; {PROGRAMS} {what} at once, {} events;\n\
         with two zones, {core} blocks are core. \"moved\": frames with an owner are moved out of\n\
         the way before asking. The mail had 0, 103 and 154 of 256 with two zones, 0, 0 and 6 with \
         one.",
        mix.events().len()
    );
    let numbers = json!({
        "blocks": blocks,
        "core_blocks": core,
        "events": mix.events().len(),
        "traces": what,
        "one_zone": courses.one.iter().map(to_json).collect::<Vec<_>>(),
        "two_zones": courses.two.iter().map(to_json).collect::<Vec<_>>(),
        "ns_an_event_one_zone": cost.plain.median(),
        "ns_an_event_two_zones": cost.managed.median(),
        "cost_ratio": cost.ratios.median(),
        "cost_ratio_p10": cost.ratios.percentile(10.0),
        "cost_ratio_p90": cost.ratios.percentile(90.0),
    });
    let tables = vec![table(&courses), cost_table(&cost)];
    Ok(FrameCounts { about, tables, goals: goals(&courses, &cost), numbers })
}

fn traces(args: &FramesArgs) -> Result<Vec<Trace>> {
    if args.trace.is_empty() {
        let frames = if args.common.quick { MODEL_FRAMES_SMALL } else { MODEL_FRAMES };
        return Ok((0..PROGRAMS as u64).map(|seed| Model::new(frames).trace(seed)).collect());
    }
    args.trace.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<Trace> {
    let error = |error: &dyn std::fmt::Display| failed(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|cause| error(&cause))?;
    Trace::read(&mut BufReader::new(file)).map_err(|cause| error(&cause))
}

fn source(blocks: usize, core: Option<usize>) -> Result<Box<dyn FrameSource>> {
    ours::zones(blocks, core).map_err(|error| failed(format!("no frames: {error}")))
}

/// Measures the nanoseconds of an event of the replay alone.
fn cost(mix: &Mix, source: &dyn FrameSource) -> Result<f64> {
    let mut replay = Replay::new(mix, source);
    let started = Instant::now();
    replay.play(mix.events());
    let time = started.elapsed();
    replay.end();
    Ok(time.as_nanos() as f64 / mix.events().len().max(1) as f64)
}

fn table(courses: &Courses) -> Table {
    let mut table = Table::new(&[
        "huge pages",
        "one zone",
        "of free, %",
        "two zones",
        "of free, %",
        "one, moved",
        "of free, %",
        "two, moved",
        "of free, %",
    ]);
    for (name, at) in TIMES {
        let mut cells = vec![name.to_owned()];
        for moved in [0, 1] {
            for asked in [at(&courses.one[moved]), at(&courses.two[moved])] {
                cells.extend([asked.blocks.to_string(), format!("{:.1}", asked.share())]);
            }
        }
        table.row(cells);
    }
    let refused = |course: &Course| [course.refused.to_string(), String::new()];
    let columns = [&courses.one[0], &courses.two[0], &courses.one[1], &courses.two[1]];
    let cells = columns.into_iter().flat_map(refused);
    table.row(std::iter::once("allocations refused".to_owned()).chain(cells).collect());
    table
}

fn cost_table(cost: &Paired) -> Table {
    let mut table = Table::new(&["replay", "one zone", "two zones", "paired ratio", "p10 to p90"]);
    table.row(vec![
        "ns an event".to_owned(),
        format!("{:.2}", cost.plain.median()),
        format!("{:.2}", cost.managed.median()),
        format!("{:.4}", cost.ratios.median()),
        format!("{:.4} to {:.4}", cost.ratios.percentile(10.0), cost.ratios.percentile(90.0)),
    ]);
    table
}

fn goals(courses: &Courses, cost: &Paired) -> Vec<Goal> {
    let [plain, moved] = &courses.two;
    let at_rest = |name: &str, plain: Asked, moved: Asked| Goal {
        text: format!("two zones, {name}: >= {SHARE_GOAL} % of free memory in whole blocks"),
        found: format!("{:.1} % moved, {:.1} % as it is", moved.share(), plain.share()),
        met: moved.share() >= SHARE_GOAL,
    };
    vec![
        at_rest("at rest before", plain.before, moved.before),
        at_rest("at rest after", plain.after, moved.after),
        Goal::at_most(format!("two zones cost <= {COST_GOAL} of one"), &cost.ratios, COST_GOAL, 4),
    ]
}

fn to_json(course: &Course) -> Value {
    let asked = |asked: Asked| json!({ "blocks": asked.blocks, "free_frames": asked.free });
    json!({
        "during": asked(course.during),
        "before": asked(course.before),
        "after": asked(course.after),
        "refused": course.refused,
    })
}
