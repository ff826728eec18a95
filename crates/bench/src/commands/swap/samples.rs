//! Blocks with figures as a test wants them.

use coldpress_sys::Bytes;
use serde_json::{Value, json};

use super::data::Kind;
use super::figures::{Block, Contestant, Line, Setting, Turn, Work};
use super::goals::JUDGE;
use super::options::Percent;
use crate::commands::common::Share;
use crate::touch::pattern::Pattern;

/// The shares of writes of all samples.
pub(super) const WRITES: [Percent; 2] = [Percent(0), Percent(30)];

/// Makes a turn that printed this, or one that was killed.
pub(super) fn turn(printed: Value) -> Turn {
    let (pool, held) = (Bytes(0), Bytes(0));
    let kills = u64::from(printed.is_null());
    Turn { printed, pool, held, kills, others: 0.1, stats: Value::Null }
}

/// Makes a line whose every work has this speed, or twice this speed when it scans. One of its
/// turns was killed.
pub(super) fn line(contestant: Contestant, speed: f64) -> Line {
    let work = |work: Work| {
        let is_scan = work.pattern == Pattern::Sequential;
        json!({
            "pattern": work.pattern.name(), "writes": work.writes.0,
            "accesses_per_second": if is_scan { 2.0 * speed } else { speed },
            "accesses": 1000, "cpu_seconds": 800.0 / speed,
            "slow": 10, "slow_ns": 1e6 / speed, "p99_ns": 5e6 / speed,
        })
    };
    let works: Vec<Value> = Work::all(&WRITES).into_iter().map(work).collect();
    let printed = json!({ "works": works, "fill": { "pages": speed, "seconds": 2.0 } });
    let turns = vec![turn(Value::Null), turn(printed)];
    Line { turns, ..Line::new(contestant, Bytes(0)) }
}

/// Makes a block of lines with the speeds of ours and of the judge.
pub(super) fn block(pages: Kind, threads: u32, [ours, judge]: [f64; 2]) -> Block {
    let lines = vec![line(Contestant::Ours, ours), line(JUDGE, judge)];
    let setting = Setting { pages, share: Share::Total50, threads };
    Block { setting, works: Work::all(&WRITES), lines }
}
