//! Touches of pages: in which order, and how long each took.

pub mod histogram;
pub mod pattern;
