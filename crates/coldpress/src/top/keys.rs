//! What keys do: a machine of states, which knows neither terminal nor keeper.
//!
//! Whatever changes a run goes through [`Mode::Confirming`], and only `y` leads out of it with an
//! action.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::history::History;
use super::model::{Order, rows};
use super::row::{Fold, Id, Row};
use super::sample::{Run, Sample};
use super::table;
use crate::ctl::thaw;

/// The longest text that can be typed.
const TEXT_MAX: usize = 200;

/// A change of a run that the user has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) keeper: u32,
    pub(super) setting: String,
}

/// What the screen is for at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Browsing,
    Helping,
    /// The user types a value, behind what is given.
    Typing {
        keeper: u32,
        given: &'static str,
        text: String,
    },
    Confirming(Request),
    /// The user reads what came of a request.
    Told(String),
}

/// What a key asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    Ask(Request),
}

/// All that the screen shows.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) mode: Mode,
    pub(super) order: Order,
    pub(super) rows: Vec<Row>,
    pub(super) history: History,
    /// What is not shown, in words.
    pub(super) unseen: String,
    /// The number of rows that the screen has room for.
    pub(super) page: usize,
    sample: Sample,
    chosen: Option<Id>,
}

impl State {
    pub(super) fn new(shows_silent: bool) -> Self {
        Self {
            mode: Mode::Browsing,
            order: Order::new(shows_silent),
            rows: Vec::new(),
            history: History::default(),
            unseen: String::new(),
            page: 1,
            sample: Sample::default(),
            chosen: None,
        }
    }

    /// Takes another look in.
    pub(super) fn take(&mut self, sample: Sample) {
        self.history.note(&sample);
        self.unseen = table::unseen(&sample, &self.order);
        self.sample = sample;
        self.arrange();
    }

    /// Returns the index of the chosen row: the first one, until another is chosen.
    pub(super) fn index(&self) -> usize {
        let found = self.rows.iter().position(|row| Some(row.id) == self.chosen);
        found.unwrap_or(0)
    }

    /// Returns the run of the chosen row, if it has answered.
    pub(super) fn run(&self) -> Option<&Run> {
        let keeper = self.rows.get(self.index())?.id.keeper();
        self.sample.runs.iter().find(|run| run.keeper == keeper)
    }

    /// Returns the number of runs that have answered, and of their processes.
    pub(super) fn counts(&self) -> (usize, usize) {
        let runs = &self.sample.runs;
        let processes = |run: &Run| run.document["tree"].as_array().map_or(0, Vec::len);
        (runs.len(), runs.iter().map(processes).sum())
    }

    /// Notes what came of a request.
    pub(super) fn tell(&mut self, text: String) {
        self.mode = Mode::Told(text);
    }

