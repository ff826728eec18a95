//! The cost of encryption for a page on its way to the disk and back.

use coldpress_sys::Bytes;
use coldpress_zswap::NewError;
use coldpress_zswap::seal::{Sealer, TAG_BYTES};

use crate::statistics::Sample;
use crate::ticks::Stopwatch;

/// The number of objects measured of each length; more than the nearest caches hold.
const OBJECTS: u16 = 2000;

/// The times for objects of one length.
#[derive(Clone, Debug)]
pub(crate) struct Sealing {
    /// The length of an object, without the tag.
    pub length: Bytes,
    /// The nanoseconds to seal an object.
    pub seal_ns: Sample,
    /// The nanoseconds to open an object.
    pub open_ns: Sample,
}

/// Seals objects of `length`, then opens them all. Returns `None` when an object did not come back.
pub(crate) fn measure(length: Bytes, watch: &Stopwatch) -> Result<Option<Sealing>, NewError> {
    let sealer = Sealer::random()?;
    let batch = sealer.next_batch();
    let object = vec![0x5A; length.0];
    // Not zeros: the kernel would provide such memory on its first touch, which would be measured.
    let mut sealed = vec![1; (length.0 + TAG_BYTES) * usize::from(OBJECTS)];
    let places = sealed.chunks_exact_mut(length.0 + TAG_BYTES);
    let seal = |(offset, place)| watch.time(|| sealer.seal(batch, offset, &object, place)).0;
    let seal_ns = Sample::new((0..OBJECTS).zip(places).map(seal));
    let mut is_same = true;
    let places = sealed.chunks_exact_mut(length.0 + TAG_BYTES);
    let open = |(offset, place)| {
        let (ns, opened) = watch.time(|| sealer.open(batch, offset, place));
        is_same &= opened == Ok(&object[..]);
        ns
    };
    let open_ns = Sample::new((0..OBJECTS).zip(places).map(open));
    let both = seal_ns.zip(open_ns).filter(|_| is_same);
    Ok(both.map(|(seal_ns, open_ns)| Sealing { length, seal_ns, open_ns }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_timed_both_ways() {
        let sealing = measure(Bytes(100), &Stopwatch::learn()).unwrap().unwrap();
        assert!(sealing.seal_ns.least() > 0.0 && sealing.open_ns.least() > 0.0);
    }
}
