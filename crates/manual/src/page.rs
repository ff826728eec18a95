//! One man page.
//!
//! clap_mangen makes the sections of name, synopsis, options and subcommands. The end of the long
//! help becomes sections, too: each line without indentation that ends with a colon begins one, and
//! indented lines stand as they are. A line below one with six spaces in front has its meaning.

use clap::{Arg, Command};
use clap_mangen::Man;
use roff::{Inline, Roff, bold, roman};

use crate::shown;

/// The number of the manual's section for commands.
const SECTION: &str = "1";

/// The date of a page. An empty one would be left out, and what follows stand in its place.
const NO_DATE: &str = " ";

/// Returns the name of a command as its pages have it: `coldpress-ctl-get`.
pub(crate) fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

/// Returns the file name of a command's page.
pub(crate) fn file_name(command: &Command) -> String {
    format!("{}.{SECTION}", name(command))
}

/// Returns the page of `command`, a part of `whole`.
pub(crate) fn page(command: &Command, whole: &Command) -> String {
    let source = format!("{} {}", whole.get_name(), whole.get_version().unwrap_or_default());
    let man = Man::new(command.clone().mut_args(whole_help))
        .title(name(command).to_uppercase())
        .section(SECTION)
        .date(NO_DATE)
        .source(source);
    let mut bytes = Vec::new();
    man.render_title(&mut bytes)
        .and_then(|()| man.render_name_section(&mut bytes))
        .and_then(|()| man.render_synopsis_section(&mut bytes))
        .and_then(|()| man.render_description_section(&mut bytes))
        .and_then(|()| match command.has_subcommands() {
            true => man.render_subcommands_section(&mut bytes),
            false => Ok(()),
        })
        .and_then(|()| man.render_options_section(&mut bytes))
        .expect("memory takes what is written");
    let mut text = String::from_utf8(bytes).expect("pages are text");
    text.push_str(&sections(command));
    text.push_str(&see_also(command, whole));
    // A line of the page must not end with a space.
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Returns an option with its variable and all of its help.
fn whole_help(option: Arg) -> Arg {
    let help = option.get_long_help().or(option.get_help()).cloned();
    option.hide_env(false).long_help(help.unwrap_or_default())
}

/// Returns the sections that the long help ends with, and the variables of options.
fn sections(command: &Command) -> String {
    let mut roff = Roff::new();
    let end = command.get_after_long_help().or(command.get_after_help());
    let end = end.map(ToString::to_string).unwrap_or_default();
    let mut is_literal = false;
    let mut has_variables = false;
    let lines: Vec<&str> = end.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let heading = line.strip_suffix(':').filter(|line| !line.starts_with(' '));
        let has_meaning = lines.get(index + 1).is_some_and(|next| meaning(next).is_some());
        let is_indented = line.starts_with(' ') && !has_meaning && meaning(line).is_none();
        if is_literal && !is_indented {
            roff.control("fi", []);
        }
        if !is_literal && is_indented {
            roff.control("nf", []);
        }
        is_literal = is_indented;
        match heading {
            Some(heading) => {
                roff.control("SH", [heading.to_uppercase().as_str()]);
                if heading == "Environment" {
                    has_variables = true;
                    variables(&mut roff, command);
                    roff.control("PP", []);
                }
            }
            None if line.is_empty() => drop(roff.control("PP", [])),
            None if has_meaning => {
                roff.control("TP", []).text([bold(line.trim_start())]);
            }
            None => drop(roff.text([roman(meaning(line).unwrap_or(line))])),
        }
    }
    if is_literal {
        roff.control("fi", []);
    }
    if !has_variables && command.get_arguments().any(|option| option.get_env().is_some()) {
        roff.control("SH", ["ENVIRONMENT"]);
        variables(&mut roff, command);
    }
    roff.to_roff()
}

/// Returns the meaning of the line above, if `line` has one.
pub(crate) fn meaning(line: &str) -> Option<&str> {
    line.strip_prefix("      ").filter(|rest| !rest.starts_with(' '))
}

/// Adds the variables of the options of `command` and of all below it.
fn variables(roff: &mut Roff, command: &Command) {
    let mut found: Vec<(String, Vec<Inline>)> = Vec::new();
    add_variables(&mut found, command);
    for (variable, meaning) in found {
        roff.control("TP", []).text([bold(variable)]).text(meaning);
    }
}

fn add_variables(found: &mut Vec<(String, Vec<Inline>)>, command: &Command) {
    for option in command.get_arguments() {
        let (Some(variable), Some(long)) = (option.get_env(), option.get_long()) else { continue };
        let variable = variable.to_string_lossy().into_owned();
        let of = format!(" of {}", command.get_bin_name().unwrap_or(command.get_name()));
        match found.iter_mut().find(|(known, _)| *known == variable) {
            Some((_, meaning)) => meaning.push(roman(format!(" and{of}"))),
            None => {
                found.push((variable, vec![roman("As "), bold(format!("--{long}")), roman(of)]))
            }
        }
    }
    shown(command).for_each(|below| add_variables(found, below));
}

/// Returns the section that names the command above, and for the whole all pages.
fn see_also(command: &Command, whole: &Command) -> String {
    let mut names = Vec::new();
    add_names(&mut names, whole);
    names.retain(|other| other != name(command));
    if names.is_empty() {
        return String::new();
    }
    let mut line: Vec<Inline> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        line.push(bold(name));
        let is_last = index + 1 == names.len();
        line.push(roman(format!("({SECTION}){}", if is_last { "" } else { ", " })));
    }
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]).text(line);
    roff.to_roff()
}

fn add_names(names: &mut Vec<String>, command: &Command) {
    names.push(name(command).to_owned());
    shown(command).for_each(|below| add_names(names, below));
}

#[cfg(test)]
mod tests {
    //! The risk: a page lacks what the help has.

    use super::*;

    #[test]
    fn the_end_of_the_help_becomes_sections() {
        let mut command = Command::new("a").after_long_help(
            "Examples:\n  a --b\n\nKnobs:\n  k (on)\n      It turns\n\n\
             Environment:\n  PATH  x\nProse ends here.\n\nExit status:\n  0",
        );
        command = command.subcommand(Command::new("c").arg(Arg::new("d").long("d").env("A_D")));
        command.build();
        let page = page(&command, &command);
        for part in [
            ".SH EXAMPLES\n.nf\n  a \\-\\-b\n.fi\n",
            ".SH KNOBS\n.TP\n\\fBk (on)\\fR\nIt turns\n",
            ".SH ENVIRONMENT\n.TP\n\\fBA_D\\fR\nAs \\fB\\-\\-d\\fR of a c\n",
            ".nf\n  PATH  x\n.fi\nProse ends here.\n",
            ".SH \"EXIT STATUS\"\n.nf\n  0\n.fi\n",
            ".SH \"SEE ALSO\"\n",
        ] {
            assert!(page.contains(part), "{part:?} is not in:\n{page}");
        }
    }
}
