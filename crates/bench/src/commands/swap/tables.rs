//! The tables of figures, for people.

use crate::report::Table;

use super::figures::{Block, Contestant, Line, Work};
use super::goals::JUDGE;
use super::quiet::OTHERS_MAX;

const NOT_MEASURED: &str = "-";

/// Makes the tables of one setting.
pub(super) fn of_block(block: &Block) -> [Table; 4] {
    let title = block.setting.title();
    [
        of_works(block, &format!("{title}: 1000 touches/s"), true, |line, work| {
            Some(line.speed(work)? / 1000.0)
        }),
        of_works(block, &format!("{title}: p99 us"), false, |line, work| {
            line.time_us(work, "p99_ns")
        }),
        of_works(block, &format!("{title}: CPU us per touch"), false, Line::cpu_us),
        of_lines(block, &format!("{title}: uniform reads")),
    ]
}

/// Makes a table with a row for each kind of touches and a column for each contestant.
fn of_works(
    block: &Block,
    title: &str,
    has_fill: bool,
    of: impl Fn(&Line, Work) -> Option<f64>,
) -> Table {
    let names: Vec<String> = block.lines.iter().map(|line| line.contestant.name()).collect();
    let ratio = format!("by {}", JUDGE.name());
    let head: Vec<&str> =
        [title].into_iter().chain(names.iter().map(String::as_str)).chain([&*ratio]).collect();
    let mut table = Table::new(&head);
    let mut row = |name: String, of: &dyn Fn(&Line) -> Option<f64>| {
        let cells = block.lines.iter().map(|line| cell(of(line), 1));
        let ratio = cell(block.ratio(JUDGE, of), 2);
        table.row([name].into_iter().chain(cells).chain([ratio]).collect());
    };
    for work in &block.works {
        row(work.name(), &|line| of(line, *work));
    }
    if has_fill {
        row("first touch, later half".to_owned(), &|line| Some(line.fill_speed()? / 1000.0));
    }
    table
}

/// Makes a table with a row for each contestant: its memory, and the times of single random reads.
fn of_lines(block: &Block, title: &str) -> Table {
    let mut table = Table::new(&[
        title,
        "limit MiB",
        "pool MiB",
        "sum MiB",
        "turns",
        "killed",
        "thrown away",
        "others %",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "us per fault",
        "its CPU us",
        "faults %",
        "processors",
        "p10 to p90 of 1000 touches/s",
    ]);
    for line in &block.lines {
        let mib =
            |bytes: coldpress_sys::Bytes| format!("{:.1}", bytes.0 as f64 / f64::from(1 << 20));
        let work = Work::UNIFORM;
        let speeds = line.of_work(work, |found| found["accesses_per_second"].as_f64());
        let spread = speeds.map(|sample| {
            let at = |percent| sample.percentile(percent) / 1000.0;
            format!("{:.1} to {:.1}", at(10.0), at(90.0))
        });
        let is_ours = line.contestant == Contestant::Ours;
        table.row(vec![
            line.contestant.name(),
            mib(line.limit),
            if is_ours { "inside".to_owned() } else { mib(line.size(|turn| turn.pool)) },
            mib(line.size(|turn| turn.held)),
            line.turns.len().to_string(),
            line.kills().to_string(),
            line.thrown_away.len().to_string(),
            cell(line.others().map(|share| share * 100.0), 1),
            cell(line.time_us(work, "p50_ns"), 2),
            cell(line.time_us(work, "p99_ns"), 1),
            cell(line.time_us(work, "p999_ns"), 1),
            cell(line.per_fault_us(work, "slow_ns"), 2),
            cell(line.per_fault_us(work, "cpu_seconds"), 2),
            cell(line.faults(work).map(|share| share * 100.0), 1),
            cell(line.processors(work), 2),
            spread.unwrap_or_else(|| NOT_MEASURED.to_owned()),
        ]);
    }
    table
}

/// Returns sentences on the turns that were thrown away, and on those that found no other moment.
pub(super) fn quietness(blocks: &[Block], rounds: u32) -> String {
    let lines = || blocks.iter().flat_map(|block| &block.lines);
    let thrown: usize = lines().map(|line| line.thrown_away.len()).sum();
    let lost: usize = lines().map(|line| rounds as usize - line.turns.len()).sum();
    let most = OTHERS_MAX * 100.0;
    format!(
        "\nTurns in which others had more than {most:.0} % of the machine's processors: {thrown}, \
         thrown away and\nrepeated. Turns that found no quiet moment: {lost}."
    )
}

fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| NOT_MEASURED.to_owned(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    //! The risk: a reader takes what is left of a disturbed measurement for a whole one.
    use super::super::data::Kind;
    use super::super::samples::{block, line, turn};
    use super::*;
    use serde_json::Value;

    #[test]
    fn turns_that_do_not_count_are_counted_and_so_are_those_that_are_missing() {
        let whole = Line { thrown_away: vec![0.2], ..line(Contestant::Ours, 1.0) };
        let turns = vec![turn(Value::Null)];
        let cut = Line { turns, thrown_away: vec![0.3; 5], ..line(JUDGE, 1.0) };
        let lines = vec![whole, cut];
        let text = quietness(&[Block { lines, ..block(Kind::Heap, 1, [1.0; 2]) }], 2);
        assert!(text.contains("processors: 6,") && text.contains("moment: 1."), "{text}");
    }
}
