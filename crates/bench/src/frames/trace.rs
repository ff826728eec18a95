//! Traces of frame allocations as files. The format is that of [`coldpress_mem::frames::trace`].
//!
//! 1. What [`Trace::read`] accepts allocates an id only while it is free, and frees it with its
//!    order.
//! 2. A trace may end with chunks still allocated, as its program did.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};

pub(crate) use coldpress_mem::frames::trace::Event;
use coldpress_mem::frames::trace::{EVENT_BYTES, HEAD, VERSION};

/// The reason why a file is not a trace.
#[derive(Debug)]
pub(crate) enum TraceError {
    /// The file could not be read.
    Io(io::Error),
    /// The file starts with something else, or has another version.
    NoTrace,
    /// The file ends within an event.
    CutOff,
    /// The event at this place, counted from 0, makes no sense.
    Event {
        /// The place of the event.
        index: usize,
        /// The word found there.
        word: u32,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::NoTrace => write!(f, "no trace of frames of version {VERSION}"),
            Self::CutOff => write!(f, "the file ends within an event"),
            Self::Event { index, word } => write!(f, "event {index} ({word:#x}) makes no sense"),
        }
    }
}

impl std::error::Error for TraceError {}

impl From<io::Error> for TraceError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A trace: events in the order in which they happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    events: Vec<Event>,
}

impl Trace {
    /// Makes a trace of `events`. Fails with the first event that allocates an allocated id, frees
    /// a free id, or frees an id with another order.
    pub(crate) fn new(events: Vec<Event>) -> Result<Self, TraceError> {
        let mut alive = HashMap::new();
        for (index, event) in events.iter().enumerate() {
            let fits = match *event {
                Event::Alloc { id, order, .. } => alive.insert(id, order).is_none(),
                Event::Free { id, order } => alive.remove(&id) == Some(order),
            };
            let encoded = event.encode();
            if !fits || Event::decode(encoded) != Some(*event) {
                return Err(TraceError::Event { index, word: encoded });
            }
        }
        Ok(Self { events })
    }

    /// Returns the events.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// Reads a trace from a file, to its end.
    pub(crate) fn read(from: &mut impl Read) -> Result<Self, TraceError> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes)?;
        let events = bytes.strip_prefix(&HEAD[..]).ok_or(TraceError::NoTrace)?;
        let (words, rest) = events.as_chunks::<EVENT_BYTES>();
        if !rest.is_empty() {
            return Err(TraceError::CutOff);
        }
        let words = words.iter().map(|word| u32::from_le_bytes(*word)).enumerate();
        let event = |(index, word)| Event::decode(word).ok_or(TraceError::Event { index, word });
        Self::new(words.map(event).collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{BLOCK_ORDER, Mobility};
    use coldpress_mem::frames::trace::ID_MAX;
    use proptest::prelude::*;

    const CORE: Mobility = Mobility::Core;

    fn bytes_of(trace: &Trace) -> Vec<u8> {
        let words = trace.events().iter().map(|event| event.encode().to_le_bytes());
        HEAD.into_iter().chain(words.flatten()).collect()
    }

    #[test]
    fn the_bytes_are_those_of_the_drawing() {
        let events = vec![
            Event::Alloc { id: 1, order: 0, mobility: CORE },
            Event::Alloc { id: ID_MAX, order: 9, mobility: Mobility::EasyReclaim },
            Event::Free { id: 1, order: 0 },
        ];
        let wanted = b"cpframes\x01\0\0\0\0\0\0\0\x41\0\0\0\xe6\xff\xff\xff\x40\0\0\0";
        assert_eq!(bytes_of(&Trace::new(events).unwrap()), wanted);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_place() {
        let alloc = |id, order| Event::Alloc { id, order, mobility: CORE };
        let free = |id, order| Event::Free { id, order };
        for (events, place) in [
            (vec![alloc(1, 0), alloc(1, 0)], 1),
            (vec![free(1, 0)], 0),
            (vec![alloc(1, 1), free(1, 0)], 1),
            (vec![alloc(1, 0), free(1, 0), free(1, 0)], 2),
            (vec![alloc(0, 10)], 0),
            (vec![alloc(ID_MAX + 1, 0)], 0),
        ] {
            let error = Trace::new(events.clone()).unwrap_err();
            assert!(matches!(error, TraceError::Event { index, .. } if index == place), "{error}");
        }
        assert!(Trace::new(vec![alloc(1, 0), free(1, 0), alloc(1, 3), alloc(2, 0)]).is_ok());
    }

    #[test]
    fn files_that_are_none_are_refused() {
        let read = |bytes: &[u8]| Trace::read(&mut &bytes[..]).unwrap_err();
        let good = bytes_of(&Trace::default());
        assert!(matches!(read(b""), TraceError::NoTrace));
        assert!(matches!(read(&good[..15]), TraceError::NoTrace));
        let mut other = good.clone();
        other[8] = 2;
        assert!(matches!(read(&other), TraceError::NoTrace));
        assert!(matches!(read(&[&good[..], &[1, 0]].concat()), TraceError::CutOff));
        let unknown = [&good[..], &[3, 0, 0, 0]].concat();
        assert!(matches!(read(&unknown), TraceError::Event { index: 0, word: 3 }));
    }

    proptest! {
        #[test]
        fn a_trace_comes_back_as_it_was(
            chunks in prop::collection::vec((0..=ID_MAX, 0..=BLOCK_ORDER, any::<bool>()), 0..200),
        ) {
            let mut orders = HashMap::new();
            let events = chunks.into_iter().map(|(id, order, is_core)| match orders.remove(&id) {
                Some(order) => Event::Free { id, order },
                None => {
                    orders.insert(id, order);
                    let mobility = if is_core { CORE } else { Mobility::EasyReclaim };
                    Event::Alloc { id, order, mobility }
                }
            });
            let trace = Trace::new(events.collect()).unwrap();
            prop_assert_eq!(Trace::read(&mut &bytes_of(&trace)[..]).unwrap(), trace);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Trace::read(&mut &bytes[..]);
            let file = [&bytes_of(&Trace::default())[..], &bytes].concat();
            let _ = Trace::read(&mut &file[..]);
        }
    }
}
