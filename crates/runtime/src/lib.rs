//! Layer 3: the runtime inside the program. It knows addresses and faults, and no codec or pool by
//! name.
//!
//! As a preload library (feature `preload`) it brings a constructor and a few interposed functions;
//! as a plain library it gives the launcher the [`ledger`] with its [`knobs`] and tallies, and the
//! [`wire`] format. House rules:
//! the service makes no libc call, allocates only from our own heap, never unwinds, and
//! waits for nobody.
//!
//! From below: [`pages`] and [`regions`] what is known, [`limbo`] the waiting room, [`ahead`] who
//! helps to compress it, [`queue`] who is next, [`walks`] what to bring in, [`budget`] how much,
//! [`placement`] where to run, [`stay`] who runs there too, [`pressure`] what idle memory may cost,
//! [`link`] and [`control`] who to talk to, then the [`manager`] with its faults, changes, reclaim,
//! proactive reclaim, ageing, thawing and recording, and the [`service`] that runs it.
#![cfg_attr(all(panic = "abort", not(test)), no_std)]

extern crate alloc;

pub mod knobs;
pub mod ledger;
pub mod tally;
pub mod wire;

mod ageing;
pub mod ahead;
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
mod proactive;
pub mod queue;
mod reclaim;
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
// Tests call it by names of our own; the preload library alone has it as libc's.
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
