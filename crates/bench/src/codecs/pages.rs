//! Pages of one program, a half to train on and a half to measure.

use std::fs;
use std::io;
use std::path::Path;

use coldpress_codec::same_filled;
use coldpress_sys::{PAGE_BYTES, Page};

use crate::pools::text::Text;

/// Neighbouring pages that stay together: 64 KiB.
pub const WINDOW_PAGES: usize = 16;

/// A file of more bytes is refused.
const FILE_MAX: u64 = 1 << 30;
/// The end of the name of a file that zstd has compressed.
const ZSTD_ENDING: &str = ".zst";

/// Pages of one program.
#[derive(Clone, Debug)]
pub struct Pages {
    /// What they are of.
    pub name: String,
    /// What a dictionary is made of.
    pub train: Vec<Page>,
    /// What codecs are measured on.
    pub test: Vec<Page>,
    /// Pages of one repeated word, which are in neither.
    pub same_filled: usize,
}

impl Pages {
    /// Splits pages, in the order of their addresses; keeps at most `most` to measure, and as many
    /// to train on.
    pub fn split(name: &str, pages: &[Page], most: usize) -> Self {
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

    /// Whether there is enough to say anything.
    pub fn is_enough(&self) -> bool {
        self.train.len() >= WINDOW_PAGES && self.test.len() >= WINDOW_PAGES
    }

    /// Text by a model, compressible to 75 % by LZO.
    pub fn text(most: usize) -> Self {
        let mut text = Text::default();
        let pages: Vec<Page> = (0..2 * most).map(|_| text.page()).collect();
        Self::split("text", &pages, most)
    }
}

/// The pages of a file, which zstd may have compressed: whole pages and nothing else. Its name, and
/// the pages.
pub fn read(path: &Path) -> io::Result<(String, Vec<Page>)> {
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
