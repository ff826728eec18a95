//! A heap as programs in Rust, C++ and C have it, for machines without another program: records
//! with strings, numbers and small arrays, and ordered maps to find them by.

use std::collections::BTreeMap;

use crate::pools::text::Text;
use crate::random::Random;

/// The number of pages of text that the words of names come from.
const TEXT_PAGES: usize = 4;

/// A record: name, number, share, kind, and marks of some length.
type Record = (String, u64, f64, Option<u8>, Box<[u32]>);

/// The data of the heap, the same in every run.
#[derive(Debug)]
pub(crate) struct Heap {
    /// Each record on its own.
    #[expect(clippy::vec_box, reason = "programs have many small allocations")]
    pub records: Vec<Box<Record>>,
    /// Records by their name.
    pub by_name: BTreeMap<String, Vec<usize>>,
    /// Records by their number.
    pub by_number: BTreeMap<u64, usize>,
}

impl Heap {
    /// Builds this many records: some 400 bytes each, maps included.
    pub(crate) fn new(records: usize) -> Self {
        let mut random = Random::new(4);
        let mut text = Text::default();
        let pages: Vec<u8> = (0..TEXT_PAGES).flat_map(|_| text.page()).collect();
        let text = String::from_utf8_lossy(&pages);
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let mut heap =
            Self { records: Vec::new(), by_name: BTreeMap::new(), by_number: BTreeMap::new() };
        for index in 0..records {
            let mut word = || words[random.below(words.len())];
            let name = format!("{} {}", word(), word());
            let number = random.next() >> random.below(40);
            let share = random.below(10_000) as f64 / 100.0;
            let kind = random.happens(300).then_some(random.below(9) as u8);
            let marks = (0..random.below(12)).map(|mark| (index + mark) as u32).collect();
            heap.by_name.entry(name.clone()).or_default().push(index);
            heap.by_number.insert(number, index);
            heap.records.push(Box::new((name, number, share, kind, marks)));
        }
        heap
    }
}
