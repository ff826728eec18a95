//! The sources of object sizes: files, folders of files, or models.

use std::fs;
use std::path::{Path, PathBuf};

use crate::pools::sizes::Sizes;
use crate::pools::text::Text;
use coldpress_codec::{Codec, CodecId};
use coldpress_common::failure::Result;
use coldpress_sys::{PAGE_BYTES, Page};

use super::Scale;
use super::options::PoolsArgs;
use crate::commands::launch::failed;

/// The number of objects in the model of a heap: 128 MiB of a program.
const HEAP_OBJECTS: usize = 32_768;
/// The number of pages of generated text: 40 MiB.
const TEXT_PAGES: usize = 10_240;
/// The most bytes that LZO makes of a page: the page, a sixteenth of it, and 64 and 3 bytes more.
const LZO_BOUND: usize = PAGE_BYTES + PAGE_BYTES / 16 + 67;

/// Returns the traces that the user named, or models when there are none.
pub(super) fn find(args: &PoolsArgs, scale: &Scale) -> Result<Vec<Sizes>> {
    if args.trace.is_empty() {
        return Ok(vec![Sizes::heap(HEAP_OBJECTS.min(scale.own)), text(scale)?]);
    }
    let mut files = Vec::new();
    for path in &args.trace {
        if path.is_dir() {
            files.extend(in_folder(path, &args.codec)?);
        } else {
            files.push(path.clone());
        }
    }
    files.iter().map(|path| Sizes::read(path).map_err(|error| about(path, &error))).collect()
}

/// Returns the traces of a codec in a folder, in the order of their names.
fn in_folder(folder: &Path, codec: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| about(folder, &error))?;
    let files = entries.into_iter().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| Sizes::codec_of(path) == Some(codec)).collect();
    if files.is_empty() {
        return Err(about(folder, &format!("no file CORPUS.{codec}.u16[.zst]")));
    }
    files.sort();
    Ok(files)
}

fn about(path: &Path, error: &dyn std::fmt::Display) -> coldpress_common::failure::Failure {
    failed(format!("{}: {error}", path.display()))
}

/// Lists all traces in words.
pub(super) fn list(traces: &[Sizes]) -> String {
    let mean = |trace: &Sizes| {
        trace.sizes.iter().map(|size| usize::from(*size)).sum::<usize>() / trace.sizes.len()
    };
    let each = traces.iter().map(|trace| {
        format!("{} ({} of {} bytes on average)", trace.name(), trace.sizes.len(), mean(trace))
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Returns the sizes of text by a model, compressed.
pub(super) fn text(scale: &Scale) -> Result<Sizes> {
    let mut text = Text::default();
    // A small run repeats few pages, because compressing them takes time.
    let pages = TEXT_PAGES.min(scale.own.div_ceil(8));
    let sizes = (0..pages).map(|_| compressed(&text.page())).collect::<Result<_>>()?;
    Ok(Sizes { corpus: "text".to_owned(), codec: "lzo1x".to_owned(), sizes })
}

/// Returns the bytes that LZO1X makes of a page, at most a page.
pub(super) fn compressed(page: &Page) -> Result<u16> {
    let mut codec =
        Codec::new(CodecId::Lzo).map_err(|error| failed(format!("no codec: {error}")))?;
    let mut out = [0; LZO_BOUND];
    let length = codec.compress(page, &mut out).map_or(PAGE_BYTES, <[u8]>::len);
    Ok(length.min(PAGE_BYTES) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_text_shrinks_to_75_percent() {
        let mut text = Text::default();
        let sizes: Vec<u16> = (0..60).map(|_| compressed(&text.page()).unwrap()).collect();
        let mean = sizes.iter().map(|size| f64::from(*size)).sum::<f64>() / sizes.len() as f64;
        let percent = 100.0 * mean / PAGE_BYTES as f64;
        assert!((74.5..75.5).contains(&percent), "{percent}");
        let most = sizes.iter().max().unwrap();
        assert!(f64::from(*most) < 1.1 * mean, "little deviation: {sizes:?}");
    }

    #[test]
    fn a_page_of_zeros_is_a_run_and_its_end() {
        // About 2 bytes for the first zero, 20 for a run of 4095, and 3 for the end.
        assert!((20..30).contains(&compressed(&[0; PAGE_BYTES]).unwrap()));
    }
}
