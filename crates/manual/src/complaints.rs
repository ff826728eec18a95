//! What is wrong with the help of a command: long texts, long sentences, what a page lacks.

use std::fmt::Write as _;

use clap::Command;

use crate::page::{self, meaning};
use crate::shown;

/// The screen that a short help fits on, with the line of the prompt below it.
const COLUMNS: usize = 80;
const LINES: usize = 23;
/// The most words of a sentence.
const WORDS: usize = 19;

/// Returns all that is wrong with `command` and its subcommands.
pub(crate) fn all(command: &Command) -> Vec<String> {
    let mut found = Vec::new();
    add(&mut found, command, command);
    found
}

fn add(found: &mut Vec<String>, command: &Command, whole: &Command) {
    let name = page::name(command);
    // In the help the entry `help` has a line, which a command without it lacks here.
    let lines = LINES - usize::from(command.has_subcommands());
    let short = command.clone().term_width(COLUMNS).render_help().to_string();
    let count = short.lines().count();
    if count > lines {
        found.push(format!("{name}: a short help of {count} lines, at most {lines}:\n{short}"));
    }
    for line in short.lines().filter(|line| line.chars().count() > COLUMNS) {
        found.push(format!("{name}: a line of more than {COLUMNS} columns: {line}"));
    }
    let end = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let is_literal = |line: &&str| !is_prose(line) && meaning(line).is_none();
    for line in end.lines().filter(is_literal).filter(|line| line.chars().count() > COLUMNS) {
        found.push(format!("{name}: a line of more than {COLUMNS} columns: {line}"));
    }
    for text in texts(command) {
        for sentence in sentences(&text).filter(|it| it.split_whitespace().count() > WORDS) {
            let count = sentence.split_whitespace().count();
            found.push(format!("{name}: a sentence of {count} words: {sentence}"));
        }
    }
    let page = page::page(command, whole).replace("\\-", "-");
    let long = command.clone().render_long_help().to_string();
    for option in options_in(&long).filter(|option| !page.contains(*option)) {
        found.push(format!("{}: lacks {option}", page::file_name(command)));
    }
    shown(command).for_each(|below| add(found, below, whole));
}

/// Returns the texts of a command that people read from beginning to end.
fn texts(command: &Command) -> Vec<String> {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
    let options = command
        .get_arguments()
        .filter_map(|option| option.get_long_help().or(option.get_help()).map(ToString::to_string));
    let end = command.get_after_long_help().or(command.get_after_help());
    // What stands on its line is a word and its meaning.
    let lines = end.map(ToString::to_string).unwrap_or_default();
    let mut prose = String::new();
    for line in lines.lines() {
        let _ = write!(prose, "{}{line}", if is_prose(line) { " " } else { "\n\n" });
    }
    about.into_iter().chain(options).chain([prose]).collect()
}

/// Returns whether a line goes on with the one above it.
fn is_prose(line: &str) -> bool {
    !line.starts_with(' ') && !line.ends_with(':') && !line.is_empty()
}

/// Returns the sentences of a text.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n\n").flat_map(|paragraph| paragraph.split(". "))
}

/// Returns the long options that a text names.
fn options_in(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '-';
    let words = text.split(move |char| !is_part(char));
    words.filter(|word| word.len() > 2 && word.starts_with("--"))
}

#[cfg(test)]
mod tests {
    //! The risk: nothing is ever complained about.

    use clap::Arg;

    use super::*;

    fn of(mut command: Command) -> Vec<String> {
        command.build();
        all(&command)
    }

    #[test]
    fn long_helps_and_sentences_are_complained_about() {
        assert!(of(Command::new("a").about("It is short")).is_empty());
        let limit = "a b c d e f g h i j k l m n o p q r s";
        let long = "a b c d e f g h i j k l m n o p q r s t";
        assert!(of(Command::new("a").about("a b c d e f g h i. j k l m n o p q r s t")).is_empty());
        assert!(of(Command::new("a").about(limit)).is_empty());
        assert_eq!(of(Command::new("a").about(long)).len(), 1);
        assert_eq!(of(Command::new("a").arg(Arg::new("b").long("b").help(long))).len(), 1);
        let lines = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19";
        assert_eq!(of(Command::new("a").after_help(lines)).len(), 1);
    }

    #[test]
    fn an_option_that_only_the_help_names_is_complained_about() {
        let command = Command::new("a").help_template("{usage} --gone");
        assert_eq!(of(command), ["a.1: lacks --gone"]);
    }
}
