//! The risk: `docs/options.md`, `docs/knobs.md`, the man pages or the completions disagree with the
//! command, or its help is long and hard to read.
//!
//! The tests make all of them from the definition of the command line and from the table of knobs.
//! A test fails when a page is not fresh; with `COLDPRESS_WRITE_DOCS=1` it writes the page instead
//! (`make docs`).

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};
use coldpress_runtime::knobs::{Knob, Knobs};

use crate::args::{self, Cli};
use crate::knobs::{shown, values};

/// The line that says where a page comes from.
const MADE: &str = "Made by `make docs` from the command itself.";

#[test]
fn man_pages_and_completions_are_fresh_and_the_help_is_plain() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    coldpress_manual::check(args::command(), &root);
}

#[test]
fn the_page_of_options_is_fresh() {
    let mut page = format!("# Options\n\n{MADE}\n");
    let command = Cli::command();
    for name in ["run", "advise", "ctl", "top", "why", "doctor"] {
        let mut command = command.find_subcommand(name).unwrap().clone();
        command.build();
        section(&mut page, &format!("coldpress {name}"), &command);
    }
    check("options.md", &page);
}

#[test]
fn the_page_of_knobs_is_fresh() {
    let mut page = format!(
        "# Knobs\n\n{MADE}\n\n\
         `coldpress run --set NAME=VALUE` turns a knob at the start, `coldpress ctl PID set \
         NAME=VALUE`\nwhile the run goes on, and `coldpress ctl PID get` shows all of them.\n\n\
         | knob | values | default | meaning |\n| --- | --- | --- | --- |\n"
    );
    let defaults = Knobs::default();
    for knob in Knob::ALL {
        let cells = [
            format!("`{}`", knob.name()),
            values(*knob),
            shown(&defaults, *knob),
            knob.help().to_owned(),
        ];
        row(&mut page, &cells);
    }
    check("knobs.md", &page);
}

#[test]
fn the_promised_knobs_are_those_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/stability.md")).unwrap();
    let section = page.split("\n## ").find(|it| it.starts_with("Knobs\n")).unwrap();
    let promised = section.lines().filter(|line| line.starts_with("    "));
    let promised: Vec<_> = promised.flat_map(str::split_whitespace).collect();
    let there: Vec<_> = Knob::ALL.iter().map(|knob| knob.name()).collect();
    assert_eq!(promised, there);
}

/// Adds a section for a command: its options, and the text after them in its help.
fn section(page: &mut String, name: &str, command: &Command) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    write!(page, "\n## {name}\n\n{about}.\n").unwrap();
    let is_shown = |option: &&Arg| {
        let is_option = option.get_long().is_some_and(|name| name != "help");
        is_option && !option.is_hide_set()
    };
    let options: Vec<&Arg> = command.get_arguments().filter(is_shown).collect();
    if !options.is_empty() {
        page.push_str("\n| option | variable | default | meaning |\n| --- | --- | --- | --- |\n");
        options.into_iter().for_each(|option| row(page, &cells(option)));
    }
    let verbs: Vec<&Command> =
        command.get_subcommands().filter(|it| it.get_name() != "help").collect();
    if !verbs.is_empty() {
        page.push_str("\n| verb | meaning |\n| --- | --- |\n");
        for verb in verbs {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            row(page, &[format!("`{}`", verb.get_name()), about]);
        }
    }
    // The help of ctl ends with the table of knobs, which has a page of its own.
    if let Some(help) = command.get_after_long_help().filter(|_| command.get_name() == "run") {
        write!(page, "\n```text\n{help}\n```\n").unwrap();
    }
}

/// Formats an option as the cells of a row.
fn cells(option: &Arg) -> [String; 4] {
    let mut name = String::new();
    if let Some(short) = option.get_short() {
        write!(name, "-{short}, ").unwrap();
    }
    write!(name, "--{}", option.get_long().unwrap_or_default()).unwrap();
    if option.get_action().takes_values() {
        let value = option.get_value_names().and_then(|names| names.first());
        let value = value.map(ToString::to_string).unwrap_or_default();
        let is_free = option.get_num_args().is_some_and(|count| count.min_values() == 0);
        name.push_str(&if is_free { format!("[={value}]") } else { format!(" {value}") });
    }
    let variable = option.get_env().map(|name| format!("`{}`", name.to_string_lossy()));
    let default = option.get_default_values().first().map(|it| it.to_string_lossy().into_owned());
    let is_switch = !option.get_action().takes_values();
    let help = option.get_long_help().or(option.get_help()).map(ToString::to_string);
    // The first paragraph is a heading without an end.
    let help = help.unwrap_or_default().replacen("\n\n", ". ", 1).replace("\n\n", " ");
    [
        format!("`{name}`"),
        variable.unwrap_or_default(),
        default.filter(|_| !is_switch).unwrap_or_default(),
        help,
    ]
}

fn row(page: &mut String, cells: &[String]) {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    writeln!(page, "| {} |", cells.join(" | ")).unwrap();
}

/// Compares a page with the file, or writes it there.
fn check(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("COLDPRESS_WRITE_DOCS").is_some() {
        fs::write(&path, page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page, "docs/{name} is not fresh: run `make docs`");
}
