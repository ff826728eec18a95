//! Pages of text as compressible as English prose, for where no real text is at hand.
//!
//! The words are made of the letters of English in their usual shares. The next word is drawn by
//! Zipf's law, the n-th word 1/n times as often as the first. A fast codec finds the words in a
//! page that came before, so the number of words fixes the ratio.

use coldpress_sys::{PAGE_BYTES, Page};

use crate::random::Random;

/// The number of words. With this number LZO1X compresses a page to 75 %, as it does the text of
/// the mail on xcfmalloc.
const WORDS: usize = 2400;
/// Vowels and consonants, as often as they are in English, in hundredths (about).
const VOWELS: &[u8] = b"eeeeeeeeeeeeaaaaaaaaiiiiiiioooooooouuuy";
const CONSONANTS: &[u8] = b"tttttttttnnnnnnnsssssshhhhhhrrrrrrddddllllcccmmmwwffggppbbvk";

/// A maker of pages, the same in every run.
pub(crate) struct Text {
    random: Random,
    words: Vec<String>,
    /// For each word, how often this word or an earlier one is drawn, out of the last entry.
    shares: Vec<usize>,
    /// The text that did not fit into the last page.
    rest: String,
}

impl Default for Text {
    fn default() -> Self {
        let mut random = Random::new(75);
        let words = (0..WORDS).map(|rank| word(&mut random, rank)).collect();
        let mut sum = 0;
        let shares = (1..=WORDS)
            .map(|rank| {
                sum += (1 << 32) / rank;
                sum
            })
            .collect();
        Self { random, words, shares, rest: String::new() }
    }
}

/// Makes a word; frequent words are short.
fn word(random: &mut Random, rank: usize) -> String {
    let syllables = 1 + usize::from(rank > 60) + usize::from(rank > 600) + random.below(2);
    let mut word = String::new();
    for _ in 0..syllables {
        let mut letter = |letters: &[u8]| letters[random.below(letters.len())].into();
        let syllable: [char; 3] = [letter(CONSONANTS), letter(VOWELS), letter(CONSONANTS)];
        word.extend(&syllable[..2 + random.below(2)]);
    }
    word
}

impl Text {
    /// Returns the next page of the text.
    pub(crate) fn page(&mut self) -> Page {
        while self.rest.len() < PAGE_BYTES {
            self.sentence();
        }
        let after = self.rest.split_off(PAGE_BYTES);
        let page = std::mem::replace(&mut self.rest, after).into_bytes();
        page.try_into().expect("cut to the length of a page")
    }

    fn sentence(&mut self) {
        for index in 0..6 + self.random.below(16) {
            let drawn = self.random.below(self.shares[WORDS - 1]);
            let word = &self.words[self.shares.partition_point(|share| *share <= drawn)];
            match index {
                0 => {
                    let (first, others) = word.split_at(1);
                    self.rest.push_str(&first.to_ascii_uppercase());
                    self.rest.push_str(others);
                }
                _ => self.rest.push_str(word),
            }
            self.rest.push(if self.random.happens(60) { ',' } else { ' ' });
        }
        self.rest.pop();
        self.rest.push_str(if self.random.happens(300) { ".\n    " } else { ". " });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_full_of_words_and_the_same_in_every_run() {
        let [mut one, mut two] = [Text::default(), Text::default()];
        let mut last = [0; PAGE_BYTES];
        for _ in 0..20 {
            let page = one.page();
            assert_eq!(page, two.page());
            assert_ne!(page, last);
            let spaces = page.iter().filter(|byte| **byte == b' ').count();
            assert!(page.is_ascii() && (400..1200).contains(&spaces), "{spaces}");
            last = page;
        }
    }
}
