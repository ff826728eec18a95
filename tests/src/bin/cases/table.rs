//! The table of cases: `fixtures/cases.txt`, whose head describes the format.

use std::time::Duration;

/// Time limit of a run where the table gives none.
const LIMIT: Duration = Duration::from_secs(60);

/// A property that a run must have to be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right {
    /// The status and the output are those of the plain run; with a word, only the lines that hold
    /// it count.
    Same(String),
    Status(i32),
    Prints(String),
    Never(String),
    Says(String),
    Managed,
    Held,
    Told,
}

/// A program, and what makes its run right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub name: String,
    pub about: String,
    /// A size as `coldpress run` takes it.
    pub budget: String,
    pub limit: Duration,
    pub needs: Option<String>,
    pub command: String,
    pub is_alone: bool,
    /// The case becomes right with a later change.
    pub is_next: bool,
    pub rights: Vec<Right>,
}

/// Returns the cases of a table, or what is wrong with the table, and where.
pub fn parse(text: &str) -> Result<Vec<Case>, String> {
    let text: String = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    let paragraphs = text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty());
    paragraphs.map(case).collect()
}

fn case(paragraph: &str) -> Result<Case, String> {
    let mut lines = paragraph.lines();
    let (name, about) = cut(lines.next().unwrap_or_default());
    let mut case = Case {
        name: name.to_owned(),
        about: about.to_owned(),
        budget: String::new(),
        limit: LIMIT,
        needs: None,
        command: String::new(),
        is_alone: false,
        is_next: false,
        rights: Vec::new(),
    };
    for line in lines {
        line_of(&mut case, line).ok_or_else(|| format!("{name}: cannot understand {line:?}"))?;
    }
    let is_whole = !case.command.is_empty() && !case.budget.is_empty() && !case.rights.is_empty();
    if is_whole {
        Ok(case)
    } else {
        Err(format!("{name}: no budget, no command, or nothing right"))
    }
}

/// Reads one line of the table into `case`; `None` for a line that is wrong.
fn line_of(case: &mut Case, line: &str) -> Option<()> {
    let (key, value) = cut(line);
    let text = || (!value.is_empty()).then(|| value.to_owned());
    let right = match key {
        "budget" => return text().map(|budget| case.budget = budget),
        "limit" => return value.parse().ok().map(|count| case.limit = Duration::from_secs(count)),
        "needs" => return text().map(|program| case.needs = Some(program)),
        "run" => return text().map(|command| case.command = command),
        "alone" => {
            case.is_alone = true;
            return Some(());
        }
        "next" => {
            case.is_next = true;
            return Some(());
        }
        "same" => Right::Same(value.to_owned()),
        "status" => Right::Status(value.parse().ok()?),
        "prints" => Right::Prints(text()?),
        "never" => Right::Never(text()?),
        "says" => Right::Says(text()?),
        "managed" => Right::Managed,
        "held" => Right::Held,
        "told" => Right::Told,
        _ => return None,
    };
    case.rights.push(right);
    Some(())
}

/// Splits `line` into its first word and the rest.
fn cut(line: &str) -> (&str, &str) {
    line.split_once(' ').unwrap_or((line, ""))
}

#[cfg(test)]
mod tests {
    //! Risk: a case of the table is not run, or is judged by less than the table says.

    use super::*;

    #[test]
    fn a_paragraph_is_a_case() {
        let text = "# Words.\nA one of them\nbudget 32M\nlimit 5\nneeds cat\nrun $RUN cat a b\n\
                    same\nsame wrong\nstatus 3\nsays a b\nnext\n\n\nB\nbudget 1G\nrun x\nheld\n";
        let cases = parse(text).expect("it is right");
        assert_eq!(cases.len(), 2);
        assert_eq!((cases[0].name.as_str(), cases[0].about.as_str()), ("A", "one of them"));
        assert_eq!((cases[0].limit, cases[0].is_next), (Duration::from_secs(5), true));
        assert_eq!(cases[0].command, "$RUN cat a b");
        let rights = [
            Right::Same(String::new()),
            Right::Same("wrong".to_owned()),
            Right::Status(3),
            Right::Says("a b".to_owned()),
        ];
        assert_eq!(cases[0].rights, rights);
        assert_eq!((cases[1].limit, &cases[1].rights[..]), (LIMIT, &[Right::Held][..]));
    }

    #[test]
    fn what_is_misspelled_or_missing_is_named() {
        for (text, words) in [
            ("A\nbudget 1G\nrun x\nhold\n", "\"hold\""),
            ("A\nbudget 1G\nrun x\n", "nothing right"),
            ("A\nrun x\nheld\n", "no budget"),
            ("A\nbudget 1G\nrun x\nstatus three\n", "status three"),
            ("A\nbudget 1G\nrun x\nprints\n", "prints"),
        ] {
            let error = parse(text).expect_err("it is wrong");
            assert!(error.starts_with("A: ") && error.contains(words), "{error}");
        }
    }

    #[test]
    fn the_table_of_the_tree_is_right_and_names_each_case_once() {
        let cases = parse(include_str!("../../../fixtures/cases.txt")).expect("it is right");
        let names: std::collections::BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), cases.len());
        assert!(cases.len() > 40, "{}", cases.len());
    }
}
