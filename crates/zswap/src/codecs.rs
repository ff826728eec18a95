//! How stored pages are coded, and what a caller needs to code and decode them.
//!
//! Every entry says how its bytes are coded, so the codec may be switched at any time. A zstd
//! decoder reads what any level wrote, so there is one codec of each kind. Pages that have grown
//! old are coded with a dictionary of the program's own pages. They are called dense, see
//! [`crate::recompress`].

use alloc::boxed::Box;

use coldpress_codec::{
    Codec, CodecChoice, CodecError, CodecId, DecodeError, DictionaryDecoder, Generation, checksum,
    decompress_lz4, decompress_lzo, decompress_wk,
};
use coldpress_sys::{Bytes, PAGE_BYTES, Page};

use crate::error::{LoadError, NewError};
use crate::room;

/// A page's compressed bytes, which lie elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pressed {
    pub(crate) length: Bytes,
    pub(crate) coding: Coding,
    /// The checksum of the compressed bytes.
    pub(crate) checksum: u32,
}

/// The coding of a stored page's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// By WK.
    Wk,
    /// By LZ4.
    Lz4,
    /// By LZO.
    Lzo,
    /// By zstd, of any level.
    Zstd,
    /// Not at all: a whole page.
    Raw,
    /// By zstd with a dictionary of this generation, when the page had grown old.
    Dense(Generation),
}

/// Kinds of codecs: each has one codec in a context.
pub(crate) const KINDS: usize = 4;

impl Coding {
    /// The codings of the kinds, in the order of [`Coding::kind`].
    pub(crate) const FAST: [Self; KINDS] = [Self::Wk, Self::Lz4, Self::Lzo, Self::Zstd];

    /// Returns the coding that a codec of `id` makes.
    pub(crate) fn of(id: CodecId) -> Self {
        match id {
            CodecId::Wk => Self::Wk,
            CodecId::Lz4 => Self::Lz4,
            CodecId::Lzo => Self::Lzo,
            CodecId::Zstd { .. } => Self::Zstd,
        }
    }

    /// Returns the coding's place among the kinds, if it has one.
    pub(crate) fn kind(self) -> Option<usize> {
        match self {
            Self::Wk => Some(0),
            Self::Lz4 => Some(1),
            Self::Lzo => Some(2),
            Self::Zstd => Some(3),
            Self::Raw | Self::Dense(_) => None,
        }
    }

    /// Returns whether new pages may have this coding when `choice` is in force.
    pub(crate) fn is_of(self, choice: CodecChoice) -> bool {
        choice.codecs().any(|id| Self::of(id) == self)
    }

    /// Returns whether this is the coding of a young page that a codec made smaller.
    pub(crate) fn is_fast(self) -> bool {
        self.kind().is_some()
    }

    /// Returns whether this is the coding of a page that has grown old.
    pub(crate) fn is_dense(self) -> bool {
        matches!(self, Self::Dense(_))
    }

    /// Returns whether decoding takes work memory.
    pub(crate) fn needs_work(self) -> bool {
        matches!(self, Self::Zstd | Self::Dense(_))
    }
}

/// The work memory that one caller at a time uses.
#[derive(Debug)]
pub(crate) struct Work {
    /// The codecs, in the order of [`Coding::kind`].
    kinds: [Option<Codec>; KINDS],
    choice: CodecChoice,
    /// The decoder of dense pages; there is one while pages may be dense.
    pub(crate) dense: Option<DictionaryDecoder>,
    /// Buffer for one compressed page.
    pub(crate) compressed: Box<[u8]>,
}

impl Work {
    /// Makes work memory with the codecs of `choice` alone.
    pub(crate) fn new(choice: CodecChoice) -> Result<Self, NewError> {
        let compressed = room::table(PAGE_BYTES, || 0)?;
        let mut work = Self { kinds: Default::default(), choice, dense: None, compressed };
        work.switch(choice).map_err(NewError::Codec)?;
        Ok(work)
    }

    /// Makes another one with the same codecs and dictionaries. `None` without memory.
    pub(crate) fn try_clone(&self) -> Option<Self> {
        let compressed = room::table(PAGE_BYTES, || 0).ok()?;
        let mut clone =
            Self { kinds: Default::default(), choice: self.choice, dense: None, compressed };
        for (place, codec) in clone.kinds.iter_mut().zip(&self.kinds) {
            *place = codec.as_ref().map(|codec| Codec::new(codec.id())).transpose().ok()?;
        }
        if let Some(dense) = &self.dense {
            clone.dense = Some(dense.try_clone().ok()?);
        }
        Some(clone)
    }

    /// Returns how new pages are coded.
    pub(crate) fn choice(&self) -> CodecChoice {
        self.choice
    }

    /// Returns the kinds of new pages, one bit each.
    pub(crate) fn kinds(&self) -> u8 {
        kinds_of(self.choice) as u8
    }

