//! Layer 1: where bytes live. Order inside: percpu < frames < slab < pools.
//!
//! `percpu` keeps per-processor lists, [`frames`] hands out 4 KiB frames of one reserved span,
//! [`slab`] cuts them into small objects and is the runtime's global allocator, [`pools`] keep
//! compressed pages in them. Nothing here calls malloc. The model checker (`--cfg loom`) sees only
//! the code that its tests run.
#![cfg_attr(not(any(test, fuzzing)), no_std)]

#[cfg(not(loom))]
pub mod frames;
#[cfg(not(loom))]
mod percpu;
#[cfg(test)]
#[cfg(loom)]
#[path = "percpu/loom_model.rs"]
mod percpu_loom_model;
#[cfg(not(loom))]
pub mod pools;
#[cfg(test)]
#[cfg(loom)]
#[path = "pools/loom_model.rs"]
mod pools_loom_model;
#[cfg(not(loom))]
pub mod slab;
#[cfg(test)]
#[cfg(loom)]
#[path = "slab/loom_model.rs"]
mod slab_loom_model;
