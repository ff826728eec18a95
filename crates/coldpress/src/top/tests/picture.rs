//! The picture of `coldpress top` in the README: the screen of a real look, drawn as SVG.
//!
//! The look is `coldpress top --json` of two runs on a machine of two processors, with what
//! `coldpress ctl PID timeline` says of their last minutes (`screens/recorded.json`).

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::*;

/// The size of a cell, and the edge, in pixels.
const CELL: (u16, u16) = (8, 17);
const EDGE: u16 = 10;
/// The colours of the terminal.
const PAPER: &str = "#1c1c1c";
const INK: &str = "#d0d0d0";

/// Returns the recorded look.
fn recorded() -> Sample {
    let text = include_str!("../screens/recorded.json");
    let document: Value = serde_json::from_str(text).unwrap();
    let run = |run: &Value| Run {
        keeper: u32::try_from(run["keeper"].as_u64().unwrap()).unwrap(),
        document: run.clone(),
        timeline: Some(run["timeline"].clone()),
    };
    let runs = document["runs"].as_array().unwrap().iter().map(run).collect();
    Sample { runs, silent: Vec::new() }
}

/// Returns colours of ink and paper.
fn colours(cell: &Cell) -> (&'static str, &'static str) {
    let ink = match cell.fg {
        Color::Red => "#ff6c60",
        Color::Yellow => "#e0c060",
        Color::Cyan => "#60c0d0",
        _ if cell.modifier.contains(Modifier::DIM) => "#909090",
        _ => INK,
    };
    if cell.modifier.contains(Modifier::REVERSED) { (PAPER, ink) } else { (ink, PAPER) }
}

/// Draws a screen.
fn svg(buffer: &Buffer) -> String {
    let (columns, lines) = (buffer.area.width, buffer.area.height);
    let (width, height) = (columns * CELL.0 + 2 * EDGE, lines * CELL.1 + 2 * EDGE);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{PAPER}\"/>\n"
    );
    for line in 0..lines {
        let top = EDGE + line * CELL.1;
        let cells: Vec<&Cell> = (0..columns).map(|column| &buffer[(column, line)]).collect();
        let mut at = 0;
        for run in cells.chunk_by(|one, other| one.style() == other.style()) {
            let (left, length) = (EDGE + at * CELL.0, run.len() as u16 * CELL.0);
            at += run.len() as u16;
            let (ink, paper) = colours(run[0]);
            if paper != PAPER {
                let size = format!("width=\"{length}\" height=\"{}\"", CELL.1);
                writeln!(svg, "<rect x=\"{left}\" y=\"{top}\" {size} fill=\"{paper}\"/>").unwrap();
            }
            let text: String = run.iter().map(|cell| cell.symbol()).collect();
            let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            if text.trim().is_empty() {
                continue;
            }
            let is_bold = run[0].modifier.contains(Modifier::BOLD);
            let weight = if is_bold { " font-weight=\"bold\"" } else { "" };
            writeln!(
                svg,
                "<text x=\"{left}\" y=\"{}\" textLength=\"{length}\" fill=\"{ink}\"{weight} \
                 xml:space=\"preserve\">{text}</text>",
                top + 13
            )
            .unwrap();
        }
    }
    svg.push_str("</svg>\n");
    svg
}

#[test]
fn the_picture_is_fresh() {
    let mut state = State::new(false);
    state.take(recorded());
    let skill = Skill { has_colours: true, has_blocks: true };
    let found = svg(drawn(&mut state, (80, 20), skill).backend().buffer());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/top.svg");
    if std::env::var_os("COLDPRESS_WRITE_DOCS").is_some() {
        fs::write(&path, &found).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap_or_default() == found, "run `make docs`");
}
