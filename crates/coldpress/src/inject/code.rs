//! The code of a program in which the library must know some calls: that of its libc, which is the
//! program's own where it is static.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::sites::Sites;
use crate::elf::{self, Image};
use crate::mappings::{self, Mapping};

/// How the files begin that have a libc, or its loader, whichever libc it is.
const LIBC_NAMES: [&str; 4] = ["libc.", "libc-", "ld-", "libpthread"];

/// The code of a process.
#[derive(Debug)]
pub(super) struct Code {
    ranges: Vec<Range<usize>>,
    pub(super) sites: Sites,
    /// Whether the process has the library already.
    pub(super) has_ours: bool,
    /// Whether the program is valgrind, which believes that all addresses are its own to give.
    pub(super) is_valgrinds: bool,
    /// Whether the program has Go's runtime.
    is_gos: bool,
    exe: PathBuf,
}

/// The bytes of code that are read at a time, and those of the longest call that is looked for.
const PART_BYTES: usize = 256 << 10;
const CALL_BYTES: usize = 10;

impl Code {
    /// Finds the calls of `process` that the library must know. The library's file has two names:
    /// for glibc's loader, and for programs into which the launcher puts it.
    pub(super) fn of(process: u32, [loaded, put_in]: &[PathBuf; 2]) -> io::Result<Self> {
        let folder = Path::new("/proc").join(process.to_string());
        let mut code = mappings::of(process)?;
        code.retain(is_code_of_file);
        let link = folder.join("exe");
        let exe = fs::read_link(&link)?;
        let has = |name: &Path| code.iter().any(|it| Path::new(&it.name) == name);
        // What another loader than glibc's has mapped does nothing.
        let is_glibcs = || matches!(elf::examine(&link), Ok(Image::Dynamic));
        let has_ours = has(put_in) || has(loaded) && is_glibcs();
        // Go makes its calls on small stacks, on which nothing of ours may run. It makes no child
        // that goes on with a copy of its memory.
        let is_valgrinds = is_valgrinds(&exe);
        let is_gos = elf::has_go_runtime(&link);
        let ranges = if has_ours || is_valgrinds || is_gos {
            Vec::new()
        } else {
            let is_libc = |it: &&Mapping| {
                let name = it.name.rsplit('/').next().unwrap_or_default();
                LIBC_NAMES.iter().any(|start| name.starts_with(start))
            };
            let of_libc: Vec<_> = code.iter().filter(is_libc).map(|it| it.range.clone()).collect();
            let of_program =
                code.iter().filter(|it| Path::new(&it.name) == exe).map(|it| it.range.clone());
            if of_libc.is_empty() { of_program.collect() } else { of_libc }
        };
        let memory = File::open(folder.join("mem"))?;
        let mut sites = Sites::default();
        for range in &ranges {
            find_in(&memory, range.clone(), &mut sites);
        }
        Ok(Self { ranges, sites, has_ours, is_valgrinds, is_gos, exe })
    }

    /// Whether the library learns of each child that goes on with a copy of memory.
    pub(super) fn tells_of_forks(&self) -> bool {
        self.is_gos || self.sites.tell_of_forks()
    }

    /// Whether `process` runs the same program still.
    pub(super) fn is_of(&self, process: u32) -> bool {
        fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|exe| exe == self.exe)
    }

    /// Returns the code with the first of the calls.
    pub(super) fn around_sites(&self) -> Option<&Range<usize>> {
        let first = self.sites.all.first()?;
        self.ranges.iter().find(|range| range.contains(&first.address))
    }
}

/// Returns whether a mapping is executable and comes from a file.
fn is_code_of_file(mapping: &Mapping) -> bool {
    mapping.access.contains('x') && mapping.name.starts_with('/')
}

/// Finds the calls in the code at `range`. Parts overlap by less than a call.
fn find_in(memory: &File, range: Range<usize>, sites: &mut Sites) {
    let mut bytes = vec![0; PART_BYTES.min(range.len())];
    let mut at = range.start;
    while at < range.end {
        let part = &mut bytes[..PART_BYTES.min(range.end - at)];
        // What cannot be read, such as code behind the end of its file, is not run either.
        if memory.read_exact_at(part, at as u64).is_err() {
            break;
        }
        let length = part.len();
        let is_last = at + length == range.end;
        sites.find_up_to(part, at, if is_last { length } else { length - CALL_BYTES });
        at += if is_last { length } else { length - CALL_BYTES };
    }
}

/// Reads `length` bytes at `address` of `process`.
pub(super) fn read(process: u32, address: usize, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let memory = File::open(format!("/proc/{process}/mem"))?;
    memory.read_exact_at(&mut bytes, address as u64).map(|()| bytes)
}

/// Whether a program is one of valgrind's, which lie in a directory of that name.
fn is_valgrinds(program: &Path) -> bool {
    program.parent().is_some_and(|directory| directory.ends_with("valgrind"))
}

/// Returns the address at which `process` has mapped the beginning of `file`, if it has.
pub(super) fn start_of(process: u32, file: &Path) -> io::Result<Option<usize>> {
    let is_start = |it: &Mapping| it.offset == 0 && Path::new(&it.name) == file;
    Ok(mappings::of(process)?.into_iter().find(is_start).map(|it| it.range.start))
}

#[cfg(test)]
mod tests {
    //! The risk: a libc is overlooked, or code that is none is changed.

    use super::*;

    #[test]
    fn code_of_files_is_known() {
        let is_one = |line: &str| is_code_of_file(&Mapping::parse(line).expect("it is one"));
        let line = "7f00-8000 r-xp 00026000 08:01 123          /usr/lib/a b/libc.so.6";
        assert!(is_one(line) && !is_one(&line.replace("r-xp", "r--p")));
        assert!(!is_one("7f00-8000 r-xp 00000000 00:00 0          [vdso]"));
        assert!(!is_one("7f00-8000 r-xp 00000000 00:00 0 "));
    }

    #[test]
    fn valgrinds_programs_are_known() {
        assert!(is_valgrinds(Path::new("/usr/libexec/valgrind/memcheck-amd64-linux")));
        assert!(!is_valgrinds(Path::new("/usr/bin/valgrind")) && !is_valgrinds(Path::new("/")));
    }

    #[test]
    fn the_calls_of_this_process_are_those_of_its_libc() {
        let code = Code::of(std::process::id(), &["/absent".into(), "/other".into()])
            .expect("it may read itself");
        assert!(code.sites.tell_of_memory(), "{code:?}");
        assert!(code.around_sites().is_some() && !code.has_ours);
    }
}