    /// Does what a key says, except for what it returns.
    pub(super) fn press(&mut self, key: KeyEvent) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Action::Quit } else { Action::Nothing };
        }
        match std::mem::replace(&mut self.mode, Mode::Browsing) {
            Mode::Browsing => return self.browse(key.code),
            Mode::Helping | Mode::Told(_) => {}
            Mode::Typing { keeper, given, text } => {
                self.mode = typed(keeper, given, text, key.code)
            }
            Mode::Confirming(request) => match key.code {
                KeyCode::Char('y' | 'Y') => return Action::Ask(request),
                KeyCode::Char('n' | 'N') | KeyCode::Esc => self.tell("nothing was changed".into()),
                _ => self.mode = Mode::Confirming(request),
            },
        }
        Action::Nothing
    }

    fn browse(&mut self, key: KeyCode) -> Action {
        let (at, last) = (self.index(), self.rows.len().saturating_sub(1));
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.mode = Mode::Helping,
            KeyCode::Up | KeyCode::Char('k') => self.choose(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(at + 1),
            KeyCode::PageUp => self.choose(at.saturating_sub(self.page)),
            KeyCode::PageDown => self.choose(at + self.page),
            KeyCode::Home => self.choose(0),
            KeyCode::End => self.choose(last),
            KeyCode::Left => self.fold(&[Fold::Open]),
            KeyCode::Right => self.fold(&[Fold::Closed]),
            KeyCode::Enter | KeyCode::Char(' ') => self.fold(&[Fold::Open, Fold::Closed]),
            KeyCode::Char('<' | ',') => self.sort(-1),
            KeyCode::Char('>' | '.') => self.sort(1),
            KeyCode::Char('r') => {
                self.order.is_rising = !self.order.is_rising;
                self.arrange();
            }
            KeyCode::Char('b') => self.begin_typing("memory="),
            KeyCode::Char('s') => self.begin_typing(""),
            KeyCode::Char('t') => self.thaw(),
            _ => {}
        }
        Action::Nothing
    }

    fn choose(&mut self, index: usize) {
        let row = self.rows.get(index.min(self.rows.len().saturating_sub(1)));
        self.chosen = row.map(|row| row.id);
    }

    /// Opens or closes the chosen row, if it is one of `these`.
    fn fold(&mut self, these: &[Fold]) {
        let Some(row) = self.rows.get(self.index()).filter(|row| these.contains(&row.fold)) else {
            return;
        };
        let id = row.id;
        if !self.order.closed.remove(&id) {
            self.order.closed.insert(id);
        }
        self.chosen = Some(id);
        self.arrange();
    }

    fn sort(&mut self, by: isize) {
        self.order.by = self.order.by.step(by);
        self.arrange();
    }

    fn begin_typing(&mut self, given: &'static str) {
        match self.run() {
            Some(run) => {
                self.mode = Mode::Typing { keeper: run.keeper, given, text: String::new() };
            }
            None => self.tell("there is no run to change".into()),
        }
    }

    /// Begins to ask for what turns the knob `thawed` round.
    fn thaw(&mut self) {
        let Some(run) = self.run() else { return self.tell("there is no run to thaw".into()) };
        let is_thawed = run.document["knobs"]["thawed"] == "on";
        let setting = if is_thawed { thaw::OFF } else { thaw::ON }.to_owned();
        self.mode = Mode::Confirming(Request { keeper: run.keeper, setting });
    }

    /// Makes the rows anew. The row below takes the place of a chosen one that has gone.
    fn arrange(&mut self) {
        let index = self.index();
        self.rows = rows(&self.sample, &self.order);
        let is_there = self.rows.iter().any(|row| Some(row.id) == self.chosen);
        if self.chosen.is_some() && !is_there {
            self.choose(index);
        }
    }
}

/// Returns the mode after a key of the text that is typed.
fn typed(keeper: u32, given: &'static str, mut text: String, key: KeyCode) -> Mode {
    match key {
        KeyCode::Esc => return Mode::Browsing,
        KeyCode::Enter if text.trim().is_empty() => return Mode::Browsing,
        KeyCode::Enter => {
            let setting = format!("{given}{}", text.trim());
            // Other words ask for other answers.
            if !setting.contains('=') {
                let wrong = format!("\"{setting}\" sets nothing: write a knob as codec=zstd:3");
                return Mode::Told(wrong);
            }
            return Mode::Confirming(Request { keeper, setting });
        }
        KeyCode::Backspace => drop(text.pop()),
        // No size and no knob has other characters, and a line is one setting.
        KeyCode::Char(char) if char.is_ascii_graphic() && text.len() < TEXT_MAX => text.push(char),
        _ => {}
    }
    Mode::Typing { keeper, given, text }
}

#[cfg(test)]
mod tests {
    //! The risk: a key changes a run without the user's word, or another run than is chosen.

    use serde_json::json;

    use super::super::column::Column;
    use super::*;

    fn sample(keepers: &[u32]) -> Sample {
        let run = |keeper: &u32| {
            let document = json!({
                "program": "job", "knobs": { "thawed": if *keeper == 2 { "on" } else { "off" } },
                "used_bytes": 100 - keeper,
                "tree": [{ "process": 10 + keeper, "name": "a", "joined": true }],
            });
            Run { keeper: *keeper, document, timeline: None }
        };
        Sample { runs: keepers.iter().map(run).collect(), silent: Vec::new() }
    }

    fn state() -> State {
        let mut state = State::new(false);
        state.take(sample(&[1, 2]));
        state
    }

    fn press(state: &mut State, keys: &str) -> Action {
        let mut action = Action::Nothing;
        for char in keys.chars() {
            let code = match char {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                '\x08' => KeyCode::Backspace,
                _ => KeyCode::Char(char),
            };
            action = state.press(KeyEvent::new(code, KeyModifiers::NONE));
        }
        action
    }

