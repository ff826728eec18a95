//! The codecs in use: the one that compresses, and those that stored pages still need.
//!
//! Every entry says how its bytes are coded, so the codec may be switched at any time: a new one is
//! made when it is asked for, an old one is dropped with the last page it compressed. Any zstd
//! reads what every level of it wrote, so there is one of each kind.
//!
//! Invariants (`Zswap::check` walks them):
//! 1. There is a codec of the current kind and of each kind that an entry has, and no other.
//! 2. `pages` counts the entries of its kind that are in the pool or written back.

use coldpress_codec::{Codec, CodecError, CodecId, DecodeError};
use coldpress_sys::{Bytes, Page};

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
}

/// A codec, and how many pages need it.
#[derive(Debug, Default)]
struct Kind {
    codec: Option<Codec>,
    pages: usize,
}

/// All codecs of a store.
#[derive(Debug)]
pub(crate) struct Codecs {
    /// In the order of [`Coding`], without the last of them, which needs none.
    kinds: [Kind; Coding::Raw as usize],
    current: Coding,
}

impl Codecs {
    /// The codec `id` alone.
    pub(crate) fn new(id: CodecId) -> Result<Self, CodecError> {
        let current = Coding::of(id);
        let mut codecs = Self { kinds: Default::default(), current };
        codecs.kinds[current as usize].codec = Some(Codec::new(id)?);
        Ok(codecs)
    }

    /// Compresses with `id` from now on; whether that is a change. On an error nothing has changed.
    pub(crate) fn switch(&mut self, id: CodecId) -> Result<bool, CodecError> {
        let coding = Coding::of(id);
        let kind = &mut self.kinds[coding as usize];
        let is_made = kind.codec.as_ref().is_some_and(|codec| codec.id() == id);
        if is_made && coding == self.current {
            return Ok(false);
        }
        if !is_made {
            kind.codec = Some(Codec::new(id)?);
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
        let codec = self.kinds[self.current as usize].codec.as_mut()?;
        codec.compress(page, out).map(|bytes| (bytes, self.current))
    }

    /// Makes the page of `bytes`, which are coded so.
    pub(crate) fn decompress(
        &mut self,
        bytes: &[u8],
        coding: Coding,
        page: &mut Page,
    ) -> Result<(), DecodeError> {
        let Some(kind) = self.kinds.get_mut(coding as usize) else {
            *page = bytes.try_into().map_err(|_| DecodeError::Short(Bytes(bytes.len())))?;
            return Ok(());
        };
        // An entry's codec is there (invariant 1).
        kind.codec.as_mut().ok_or(DecodeError::Corrupt)?.decompress(bytes, page)
    }

    /// An entry has come to be coded so.
    pub(crate) fn note_come(&mut self, coding: Coding) {
        if let Some(kind) = self.kinds.get_mut(coding as usize) {
            kind.pages += 1;
        }
    }

    /// An entry that was coded so has gone.
    pub(crate) fn note_gone(&mut self, coding: Coding) {
        if let Some(kind) = self.kinds.get_mut(coding as usize) {
            kind.pages -= 1;
            self.drop_unneeded(coding);
        }
    }

    /// The work memory of all codecs.
    pub(crate) fn work_bytes(&self) -> Bytes {
        let codecs = self.kinds.iter().filter_map(|kind| kind.codec.as_ref());
        codecs.fold(Bytes(0), |sum, codec| sum + codec.work_bytes())
    }

    /// Drops a codec that neither compresses nor has pages.
    fn drop_unneeded(&mut self, coding: Coding) {
        if coding != self.current
            && let Some(kind) = self.kinds.get_mut(coding as usize)
            && kind.pages == 0
        {
            kind.codec = None;
        }
    }

    /// Stops at a broken invariant; `pages` says how many entries have a coding.
    #[cfg(test)]
    pub(crate) fn check(&self, pages: impl Fn(Coding) -> usize) {
        for coding in [Coding::Lz4, Coding::Lzo, Coding::Zstd] {
            let kind = &self.kinds[coding as usize];
            assert_eq!(kind.pages, pages(coding), "{coding:?}");
            assert_eq!(kind.codec.is_some(), kind.pages > 0 || coding == self.current);
            assert!(kind.codec.as_ref().is_none_or(|codec| Coding::of(codec.id()) == coding));
        }
    }
}
