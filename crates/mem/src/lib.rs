//! Layer 1: where bytes live. Order inside: frames < slab < pools.
//!
//! [`frames`] hands out 4 KiB frames of one reserved span, [`slab`] cuts them into small objects
//! and is the runtime's global allocator, [`pools`] keep compressed pages in them. Nothing here
//! calls malloc.
#![cfg_attr(not(test), no_std)]

pub mod frames;
pub mod pools;
pub mod slab;
