//! Rust text split into code and comments, so that rules do not read the one as the other.
//!
//! Both halves have the length and the line breaks of the original; a sign of the other half
//! becomes a space. The contents of strings are blank in both halves, and their quotes stay in the
//! code. Anything that is not ASCII becomes `?`, so that a byte is a character.

/// The two halves of a text.
#[derive(Debug, Default)]
pub(crate) struct Masked {
    /// Code without comments and without the contents of strings.
    pub(crate) code: String,
    /// Comments, with their `//`, `///` or `/*`.
    pub(crate) comments: String,
}

/// The half that a character belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Code,
    Comment,
    String,
}

/// A reader that goes over a text once, from the left.
struct Splitter {
    chars: Vec<char>,
    at: usize,
    masked: Masked,
}

impl Masked {
    /// Splits `text`.
    pub(crate) fn new(text: &str) -> Self {
        let chars = text.chars().collect();
        let mut splitter = Splitter { chars, at: 0, masked: Self::default() };
        while splitter.at < splitter.chars.len() {
            splitter.step();
        }
        splitter.masked
    }
}

impl Splitter {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    /// Puts the next `count` characters into `half`.
    fn take(&mut self, count: usize, half: Half) {
        for _ in 0..count.min(self.chars.len() - self.at) {
            let char = if self.peek(0).is_ascii() { self.peek(0) } else { '?' };
            let keep = |wanted: Half| if half == wanted || char == '\n' { char } else { ' ' };
            self.masked.code.push(keep(Half::Code));
            self.masked.comments.push(keep(Half::Comment));
            self.at += 1;
        }
    }

    /// Takes one token: a comment, a string, a character, a word, or one sign.
    fn step(&mut self) {
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => {
                let rest = &self.chars[self.at..];
                let length = rest.iter().position(|char| *char == '\n').unwrap_or(rest.len());
                self.take(length, Half::Comment);
            }
            ('/', '*') => self.block_comment(),
            ('"', _) => self.string(),
            ('\'', _) => self.quote(),
            (char, _) if char == '_' || char.is_alphanumeric() => self.word(),
            _ => self.take(1, Half::Code),
        }
    }

    /// Takes a block comment; block comments nest.
    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    self.take(1, Half::Comment);
                    continue;
                }
            }
            self.take(2, Half::Comment);
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.take(1, Half::Code);
        while self.at < self.chars.len() && self.peek(0) != '"' {
            let escape = usize::from(self.peek(0) == '\\');
            self.take(1 + escape, Half::String);
        }
        self.take(1, Half::Code);
    }

    /// Takes a raw string: `hashes` signs, a quote, text, a quote, the same number of signs.
    fn raw_string(&mut self, hashes: usize) {
        self.take(hashes + 1, Half::Code);
        while self.at < self.chars.len() {
            let closed = self.peek(0) == '"' && (1..=hashes).all(|n| self.peek(n) == '#');
            if closed {
                self.take(hashes + 1, Half::Code);
                return;
            }
            self.take(1, Half::String);
        }
    }

    /// Takes what a quote opens: a character (`'a'`, `'\n'`, `'\u{1F600}'`) or a lifetime (`'a`).
    fn quote(&mut self) {
        if self.peek(1) == '\\' {
            self.take(1, Half::Code);
            self.take(2, Half::String);
            while self.at < self.chars.len() && self.peek(0) != '\'' {
                self.take(1, Half::String);
            }
            self.take(1, Half::Code);
        } else if self.peek(2) == '\'' {
            self.take(1, Half::Code);
            self.take(1, Half::String);
            self.take(1, Half::Code);
        } else {
            self.take(1, Half::Code);
        }
    }

    /// Takes a word; `r`, `br` and `cr` may open a raw string.
    fn word(&mut self) {
        let rest = &self.chars[self.at..];
        let is_word = |char: &char| *char == '_' || char.is_alphanumeric();
        let length = rest.iter().position(|char| !is_word(char)).unwrap_or(rest.len());
        let word: String = rest[..length].iter().collect();
        self.take(length, Half::Code);
        if matches!(word.as_str(), "r" | "br" | "cr") {
            let hashes = (0..).take_while(|n| self.peek(*n) == '#').count();
            if self.peek(hashes) == '"' {
                self.raw_string(hashes);
            }
        }
    }
}

