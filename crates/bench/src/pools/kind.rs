//! The pools, a line each.

use coldpress_mem::pools::{Pool, Segments, Xcfmalloc, Xvmalloc, Zsmalloc};
use coldpress_sys::{Bytes, SysResult};

use crate::ours;

/// A work to do with a pool of any type.
pub(crate) trait Work {
    /// The result of the work.
    type Output;

    /// Does the work with an empty pool.
    fn run<P: Pool>(self, pool: P) -> Self::Output;
}

/// Makes [`Kind`] of lines: the name of a pool here, its name in tables, and how it is made on
/// frames.
macro_rules! kinds {
    ($($kind:ident = $name:literal: |$frames:ident| $pool:expr;)+) => {
        /// A pool with its parameters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Kind {
            $(#[doc = $name] $kind,)+
        }

        impl Kind {
            /// All pools, in the order of tables.
            pub(crate) const ALL: &[Self] = &[$(Self::$kind),+];

            /// Returns the name of the pool in tables and on the command line.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            /// Does a work with an empty pool that may hold up to `objects` objects.
            ///
            /// Fails when the address space for the pool's frames is not available.
            pub(crate) fn run<W: Work>(self, objects: usize, work: W) -> SysResult<W::Output> {
                let frames = ours::pool_frames(objects)?;
                Ok(match self {
                    $(Self::$kind => {
                        let $frames = &frames;
                        work.run($pool)
                    })+
                })
            }
        }
    };
}

kinds! {
    Xvmalloc = "xvmalloc": |frames| Xvmalloc::new(frames);
    Xcfmalloc = "xcfmalloc": |frames| Xcfmalloc::new(frames, Xcfmalloc::GRANULARITY);
    Xcfmalloc16 = "xcfmalloc-16-byte": |frames| Xcfmalloc::new(frames, Bytes(16));
    Zsmalloc1 = "zsmalloc-1": |frames| Zsmalloc::new(frames, 1);
    Zsmalloc2 = "zsmalloc-2": |frames| Zsmalloc::new(frames, 2);
    Zsmalloc4 = "zsmalloc-4": |frames| Zsmalloc::new(frames, 4);
    Zsmalloc8 = "zsmalloc-8": |frames| Zsmalloc::new(frames, 8);
    Zsmalloc16 = "zsmalloc-16": |frames| Zsmalloc::new(frames, 16);
    Segment = "segment": |frames| Segments::new(frames);
}

impl Kind {
    /// Returns the pool of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}
