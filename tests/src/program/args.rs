//! Command lines of the form `--name value` and `--flag`, for the target programs.

use std::collections::BTreeMap;
use std::str::FromStr;

/// The parsed options of a program; a mistake in them ends the program with status 2.
pub struct Args {
    values: BTreeMap<String, String>,
}

impl Args {
    /// Parses the command line. `flags` take no value, `options` take one. Other words are refused.
    #[must_use]
    pub fn parse(flags: &[&str], options: &[&str]) -> Self {
        let mut values = BTreeMap::new();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").unwrap_or_else(|| usage(&word));
            if flags.contains(&name) {
                values.insert(name.to_owned(), String::new());
            } else if options.contains(&name) {
                let value = words.next().unwrap_or_else(|| usage(&word));
                values.insert(name.to_owned(), value);
            } else {
                usage(&word);
            }
        }
        Self { values }
    }

    /// Returns whether a flag or option was given.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Returns the value of an option as text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Returns the value of an option, or `default` when it was not given.
    #[must_use]
    pub fn value<T: FromStr>(&self, name: &str, default: T) -> T {
        self.text(name).map_or(default, |text| text.parse().unwrap_or_else(|_| usage(text)))
    }

    /// Returns a size in bytes: a number with an optional K, M or G, powers of 1024.
    #[must_use]
    pub fn bytes(&self, name: &str, default: usize) -> usize {
        self.text(name).map_or(default, |text| parse_bytes(text).unwrap_or_else(|| usage(text)))
    }
}

/// Parses a size in bytes: a number with an optional K, M or G, powers of 1024.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<usize> {
    let (digits, unit) = match text.chars().last()? {
        'K' | 'k' => (&text[..text.len() - 1], 1 << 10),
        'M' | 'm' => (&text[..text.len() - 1], 1 << 20),
        'G' | 'g' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

fn usage(word: &str) -> ! {
    eprintln!("cannot understand {word:?}");
    std::process::exit(2);
}
