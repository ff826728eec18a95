//! Curves in small panels as an SVG picture: rows and columns of panels, each with a scale of its
//! own, which begins at 0, and with its most written above it. What a curve stands for is its
//! colour, and its way is how it is dashed; both are named above all panels.

use std::fmt::Write as _;

use crate::svg::{COLOURS, begin, number, rule, text};

const WIDTH: usize = 840;
/// The room for title and names.
const HEAD: usize = 80;
/// The room of a row of panels: its name, a line for titles, the panels, and their ticks.
const ROW: usize = 190;
const ABOVE: usize = 50;
const BELOW: usize = 34;
/// The margins beside a panel, where nothing is drawn.
const LEFT: usize = 14;
const RIGHT: usize = 22;
/// How curves are dashed, by their way.
const DASHES: [&str; 4] = ["none", "6 3", "2 2", "8 2 2 2"];

/// A curve of a panel.
pub(crate) struct Curve {
    /// What the curve stands for, by its number.
    pub series: usize,
    /// The way of the curve, by its number.
    pub way: usize,
    /// The height at each tick. One that was not measured is left out.
    pub values: Vec<Option<f64>>,
}

/// A panel with its title.
pub(crate) struct Panel {
    /// The words above the panel.
    pub title: String,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// A picture of rows of panels.
pub(crate) struct Picture {
    /// The words above all.
    pub title: String,
    /// The names of what curves stand for.
    pub series: Vec<String>,
    /// The names of the ways of curves.
    pub ways: Vec<String>,
    /// The words below each place of the panels, from the left.
    pub ticks: Vec<String>,
    /// The rows, each with its name.
    pub rows: Vec<(String, Vec<Panel>)>,
}

impl Picture {
    /// Returns the picture as the text of a file.
    pub(crate) fn svg(&self) -> String {
        let mut svg = begin([WIDTH, HEAD + self.rows.len() * ROW]);
        text(&mut svg, 10, 20, &self.title);
        self.names(&mut svg);
        for (row, (name, panels)) in self.rows.iter().enumerate() {
            let top = HEAD + row * ROW;
            text(&mut svg, 10, top + 14, name);
            let wide = (WIDTH - 20) / panels.len().max(1);
            for (column, panel) in panels.iter().enumerate() {
                self.panel(&mut svg, [10 + column * wide, top, wide], panel);
            }
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Draws what colours and dashes mean.
    fn names(&self, svg: &mut String) {
        let step = (WIDTH - 20) / self.series.len().max(1);
        for (index, name) in self.series.iter().enumerate() {
            let x = 10 + index * step;
            curve(svg, (index, 0), &[[x, 40], [x + 24, 40]]);
            text(svg, x + 30, 44, name);
        }
        let step = (WIDTH - 20) / self.ways.len().max(1);
        for (index, name) in self.ways.iter().enumerate() {
            let x = 10 + index * step;
            curve(svg, (COLOURS.len(), index), &[[x, 60], [x + 24, 60]]);
            text(svg, x + 30, 64, name);
        }
    }

    /// Draws a panel at a place, which is as wide as the third number.
    fn panel(&self, svg: &mut String, [left, top, wide]: [usize; 3], panel: &Panel) {
        let most = panel.curves.iter().flat_map(|curve| &curve.values).flatten();
        let most = most.copied().fold(f64::MIN_POSITIVE, f64::max);
        let [x, y] = [left + LEFT, top + ABOVE];
        let [across, high] = [wide - LEFT - RIGHT, ROW - ABOVE - BELOW];
        let is_empty = panel.curves.iter().all(|curve| curve.values.iter().all(Option::is_none));
        let said = if is_empty { "not measured".to_owned() } else { number(most) };
        text(svg, left, y - 8, &format!("{}: {said}", panel.title));
        for share in 0..=2 {
            let y = y + share * high / 2;
            rule(svg, [x, y, x + across, y]);
        }
        let last = self.ticks.len().saturating_sub(1).max(1);
        for (tick, name) in self.ticks.iter().enumerate() {
            text(svg, x + tick * across / last - 3, y + high + 16, name);
        }
        for Curve { series, way, values } in &panel.curves {
            let points = values.iter().enumerate().filter_map(|(tick, value)| {
                let down = (1.0 - (*value)? / most) * high as f64;
                Some([x + tick * across / last, y + down as usize])
            });
            curve(svg, (*series, *way), &points.collect::<Vec<_>>());
        }
    }
}

/// Draws a curve with a dot at each point, so that one point alone is seen, too.
fn curve(svg: &mut String, (series, way): (usize, usize), points: &[[usize; 2]]) {
    let colour = COLOURS.get(series).copied().unwrap_or("#222");
    let dashes = DASHES[way % DASHES.len()];
    let line: Vec<_> = points.iter().map(|[x, y]| format!("{x},{y}")).collect();
    let line = line.join(" ");
    writeln!(
        svg,
        "<polyline points=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" \
         stroke-dasharray=\"{dashes}\"/>"
    )
    .expect("a string takes all");
    for [x, y] in points {
        writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"2\" fill=\"{colour}\"/>")
            .expect("a string takes all");
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a curve at another place than its figures.
    use super::*;

    fn picture(values: Vec<Option<f64>>) -> String {
        let curve = |series, way, values| Curve { series, way, values };
        let curves =
            vec![curve(0, 0, vec![Some(500.0), Some(1000.0), Some(2000.0)]), curve(1, 1, values)];
        let panel = |title: &str, curves| Panel { title: title.to_owned(), curves };
        let empty = panel("zipf", vec![curve(0, 0, vec![None; 3])]);
        let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect();
        let rows = vec![("heap".to_owned(), vec![panel("uniform", curves), empty])];
        let (series, ways) = (words(&["ours", "zram"]), words(&["reads", "writes"]));
        let title = "touches/s".to_owned();
        Picture { title, series, ways, ticks: words(&["1", "2", "4"]), rows }.svg()
    }

    #[test]
    fn curves_go_from_the_ground_to_the_most_of_their_panel() {
        let svg = picture(vec![Some(0.0), Some(2000.0), Some(1000.0)]);
        let across = (WIDTH - 20) / 2 - LEFT - RIGHT;
        let [left, middle, right] = [0, across / 2, across].map(|x| 10 + LEFT + x);
        let [top, ground] = [HEAD + ABOVE, HEAD + ROW - BELOW];
        let half = top + (ground - top) / 2;
        let line = format!("points=\"{left},{ground} {middle},{top} {right},{half}\"");
        assert!(svg.contains(&line), "{line} in {svg}");
        assert!(svg.contains("uniform: 2.0 k") && svg.contains("zipf: not measured"), "{svg}");
        for word in ["ours", "zram", "reads", "writes", "heap", "touches/s"] {
            assert!(svg.contains(&format!(">{word}</text>")), "{word}");
        }
    }

    #[test]
    fn what_was_not_measured_has_no_point() {
        let [all, some] = [Some(3.0), None].map(|value| picture(vec![Some(2.0), value, None]));
        let dots = |svg: &str| svg.matches("<circle").count();
        assert_eq!(dots(&all), dots(&some) + 1);
        assert_eq!(all.matches("<polyline").count(), 4 + 3);
    }
}
