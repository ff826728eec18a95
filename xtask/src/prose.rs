//! Comments as running text: sentences go on over the ends of lines, and each place keeps its line.

use crate::rust_file::RustFile;

/// The starts of a clause with a headless "who". A `/` stands for the start of a doc comment.
const HEADLESS: &[&str] =
    &[". Who ", "/ Who ", ": who ", "; who ", ", who ", " of who ", " by who "];

/// The comments of a file without line breaks and the signs in front.
pub(crate) struct Prose {
    /// The text.
    pub(crate) text: String,
    /// The offsets at which the lines with comments begin, each with the line, from 1.
    lines: Vec<(usize, usize)>,
}

impl Prose {
    /// Returns the comments of `file`.
    pub(crate) fn of(file: &RustFile) -> Self {
        let mut prose = Self { text: String::new(), lines: Vec::new() };
        for (index, line) in file.masked.comments.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let begins = line.starts_with("//!") || line.starts_with("///");
            let text = &mut prose.text;
            prose.lines.push((text.len(), index + 1));
            text.push_str(if begins && text.ends_with(". ") { "/ " } else { "" });
            text.push_str(line.trim_start_matches(['/', '!']).trim());
            text.push(' ');
        }
        prose
    }

    /// Returns the lines, from 1, with a clause that begins with a headless "who".
    pub(crate) fn headless(&self) -> Vec<usize> {
        let starts = HEADLESS.iter().flat_map(|start| {
            let who = start.len() - "who ".len();
            self.text.match_indices(start).map(move |(at, _)| at + who)
        });
        let mut lines: Vec<_> = starts.map(|at| self.line_of(at)).collect();
        lines.sort_unstable();
        lines
    }

    /// Returns the line, from 1, of the character at `offset`.
    fn line_of(&self, offset: usize) -> usize {
        let after = self.lines.partition_point(|(start, _)| *start <= offset);
        self.lines[after - 1].1
    }
}
