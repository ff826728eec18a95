//! Pools of compressed pages side by side: the same objects in each, their footprint and their
//! speed.
//!
//! [`Kind`] lists the pools, a line each; a [`Work`] runs with any of them. [`sizes`] gives the
//! sizes of objects, from traces or by a model; [`text`] makes pages of text. [`store`] keeps
//! objects with contents that can be checked. [`fill`] (objects stored once, the tables of the
//! mails), [`density`] (footprint after churn), [`sweep`] and [`speed`] (times) build on it.
//!
//! 1. Every pool gets the same calls with the same sizes, from fixed seeds.
//! 2. A pool is alone on its frames, and both are gone when its work ends.

pub(crate) mod density;
pub(crate) mod fill;
mod kind;
pub(crate) mod sizes;
pub(crate) mod speed;
pub(crate) mod store;
pub(crate) mod sweep;
#[cfg(test)]
mod tests;
pub(crate) mod text;

pub(crate) use coldpress_mem::pools::{ClassStats, PoolStats};
pub(crate) use kind::{Kind, Work};
