//! A dictionary, and what its training costs the thread that serves faults meanwhile.

use coldpress_codec::{CodecError, Dictionary, DictionaryCodec, Trainer};
use coldpress_sys::{Bytes, Page};

use crate::random::Random;
use crate::statistics::Sample;
use crate::ticks::Stopwatch;

/// A dictionary and its price.
#[derive(Clone, Debug)]
pub(crate) struct Training {
    /// The dictionary.
    pub dictionary: Dictionary,
    /// The number of pages offered.
    pub offers: usize,
    /// The number of steps from pages to the dictionary.
    pub steps: usize,
    /// The microseconds to offer a page.
    pub offer_us: Sample,
    /// The microseconds of a step.
    pub step_us: Sample,
    /// The microseconds to adopt the dictionary.
    pub adopt_us: f64,
    /// The memory that training holds while it goes on.
    pub trainer: Bytes,
    /// The memory that a codec holds, with its dictionary.
    pub codec: Bytes,
}

/// Trains a dictionary for a level on some of `pages`, picked at random. Returns `None` when the
/// pages are too few or have nothing in common.
pub(crate) fn train(
    pages: &[Page],
    level: i32,
    watch: &Stopwatch,
) -> Result<Option<Training>, CodecError> {
    let mut trainer = Trainer::new()?;
    let work = trainer.work_bytes();
    let mut order: Vec<&Page> = pages.iter().collect();
    Random::new(16).shuffle(&mut order);
    let mut offer_us = Vec::new();
    for page in order {
        if !trainer.wants_page() {
            break;
        }
        offer_us.push(watch.time(|| trainer.offer(page)).0 / 1e3);
    }
    let mut step_us = Vec::new();
    loop {
        let (ns, is_more) = watch.time(|| trainer.step());
        step_us.push(ns / 1e3);
        if !is_more {
            break;
        }
    }
    let (offers, steps) = (offer_us.len(), step_us.len());
    let (Some(dictionary), Some(offer_us), Some(step_us)) =
        (trainer.finish(), Sample::new(offer_us), Sample::new(step_us))
    else {
        return Ok(None);
    };
    let mut codec = DictionaryCodec::new(level, dictionary.clone())?;
    let held = codec.work_bytes();
    // Adopts the dictionary once more, now that the codec's memory has been touched.
    let again = dictionary.clone();
    let (ns, adopted) = watch.time(|| codec.adopt(again));
    adopted?;
    let adopt_us = ns / 1e3;
    Ok(Some(Training {
        dictionary,
        offers,
        steps,
        offer_us,
        step_us,
        adopt_us,
        trainer: work,
        codec: held,
    }))
}