    /// Codes new pages by `choice` from now on. On an error nothing has changed.
    pub(crate) fn switch(&mut self, choice: CodecChoice) -> Result<(), CodecError> {
        let mut made: [Option<Codec>; KINDS] = Default::default();
        for id in choice.codecs() {
            let Some(kind) = Coding::of(id).kind() else { continue };
            if self.kinds[kind].as_ref().is_none_or(|codec| codec.id() != id) {
                made[kind] = Some(Codec::new(id)?);
            }
        }
        for (place, made) in self.kinds.iter_mut().zip(made) {
            *place = made.or_else(|| place.take());
        }
        self.choice = choice;
        let has_codec = |id: CodecId| {
            let codec = Coding::of(id).kind().and_then(|kind| self.kinds[kind].as_ref());
            codec.is_some_and(|codec| codec.id() == id)
        };
        assert!(choice.codecs().all(has_codec), "a codec of the choice is missing");
        Ok(())
    }

    /// Drops the codec of `coding`, unless new pages may have that coding.
    pub(crate) fn drop_codec(&mut self, coding: Coding) {
        debug_assert!(coding.is_fast(), "{coding:?} has no codec of its own");
        if !coding.is_of(self.choice)
            && let Some(kind) = coding.kind()
        {
            self.kinds[kind] = None;
        }
    }

    /// Compresses `page` into the buffer, to at most `longest` bytes, by the first codec of the
    /// choice that can. `None` when none can.
    pub(crate) fn compress(&mut self, page: &Page, longest: Bytes) -> Option<Pressed> {
        debug_assert!(longest.0 < PAGE_BYTES, "a compressed page is smaller than a page");
        self.choice.codecs().map(Coding::of).find_map(|coding| {
            let codec = self.kinds[coding.kind()?].as_mut()?;
            let bytes = codec.compress(page, &mut self.compressed[..longest.0])?;
            debug_assert!((1..=longest.0).contains(&bytes.len()), "{coding:?} broke its limit");
            Some(Pressed { length: Bytes(bytes.len()), coding, checksum: checksum(bytes) })
        })
    }

    /// Returns the memory held outside this structure.
    pub(crate) fn memory(&self) -> Bytes {
        let dense = self.dense.as_ref().map_or(Bytes(0), DictionaryDecoder::work_bytes);
        let codecs = self.kinds.iter().flatten();
        codecs.fold(dense + Bytes(PAGE_BYTES), |sum, codec| sum + codec.work_bytes())
    }

    /// Stops when a needed kind is missing, or an unneeded one is there.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn check(&self, pages: impl Fn(Coding) -> usize) {
        for coding in Coding::FAST {
            let codec = coding.kind().and_then(|kind| self.kinds[kind].as_ref());
            assert_eq!(codec.is_some(), pages(coding) > 0 || coding.is_of(self.choice));
            assert!(codec.is_none_or(|codec| Coding::of(codec.id()) == coding));
        }
    }
}

/// Returns the bit of a coding's kind; 0 for a coding without a kind.
pub(crate) fn bit_of(coding: Coding) -> usize {
    coding.kind().map_or(0, |kind| 1 << kind)
}

/// Returns the bits of the kinds that new pages may have.
pub(crate) fn kinds_of(choice: CodecChoice) -> usize {
    choice.codecs().fold(0, |bits, id| bits | bit_of(Coding::of(id)))
}

/// Decodes `bytes` into `page`, if their checksum is `expected`. The caller passes `work` if the
/// coding needs it.
pub(crate) fn decode(
    work: Option<&mut Work>,
    bytes: &[u8],
    expected: u32,
    coding: Coding,
    page: &mut Page,
) -> Result<(), LoadError> {
    debug_assert!(work.is_some() || !coding.needs_work(), "{coding:?} needs a context");
    if checksum(bytes) != expected {
        return Err(LoadError::Corrupt);
    }
    let decoded = match coding {
        Coding::Wk => decompress_wk(bytes, page),
        Coding::Lz4 => decompress_lz4(bytes, page),
        Coding::Lzo => decompress_lzo(bytes, page),
        Coding::Raw => bytes
            .try_into()
            .map(|bytes: &Page| page.copy_from_slice(bytes))
            .map_err(|_| DecodeError::Short(Bytes(bytes.len()))),
        Coding::Zstd => match work.zip(coding.kind()) {
            Some((Work { kinds, .. }, kind)) => kinds[kind]
                .as_mut()
                .map_or(Err(DecodeError::Corrupt), |codec| codec.decompress(bytes, page)),
            None => Err(DecodeError::Corrupt),
        },
        Coding::Dense(generation) => match work.and_then(|work| work.dense.as_mut()) {
            Some(decoder) => decoder.decompress(generation, bytes, page),
            None => Err(DecodeError::Dictionary),
        },
    };
    decoded.map_err(|_| LoadError::Corrupt)
}
