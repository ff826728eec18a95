//! One codec over the pages of one program: bytes, and the time of each call.

use coldpress_sys::{PAGE_BYTES, Page};

use super::subject::Subject;
use crate::statistics::Sample;
use crate::ticks::Stopwatch;

/// The figures of a codec on some pages.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// The bytes a page, on average. A page that does not shrink counts as it is.
    pub bytes: f64,
    /// The number of pages that did not shrink.
    pub raw: usize,
    /// The microseconds to compress a page: for a group, its time divided by the number of its
    /// pages.
    pub store_us: Sample,
    /// The microseconds to get one page back, which takes all of its group.
    pub load_us: Sample,
}

/// Stores all pages, then loads them all, so that the data have left the nearest caches before they
/// are loaded. Returns `None` when there is no whole group, or when a page came back changed or not
/// at all.
pub(crate) fn measure(
    subject: &mut dyn Subject,
    pages: &[Page],
    watch: &Stopwatch,
) -> Option<Figures> {
    let group = subject.group();
    let bytes = group * PAGE_BYTES;
    let mut out = vec![0; bytes + bytes / 8 + 64];
    let mut stored = Vec::new();
    let (mut store_us, mut total, mut raw) = (Vec::new(), 0, 0);
    for pages in pages.chunks_exact(group) {
        let (ns, length) = watch.time(|| subject.store(pages, &mut out));
        store_us.push(ns / 1e3 / group as f64);
        let length = length.filter(|length| *length < bytes);
        raw += if length.is_none() { group } else { 0 };
        total += length.unwrap_or(bytes);
        stored.push((pages, length.map(|length| out[..length].to_vec())));
    }
    let mut back = vec![[0; PAGE_BYTES]; group];
    let mut load_us = Vec::new();
    for (pages, data) in &stored {
        let Some(data) = data else { continue };
        let (ns, is_loaded) = watch.time(|| subject.load(data, &mut back));
        load_us.push(ns / 1e3);
        if !is_loaded || back != *pages {
            return None;
        }
    }
    Some(Figures {
        bytes: total as f64 / (stored.len() * group) as f64,
        raw,
        store_us: Sample::new(store_us)?,
        // Where nothing shrinks, nothing is decompressed.
        load_us: Sample::new(load_us).or_else(|| Sample::new([0.0]))?,
    })
}
