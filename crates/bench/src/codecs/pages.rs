//! Pages of one program, a half to train on and a half to measure.

use std::fs;
use std::io;
use std::path::Path;

use coldpress_codec::same_filled;
use coldpress_sys::{PAGE_BYTES, Page};

use crate::pools::text::Text;

/// The number of neighbouring pages that stay together: 64 KiB.
pub(crate) const WINDOW_PAGES: usize = 16;

/// The most bytes of a file; a larger file is refused.
const FILE_MAX: u64 = 1 << 30;
/// The ending of the name of a file that zstd has compressed.
const ZSTD_ENDING: &str = ".zst";

/// Pages of one program.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    /// The source of the pages.
    pub name: String,
    /// The pages that a dictionary is made of.
    pub train: Vec<Page>,
    /// The pages that codecs are measured on.
    pub test: Vec<Page>,
    /// The number of pages of one repeated word, which are in neither list.
    pub same_filled: usize,
}

impl Pages {
    /// Splits pages, in the order of their addresses. Keeps at most `most` to measure, and as many
    /// to train on.
    pub(crate) fn split(name: &str, pages: &[Page], most: usize) -> Self {
        let mut found =
            Self { name: name.to_owned(), train: Vec::new(), test: Vec::new(), same_filled: 0 };
        for (number, window) in pages.chunks(WINDOW_PAGES).enumerate() {
            let half = if number.is_multiple_of(2) { &mut found.train } else { &mut found.test };
            for page in window {
                if same_filled(page).is_some() {
                    found.same_filled += 1;
                } else if half.len() < most {
                    half.push(*page);
                }
            }
        }
        found
    }

    /// Returns whether there are enough pages to say anything.
    pub(crate) fn is_enough(&self) -> bool {
        self.train.len() >= WINDOW_PAGES && self.test.len() >= WINDOW_PAGES
    }

    /// Makes pages of text by a model, which LZO compresses to 75 %.
    pub(crate) fn text(most: usize) -> Self {
        let mut text = Text::default();
        let pages: Vec<Page> = (0..2 * most).map(|_| text.page()).collect();
        Self::split("text", &pages, most)
    }
}

/// Reads the pages of a file, which zstd may have compressed: whole pages and nothing else. Returns
/// the name of the file and the pages.
pub(crate) fn read(path: &Path) -> io::Result<(String, Vec<Page>)> {
    if fs::metadata(path)?.len() > FILE_MAX {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let file = fs::read(path)?;
    let bytes = if name.ends_with(ZSTD_ENDING) { zstd::decode_all(&file[..])? } else { file };
    let (pages, rest) = bytes.as_chunks::<PAGE_BYTES>();
    if pages.is_empty() || !rest.is_empty() {
        let text = format!("{} bytes are not whole pages of {PAGE_BYTES}", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let name = name.split('.').next().unwrap_or_default().to_owned();
    Ok((name, pages.to_vec()))
}
