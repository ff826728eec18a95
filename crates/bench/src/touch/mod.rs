//! Touches of pages: their orders, and the time of each touch.

pub mod histogram;
pub mod pattern;
