//! Points in a plane as an SVG picture: each point has its name beside it, and each axis shows its
//! least and most.

use std::fmt::Write as _;

use crate::svg::{COLOURS, begin, rule, text};

const WIDTH: usize = 840;
const HEIGHT: usize = 560;
/// The margins around the plane; names of the rightmost points need room.
const LEFT: usize = 70;
const RIGHT: usize = 200;
const TOP: usize = 50;
const BOTTOM: usize = 60;
/// The number of lines in each direction.
const LINES: usize = 5;

/// A point.
pub(crate) struct Point {
    /// The name of what the point stands for.
    pub name: String,
    /// The place to the right.
    pub x: f64,
    /// The place upwards.
    pub y: f64,
    /// Whether the point stands out.
    pub is_marked: bool,
}

/// Returns the picture as the text of a file. Both axes begin at 0.
pub(crate) fn svg(title: &str, [x_name, y_name]: [&str; 2], points: &[Point]) -> String {
    let most = |of: fn(&Point) -> f64| points.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let (x_most, y_most) = (most(|point| point.x), most(|point| point.y));
    let [wide, high] = [WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM];
    let right = |share: f64| LEFT + (share * wide as f64) as usize;
    let down = |share: f64| TOP + ((1.0 - share) * high as f64) as usize;
    let mut svg = begin([WIDTH, HEIGHT]);
    text(&mut svg, 10, 20, title);
    text(&mut svg, 10, TOP - 10, y_name);
    text(&mut svg, LEFT, HEIGHT - 15, x_name);
    for line in 0..=LINES {
        let share = line as f64 / LINES as f64;
        let (x, y) = (right(share), down(share));
        rule(&mut svg, [x, TOP, x, TOP + high]);
        rule(&mut svg, [LEFT, y, LEFT + wide, y]);
        text(&mut svg, x - 8, TOP + high + 18, &format!("{:.2}", share * x_most));
        text(&mut svg, 25, y + 4, &format!("{:.2}", share * y_most));
    }
    for Point { name, x, y, is_marked } in points {
        let (x, y) = (right(x / x_most), down(y / y_most));
        let (radius, colour) = if *is_marked { (6, COLOURS[5]) } else { (4, COLOURS[4]) };
        writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{colour}\"/>")
            .expect("a string takes all");
        text(&mut svg, x + 9, y + 4, name);
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_lies_in_the_plane_with_its_name() {
        let point = |name: &str, x, y| Point { name: name.to_owned(), x, y, is_marked: x > 1.0 };
        let points = [point("lz4", 1.0, 1.0), point("a < b", 4.0, 0.5), point("none", 0.0, 0.0)];
        let svg = svg("sizes", ["us", "share"], &points);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("r=\"6\"").count(), 1);
        let (most, least) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for part in [
            format!("cx=\"{most}\" cy=\"{}\"", TOP + (HEIGHT - TOP - BOTTOM) / 2),
            format!("cx=\"{LEFT}\" cy=\"{least}\""),
            "a &lt; b".to_owned(),
            "4.00".to_owned(),
        ] {
            assert!(svg.contains(&part), "{part} in {svg}");
        }
        assert!(super::svg("nothing", ["x", "y"], &[]).contains("nothing"));
    }
}
