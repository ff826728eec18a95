//! The pages that the data of the program are copies of, at several ratios of compression.
//!
//! All of them begin as pages of a heap, read out of a program of ours that holds records and maps:
//! lz4 stores such pages at some 2.2 to 1. Kinds differ in what takes the place of a part of each:
//!
//! 1. Where a kind compresses better, zeros stand at the end of each page, as where a heap has
//!    capacity to spare.
//! 2. Where a kind compresses worse, random bytes stand at the end of each [`CELL`] bytes, as
//!    pointers, hashes and numbers do among records.
//!
//! How much is replaced is the same in all pages of a kind, and found by compressing them. So a
//! ratio is met on average, and single pages differ in it as pages of the heap do. Real programs
//! differ more: some of their pages are all zeros, and some do not compress at all.

use std::io::Write as _;

use coldpress_codec::{Codec, CodecId, same_filled};
use coldpress_common::failure::Result;
use coldpress_sys::{PAGE_BYTES, Page};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::commands::codecs::programs;
use crate::commands::launch::failed;
use crate::random::Random;
use crate::report::Table;

/// The number of pages of a kind: 4 MiB, which are freed when the data are filled.
const TEMPLATES: usize = 1024;
/// The zeros at the end of a page of the kind `heap`: then zram with lz4 holds the pages in 0.4 of
/// their size, as it does pages of real programs.
const HEAP_ZEROS: i32 = 1024;
/// The ratio that pages of the kind `heap` have at least, by what zram holds.
const HEAP_RATIO: f64 = 2.5;
/// The bytes of a page of which the last are random, where pages compress worse.
const CELL: usize = 128;
/// The largest difference from the ratio that is asked for, as a share of it.
const RATIO_OFF: f64 = 0.03;
/// The least and the largest ratio that can be asked for.
const RATIOS: std::ops::RangeInclusive<f64> = 1.1..=20.0;

/// A kind of pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Pages of a heap with some capacity to spare.
    Heap,
    /// Pages that lz4 compresses so many to 1.
    Ratio(f64),
}

impl Kind {
    /// Reads the name of a kind on the command line.
    pub(super) fn parse(text: &str) -> std::result::Result<Self, String> {
        if text == "heap" {
            return Ok(Self::Heap);
        }
        let ratio = text.parse().ok().filter(|ratio| RATIOS.contains(ratio)).map(Self::Ratio);
        let (least, most) = (RATIOS.start(), RATIOS.end());
        ratio.ok_or_else(|| format!("it is heap, or a ratio of {least} to {most}"))
    }

    /// Returns the name of the kind in tables.
    pub(super) fn name(self) -> String {
        match self {
            Self::Heap => "heap".to_owned(),
            Self::Ratio(ratio) => format!("{ratio} to 1"),
        }
    }

    /// Returns whether pages compress 2.5 to 1 or better.
    pub(super) fn is_dense(self) -> bool {
        match self {
            Self::Heap => true,
            Self::Ratio(ratio) => ratio >= HEAP_RATIO,
        }
    }
}

/// The pages of one kind, in a file for the program.
pub(super) struct Source {
    pub(super) kind: Kind,
    /// The ratio that was measured: by lz4, page by page, of the sums of bytes.
    pub(super) ratio: f64,
    pub(super) file: NamedTempFile,
}

impl Source {
    /// Makes the pages of each kind.
    pub(super) fn all(kinds: &[Kind]) -> Result<Vec<Self>> {
        let heap = programs::own(2 * TEMPLATES)
            .map_err(|error| failed(format!("no pages of a heap: {error}")))?;
        let heap: Vec<Page> = heap.into_iter().filter(|page| same_filled(page).is_none()).collect();
        let heap = &heap[..heap.len().min(TEMPLATES)];
        kinds.iter().map(|kind| Self::new(*kind, heap)).collect()
    }

    fn new(kind: Kind, heap: &[Page]) -> Result<Self> {
        let no_pages = |why: &str| failed(format!("no pages of {}: {why}", kind.name()));
        let made = Made::new(kind, heap).ok_or_else(|| no_pages("those of a heap do not fit"))?;
        let write = || {
            let mut file = NamedTempFile::new()?;
            file.write_all(made.pages.as_flattened())?;
            Ok(file)
        };
        let file = write().map_err(|error: std::io::Error| no_pages(&error.to_string()))?;
        Ok(Self { kind, ratio: made.ratio, file })
    }

    /// Returns what was made, as JSON.
    pub(super) fn json(&self) -> Value {
        json!({ "pages": self.kind.name(), "lz4_ratio": self.ratio })
    }
}

/// Makes the table of the kinds, for people.
pub(super) fn table(sources: &[Source]) -> Table {
    let mut table = Table::new(&["pages", "ratio by lz4", "bytes of a page, mean"]);
    for source in sources {
        let bytes = PAGE_BYTES as f64 / source.ratio;
        table.row(vec![source.kind.name(), format!("{:.2}", source.ratio), format!("{bytes:.0}")]);
    }
    table
}

/// Pages, and the ratio that was measured on them.
struct Made {
    pages: Vec<Page>,
    ratio: f64,
}