    fn request(keeper: u32, setting: &str) -> Action {
        Action::Ask(Request { keeper, setting: setting.to_owned() })
    }

    #[test]
    fn a_change_needs_the_users_word() {
        let mut state = state();
        for keys in ["b64M\n", "sidle=on\n", "t"] {
            assert_eq!(press(&mut state, keys), Action::Nothing);
            assert!(matches!(state.mode, Mode::Confirming(_)), "{keys}");
            for other in ["\n", " ", "q", "b", "x"] {
                assert_eq!(press(&mut state, other), Action::Nothing);
            }
            assert_eq!(press(&mut state, "n"), Action::Nothing);
            assert!(matches!(&state.mode, Mode::Told(text) if text.contains("nothing")));
            assert_eq!(press(&mut state, "xx"), Action::Nothing);
        }
        assert_eq!(press(&mut state, "b6x\x084M\ny"), request(1, "memory=64M"));
        assert_eq!(press(&mut state, "sidle=on\ny"), request(1, "idle=on"));
        assert_eq!(press(&mut state, "ty"), request(1, "thawed=on"));
        assert_eq!(state.mode, Mode::Browsing);
    }

    #[test]
    fn a_change_is_of_the_run_that_is_chosen() {
        let mut state = state();
        press(&mut state, "jjj");
        assert_eq!(state.index(), 3);
        assert_eq!(press(&mut state, "ty"), request(2, "thawed=off"));
        // While the user types, another look brings the rows into another order.
        press(&mut state, "b1G");
        state.take(sample(&[2, 3]));
        assert_eq!(press(&mut state, "\ny"), request(2, "memory=1G"));
        assert_eq!(state.rows[state.index()].id, Id::Process(2, 12));
    }

    #[test]
    fn typing_can_be_left_and_takes_what_settings_have() {
        let mut state = state();
        assert_eq!(press(&mut state, "b1\x1b"), Action::Nothing);
        assert_eq!(state.mode, Mode::Browsing);
        press(&mut state, "b \t\u{e9}\n");
        assert_eq!(state.mode, Mode::Browsing);
        for word in ["timeline", "codec"] {
            press(&mut state, &format!("s{word}\n"));
            assert!(matches!(&state.mode, Mode::Told(text) if text.contains("sets nothing")));
            assert_eq!(press(&mut state, "y"), Action::Nothing);
        }
        press(&mut state, &format!("s{}", "x".repeat(2 * TEXT_MAX)));
        assert!(matches!(&state.mode, Mode::Typing { text, .. } if text.len() == TEXT_MAX));
    }

    #[test]
    fn rows_are_chosen_folded_and_sorted() {
        let mut state = state();
        press(&mut state, "\n");
        assert_eq!((state.rows.len(), state.rows[0].fold), (3, Fold::Closed));
        press(&mut state, " ");
        assert_eq!(state.rows.len(), 4);
        press(&mut state, ">");
        assert_eq!(state.order.by, Column::Budget);
        press(&mut state, "<<r");
        assert_eq!((state.order.by, state.order.is_rising), (Column::Process, true));
        // The chosen run is the same one, wherever it stands.
        assert_eq!(state.rows[state.index()].id, Id::Run(1));
        press(&mut state, "kkkk");
        assert_eq!(state.index(), 0);
        assert_eq!(press(&mut state, "q"), Action::Quit);
    }

    #[test]
    fn what_has_gone_is_not_chosen_any_more() {
        let mut state = state();
        press(&mut state, "jjj");
        state.take(sample(&[1]));
        assert_eq!(state.index(), 1);
        state.take(sample(&[]));
        assert_eq!((state.index(), state.rows.len()), (0, 0));
        press(&mut state, "jk\n>t");
        assert!(matches!(state.mode, Mode::Told(_)));
        press(&mut state, "xb");
        assert!(matches!(state.mode, Mode::Told(_)));
    }

    #[test]
    fn control_c_quits_from_anywhere() {
        let mut state = state();
        for keys in ["", "h", "b1", "t"] {
            press(&mut state, keys);
            let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
            assert_eq!(state.press(key), Action::Quit);
            state.mode = Mode::Browsing;
        }
    }
}
