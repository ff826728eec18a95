//! A pool that the user picks by name.

use core::fmt;
use core::str::FromStr;

use coldpress_sys::{Bytes, PageCount};

use super::zsmalloc::CHAIN_MAX;
use super::{
    AllocError, ClassStats, Compacted, Handle, Pool, PoolStats, Segments, UnknownHandle, Xcfmalloc,
    Xvmalloc, Zsmalloc,
};
use crate::frames::{FrameAllocator, Shrunk};

/// Defines every kind of pool with its name, type and constructor.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $kind:ident $name:literal $type:ident $make:expr;)+) => {
        /// A kind of pool.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum PoolKind {
            $($(#[doc = $doc])* $kind,)+
        }

        impl PoolKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// Returns the name that users type.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }
        }

        /// A pool of any kind.
        #[expect(clippy::large_enum_variant, reason = "there is one, and it lies in a box")]
        pub enum AnyPool<'f> {
            $($(#[doc = $doc])* $kind($type<'f>),)+
        }

        impl<'f> AnyPool<'f> {
            /// Makes an empty pool; it holds no frame yet.
            pub fn new(kind: PoolKind, frames: &'f FrameAllocator) -> Self {
                match kind {
                    $(PoolKind::$kind => Self::$kind($make(frames)),)+
                }
            }

            /// Returns the kind of this pool.
            pub const fn kind(&self) -> PoolKind {
                match self {
                    $(Self::$kind(_) => PoolKind::$kind,)+
                }
            }
        }

        /// Calls `$body` with the pool inside.
        macro_rules! inside {
            ($any:expr, $pool:ident => $body:expr) => {
                match $any {
                    $(AnyPool::$kind($pool) => $body,)+
                }
            };
        }
    };
}

kinds! {
    /// Objects of like size side by side in zspages of up to 16 frames.
    Zsmalloc "zsmalloc" Zsmalloc |frames| Zsmalloc::new(frames, CHAIN_MAX);
    /// One-frame TLSF: objects never cross a frame and never move.
    Xvmalloc "xvmalloc" Xvmalloc Xvmalloc::new;
    /// Scatter-gather: an object is at most two blocks on any frames.
    Xcfmalloc "xcfmalloc" Xcfmalloc |frames| Xcfmalloc::new(frames, Xcfmalloc::GRANULARITY);
    /// Objects packed to the byte in runs of frames, and kept dense.
    Segment "segment" Segments Segments::new;
}

impl fmt::Display for PoolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error of a name that no pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPool;

impl fmt::Display for UnknownPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such pool; there are ")?;
        for (index, kind) in PoolKind::ALL.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{kind}")?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownPool {}

impl FromStr for PoolKind {
    type Err = UnknownPool;

    fn from_str(text: &str) -> Result<Self, UnknownPool> {
        Self::ALL.iter().find(|kind| kind.name() == text).copied().ok_or(UnknownPool)
    }
}

impl Pool for AnyPool<'_> {
    fn alloc(&self, size: Bytes) -> Result<Handle, AllocError> {
        inside!(self, pool => pool.alloc(size))
    }

    fn free(&self, handle: Handle) -> Result<(), UnknownHandle> {
        inside!(self, pool => pool.free(handle))
    }

    fn size(&self, handle: Handle) -> Result<Bytes, UnknownHandle> {
        inside!(self, pool => pool.size(handle))
    }

    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), UnknownHandle> {
        inside!(self, pool => pool.write(handle, bytes))
    }

    fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> Result<R, UnknownHandle> {
        inside!(self, pool => pool.read(handle, f))
    }

    fn stats(&self) -> PoolStats {
        let (mut stats, inner) = inside!(self, pool => (pool.stats(), size_of_val(pool)));
        stats.metadata += Bytes(size_of::<Self>() - inner);
        stats
    }

    #[inline]
    fn frames(&self) -> PageCount {
        inside!(self, pool => pool.frames())
    }

    fn classes(&self, visit: &mut dyn FnMut(ClassStats)) {
        inside!(self, pool => pool.classes(visit));
    }

    fn compact(&self, budget: Bytes) -> Compacted {
        inside!(self, pool => pool.compact(budget))
    }

    fn shrink_frames(&self, online: Bytes) -> Shrunk {
        inside!(self, pool => pool.shrink_frames(online))
    }

    fn give_up_moves(&mut self) {
        inside!(self, pool => pool.give_up_moves());
    }

    fn check(&mut self) {
        inside!(self, pool => pool.check());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn every_name_parses_to_its_kind() {
        for kind in PoolKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(*kind));
        }
        let error = "zbud".parse::<PoolKind>().unwrap_err();
        assert!(error.to_string().starts_with("no such pool; there are zsmalloc"), "{error}");
    }
}
