//! Layer 3: the runtime inside the program. It knows addresses and page faults; only its [`knobs`]
//! name codecs and pools.
//!
//! As a preload library (feature `preload`) the crate adds a constructor and a few interposed
//! functions; as a plain library it gives the launcher the [`ledger`] with its [`knobs`] and
//! tallies, and the [`wire`] format, and it gives the benchmarks a [`replay`] of the policy. House
//! rules: the service makes no libc call, allocates only from our own heap, never unwinds, and
//! takes no lock that a thread of the program can hold.
//!
//! The modules from below; none imports one of a later line:
//!
//! 1. `pages` (where each page is), `clock`, [`knobs`], [`tally`], [`wire`], [`symbols`],
//!    `watermarks`, [`helper`] (where the launcher's helper and the services meet) and `stay`
//!    (threads kept on their processor).
//! 2. [`ledger`] (what all processes of a run share) and `control` (talk with the program's
//!    threads).
//! 3. `link` (talk with the launcher).
//! 4. `ties` (the link and the program).
//! 5. `allowance` (what the process may hold; no system calls).
//! 6. `policy` (which pages come and go; no system calls).
//! 7. [`replay`] (the policy without a program).
//! 8. `memory` (the program's memory, and changes of its addresses).
//! 9. `store` (limbo, the pool and the disk).
//! 10. `pager` (pages in and out, between memory and store).
//! 11. `service` (the loop, from its beginning to its end).
//! 12. `preload` (the library inside the program).
#![cfg_attr(all(panic = "abort", not(test)), no_std)]

extern crate alloc;

pub mod helper;
pub mod knobs;
pub mod ledger;
#[cfg(not(feature = "preload"))]
pub mod replay;
pub mod symbols;
pub mod tally;
pub mod wire;

// What the service needs, and a replay in part.
#[cfg_attr(not(any(feature = "preload", test)), expect(dead_code, reason = "the library calls it"))]
mod pages;
#[cfg_attr(
    not(any(feature = "preload", test)),
    expect(dead_code, unused_imports, reason = "the library calls it")
)]
mod policy;
mod watermarks;

// For the launcher, which tells what is not managed.
pub use pages::{GUARD_BYTES_MAX, REGION_BYTES_MIN};

// What only the service needs: the launcher does without.
#[cfg(any(feature = "preload", test))]
mod allowance;
#[cfg(any(feature = "preload", test))]
mod clock;
#[cfg(any(feature = "preload", test))]
#[cfg_attr(not(feature = "preload"), expect(dead_code, reason = "the library calls it"))]
mod control;
#[cfg(any(feature = "preload", test))]
mod link;
#[cfg(any(feature = "preload", test))]
mod memory;
#[cfg(any(feature = "preload", test))]
mod pager;
#[cfg(any(feature = "preload", test))]
#[cfg_attr(not(feature = "preload"), expect(dead_code, reason = "the library calls it"))]
mod service;
#[cfg(any(feature = "preload", test))]
mod stay;
#[cfg(any(feature = "preload", test))]
mod store;
#[cfg(any(feature = "preload", test))]
mod ties;

#[cfg(feature = "preload")]
mod preload;
// Tests call these functions by names of our own; only the preload library exports libc's names.
#[cfg(all(test, not(feature = "preload")))]
#[path = "preload/asked.rs"]
mod asked;
#[cfg(all(test, not(feature = "preload")))]
#[path = "preload/code.rs"]
mod code;
#[cfg(all(test, not(feature = "preload")))]
#[path = "preload/environment.rs"]
mod environment;
#[cfg(all(test, not(feature = "preload")))]
#[path = "preload/memory.rs"]
mod preload_memory;
