//! Layer 0: system calls, in types. It knows no policy. Other crates make only safe ones, by
//! rustix; the preload library makes some by number ([`raw`]).
//!
//! Everything here works without libc, without thread-local memory and without an allocator, so
//! that the runtime may use it inside any program. Modules: [`page`] units, [`error`] failed calls,
//! [`errno`] their numbers, [`beside`] processes that share our memory, [`confine`] giving up
//! rights, [`map`] address space, [`shared`] memory between processes, [`mod@file`] the spill file,
//! [`sync`] locks, [`pair`] double words, [`futex`] waiting, [`raw`] bare calls, [`calls`] which of
//! them a filter refuses, [`cpu`] processors and clocks, [`proc`] what the kernel reports about
//! this process, [`program`] the process that a service beside it serves, [`net`] packets with
//! descriptors, [`remote`] pages of other processes, [`ring`] asynchronous transfers, [`rseq`]
//! per-processor lists, [`secret`] values that leave no trace, [`uffd`] page faults, [`wait`]
//! waiting for them; and, with the feature `libc`, [`fork`] children for measurements,
//! [`signals`] that a program was started to ignore, and [`trace`] threads of others that stand
//! still.
#![cfg_attr(not(any(test, miri)), no_std)]

// For the type of an owned buffer; nothing here allocates.
extern crate alloc;
#[cfg(any(test, feature = "libc"))]
extern crate std;

// The unwinder is linked into the command statically: loading it from libgcc_s takes a thirtieth of
// the time a program needs to start. It is named here because it must precede std's own request.
#[cfg(all(feature = "libc", target_env = "gnu"))]
// SAFETY: the block is empty, so no signature in it can be wrong.
#[link(name = "gcc_eh", kind = "static", modifiers = "-bundle")]
unsafe extern "C" {}

pub mod beside;
pub mod calls;
pub mod confine;
pub mod costs;
pub mod cpu;
pub mod errno;
pub mod error;
pub mod file;
#[cfg(any(test, feature = "libc"))]
pub mod fork;
pub mod futex;
#[cfg(not(miri))]
pub mod map;
#[cfg(miri)]
#[path = "map_interpreted.rs"]
pub mod map;
pub mod net;
pub mod page;
pub mod pair;
pub mod proc;
pub mod program;
pub mod raw;
pub mod remote;
pub mod ring;
pub mod rseq;
pub mod run_timer;
pub mod secret;
pub mod shared;
#[cfg(any(test, feature = "libc"))]
pub mod signals;
pub mod sync;
#[cfg(any(test, feature = "libc"))]
pub mod trace;
pub mod uffd;
pub mod wait;

pub use error::{SysError, SysResult};
pub use page::{Bytes, PAGE_BYTES, Page, PageBuffer, PageCount};
pub use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
