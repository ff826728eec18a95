//! The risk: a screen of some size or of some state shows figures elsewhere than under their
//! titles, nothing, or colours to a user that wants none.
//!
//! The screens lie in `screens`. With `COLDPRESS_WRITE_DOCS=1` they are written anew (`make docs`).

use std::fs;
use std::path::Path;

use coldpress_common::failure::Failure;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::{Value, json};

use super::keys::State;
use super::sample::{Run, Sample, Silent};
use super::screen::{Skill, draw};

mod picture;

const PLAIN: Skill = Skill { has_colours: false, has_blocks: false };

fn process(process: u32, parent: u32, name: &str, mib: u64) -> Value {
    json!({
        "process": process, "parent": parent, "name": name, "joined": true, "managed": true,
        "why": null, "used_bytes": mib << 20, "pool_original_bytes": mib * (3 << 20),
        "pool_compressed_bytes": mib << 20, "disk_held_bytes": mib << 19,
        "faults_per_second": mib as f64 * 10.0, "stall_percent": mib as f64 / 10.0,
    })
}

/// A look at a build and a server, `second` seconds after their start.
fn sample(second: u64) -> Sample {
    let mut static_one = process(4713, 4711, "busybox", 9);
    static_one["joined"] = json!(false);
    static_one["why"] = json!("is static");
    let tree = [
        process(4711, 4700, "make", 3),
        process(4712, 4711, "cc1", 200),
        static_one,
        process(4714, 4712, "as", 40),
    ];
    let run = |keeper: u32, program: &str, tree: &[Value], used: u64, budget: u64| {
        let document = json!({
            "program": program, "time_ns": second * 1_000_000_000, "tree": tree,
            "used_bytes": used << 20, "budget_bytes": budget << 20,
            "pool_original_bytes": 729_u64 << 20, "pool_compressed_bytes": 243_u64 << 20,
            "disk_held_bytes": 121_u64 << 20, "faults": second * second * 20,
            "stall_ns": second * 100_000_000, "faults_per_second": 2430.0, "stall_percent": 24.3,
            "knobs": { "thawed": "off" },
        });
        Run { keeper, document, timeline: None }
    };
    let runs = vec![
        run(4700, "make", &tree, 252, 256),
        run(5000, "redis-server", &[process(5001, 5000, "redis-server", 70)], 70, 1024),
    ];
    let failure = Failure::ours("user 0 may not control this run", "ask");
    Sample { runs, silent: vec![Silent { keeper: 99, user: Some(1000), failure }] }
}

fn state() -> State {
    let mut state = State::new(false);
    (0..=180).step_by(6).for_each(|second| state.take(sample(second)));
    state
}

fn press(state: &mut State, keys: &str) {
    for char in keys.chars() {
        let code = if char == '\n' { KeyCode::Enter } else { KeyCode::Char(char) };
        state.press(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

/// Draws a screen of that size.
fn drawn(state: &mut State, size: (u16, u16), skill: Skill) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| draw(frame, state, skill)).unwrap();
    terminal
}

/// Returns the text of a screen.
fn text(terminal: &Terminal<TestBackend>) -> String {
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(usize::from(buffer.area.width)).map(|line| {
        let line: String = line.iter().map(ratatui::buffer::Cell::symbol).collect();
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

/// Compares a screen with the file of its name.
fn check(name: &str, keys: &str, size: (u16, u16)) {
    let mut state = state();
    press(&mut state, keys);
    let found = text(&drawn(&mut state, size, PLAIN));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/screens");
    let path = folder.join(format!("{name}-{}x{}.txt", size.0, size.1));
    if std::env::var_os("COLDPRESS_WRITE_DOCS").is_some() {
        fs::write(&path, &found).unwrap();
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "{name} is now\n{found}\nand was\n{wanted}");
}

#[test]
fn screens_of_all_sizes_are_as_they_were() {
    for size in [(80, 24), (120, 40), (60, 15), (40, 10)] {
        check("table", "", size);
    }
    check("help", "h", (80, 24));
    check("folded", "j\n>>>>>>r", (80, 24));
    check("typing", "b512M", (80, 24));
    check("confirming", "scodec=lzo\n", (40, 10));
    check("thawing", "t", (80, 24));
}

#[test]
fn the_chosen_row_is_on_the_screen_and_every_size_can_be_drawn() {
    for size in [(1, 1), (2, 3), (5, 4), (40, 6), (300, 100)] {
        for keys in ["", "h", "b1", "t"] {
            let mut state = state();
            press(&mut state, keys);
            drawn(&mut state, size, PLAIN);
        }
    }
    let mut state = state();
    press(&mut state, "jjjjjjj");
    let shown = text(&drawn(&mut state, (80, 6), PLAIN));
    assert!(shown.contains("5001") && !shown.contains("4700"), "{shown}");
}

#[test]
fn colours_are_for_those_who_want_them() {
    let colours = |skill| {
        let terminal = drawn(&mut state(), (80, 24), skill);
        let cells = terminal.backend().buffer().content().to_vec();
        let is_coloured = cells.iter().any(|it| it.fg != Color::Reset || it.bg != Color::Reset);
        (is_coloured, text(&terminal).is_ascii())
    };
    assert_eq!(colours(PLAIN), (false, true));
    assert_eq!(colours(Skill { has_colours: true, has_blocks: true }), (true, false));
}

#[test]
fn a_long_answer_is_shown_in_whole() {
    let mut state = state();
    let failure = Failure::ours("memory=1K is less than 16 MiB, the least", "nothing was changed");
    state.tell(failure.to_string());
    let shown = text(&drawn(&mut state, (40, 10), PLAIN));
    assert!(shown.contains("memory=1K") && shown.contains("changed"), "{shown}");
}
