//! A program that claims to have Go's runtime, by the note of Go's linker. Prints what it sees of
//! coldpress, then starts the program named, with an empty environment.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The note: the lengths of its name and of its content, its kind, the name, and the content
/// (elf(5)).
#[used]
#[unsafe(link_section = ".note.go.buildid")]
static NOTE: [u32; 5] = [4, 4, 4, u32::from_le_bytes(*b"Go\0\0"), 0];

fn main() {
    let is_ours = |name: &str| name == "LD_PRELOAD" || name.starts_with("COLDPRESS_");
    let ours = env::vars().map(|(name, _)| name).filter(|name| is_ours(name));
    let mut ours: Vec<_> = ours.collect();
    ours.sort();
    println!("{}", ours.join(" "));
    let mut words = env::args().skip(1);
    if let Some(program) = words.next() {
        let error = Command::new(program).args(words).env_clear().exec();
        panic!("{error}");
    }
}
