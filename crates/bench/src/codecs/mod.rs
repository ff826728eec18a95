//! The sizes that codecs make of the pages of real programs, and the times they take.
//!
//! Sizes alone, as a trace has them, say nothing about another codec, so the pages themselves are
//! needed. They come from a running process ([`process`]), such as [`heap`], from a file, or from a
//! model ([`pages`]). [`contest`] stores and loads them with each [`subject`]; [`training`]
//! measures the cost of a dictionary, [`sealing`] the cost of encryption.
//!
//! A dictionary is trained on every other 64 KiB of a program and judged, as all codecs are, on the
//! rest. Pages of one repeated word are left out: no codec ever sees them.

pub(crate) mod contest;
pub(crate) mod heap;
pub(crate) mod pages;
pub(crate) mod process;
pub(crate) mod sealing;
pub(crate) mod subject;
#[cfg(test)]
mod tests;
pub(crate) mod training;
