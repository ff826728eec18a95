//! What codecs make of the pages of real programs, and how long they take.
//!
//! Sizes alone, as a trace has them, say nothing about another codec: this needs the pages. They
//! come from a running process ([`process`]), [`heap`] among them, from a file, or from a model
//! ([`pages`]).
//! [`contest`] stores and loads them with each [`subject`]; [`training`] is what a dictionary
//! costs, [`sealing`] what encryption does.
//!
//! A dictionary is trained on every other 64 KiB of a program and judged, as all codecs are, on the
//! rest. Pages of one repeated word are left out: no codec ever sees them.

pub mod contest;
pub mod heap;
pub mod pages;
pub mod process;
pub mod sealing;
pub mod subject;
#[cfg(test)]
mod tests;
pub mod training;
