//! Pictures: areas, lines and bars as SVG, with words beside them as HTML.
//!
//! A picture is as wide as the page, whatever that is: its lines and areas are stretched, and its
//! words, which are no part of the SVG, keep their size. What a picture shows is in its
//! description, and all of its numbers are in a table behind it. Areas are parted by lines of the
//! page's own colour, so that no two have to be told apart by colour alone.

use std::fmt::Write as _;

use maud::{Markup, PreEscaped, html};

use super::scale::Scale;

/// The size of the drawing, in units of its own.
const WIDE: f64 = 1000.0;
const HIGH: f64 = 320.0;
/// Bars for which there is room at least.
const BARS_MIN: usize = 8;

/// What a colour of the page stands for: its name there, and its own.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    /// The class of the page's style that has the colour.
    pub(super) class: &'static str,
    /// The values, from the left.
    pub(super) values: Vec<f64>,
}

/// The numbers behind a picture.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) heads: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// What is left out, if anything is.
    pub(super) note: String,
}

/// A picture with its words.
pub(super) struct Picture {
    /// A name that no other picture of the page has.
    pub(super) id: &'static str,
    pub(super) title: String,
    /// What the picture shows, for those who do not see it.
    pub(super) description: String,
    pub(super) drawing: Drawing,
    pub(super) table: Table,
}

/// What is drawn.
pub(super) enum Drawing {
    /// Areas upon each other, and lines, over one scale.
    Curves { across: Scale, up: Scale, xs: Vec<f64>, areas: Vec<Series>, lines: Vec<Series> },
    /// Bars side by side, each with words below it, some of which are left out.
    Bars { up: Scale, labels: Vec<String>, bars: Series },
    /// Parts of one bar, each with its words.
    Parts(Vec<(Series, String)>),
}

impl Picture {
    /// Returns the picture, its legend and its table.
    pub(super) fn markup(&self) -> Markup {
        html! {
            figure id=(self.id) {
                figcaption { (self.title) }
                @match &self.drawing {
                    Drawing::Curves { across, up, xs, areas, lines } => {
                        (self.frame(up, &across.ticks, &curves(across, up, xs, areas, lines)))
                        (legend(areas, lines))
                    }
                    Drawing::Bars { up, labels, bars } => {
                        (self.frame(up, &ticks_below(labels), &columns(up, bars)))
                    }
                    Drawing::Parts(parts) => {
                        div.parts { (self.svg(&slices(parts))) }
                        ul.legend {
                            @for (part, words) in parts {
                                li {
                                    span class={ "key " (part.class) } {}
                                    (part.name) ": " (words)
                                }
                            }
                        }
                    }
                }
                (self.table.markup("The numbers"))
            }
        }
    }

    /// Returns a drawing within its scales.
    fn frame(&self, up: &Scale, below: &[(f64, String)], drawing: &str) -> Markup {
        let grid = up.ticks.iter().fold(String::new(), |mut grid, (place, _)| {
            let y = (1.0 - place) * HIGH;
            let _ = write!(grid, "<path class=\"grid\" d=\"M0 {y:.1}H{WIDE}\"/>");
            grid
        });
        html! {
            div.chart {
                div.up aria-hidden="true" {
                    @for (place, text) in &up.ticks {
                        span style={ "bottom:" (in_percent(*place)) } { (text) }
                    }
                }
                div.plot { (self.svg(&format!("{grid}{drawing}"))) }
                div.across aria-hidden="true" {
                    @for (place, text) in below {
                        span class=(side(*place)) style={ "left:" (in_percent(*place)) } { (text) }
                    }
                }
            }
        }
    }

    fn svg(&self, drawing: &str) -> Markup {
        let [title, description] = ["title", "desc"].map(|part| format!("{}-{part}", self.id));
        html! {
            svg viewBox={ "0 0 " (WIDE) " " (HIGH) } preserveAspectRatio="none" role="img"
                aria-labelledby={ (title) " " (description) } {
                title id=(title) { (self.title) }
                desc id=(description) { (self.description) }
                // The drawing is made here, of numbers and of classes that are constants.
                (PreEscaped(drawing))
            }
        }
    }
}

impl Table {
    /// Returns the table, folded away behind `name`.
    pub(super) fn markup(&self, name: &str) -> Markup {
        html! {
            details {
                summary { (name) }
                (self.open())
            }
        }
    }

    /// Returns the table, in a box in which it can be scrolled.
    pub(super) fn open(&self) -> Markup {
        html! {
            div.scroll tabindex="0" role="region" aria-label="Table" {
                table {
                    thead { tr { @for head in &self.heads { th scope="col" { (head) } } } }
                    tbody { @for row in &self.rows { tr { @for cell in row { td { (cell) } } } } }
                }
            }
            @if !self.note.is_empty() { p.note { (self.note) } }
        }
    }
}

/// Returns a place as a style has it.
fn in_percent(place: f64) -> String {
    format!("{:.2}%", place * 100.0)
}

/// Returns the class of words at a place: the first and the last do not leave the picture.
fn side(place: f64) -> &'static str {
    match place {
        _ if place < 0.1 => "first",
        _ if place > 0.9 => "last",
        _ => "middle",
    }
}

fn legend(areas: &[Series], lines: &[Series]) -> Markup {
    html! {
        ul.legend {
            @for area in areas { li { span class={ "key " (area.class) } {} (area.name) } }
            @for line in lines { li { span class={ "key " (line.class) " line" } {} (line.name) } }
        }
    }
}

