//! The files that report the machine's memory, and what suits the program that asks: the part of
//! `view` that only handles text.

/// The kind of a file from which a program learns of memory, by the last part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// `meminfo`, of the machine or of a node.
    Machine,
    /// A limit of a cgroup.
    Limit,
    /// The usage of a cgroup.
    Usage,
}

/// Files that report memory. For those of a cgroup see memory.rst of cgroup-v1, and cgroup-v2.rst.
/// The limit that is shown beside a usage is of the same version.
const FILES: [(&[u8], Asked); 9] = [
    (b"meminfo", Asked::Machine),
    (b"memory.max", Asked::Limit),
    (b"memory.high", Asked::Limit),
    (b"memory.current", Asked::Usage),
    (b"memory.limit_in_bytes", Asked::Limit),
    (b"memory.memsw.limit_in_bytes", Asked::Limit),
    (b"memory.soft_limit_in_bytes", Asked::Limit),
    (b"memory.usage_in_bytes", Asked::Usage),
    (b"memory.memsw.usage_in_bytes", Asked::Usage),
];
/// The value from which on there is no limit: without one, version 1 shows the largest number of
/// whole pages.
const UNLIMITED: u64 = 1 << 62;

/// Returns what the file of this path reports, if anything. For nearly all files it looks only at
/// the first byte of the last part.
pub(super) fn of_path(path: &[u8]) -> Option<Asked> {
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    if name.first() != Some(&b'm') {
        return None;
    }
    FILES.iter().find(|(known, _)| *known == name).map(|(_, asked)| *asked)
}

/// Returns the name of the limit beside a usage in the same directory.
pub(super) fn limit_beside(usage: &[u8]) -> &'static [u8] {
    if usage.ends_with(b"_in_bytes") { b"memory.limit_in_bytes" } else { b"memory.max" }
}

/// Returns the most budgets that programs of this name are shown, if that depends on the name. V8
/// makes its heap half of what it sees, and ends when that is too small (with 4 budgets, node
/// failed in a quarter of what it held by itself). `sort` fills all that it sees, and goes to disk
/// then.
pub(super) fn times_by_name(executable: &[u8]) -> Option<u8> {
    match executable.rsplit(|byte| *byte == b'/').next()? {
        b"node" | b"nodejs" | b"chrome" | b"chromium" | b"electron" => Some(8),
        b"sort" | b"duckdb" => Some(1),
        _ => None,
    }
}

/// The most budgets shown to a program that has mapped a file with this part in its name. A JVM
/// makes its heap a quarter of what it sees: with 8 budgets it leaves so much garbage that pages
/// come and go for it (1.08 to 2.3 times the time of 6 in four cases of 300 and 700 MiB live, 0.95
/// in a fifth); with 4 a heap of 700 MiB does not fit where it has to. DuckDB takes four fifths,
/// and goes to disk then.
const MAPPED: [(&[u8], u8); 3] =
    [(b"/libjvm.so", 6), (b"duckdb.cpython-", 1), (b"/libduckdb.so", 1)];

/// A search for [`MAPPED`] in a text that comes in parts.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The number of budgets for the name that was found first, if any.
    pub(super) found: Option<u8>,
}

impl Search {
    /// Looks at a part. Returns the number of bytes at its end that must come again before the next
    /// part.
    pub(super) fn look(&mut self, text: &[u8]) -> usize {
        for (name, times) in MAPPED {
            if self.found.is_none() && text.windows(name.len()).any(|bytes| bytes == name) {
                self.found = Some(times);
            }
        }
        let longest = MAPPED.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        text.len().min(longest - 1)
    }
}

/// Returns the number that a limit's file begins with, `None` without a limit.
pub(super) fn limit_in(text: &[u8]) -> Option<u64> {
    number(text).filter(|bytes| *bytes < UNLIMITED)
}

/// Returns the bytes of the total and of the free memory, with which meminfo begins.
pub(super) fn totals_in(meminfo: &[u8]) -> Option<[u64; 2]> {
    let mut lines = meminfo.split(|byte| *byte == b'\n');
    let mut next = |name: &[u8]| {
        let value = lines.next()?.strip_prefix(name)?;
        number(value.trim_ascii_start())?.checked_mul(1024)
    };
    Some([next(b"MemTotal:")?, next(b"MemFree:")?])
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let mut value = None::<u64>;
    for digit in digits {
        value = Some(value.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(digit - b'0'))?);
    }
    value
}

