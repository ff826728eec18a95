//! Layer 3: the runtime inside the program. It knows addresses and page faults; it knows no codec
//! and no pool by name.
//!
//! As a preload library (feature `preload`) the crate adds a constructor and a few interposed
//! functions; as a plain library it gives the launcher the [`ledger`] with its [`knobs`] and
//! tallies, and the [`wire`] format. House rules: the service makes no libc call, allocates only
//! from our own heap, never unwinds, and takes no lock that a thread of the program can hold.
//!
//! The modules from below, as their `use` lines have it:
//!
//! 1. Modules that import no other: [`pages`] (where each page is), [`clock`], [`mean`],
//!    [`pressure`] (what idle memory may cost), [`stay`] (threads kept on their processor),
//!    [`knobs`], [`wire`], [`symbols`], `mapped` and `sharing` (shared memory), `refusals` and
//!    `trial`.
//! 2. Modules that import only those and each other: [`regions`] (registered ranges), `order`
//!    (reports of changes put in order), [`limbo`] (the waiting room, a swap cache), [`queue`] (the
//!    run to take next), [`walks`] (readahead), [`placement`] (the processor to run on),
//!    [`shares`], `gauging`, [`tally`] and [`control`] (talk with the program's threads).
//! 3. The [`manager`] and its parts, which import it or each other, in circles: [`ledger`],
//!    [`link`] (talk with the launcher) and [`budget`]; `fault`, `away`, `kept` and `copies`, which
//!    bring pages in; `reclaim`, `bar` and [`helper`] (the helper that compresses), which take
//!    pages out; `recompress`, `change`, `discover`, `pools`, `proactive`, `record`, `thaw`,
//!    `tune`, `turns` and `waits`. The ledger is one of them because it holds the words of `turns`
//!    and the bell of [`helper`].
//! 4. The [`service`], which runs the manager, and [`heir`], which takes over a parent's service in
//!    the child of a fork. Each imports the other.
#![cfg_attr(all(panic = "abort", not(test)), no_std)]

extern crate alloc;

pub mod knobs;
pub mod ledger;
pub mod tally;
pub mod wire;

mod away;
mod bar;
pub mod budget;
mod change;
pub mod clock;
pub mod control;
mod copies;
mod discover;
mod fault;
mod gauging;
pub mod heir;
pub mod helper;
mod idle;
mod kept;
pub mod limbo;
pub mod link;
pub mod manager;
mod mapped;
pub mod mean;
mod order;
pub mod pages;
pub mod placement;
mod pools;
pub mod pressure;
pub mod queue;
mod reclaim;
mod recompress;
mod record;
mod refusals;
pub mod regions;
pub mod service;
pub mod shares;
mod sharing;
pub mod stay;
pub mod symbols;
mod thaw;
mod trial;
mod tune;
mod turns;
mod waits;
pub mod walks;

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
mod memory;
