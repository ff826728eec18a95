//! Bars in groups as an SVG picture, with the numbers as text, too, and no script.

use std::fmt::Write as _;

/// Colours that people with any kind of colour vision tell apart (Okabe and Ito 2008).
pub(crate) const COLOURS: [&str; 6] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];

const WIDTH: usize = 840;
const LABEL: usize = 210;
const VALUE: usize = 90;
const BAR: usize = 14;
const GAP: usize = 10;
const HEAD: usize = 64;

/// A picture of bars.
pub(crate) struct Bars {
    title: String,
    series: Vec<String>,
    groups: Vec<(String, Vec<Option<f64>>)>,
}

impl Bars {
    /// Makes a picture without groups; each group has a bar for each name in `series`.
    pub(crate) fn new(title: &str, series: &[String]) -> Self {
        Self { title: title.to_owned(), series: series.to_vec(), groups: Vec::new() }
    }

    /// Adds a group of bars; a bar that was not measured stays empty.
    pub(crate) fn group(&mut self, name: &str, values: Vec<Option<f64>>) {
        debug_assert_eq!(values.len(), self.series.len());
        self.groups.push((name.to_owned(), values));
    }

    /// Returns the picture as the text of a file.
    pub(crate) fn svg(&self) -> String {
        let longest = self.groups.iter().flat_map(|(_, values)| values).flatten();
        let longest = longest.copied().fold(f64::MIN_POSITIVE, f64::max);
        let group_height = self.series.len() * BAR + GAP;
        let height = HEAD + self.groups.len() * group_height;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
        );
        text(&mut svg, 10, 20, &self.title);
        let step = (WIDTH - 20) / self.series.len().max(1);
        for (index, name) in self.series.iter().enumerate() {
            let x = 10 + index * step;
            bar(&mut svg, [x, 34, 12], COLOURS[index % COLOURS.len()]);
            text(&mut svg, x + 18, 44, name);
        }
        for (index, (name, values)) in self.groups.iter().enumerate() {
            let top = HEAD + index * group_height;
            text(&mut svg, 10, top + group_height / 2, name);
            for (place, value) in values.iter().enumerate() {
                let y = top + place * BAR;
                let Some(value) = value else {
                    text(&mut svg, LABEL, y + BAR - 3, "not measured");
                    continue;
                };
                let length = (value / longest * (WIDTH - LABEL - VALUE) as f64) as usize;
                bar(&mut svg, [LABEL, y, length.max(1)], COLOURS[place % COLOURS.len()]);
                text(&mut svg, LABEL + length + 6, y + BAR - 3, &number(*value));
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// Draws a bar from `x`, `y`, as long as the third number.
fn bar(svg: &mut String, [x, y, length]: [usize; 3], colour: &str) {
    let height = BAR - 2;
    writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{length}\" height=\"{height}\" fill=\"{colour}\"/>"
    )
    .expect("a string takes all");
}

/// Writes words from `x`, on the line `y`.
pub(crate) fn text(svg: &mut String, x: usize, y: usize, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"#222\">{text}</text>")
        .expect("a string takes all");
}

/// Formats a number; three digits are enough in a picture.
fn number(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.2} M", value / 1e6),
        value if value >= 1e3 => format!("{:.1} k", value / 1e3),
        value => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_every_bar_and_stays_within_its_width() {
        let series = ["ours".to_owned(), "zram & <co>".to_owned()];
        let mut bars = Bars::new("accesses/s", &series);
        bars.group("uniform", vec![Some(2_500_000.0), Some(1250.0)]);
        bars.group("zipf", vec![Some(3.0), None]);
        let svg = bars.svg();
        let longest = WIDTH - LABEL - VALUE;
        for part in
            ["2.50 M", "1.2 k", "3.0", "not measured", "zram &amp; &lt;co>", &longest.to_string()]
        {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        // The background, two in the legend, three bars.
        assert_eq!(svg.matches("<rect").count(), 6);
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }
}
