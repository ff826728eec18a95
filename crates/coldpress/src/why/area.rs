//! The mappings of a process, as /proc/PID/smaps lists them (proc_pid_smaps(5)).

use std::ops::Range;

use crate::mappings::Mapping;

/// A mapping, and what of it is in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) range: Range<usize>,
    /// The access, as `rw-p`.
    pub(super) access: String,
    /// The name of a file, or one of the kernel's, as `[heap]`.
    pub(super) name: String,
    /// Bytes in memory.
    pub(super) resident: u64,
    /// Those of them that are of no file.
    pub(super) anonymous: u64,
    /// Those of them that other processes have too.
    pub(super) shared: u64,
    /// Bytes of huge pages of hugetlbfs, which do not count as resident.
    pub(super) huge: u64,
    flags: Vec<String>,
    /// Whether an inaccessible mapping ends where this one begins, and the length of that.
    pub(super) guard: Option<u64>,
}

impl Area {
    /// Returns whether the mapping has this flag of VmFlags.
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|it| it == flag)
    }

    /// Returns whether others can have the memory: MAP_SHARED.
    pub(super) fn is_shared(&self) -> bool {
        self.access.ends_with('s')
    }

    /// Returns whether no file lies behind it.
    pub(super) fn is_anonymous(&self) -> bool {
        self.name.is_empty() || self.name == "[heap]" || self.name.starts_with("[anon:")
    }

    /// Returns the length.
    pub(super) fn length(&self) -> u64 {
        self.range.len() as u64
    }
}

/// Returns the mappings in the text of an smaps.
pub(super) fn areas(smaps: &str) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    for line in smaps.lines() {
        if let Some(Mapping { range, access, name, .. }) = Mapping::parse(line) {
            let below = areas.last().filter(|below| below.range.end == range.start);
            let guard = below.filter(|below| below.access.starts_with("---")).map(Area::length);
            areas.push(Area { range, access, name, guard, ..Area::default() });
            continue;
        }
        let Some(area) = areas.last_mut() else { continue };
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if first == "VmFlags:" {
            area.flags = words.map(str::to_owned).collect();
            continue;
        }
        let bytes = words.next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10;
        match first {
            "Rss:" => area.resident = bytes,
            "Anonymous:" => area.anonymous = bytes,
            "Shared_Clean:" | "Shared_Dirty:" => area.shared += bytes,
            "Shared_Hugetlb:" | "Private_Hugetlb:" => area.huge += bytes,
            _ => {}
        }
    }
    areas
}
