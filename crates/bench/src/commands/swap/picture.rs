//! The picture: touches a second against the number of threads, ours and those of each peer. Each
//! kind of pages has a row, and each order of touches a column.

use crate::panels::{Curve, Panel, Picture};
use crate::touch::pattern::Pattern;

use super::figures::{Block, Contestant, Setting, Work};
use super::options::Percent;

/// Draws all blocks.
pub(super) fn picture(blocks: &[Block]) -> String {
    let (mut threads, mut contestants, mut writes, mut places) = (vec![], vec![], vec![], vec![]);
    for block in blocks {
        add(&mut threads, block.setting.threads);
        add(&mut places, Setting { threads: 0, ..block.setting });
        block.lines.iter().for_each(|line| add(&mut contestants, line.contestant));
        block.works.iter().for_each(|work| add(&mut writes, work.writes));
    }
    threads.sort_unstable();
    let of = |place: &Setting| -> Vec<Option<&Block>> {
        let at = |threads: &u32| Setting { threads: *threads, ..*place };
        let found = |threads| blocks.iter().find(|block| block.setting == at(threads));
        threads.iter().map(found).collect()
    };
    let row = |place: &Setting| {
        let panel = |pattern| panel(&of(place), pattern, &contestants, &writes);
        let name = format!("{}, {}", place.pages.name(), place.share.name());
        (name, Pattern::ALL.map(panel).into())
    };
    let ways = writes.iter().map(|writes| match writes {
        Percent(0) => "reads".to_owned(),
        Percent(writes) => format!("{writes} % writes"),
    });
    Picture {
        title: "Touches a second by the number of threads, with the same memory in all".to_owned(),
        series: contestants.iter().map(|contestant| contestant.name()).collect(),
        ways: ways.collect(),
        ticks: threads.iter().map(u32::to_string).collect(),
        rows: places.iter().map(row).collect(),
    }
    .svg()
}

/// Makes the panel of an order, with a curve over `blocks` for each contestant and share of writes.
fn panel(
    blocks: &[Option<&Block>],
    pattern: Pattern,
    contestants: &[Contestant],
    writes: &[Percent],
) -> Panel {
    let mut curves = Vec::new();
    for (series, contestant) in contestants.iter().enumerate() {
        for (way, writes) in writes.iter().enumerate() {
            let work = Work { pattern, writes: *writes };
            let speed = |block: &Option<&Block>| (*block)?.line(*contestant)?.speed(work);
            curves.push(Curve { series, way, values: blocks.iter().map(speed).collect() });
        }
    }
    Panel { title: pattern.name().to_owned(), curves }
}

/// Adds an item to a list that has none like it.
fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a curve of other figures than its name says.
    use super::super::data::Kind;
    use super::super::samples::{WRITES, block};
    use super::*;

    #[test]
    fn each_contestant_has_a_curve_for_each_share_of_writes_over_all_threads() {
        let heap = Kind::Heap;
        let mut blocks = [block(heap, 2, [300.0, 200.0]), block(heap, 4, [500.0, 100.0])];
        blocks[1].lines.truncate(1);
        let all = [None, Some(&blocks[0]), Some(&blocks[1])];
        let lines: Vec<_> = blocks[0].lines.iter().map(|line| line.contestant).collect();
        let panel = panel(&all, Pattern::Zipf, &lines, &WRITES);
        let found: Vec<_> = panel.curves.iter().map(|it| (it.series, it.way)).collect();
        assert_eq!(
            (panel.title.as_str(), &found[..]),
            ("zipf", &[(0, 0), (0, 1), (1, 0), (1, 1)][..])
        );
        assert_eq!(panel.curves[1].values, [None, Some(300.0), Some(500.0)]);
        assert_eq!(panel.curves[2].values, [None, Some(200.0), None]);
    }

    #[test]
    fn each_kind_of_pages_has_a_row_and_each_order_a_panel() {
        let dense = Kind::Ratio(6.0);
        let kinds = [(Kind::Heap, 8), (Kind::Heap, 1), (dense, 1)];
        let svg = picture(&kinds.map(|(pages, threads)| block(pages, threads, [1.0, 2.0])));
        for word in ["heap, total-50", "6 to 1, total-50", "30 % writes", "coldpress", "zram-lz4"] {
            assert!(svg.contains(&format!(">{word}</text>")), "{word} in {svg}");
        }
        assert_eq!(svg.matches(">uniform: ").count(), 2);
        assert!(picture(&[]).contains("</svg>"));
    }
}
