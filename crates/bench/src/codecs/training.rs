//! A dictionary, and what its making costs who serves faults meanwhile.

use coldpress_codec::{CodecError, Dictionary, DictionaryCodec, Trainer};
use coldpress_sys::{Bytes, Page};

use crate::random::Random;
use crate::statistics::Sample;
use crate::ticks::Stopwatch;

/// A dictionary and its price.
#[derive(Clone, Debug)]
pub struct Training {
    /// The dictionary.
    pub dictionary: Dictionary,
    /// Pages offered.
    pub offers: usize,
    /// Steps from pages to the dictionary.
    pub steps: usize,
    /// Microseconds to offer a page.
    pub offer_us: Sample,
    /// Microseconds of a step.
    pub step_us: Sample,
    /// Microseconds to adopt the dictionary.
    pub adopt_us: f64,
    /// What training holds while it goes on.
    pub trainer: Bytes,
    /// What a codec holds, with its dictionary.
    pub codec: Bytes,
}

/// Trains a dictionary for a level on some of `pages`, any. Nothing when they are too few or have
/// nothing in common.
pub fn train(
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
    // Once more, now that its memory has been touched.
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
