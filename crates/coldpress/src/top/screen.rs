//! What the screen shows: a title, the table, the last minutes of the chosen run, and a line for
//! questions and answers.
//!
//! On a small screen the minutes go first, then columns. Colours only repeat what the text says.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, RenderDirection, Sparkline, Wrap};

use super::column::{count, size};
use super::keys::{Mode, Request, State};
use super::row::Row;
use super::sample::number;
use super::table;
use crate::args::help::TOP_KEYS;
use crate::ctl::thaw;

/// The height from which on the last minutes are shown, and the lines that they take.
const MINUTES_FROM: u16 = 16;
const MINUTES_LINES: u16 = 4;
/// The most lines that an answer takes at the bottom.
const TOLD_LINES: u16 = 4;
/// The width of the names of sparklines, and of the values beside them.
const NAME_WIDTH: u16 = 10;
const VALUE_WIDTH: u16 = 15;
/// The part of its budget from which on a run is marked.
const NEARLY_FULL: f64 = 0.9;
/// The stall in per cent that fills a bar at the least: little should look like little.
const STALL_LEAST: u64 = 10;
/// Bars for terminals that show ASCII only.
const ASCII_BARS: bar::Set<'_> = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "*",
    five_eighths: "+",
    half: "=",
    three_eighths: "-",
    one_quarter: ":",
    one_eighth: ".",
    empty: " ",
};

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skill {
    pub(super) has_colours: bool,
    pub(super) has_blocks: bool,
}

impl Skill {
    fn colour(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }
}

/// The parts of the screen.
struct Parts {
    title: Rect,
    head: Rect,
    rows: Rect,
    minutes: Rect,
    unseen: Rect,
    prompt: Rect,
}

impl Parts {
    fn of(area: Rect, prompt_lines: u16) -> Self {
        let minutes = if area.height >= MINUTES_FROM { MINUTES_LINES } else { 0 };
        let [title, head, rows, minutes, unseen, prompt] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(minutes),
            Constraint::Length(1),
            Constraint::Length(prompt_lines),
        ])
        .areas(area);
        Self { title, head, rows, minutes, unseen, prompt }
    }
}

/// Draws the screen, and notes how many rows it has room for.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State, skill: Skill) {
    let area = frame.area();
    if state.mode == Mode::Helping {
        frame.render_widget(Paragraph::new(format!("{TOP_KEYS}\n\nAny key goes back.")), area);
        return;
    }
    let prompt = prompt(state);
    let width = usize::from(area.width.max(1));
    let lines = match state.mode {
        // The last of the keys may be cut: the help has all of them.
        Mode::Browsing => 1,
        // Words are not broken, so that lines are not full.
        _ => (Span::raw(&prompt).width() * 5 / 4).div_ceil(width),
    };
    let lines = u16::try_from(lines).unwrap_or(TOLD_LINES);
    let parts = Parts::of(area, lines.clamp(1, TOLD_LINES));
    state.page = usize::from(parts.rows.height.max(1));
    frame.render_widget(Line::styled(title(state), Modifier::BOLD), parts.title);
    let head = table::head(&state.order, width);
    frame.render_widget(Line::styled(head, Modifier::UNDERLINED), parts.head);
    draw_rows(frame, parts.rows, state, skill);
    if parts.minutes.height > 0 {
        draw_minutes(frame, parts.minutes, state, skill);
    }
    let unseen = Line::styled(state.unseen.as_str(), Modifier::DIM);
    frame.render_widget(unseen, parts.unseen);
    if let Mode::Typing { .. } = state.mode {
        let column = Span::raw(&prompt).width().min(width - 1) as u16;
        frame.set_cursor_position(Position::new(parts.prompt.x + column, parts.prompt.y));
    }
    frame.render_widget(Paragraph::new(prompt).wrap(Wrap { trim: true }), parts.prompt);
}

fn title(state: &State) -> String {
    let several = |count: usize, of: &str, more: &str| match count {
        1 => format!("1 {of}"),
        _ => format!("{count} {of}{more}"),
    };
    let (runs, processes) = state.counts();
    format!("coldpress top: {}, {}", several(runs, "run", "s"), several(processes, "process", "es"))
}

