//! Touches of pages: their orders, and the time of each touch.

pub(crate) mod histogram;
pub(crate) mod pattern;
