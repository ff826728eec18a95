//! What pictures have in common: colours, words and numbers. A picture has its numbers as text,
//! too, and no script.

use std::fmt::Write as _;

/// Colours that people with any kind of colour vision tell apart (Okabe and Ito 2008).
pub(crate) const COLOURS: [&str; 6] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];

/// Returns the beginning of a picture: a white ground of this size.
pub(crate) fn begin([width, height]: [usize; 2]) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    )
}

/// Writes words from `x`, on the line `y`.
pub(crate) fn text(svg: &mut String, x: usize, y: usize, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"#222\">{text}</text>")
        .expect("a string takes all");
}

/// Draws a thin line from a point to another.
pub(crate) fn rule(svg: &mut String, [x1, y1, x2, y2]: [usize; 4]) {
    writeln!(svg, "<path d=\"M{x1} {y1}L{x2} {y2}\" stroke=\"#ddd\"/>")
        .expect("a string takes all");
}

/// Formats a number; three digits are enough in a picture.
pub(crate) fn number(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.2} M", value / 1e6),
        value if value >= 1e3 => format!("{:.1} k", value / 1e3),
        value => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a file that no program draws, or a number off by a thousand.
    use super::*;

    #[test]
    fn words_cannot_end_their_element() {
        let mut svg = begin([10, 20]);
        text(&mut svg, 1, 2, "zram & <co>");
        assert!(
            svg.contains("viewBox=\"0 0 10 20\"") && svg.contains(">zram &amp; &lt;co></text>")
        );
    }

    #[test]
    fn numbers_have_three_digits_and_their_size() {
        assert_eq!([2_500_000.0, 1250.0, 3.0].map(number), ["2.50 M", "1.2 k", "3.0"]);
    }
}
