//! The shared parts of the system tests: a harness, a watcher, and guards that put the machine
//! back.
//!
//! The tests drive the built command from outside, as a user does, and know nothing of its insides.
//! [`harness`] runs one job plain or within a budget and compares, [`watch`] samples memory of a
//! process tree, [`cases`] judges programs of many small cases, [`matrix`] runs cases of which some
//! are known to fail, [`machine`] finds programs and makes scratch places, [`cgroup`] makes a
//! limited memory cgroup, [`container`] what a container is made of, [`guest`] what a guest of
//! QEMU's starts from, [`soak`] what our processes hold over a long time, and [`terminal`] runs a
//! command in a terminal and sees its screen.
#![forbid(unsafe_code)]

pub mod cases;
pub mod cgroup;
pub mod container;
pub mod guest;
pub mod harness;
pub mod machine;
pub mod matrix;
pub mod soak;
pub mod terminal;
pub mod watch;