/// Returns the paths of areas upon each other, and of lines.
fn curves(across: &Scale, up: &Scale, xs: &[f64], areas: &[Series], lines: &[Series]) -> String {
    let x = |at: usize| across.place(xs[at]) * WIDE;
    let y = |value: f64| (1.0 - up.place(value)) * HIGH;
    let points = |values: &mut dyn Iterator<Item = (usize, f64)>| {
        values.fold(String::new(), |mut path, (at, value)| {
            let begin = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{begin}{:.1} {:.1}", x(at), y(value));
            path
        })
    };
    let mut svg = String::new();
    let mut below = vec![0.0; xs.len()];
    for area in areas {
        let above: Vec<_> =
            below.iter().zip(&area.values).map(|(low, value)| low + value).collect();
        if area.values.iter().any(|value| *value > 0.0) {
            let upper = points(&mut above.iter().copied().enumerate());
            let lower = points(&mut below.iter().copied().enumerate().rev());
            let lower = lower.replacen('M', "L", 1);
            let _ = write!(svg, "<path class=\"area {}\" d=\"{upper}{lower}Z\"/>", area.class);
        }
        below = above;
    }
    for line in lines {
        let path = points(&mut line.values.iter().copied().enumerate());
        let _ = write!(svg, "<path class=\"line {}\" d=\"{path}\"/>", line.class);
    }
    svg
}

/// Returns the part of the width that each of so many bars has: few are no wider than many.
fn step(bars: usize) -> f64 {
    1.0 / bars.max(BARS_MIN) as f64
}

/// Returns bars side by side.
fn columns(up: &Scale, bars: &Series) -> String {
    let step = WIDE * step(bars.values.len());
    let bar = |(at, value): (usize, &f64)| {
        let high = up.place(*value) * HIGH;
        let (x, y, wide) = (at as f64 * step + step * 0.08, HIGH - high, step * 0.84);
        format!(
            "<rect class=\"{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" \
             height=\"{high:.1}\"/>",
            bars.class
        )
    };
    bars.values.iter().enumerate().map(bar).collect()
}

/// Returns the words below bars: so many that they do not touch.
fn ticks_below(labels: &[String]) -> Vec<(f64, String)> {
    let every = labels.len().div_ceil(5).max(1);
    let middle = |at: usize| (at as f64 + 0.5) * step(labels.len());
    let some = labels.iter().enumerate().skip(every / 2).step_by(every);
    some.map(|(at, label)| (middle(at), label.clone())).collect()
}

/// Returns parts side by side that fill the picture.
fn slices(parts: &[(Series, String)]) -> String {
    let value = |part: &Series| part.values.iter().sum::<f64>();
    let all = parts.iter().map(|(part, _)| value(part)).sum::<f64>().max(f64::MIN_POSITIVE);
    let mut x = 0.0;
    let mut svg = String::new();
    for (part, _) in parts {
        let wide = value(part) / all * WIDE;
        let _ = write!(
            svg,
            "<rect class=\"area {}\" x=\"{x:.1}\" y=\"0\" width=\"{wide:.1}\" height=\"{HIGH}\"/>",
            part.class
        );
        x += wide;
    }
    svg
}

#[cfg(test)]
mod tests {
    //! The risk: a drawing outside of its frame, or one that nobody can read.

    use super::super::scale::Base;
    use super::*;

    fn series(class: &'static str, values: &[f64]) -> Series {
        Series { name: format!("<{class}>"), class, values: values.to_vec() }
    }

    #[test]
    fn areas_lie_upon_each_other_within_the_frame() {
        let scale = |most| Scale::new(0.0, most, Base::Ten, |value| value.to_string());
        let areas = [series("place", &[1.0, 2.0]), series("pool", &[1.0, 2.0])];
        let lines = [series("budget", &[9.0, 9.0])];
        let drawn = curves(&scale(1.0), &scale(4.0), &[0.0, 1.0], &areas, &lines);
        let wanted = "<path class=\"area place\" d=\"M0.0 240.0L1000.0 160.0L1000.0 320.0L0.0 \
                      320.0Z\"/><path class=\"area pool\" d=\"M0.0 160.0L1000.0 0.0L1000.0 \
                      160.0L0.0 240.0Z\"/><path class=\"line budget\" d=\"M0.0 0.0L1000.0 0.0\"/>";
        assert_eq!(drawn, wanted);
        let drawing = Drawing::Curves {
            across: scale(1.0),
            up: scale(4.0),
            xs: vec![0.0, 1.0],
            areas: areas.to_vec(),
            lines: lines.to_vec(),
        };
        let table = Table::default();
        let (title, description) = ("A & B".to_owned(), "</desc>".to_owned());
        let picture = Picture { id: "a", title, description, drawing, table };
        let shown = picture.markup().into_string();
        for part in
            ["role=\"img\"", "A &amp; B", "&lt;/desc&gt;", "&lt;pool&gt;", "key budget line"]
        {
            assert!(shown.contains(part), "{part} in {shown}");
        }
    }

    #[test]
    fn bars_and_parts_fill_their_frame() {
        let up = Scale::new(0.0, 10.0, Base::Ten, |value| value.to_string());
        let bars = columns(&up, &series("pool", &[10.0, 5.0]));
        assert!(bars.contains("y=\"0.0\" width=\"105.0\" height=\"320.0\""), "{bars}");
        assert!(bars.contains("y=\"160.0\" width=\"105.0\" height=\"160.0\""), "{bars}");
        let parts =
            [(series("place", &[3.0]), String::new()), (series("pool", &[1.0]), String::new())];
        assert!(slices(&parts).contains("x=\"750.0\" y=\"0\" width=\"250.0\""));
        assert_eq!(slices(&[]), "");
        let labels: Vec<_> = (0..32).map(|number| number.to_string()).collect();
        assert!(ticks_below(&labels).len() <= 5);
        assert_eq!(ticks_below(&labels[..1]), [(0.0625, "0".to_owned())]);
    }
}
