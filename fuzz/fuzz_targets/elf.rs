//! Any file, as the program that is to be started: `run` looks at it before the kernel does.
//!
//! The headers and the code of a program come from whoever wrote it. Looking at them ends, and
//! finds only system calls that are there.
#![no_main]

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

use coldpress_sys::PAGE_BYTES;
use rustix::fs::{MemfdFlags, memfd_create};

#[path = "../../crates/coldpress/src/elf.rs"]
#[expect(dead_code, reason = "the command shows what it finds")]
mod elf;
#[path = "../../crates/coldpress/src/inject/sites.rs"]
#[expect(dead_code, reason = "the command asks for less")]
mod sites;

/// Where the code is said to lie.
const CODE: usize = 0x40_0000;
/// Where the stubs would.
const STUBS: usize = 0x80_0000;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let file = memfd_create("program", MemfdFlags::CLOEXEC).expect("there is memory");
    let mut file = File::from(file);
    file.write_all(bytes).expect("there is memory");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    elf::examine(Path::new(&path)).expect("the file can be read");
    elf::has_go_runtime(Path::new(&path));

    let mut found = sites::Sites::default();
    found.find_up_to(bytes, CODE, bytes.len());
    let doors = sites::Doors { came: STUBS + 8 * PAGE_BYTES, loose: STUBS + 9 * PAGE_BYTES };
    let mut stubs = vec![0xcc; coldpress_runtime::wire::STUBS_BYTES];
    for (at, change) in sites::changes(&found, STUBS, doors) {
        match at.checked_sub(STUBS) {
            Some(at) => stubs[at..at + change.len()].copy_from_slice(&change),
            None => assert!(at >= CODE && at + change.len() <= CODE + bytes.len()),
        }
    }
    // The command takes out again what it has put in.
    for site in sites::of_stubs(&stubs) {
        let at = site.address - CODE;
        let before = site.before();
        assert_eq!(bytes[at..at + before.len()], before);
    }
});