/// Returns the words of `code` with their offsets.
pub(crate) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |char: char| char == '_' || char.is_ascii_alphanumeric();
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + code[at..].find(is_word)?;
        let rest = &code[start..];
        at = start + rest.find(|char| !is_word(char)).unwrap_or(rest.len());
        Some((start, &code[start..at]))
    })
}

/// Finds the body of the item that starts at `from`: the offsets of `{` and of its `}`. `None` when
/// the item ends without a body. Semicolons and braces inside parentheses or brackets belong to
/// types.
pub(crate) fn body(code: &str, from: usize) -> Option<(usize, usize)> {
    let mut depth = 0_usize;
    let mut open = None;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b';' if depth == 0 && open.is_none() => return None,
            b'{' => {
                if depth == 0 && open.is_none() {
                    open = Some(at);
                }
                depth += 1;
            }
            b'}' if depth == 0 => return None,
            b'}' => {
                depth -= 1;
                if depth == 0
                    && let Some(open) = open
                {
                    return Some((open, at));
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns what stands right behind `path`, for example `crate::`, with its offset: one name, or
/// the first name of each element of a group.
pub(crate) fn names_behind<'a>(code: &'a str, path: &str) -> Vec<(usize, &'a str)> {
    let mut used = Vec::new();
    for (start, _) in code.match_indices(path) {
        let at = start + path.len();
        let rest = &code[at..];
        if rest.starts_with('{') {
            let end = body(code, at).map_or(at, |(_, close)| close);
            used.extend(group(code, at + 1, end));
        } else if let Some((offset, name)) = words(rest).next() {
            used.push((at + offset, name));
        }
    }
    used
}

/// Returns the first name of each element of the group between `start` and `end`.
fn group(code: &str, start: usize, end: usize) -> Vec<(usize, &str)> {
    let mut depth = 0_usize;
    let mut first = true;
    let mut names = Vec::new();
    let words: Vec<_> = words(&code[start..end]).collect();
    for (offset, byte) in code[start..end].bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => first = true,
            _ if first => {
                if let Some(word) = words.iter().find(|word| word.0 == offset) {
                    names.push((start + offset, word.1));
                    first = false;
                }
            }
            _ => {}
        }
    }
    names
}

/// Returns the line, from 0, of the byte at `offset`.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_leave_the_code() {
        let masked = Masked::new("let a = \"// no\"; // yes \"x\"\n/* a /* b */ c */ unsafe");
        assert_eq!(masked.code, "let a = \"     \";           \n                  unsafe");
        assert_eq!(masked.comments.trim_start(), "// yes \"x\"\n/* a /* b */ c */       ");
    }

    #[test]
    fn quotes_of_every_kind_end_where_they_should() {
        for text in
            ["'\"'", "'\\''", "'\\u{41}'", "b'\"'", "\"\\\"\"", "r#\"\"\"#", "br\"\\\"", "c\"x\""]
        {
            let masked = Masked::new(&format!("{text} unsafe // end"));
            assert!(masked.code.contains(" unsafe "), "{text}: {}", masked.code);
            assert!(masked.comments.ends_with("// end"), "{text}: {}", masked.comments);
        }
        assert!(Masked::new("fn a<'a>(b: &'a str) {}").code.contains("&'a str"));
        assert!(Masked::new("let r = 1; r\"x\"; for_r#\"").code.contains("for_r#"));
    }

    #[test]
    fn a_body_is_found_behind_types_with_semicolons() {
        let code = "fn f(a: [u8; 4]) -> [u8; { 2 }] { if a { } } fn g();";
        let (open, close) = body(code, 0).expect("f has a body");
        assert_eq!(&code[open..=close], "{ if a { } }");
        assert_eq!(body(code, close + 1), None);
    }

    #[test]
    fn words_carry_their_offsets() {
        assert_eq!(words("a::b_c(1)").collect::<Vec<_>>(), [(0, "a"), (3, "b_c"), (7, "1")]);
    }
}
