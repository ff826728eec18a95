//! The codecs in use: the one that compresses, and those that stored pages still need.
//!
//! Every entry says how its bytes are coded, so the codec may be switched at any time: a new one is
//! made when it is asked for, an old one is dropped with the last page it compressed. Any zstd
//! reads what every level of it wrote, so there is one of each kind. Pages that have grown old have
//! a codec of their own, see `dense`.
//!
//! Invariants (`Zswap::check` walks them):
//! 1. There is a codec of the current kind and of each kind that an entry has, and no other.
//! 2. `pages` counts the entries of its kind that are in the pool or written back.

use coldpress_codec::{Codec, CodecError, CodecId, DecodeError, Generation};
use coldpress_sys::{Bytes, Page};

use crate::dense::Dense;

/// How the bytes of a stored page are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// By LZ4.
    Lz4,
    /// By LZO.
    Lzo,
    /// By zstd, of any level.
    Zstd,
    /// Not at all: a whole page.
    Raw,
    /// By zstd with a dictionary of this generation, when it had grown old.
    Dense(Generation),
}

impl Coding {
    /// What a codec of `id` makes.
    fn of(id: CodecId) -> Self {
        match id {
            CodecId::Lz4 => Self::Lz4,
            CodecId::Lzo => Self::Lzo,
            CodecId::Zstd { .. } => Self::Zstd,
        }
    }

    /// Its place in [`Codecs::kinds`], if it has one.
    fn kind(self) -> Option<usize> {
        match self {
            Self::Lz4 => Some(0),
            Self::Lzo => Some(1),
            Self::Zstd => Some(2),
            Self::Raw | Self::Dense(_) => None,
        }
    }

    /// Whether it is that of a young page that a codec made smaller.
    pub(crate) fn is_fast(self) -> bool {
        self.kind().is_some()
    }

    /// Whether it is that of a page that has grown old.
    pub(crate) fn is_dense(self) -> bool {
        matches!(self, Self::Dense(_))
    }
}

/// Kinds of codecs.
const KINDS: usize = 3;

/// A codec, and how many pages need it.
#[derive(Debug, Default)]
struct Kind {
    codec: Option<Codec>,
    pages: usize,
}

/// All codecs of a store.
#[derive(Debug)]
pub(crate) struct Codecs {
    /// By [`Coding::kind`].
    kinds: [Kind; KINDS],
    current: Coding,
    /// That of pages that have grown old.
    pub(crate) dense: Dense,
}

impl Codecs {
    /// The codec `id` alone.
    pub(crate) fn new(id: CodecId) -> Result<Self, CodecError> {
        let current = Coding::of(id);
        let codec = Some(Codec::new(id)?);
        let mut codecs = Self { kinds: Default::default(), current, dense: Dense::default() };
        if let Some(kind) = codecs.kind_mut(current) {
            kind.codec = codec;
        }
        Ok(codecs)
    }

    /// Compresses with `id` from now on; whether that is a change. On an error nothing has changed.
    pub(crate) fn switch(&mut self, id: CodecId) -> Result<bool, CodecError> {
        let coding = Coding::of(id);
        let is_current = coding == self.current;
        if let Some(kind) = self.kind_mut(coding) {
            let is_made = kind.codec.as_ref().is_some_and(|codec| codec.id() == id);
            if is_made && is_current {
                return Ok(false);
            }
            if !is_made {
                kind.codec = Some(Codec::new(id)?);
            }
        }
        let before = core::mem::replace(&mut self.current, coding);
        self.drop_unneeded(before);
        Ok(true)
    }

    /// Compresses `page` into the front of `out`: the part that was filled, and how. `None` when it
    /// does not fit.
    pub(crate) fn compress<'o>(
        &mut self,
        page: &Page,
        out: &'o mut [u8],
    ) -> Option<(&'o [u8], Coding)> {
        let current = self.current;
        let codec = self.kind_mut(current)?.codec.as_mut()?;
        codec.compress(page, out).map(|bytes| (bytes, current))
    }

    /// Makes the page of `bytes`, which are coded so.
    pub(crate) fn decompress(
        &mut self,
        bytes: &[u8],
        coding: Coding,
        page: &mut Page,
    ) -> Result<(), DecodeError> {
        if let Coding::Dense(generation) = coding {
            return self.dense.decompress(generation, bytes, page);
        }
        let Some(kind) = self.kind_mut(coding) else {
            *page = bytes.try_into().map_err(|_| DecodeError::Short(Bytes(bytes.len())))?;
            return Ok(());
        };
        // An entry's codec is there (invariant 1).
        kind.codec.as_mut().ok_or(DecodeError::Corrupt)?.decompress(bytes, page)
    }

    /// An entry has come to be coded so.
    pub(crate) fn note_come(&mut self, coding: Coding) {
        if let Some(kind) = self.kind_mut(coding) {
            kind.pages += 1;
        }
        self.dense.note_come(coding);
    }

    /// An entry that was coded so has gone.
    pub(crate) fn note_gone(&mut self, coding: Coding) {
        if let Some(kind) = self.kind_mut(coding) {
            kind.pages -= 1;
            self.drop_unneeded(coding);
        }
        self.dense.note_gone(coding);
    }

    /// The work memory of all codecs.
    pub(crate) fn work_bytes(&self) -> Bytes {
        let codecs = self.kinds.iter().filter_map(|kind| kind.codec.as_ref());
        codecs.fold(self.dense.work_bytes(), |sum, codec| sum + codec.work_bytes())
    }

    fn kind_mut(&mut self, coding: Coding) -> Option<&mut Kind> {
        self.kinds.get_mut(coding.kind()?)
    }

    /// Drops a codec that neither compresses nor has pages.
    fn drop_unneeded(&mut self, coding: Coding) {
        if coding != self.current
            && let Some(kind) = self.kind_mut(coding)
            && kind.pages == 0
        {
            kind.codec = None;
        }
    }

    /// Stops at a broken invariant; `pages` says how many entries have a coding.
    #[cfg(test)]
    pub(crate) fn check(&self, pages: impl Fn(Coding) -> usize) {
        self.dense.check(&pages);
        for (coding, kind) in [Coding::Lz4, Coding::Lzo, Coding::Zstd].into_iter().zip(&self.kinds)
        {
            assert_eq!(kind.pages, pages(coding), "{coding:?}");
            assert_eq!(kind.codec.is_some(), kind.pages > 0 || coding == self.current);
            assert!(kind.codec.as_ref().is_none_or(|codec| Coding::of(codec.id()) == coding));
        }
    }
}
