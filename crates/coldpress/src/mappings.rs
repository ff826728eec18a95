//! The mappings of a process, as the lines of its `maps` and `smaps` show them
//! (proc_pid_maps(5)).

use std::fs;
use std::io;
use std::ops::Range;

/// A mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) range: Range<usize>,
    /// The access, as `rw-p`.
    pub(crate) access: String,
    /// The place in the file.
    pub(crate) offset: u64,
    /// The path of a file, or a name of the kernel's, as `[heap]`. Empty for plain memory.
    pub(crate) name: String,
}

impl Mapping {
    /// Reads a line of `maps`, or the first one of a mapping in `smaps`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (addresses, access, offset) = (fields.next()?, fields.next()?, fields.next()?);
        let (start, end) = addresses.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        let range = address(start)?..address(end)?;
        let offset = u64::from_str_radix(offset, 16).ok()?;
        // Device and inode are left out. Only the name may hold spaces.
        let name = fields.nth(2).unwrap_or_default().trim_start().to_owned();
        (!range.is_empty()).then(|| Self { range, access: access.to_owned(), offset, name })
    }
}

/// Returns the mappings of a process, in the order of their addresses.
pub(crate) fn of(process: u32) -> io::Result<Vec<Mapping>> {
    let maps = fs::read(format!("/proc/{process}/maps"))?;
    // Names of files need not be UTF-8.
    Ok(String::from_utf8_lossy(&maps).lines().filter_map(Mapping::parse).collect())
}

#[cfg(test)]
mod tests {
    //! The risk: memory is taken for other memory.

    use super::*;

    #[test]
    fn a_line_has_addresses_access_offset_and_name() {
        let line =
            "7f00-8000 r-xp 00026000 08:01 123                        /usr/lib/a b/libc.so.6";
        let mapping = Mapping::parse(line).expect("it is one");
        assert_eq!((mapping.range, &*mapping.access), (0x7f00..0x8000, "r-xp"));
        assert_eq!((mapping.offset, &*mapping.name), (0x26000, "/usr/lib/a b/libc.so.6"));
        let name = |line| Mapping::parse(line).map(|it| it.name);
        assert_eq!(name("7f00-8000 rw-p 00000000 00:00 0 ").as_deref(), Some(""));
        assert_eq!(name("7f00-8000 rw-p 00000000 00:00 0").as_deref(), Some(""));
        assert_eq!(name("7f00-8000 r-xp 0 00:00 0    [vdso]").as_deref(), Some("[vdso]"));
        for other in ["", "Rss:     8 kB", "VmFlags: rd wr", "8000-7f00 rw-p 0 00:00 0 "] {
            assert_eq!(Mapping::parse(other), None, "{other}");
        }
    }

    #[test]
    fn this_process_has_its_program_and_a_stack() {
        let all = of(std::process::id()).expect("it may read itself");
        assert!(all.iter().any(|it| it.name == "[stack]" && it.access == "rw-p"));
        assert!(all.is_sorted_by_key(|it| it.range.start));
    }
}
