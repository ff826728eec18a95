//! Errors, one type per kind of verb, and the warnings that a user sees once.

use core::fmt;

use coldpress_backing::BackingError;
use coldpress_codec::CodecError;
use coldpress_sys::SysError;

use crate::room::NoMemory;

/// The reason why a store, or a part of it, could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewError {
    /// The codec could not be made.
    Codec(CodecError),
    /// No memory for the buffers.
    NoMemory,
    /// Of a sealer: the system refused a key to seal pages with, or memory to keep it in.
    NoKey(SysError),
    /// Of a sealer: the cipher gives wrong answers on this machine.
    WrongCipher,
}

/// The reason why a page was not stored, or not renamed. Nothing has changed: the caller keeps the
/// page, and an older one under the same key is still stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The store is switched off.
    Disabled,
    /// The page compresses poorly, and such pages are not kept.
    Incompressible,
    /// The page compresses worse than the running-mean limit, and so do the stored pages on
    /// average.
    AboveMean,
    /// The pool may not grow, and nothing could be written back to make room; or the pool had to
    /// refuse a page for that reason, and has not shrunk below its accept threshold since.
    PoolFull,
    /// No memory for an entry or its place in the index.
    NoMemory,
}

/// The reason why a stored page could not be given back. It is still stored, and the load may be
/// tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The page's bytes are not those that were stored.
    Corrupt,
    /// The backing store did not deliver the page's bytes.
    Backing(BackingError),
}

/// A message that a user should see once. Nothing has been lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warning {
    /// The backing store has no room: pages stay in the pool.
    BackingFull,
    /// The backing store failed: pages stay in the pool.
    BackingError(SysError),
    /// A page was refused because the pool is full and nothing can be written back.
    PoolFull,
}

impl StoreError {
    /// Returns whether the page itself was the reason for the refusal: another may well be stored.
    pub const fn is_of_the_page(self) -> bool {
        matches!(self, Self::Incompressible | Self::AboveMean)
    }
}

impl From<NoMemory> for NewError {
    fn from(NoMemory: NoMemory) -> Self {
        Self::NoMemory
    }
}

impl From<NoMemory> for StoreError {
    fn from(NoMemory: NoMemory) -> Self {
        Self::NoMemory
    }
}

impl fmt::Display for NewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Codec(error) => error.fmt(f),
            Self::NoMemory => f.write_str("no memory for the buffers of the page store"),
            Self::NoKey(error) => write!(f, "no key: {error}"),
            Self::WrongCipher => f.write_str("the cipher gives wrong answers on this machine"),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled => "the page store is switched off",
            Self::Incompressible => "the page compresses poorly",
            Self::AboveMean => "the page compresses worse than the running-mean limit",
            Self::PoolFull => "the pool is full and nothing can be written back",
            Self::NoMemory => "no memory for the tables of the page store",
        })
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt => f.write_str("a stored page is damaged"),
            Self::Backing(error) => write!(f, "a page cannot be read back: {error}"),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BackingFull => f.write_str(
                "the disk is full: cold pages stay in memory; make room there, or run with another \
                 --disk or a larger --disk-size",
            ),
            Self::BackingError(error) => {
                write!(f, "cold pages cannot be written back and stay in memory: {error}")
            }
            Self::PoolFull => f.write_str("the pool is full: pages stay in the program"),
        }
    }
}

impl core::error::Error for NewError {}
impl core::error::Error for StoreError {}
impl core::error::Error for LoadError {}

/// The warnings for the user, each at most once.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    backing_full: Once,
    backing_error: Once,
    pool_full: Once,
}

/// A warning that is raised, and then taken, at most once.
#[derive(Debug, Default)]
enum Once {
    #[default]
    Quiet,
    Raised(Warning),
    Told,
}

impl Once {
    /// Takes the warning, if it was raised and not taken yet.
    fn take(&mut self) -> Option<Warning> {
        let Self::Raised(warning) = *self else { return None };
        *self = Self::Told;
        Some(warning)
    }
}

impl Warnings {
    /// Raises a warning, unless one of its kind was raised before.
    pub(crate) fn raise(&mut self, warning: Warning) {
        let once = match warning {
            Warning::BackingFull => &mut self.backing_full,
            Warning::BackingError(_) => &mut self.backing_error,
            Warning::PoolFull => &mut self.pool_full,
        };
        if matches!(once, Once::Quiet) {
            *once = Once::Raised(warning);
        }
    }

    /// Takes the next warning for the user.
    pub(crate) fn take(&mut self) -> Option<Warning> {
        [&mut self.backing_full, &mut self.backing_error, &mut self.pool_full]
            .into_iter()
            .find_map(Once::take)
    }
}