/// Whether the directory `inside` a hierarchy is the cgroup of a process or above it, by the
/// process's /proc/PID/cgroup (cgroups(7)).
pub(super) fn is_own_or_above(inside: &[u8], cgroup: &[u8], is_unified: bool) -> bool {
    let own = cgroup.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.splitn(3, |byte| *byte == b':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = if is_unified {
            controllers.is_empty()
        } else {
            controllers.split(|byte| *byte == b',').any(|one| one == b"memory")
        };
        is_it.then_some(path)
    });
    let rest = own.and_then(|own| own.strip_prefix(inside));
    rest.is_some_and(|rest| inside.is_empty() || rest.first().is_none_or(|byte| *byte == b'/'))
}

#[cfg(test)]
mod tests {
    //! The risk: a file of the user's own is taken for the machine's, or a program is shown what
    //! ends it.

    use super::*;

    #[test]
    fn files_are_known_by_the_whole_of_their_last_part() {
        let of = |path: &str| of_path(path.as_bytes());
        assert_eq!(of("/proc/meminfo"), Some(Asked::Machine));
        assert_eq!(of("meminfo"), Some(Asked::Machine));
        assert_eq!(of("/sys/fs/cgroup/a b/memory.max"), Some(Asked::Limit));
        assert_eq!(of("../memory.usage_in_bytes"), Some(Asked::Usage));
        for other in ["", "/", "/proc/meminfo/", "meminfo2", "memory.stat", "/m", "memory.maximal"]
        {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(limit_beside(b"memory.memsw.usage_in_bytes"), b"memory.limit_in_bytes");
        assert_eq!(limit_beside(b"memory.current"), b"memory.max");
    }

    #[test]
    fn who_asks_is_known_by_the_executable_or_by_what_it_has_mapped() {
        let by_name = |name: &str| times_by_name(name.as_bytes());
        assert_eq!(by_name("/usr/bin/node"), Some(8));
        assert_eq!(by_name("/usr/bin/sort"), Some(1));
        assert_eq!([by_name("/usr/bin/sorted"), by_name("/node/java"), by_name("")], [None; 3]);
        let text = b"7f00-7f01 r-xp 00000000 fe:01 77  /usr/lib/jvm/server/libjvm.so\n7f02";
        for part in 1..text.len() {
            let (mut search, mut kept) = (Search::default(), std::vec::Vec::new());
            for bytes in text.chunks(part) {
                kept.extend_from_slice(bytes);
                let again = search.look(&kept);
                kept.drain(..kept.len() - again);
            }
            assert_eq!(search.found, Some(6), "in parts of {part}");
        }
        let mut search = Search::default();
        search.look(b"/usr/lib/libjvm.sa /lib/libc.so.6\n");
        assert_eq!(search.found, None);
    }

    #[test]
    fn numbers_are_read_and_no_limit_is_none() {
        let found =
            [&b"4096\n"[..], b"max\n", b"9223372036854771712\n", b"", b"99999999999999999999"]
                .map(limit_in);
        assert_eq!(found, [Some(4096), None, None, None, None]);
        let text = b"MemTotal:        1048576 kB\nMemFree:           65536 kB\nMemAvail";
        assert_eq!(totals_in(text), Some([1 << 30, 1 << 26]));
        assert_eq!(totals_in(b"MemFree: 1 kB\nMemTotal: 1 kB\n"), None);
    }

    #[test]
    fn a_group_is_own_or_above_by_whole_parts_of_its_path() {
        let first = b"9:name=systemd:/x\n4:cpu,memory:/a/b\n0::/c/d\n";
        let is = |inside: &str, is_unified| is_own_or_above(inside.as_bytes(), first, is_unified);
        assert!(is("", false) && is("/a", false) && is("/a/b", false));
        assert!(is("/c", true) && is("/c/d", true));
        assert!(
            !is("/a/bc", false) && !is("/a/b/c", false) && !is("/aa", false) && !is("/c", false)
        );
        assert!(!is("/ab", false) && !is("/a", true));
        assert!(!is_own_or_above(b"", b"", true));
        assert!(is_own_or_above(b"", b"0::/\n", true));
    }
}