impl Made {
    /// Makes pages of a kind from those of a heap; `None` when no part that is replaced gives the
    /// ratio.
    fn new(kind: Kind, heap: &[Page]) -> Option<Self> {
        let ratio = match kind {
            Kind::Heap => return Self::replaced(heap, HEAP_ZEROS),
            Kind::Ratio(ratio) => ratio,
        };
        // The more random bytes, the smaller the ratio; the more zeros, the larger.
        let (mut low, mut high) = (-(CELL as i32), PAGE_BYTES as i32);
        while high - low > 1 {
            let middle = i32::midpoint(low, high);
            if Self::replaced(heap, middle)?.ratio < ratio {
                low = middle;
            } else {
                high = middle;
            }
        }
        let off = |made: &Self| (made.ratio / ratio - 1.0).abs();
        let both = [Self::replaced(heap, low)?, Self::replaced(heap, high)?];
        both.into_iter()
            .min_by(|one, two| off(one).total_cmp(&off(two)))
            .filter(|made| off(made) <= RATIO_OFF)
    }

    /// Replaces a part of each page by `zeros` at its end, or, where that is below 0, by so many
    /// random bytes at the end of each cell.
    fn replaced(heap: &[Page], zeros: i32) -> Option<Self> {
        let mut pages = heap.to_vec();
        let bytes = zeros.unsigned_abs() as usize;
        for (number, page) in pages.iter_mut().enumerate() {
            let mut random = Random::new(number as u64);
            if zeros >= 0 {
                page[PAGE_BYTES - bytes..].fill(0);
            } else {
                for cell in page.as_chunks_mut::<CELL>().0 {
                    cell[CELL - bytes..].fill_with(|| random.next() as u8);
                }
            }
            // The program marks each page with a number and a count.
            page[..8].copy_from_slice(&(number as u64).to_ne_bytes());
            page[8..12].fill(0);
        }
        let ratio = ratio(&pages)?;
        Some(Self { pages, ratio })
    }
}

/// Returns the ratio of pages by lz4. One that does not shrink counts as it is. `None` without
/// pages.
fn ratio(pages: &[Page]) -> Option<f64> {
    let mut codec = Codec::new(CodecId::Lz4).ok()?;
    let mut out = [0; PAGE_BYTES];
    let mut bytes = 0;
    for page in pages {
        bytes += codec.compress(page, &mut out).map_or(PAGE_BYTES, <[u8]>::len);
    }
    (bytes > 0).then(|| (pages.len() * PAGE_BYTES) as f64 / bytes as f64)
}

#[cfg(test)]
mod tests {
    //! The risk: a table for pages of one ratio that was measured on pages of another.
    use super::*;
    use crate::codecs::heap::Heap;

    /// Returns pages of records as a heap has them, the same each time: pages of this process
    /// would depend on what other tests hold.
    fn heap() -> Vec<Page> {
        let mut bytes = Vec::new();
        for record in &Heap::new(8000).records {
            let (name, number, share, _, marks) = &**record;
            bytes.extend_from_slice(name.as_bytes());
            bytes.resize(bytes.len().next_multiple_of(16), 0);
            bytes.extend_from_slice(&number.to_ne_bytes());
            bytes.extend_from_slice(&share.to_ne_bytes());
            bytes.extend(marks.iter().flat_map(|mark| mark.to_ne_bytes()));
            bytes.resize(bytes.len().next_multiple_of(16), 0);
        }
        bytes.as_chunks().0.to_vec()
    }

    #[test]
    fn pages_compress_as_their_kind_says() {
        let heap = heap();
        for wanted in [1.2, 1.8, 2.5, 3.0, 6.0, 15.0] {
            let made = Made::new(Kind::Ratio(wanted), &heap).expect("it can be met");
            let found = ratio(&made.pages).unwrap();
            assert_eq!(found, made.ratio);
            assert!((found / wanted - 1.0).abs() <= RATIO_OFF, "{wanted}: {found}");
            assert_eq!(made.pages.len(), heap.len());
        }
        assert!(Made::new(Kind::Ratio(500.0), &heap).is_none());
        assert!(Made::new(Kind::Heap, &[]).is_none());
    }

    #[test]
    fn pages_keep_what_is_not_replaced_and_follow_from_the_heap() {
        let heap = heap();
        let zeros = Made::replaced(&heap, 1000).unwrap().pages;
        let noise = Made::replaced(&heap, -20).unwrap().pages;
        let again = Made::replaced(&heap, -20).unwrap().pages;
        assert!(noise == again);
        for ((page, zeros), noise) in heap.iter().zip(&zeros).zip(&noise) {
            assert_eq!(page[12..PAGE_BYTES - 1000], zeros[12..PAGE_BYTES - 1000]);
            assert_eq!(zeros[PAGE_BYTES - 1000..], [0; 1000]);
            assert_eq!(page[12..CELL - 20], noise[12..CELL - 20]);
        }
        assert_ne!(noise[0][CELL - 20..CELL], noise[1][CELL - 20..CELL]);
    }

    #[test]
    fn pages_that_do_not_shrink_count_as_they_are() {
        let mut random = Random::new(1);
        let noise: Page = std::array::from_fn(|_| random.next() as u8);
        assert_eq!(ratio(&[noise; 3]), Some(1.0));
    }

    #[test]
    fn kinds_are_named_as_on_the_command_line() {
        assert_eq!(Kind::parse("heap"), Ok(Kind::Heap));
        assert_eq!(Kind::parse("1.8").map(Kind::name), Ok("1.8 to 1".to_owned()));
        assert_eq!(Kind::parse("6").map(Kind::name), Ok("6 to 1".to_owned()));
        for text in ["1", "21", "", "stack", "nan"] {
            assert!(Kind::parse(text).is_err_and(|error| error.contains("heap")), "{text}");
        }
        let dense = ["heap", "1.8", "2.4", "2.5", "6"].map(|text| Kind::parse(text).unwrap());
        assert_eq!(dense.map(Kind::is_dense), [true, false, false, true, true]);
    }
}