fn draw_rows(frame: &mut Frame<'_>, area: Rect, state: &State, skill: Skill) {
    let (chosen, width) = (state.index(), usize::from(area.width));
    let first = (chosen + 1).saturating_sub(usize::from(area.height));
    let line = |(index, row): (usize, &Row)| {
        let style = style(row, skill);
        let style = if index == chosen { style.add_modifier(Modifier::REVERSED) } else { style };
        let text = table::line(row, width);
        let rest = width.saturating_sub(Span::raw(&text).width());
        Line::styled(format!("{text}{}", " ".repeat(rest)), style)
    };
    let shown = state.rows.iter().enumerate().skip(first).take(usize::from(area.height));
    let mut lines: Vec<_> = shown.map(line).collect();
    if lines.is_empty() {
        lines.push(Line::raw("no run is seen; `coldpress run` begins one"));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn style(row: &Row, skill: Skill) -> Style {
    let budget = row.budget.unwrap_or(0) as f64;
    match row.figures.used as f64 {
        _ if row.note.is_some() => Style::new().add_modifier(Modifier::DIM),
        used if budget > 0.0 && used > budget => skill.colour(Color::Red),
        used if budget > 0.0 && used > budget * NEARLY_FULL => skill.colour(Color::Yellow),
        _ => Style::new(),
    }
}

fn draw_minutes(frame: &mut Frame<'_>, area: Rect, state: &State, skill: Skill) {
    let Some(run) = state.run() else { return };
    let document = &run.document;
    let [head, lines @ ..] = Layout::vertical([Constraint::Length(1); 4]).areas::<4>(area);
    let program = document["program"].as_str().unwrap_or("?");
    let text = format!("{program} ({}), the last 3 minutes:", run.keeper);
    frame.render_widget(Line::styled(text, Modifier::BOLD), head);
    let bars = area.width.saturating_sub(NAME_WIDTH + VALUE_WIDTH);
    let series = state.history.series(run.keeper, usize::from(bars));
    let (used, budget) = (number(document, "used_bytes"), number(document, "budget_bytes"));
    let rate = |name: &str| document[name].as_f64();
    let faults = rate("faults_per_second").map_or("-".to_owned(), count);
    let stall = rate("stall_percent").map_or("-".to_owned(), |it| format!("{it:.1}"));
    let most = |bars: &[u64]| bars.iter().copied().max().unwrap_or(0);
    for (area, name, bars, most, value) in [
        (lines[0], "used", &series.used, budget, format!("{} of {}", size(used), size(budget))),
        (lines[1], "faults/s", &series.faults, most(&series.faults), faults),
        (lines[2], "stall%", &series.stall, most(&series.stall).max(STALL_LEAST), stall),
    ] {
        let [label, middle, end] = Layout::horizontal([
            Constraint::Length(NAME_WIDTH),
            Constraint::Min(0),
            Constraint::Length(VALUE_WIDTH),
        ])
        .areas(area);
        frame.render_widget(Line::raw(name), label);
        let line = Sparkline::default()
            .data(bars.iter().rev())
            .direction(RenderDirection::RightToLeft)
            .max(most.max(1))
            .bar_set(if skill.has_blocks { bar::NINE_LEVELS } else { ASCII_BARS })
            .style(skill.colour(Color::Cyan));
        frame.render_widget(line, middle);
        frame.render_widget(Line::raw(value).right_aligned(), end);
    }
}

/// Returns the last line: keys, a question, or an answer.
fn prompt(state: &State) -> String {
    match &state.mode {
        Mode::Browsing | Mode::Helping => {
            "h help  q quit  b budget  s knob  t thaw  enter fold  < > sort  r reverse".to_owned()
        }
        Mode::Typing { keeper, given: "", text } => {
            format!("knob of run {keeper}, as codec=zstd:3: {text}")
        }
        Mode::Typing { keeper, text, .. } => {
            format!("budget of run {keeper}, as 2G, 25% or auto: {text}")
        }
        Mode::Confirming(request) => question(request),
        Mode::Told(text) => text.clone(),
    }
}

fn question(request: &Request) -> String {
    let Request { keeper, setting } = request;
    match setting.as_str() {
        thaw::ON => format!("bring all pages of run {keeper} back, budget or not? y/n"),
        thaw::OFF => format!("end the thawing of run {keeper}, so that pages may leave? y/n"),
        _ => format!("set {setting} for run {keeper}? y/n"),
    }
}
