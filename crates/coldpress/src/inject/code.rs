//! The code of a program in which the library must know some calls: that of its libc, which is the
//! program's own where it is static.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::sites::Sites;
use crate::elf::{self, Image};

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
    exe: PathBuf,
}

/// The bytes of code that are read at a time, and those of the longest call that is looked for.
const PART_BYTES: usize = 256 << 10;
const CALL_BYTES: usize = 10;

/// Executable memory that comes from a file.
struct Mapped {
    range: Range<usize>,
    file: PathBuf,
}

impl Code {
    /// Finds the calls of `process` that the library must know. The library's file has two names:
    /// for glibc's loader, and for programs into which the launcher puts it.
    pub(super) fn of(process: u32, [loaded, put_in]: &[PathBuf; 2]) -> io::Result<Self> {
        let folder = Path::new("/proc").join(process.to_string());
        let maps = fs::read(folder.join("maps"))?;
        let maps = String::from_utf8_lossy(&maps);
        let mapped: Vec<_> = maps.lines().filter_map(Mapped::parse).collect();
        let link = folder.join("exe");
        let exe = fs::read_link(&link)?;
        let has = |name: &Path| mapped.iter().any(|it| it.file == name);
        // What another loader than glibc's has mapped does nothing.
        let is_glibcs = || matches!(elf::examine(&link), Ok(Image::Dynamic));
        let has_ours = has(put_in) || has(loaded) && is_glibcs();
        // Go makes its calls on small stacks, on which nothing of ours may run. It makes no child
        // that goes on with a copy of its memory.
        let is_valgrinds = is_valgrinds(&exe);
        let ranges = if has_ours || is_valgrinds || elf::has_go_runtime(&link) {
            Vec::new()
        } else {
            let is_libc = |it: &&Mapped| {
                let name = it.file.file_name().unwrap_or_default().to_string_lossy();
                LIBC_NAMES.iter().any(|start| name.starts_with(start))
            };
            let of_libc: Vec<_> =
                mapped.iter().filter(is_libc).map(|it| it.range.clone()).collect();
            let of_program = mapped.iter().filter(|it| it.file == exe).map(|it| it.range.clone());
            if of_libc.is_empty() { of_program.collect() } else { of_libc }
        };
        let memory = File::open(folder.join("mem"))?;
        let mut sites = Sites::default();
        for range in &ranges {
            find_in(&memory, range.clone(), &mut sites);
        }
        Ok(Self { ranges, sites, has_ours, is_valgrinds, exe })
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
    let maps = fs::read(format!("/proc/{process}/maps"))?;
    let maps = String::from_utf8_lossy(&maps);
    let name = file.to_string_lossy();
    let line = maps.lines().find(|line| line.ends_with(&*name) && line.contains(" 00000000 "));
    let start = line.and_then(|line| line.split_once('-'));
    Ok(start.and_then(|(start, _)| usize::from_str_radix(start, 16).ok()))
}

impl Mapped {
    /// Reads a line of /proc's `maps`.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (addresses, access) = (fields.next()?, fields.next()?);
        let (start, end) = addresses.split_once('-')?;
        let file = fields.nth(3)?.trim_start();
        let address = |text| usize::from_str_radix(text, 16).ok();
        let range = address(start)?..address(end)?;
        (access.contains('x') && file.starts_with('/')).then(|| Self { range, file: file.into() })
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a libc is overlooked, or code that is none is changed.

    use super::*;

    #[test]
    fn code_of_files_is_read_from_maps() {
        let line =
            "7f00-8000 r-xp 00026000 08:01 123                        /usr/lib/a b/libc.so.6";
        let mapped = Mapped::parse(line).expect("it is executable");
        assert_eq!(
            (mapped.range, &*mapped.file),
            (0x7f00..0x8000, Path::new("/usr/lib/a b/libc.so.6"))
        );
        assert!(Mapped::parse(&line.replace("r-xp", "r--p")).is_none());
        assert!(Mapped::parse("7f00-8000 r-xp 00000000 00:00 0          [vdso]").is_none());
        assert!(Mapped::parse("7f00-8000 r-xp 00000000 00:00 0 ").is_none());
        assert!(Mapped::parse("").is_none());
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
