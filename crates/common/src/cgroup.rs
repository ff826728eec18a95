//! The memory this process may have: the machine's, and the limit of its cgroup and of every
//! parent.
//!
//! `/proc/self/cgroup` names the process's cgroup in each hierarchy, and `/proc/self/mountinfo`
//! says where each hierarchy is mounted. Every limit file from that cgroup's directory up to the
//! mount point counts, because the kernel enforces them all; the smallest wins. Version 2 has
//! `memory.max` (kill) and `memory.high` (slow down), version 1 has `memory.limit_in_bytes`; a host
//! may have both hierarchies at once. Sources: cgroups(7), proc_pid_mountinfo(5),
//! Documentation/admin-guide/cgroup-v2.rst.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use coldpress_sys::{Bytes, PageCount};

/// A size that no machine exceeds: 4 PiB, which is all that the 52 bits of physical addresses of
/// x86-64 reach.
const MEMORY_UNKNOWN: PageCount = PageCount(1 << 40);

/// A limit and the file that states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The limit in bytes.
    pub bytes: Bytes,
    /// The file that holds the limit.
    pub file: PathBuf,
}

/// A mounted hierarchy that can limit memory.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    /// Whether the hierarchy is of version 2.
    is_unified: bool,
    /// The cgroup that is visible at the mount point.
    root: PathBuf,
    mount_point: PathBuf,
}

/// Returns the smallest limit of this process, if there is one. The limit may well be above the
/// machine's memory.
pub fn own_limit() -> Option<Limit> {
    let cgroup = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mountinfo = fs::read("/proc/self/mountinfo").ok()?;
    smallest_limit(Path::new("/"), &cgroup, &String::from_utf8_lossy(&mountinfo))
}

/// Returns the memory that `process` can still get: the smaller of what its machine has available
/// and what the smallest limit of its cgroups leaves. Under a limit, caches count as used, although
/// the kernel would drop them first.
pub fn room_of(process: u32) -> io::Result<Bytes> {
    let available = meminfo("MemAvailable:")?;
    let cgroup = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
    let mountinfo = fs::read("/proc/self/mountinfo")?;
    let base = Path::new("/");
    let limit = smallest_limit(base, &cgroup, &String::from_utf8_lossy(&mountinfo));
    let left = limit.and_then(|limit| left_of(base, &limit));
    Ok(left.map_or(available, |left| left.min(available)))
}

/// Returns what the cgroup with `limit` leaves of it, for the file tree under `base`.
fn left_of(base: &Path, limit: &Limit) -> Option<Bytes> {
    let directory = base.join(limit.file.strip_prefix("/").unwrap_or(&limit.file));
    let used = ["memory.current", "memory.usage_in_bytes"]
        .iter()
        .find_map(|name| read_limit(&directory.with_file_name(name)))?;
    Some(Bytes(limit.bytes.0.saturating_sub(used.0)))
}

/// Returns the directory below which a cgroup with a limit of its own may be made. In version 1
/// that is the directory of this process's cgroup. In version 2 that cgroup has processes, so no
/// group below it may have limits, and the directory is the mount point.
pub fn parent_of_new() -> Option<PathBuf> {
    let cgroup = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mountinfo = fs::read("/proc/self/mountinfo").ok()?;
    parent_in(&cgroup, &String::from_utf8_lossy(&mountinfo))
}

/// Does the work of [`parent_of_new`], for the texts of the two proc files. Where both versions are
/// mounted, version 1 has the memory controller.
fn parent_in(cgroup: &str, mountinfo: &str) -> Option<PathBuf> {
    let hierarchies = mountinfo.lines().filter_map(parse_mount);
    let hierarchy = hierarchies.min_by_key(|hierarchy| hierarchy.is_unified)?;
    if hierarchy.is_unified {
        return Some(hierarchy.mount_point);
    }
    let own = cgroup.lines().find_map(|line| own_path(line, false))?;
    Some(hierarchy.mount_point.join(below_mount(own, &hierarchy.root)))
}

/// Returns the machine's memory: `MemTotal` of `/proc/meminfo`.
pub fn machine_memory() -> io::Result<Bytes> {
    meminfo("MemTotal:")
}

/// Returns the machine's memory, or a size that no machine exceeds where the machine does not
/// report it.
pub fn most_of_machine() -> PageCount {
    machine_memory().map_or(MEMORY_UNKNOWN, Bytes::pages_up)
}

fn meminfo(name: &str) -> io::Result<Bytes> {
    let text = fs::read_to_string("/proc/meminfo")?;
    parse_meminfo(&text, name).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("/proc/meminfo has no {name}"))
    })
}

fn parse_meminfo(text: &str, name: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib = line.trim().strip_suffix("kB")?.trim_end().parse::<usize>().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

/// Does the work of [`own_limit`], for the file tree under `base` and the texts of the two proc
/// files.
fn smallest_limit(base: &Path, cgroup: &str, mountinfo: &str) -> Option<Limit> {
    let mut smallest: Option<Limit> = None;
    for hierarchy in mountinfo.lines().filter_map(parse_mount) {
        let own = cgroup.lines().find_map(|line| own_path(line, hierarchy.is_unified));
        let Some(own) = own else { continue };
        let names: &[&str] = if hierarchy.is_unified {
            &["memory.max", "memory.high"]
        } else {
            &["memory.limit_in_bytes"]
        };
        for directory in below_mount(own, &hierarchy.root).ancestors() {
            for name in names {
                let file = hierarchy.mount_point.join(directory).join(name);
                let inside = file.strip_prefix("/").unwrap_or(&file);
                let Some(bytes) = read_limit(&base.join(inside)) else { continue };
                if smallest.as_ref().is_none_or(|limit| bytes < limit.bytes) {
                    smallest = Some(Limit { bytes, file });
                }
            }
        }
    }
    smallest
}

/// Reads the number in a limit file. Returns nothing when the file says `max` or does not exist.
fn read_limit(file: &Path) -> Option<Bytes> {
    fs::read_to_string(file).ok()?.trim().parse().ok().map(Bytes)
}

/// Returns the process's cgroup from a line `ID:CONTROLLERS:PATH`, if the line is of the wanted
/// hierarchy: `0::PATH` for version 2, a line whose controllers include `memory` for version 1.
fn own_path(line: &str, is_unified: bool) -> Option<&Path> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let matches = if is_unified {
        id == "0" && controllers.is_empty()
    } else {
        controllers.split(',').any(|controller| controller == "memory")
    };
    matches.then_some(Path::new(path))
}

/// Returns the process's cgroup as a path below the mount point. A cgroup outside the mounted part
/// cannot be read; then the mounted part itself is the best there is (a container without a cgroup
/// namespace).
fn below_mount<'a>(own: &'a Path, mounted_root: &Path) -> &'a Path {
    let inside = own.strip_prefix(mounted_root).unwrap_or(Path::new(""));
    if inside.components().all(|part| matches!(part, Component::Normal(_))) {
        inside
    } else {
        Path::new("")
    }
}

/// A mounted hierarchy.
#[derive(Debug)]
pub struct Mount {
    /// The options of the mount. In version 1 they include the names of its controllers. `None` for
    /// version 2.
    options: Option<Vec<String>>,
    /// The cgroup that is visible at the mount point.
    pub root: PathBuf,
    /// The directory it is mounted on.
    pub mount_point: PathBuf,
}

impl Mount {
    /// Parses a line of mountinfo. Returns nothing unless the line is a hierarchy: `ID PARENT
    /// MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [TAGS...] - TYPE SOURCE SUPEROPTIONS`.
    pub fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, mount_point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, _source) = (after.next()?, after.next()?);
        let options = match kind {
            "cgroup2" => None,
            "cgroup" => Some(after.next()?.split(',').map(str::to_owned).collect()),
            _ => return None,
        };
        Some(Self { options, root: unescape(root), mount_point: unescape(mount_point) })
    }

    /// Returns whether this is the hierarchy of these controllers, as a line of /proc/PID/cgroup
    /// names them: none for version 2.
    pub fn is_of(&self, controllers: &str) -> bool {
        match &self.options {
            None => controllers.is_empty(),
            Some(options) => controllers.split(',').all(|one| options.iter().any(|it| it == one)),
        }
    }
}

/// Parses a line of mountinfo. Returns nothing unless the line is a hierarchy that can limit
/// memory.
fn parse_mount(line: &str) -> Option<Hierarchy> {
    let mount = Mount::parse(line)?;
    let is_unified = mount.is_of("");
    let Mount { root, mount_point, .. } = &mount;
    (is_unified || mount.is_of("memory")).then(|| Hierarchy {
        is_unified,
        root: root.clone(),
        mount_point: mount_point.clone(),
    })
}

/// Undoes the kernel's octal escapes (`\040` for a space).
fn unescape(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut position = 0;
    while let Some(&byte) = bytes.get(position) {
        let escape = bytes.get(position + 1..position + 4).filter(|_| byte == b'\\');
        let code = escape
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(code.unwrap_or(byte));
        position += if code.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    //! The risk: an overlooked limit lets the kernel kill the program. Fixtures are the layouts met
    //! in the field: systemd with version 2, hybrid hosts, containers with and without a namespace.
    use super::*;

    const V2_MOUNT: &str =
        "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";

    /// Makes a file tree with these files, as a directory that vanishes on drop.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let base = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = base.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        base
    }

    fn limit(files: &[(&str, &str)], cgroup: &str, mountinfo: &str) -> Option<(usize, String)> {
        let base = tree(files);
        smallest_limit(base.path(), cgroup, mountinfo)
            .map(|limit| (limit.bytes.0, limit.file.to_str().unwrap().to_owned()))
    }

    #[test]
    fn the_smallest_of_the_parents_wins_in_version_2() {
        let files = [
            ("sys/fs/cgroup/a.slice/memory.max", "1000\n"),
            ("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n"),
            ("sys/fs/cgroup/a.slice/b.service/memory.high", "2000\n"),
        ];
        let found = limit(&files, "0::/a.slice/b.service\n", V2_MOUNT);
        assert_eq!(found, Some((1000, "/sys/fs/cgroup/a.slice/memory.max".to_owned())));
    }

    #[test]
    fn the_threshold_to_slow_down_counts_as_a_limit() {
        let files =
            [("sys/fs/cgroup/a/memory.max", "3000\n"), ("sys/fs/cgroup/a/memory.high", "2500\n")];
        let found = limit(&files, "0::/a\n", V2_MOUNT);
        assert_eq!(found, Some((2500, "/sys/fs/cgroup/a/memory.high".to_owned())));
    }

    #[test]
    fn a_hybrid_host_is_limited_by_version_1() {
        let cgroup = "9:name=systemd:/\n4:memory:/api/one\n1:cpu,cpuacct:/\n0::/\n";
        let mountinfo = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
             35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
             32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let files = [
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/api/one/memory.limit_in_bytes", "4096\n"),
            ("sys/fs/cgroup/cpu/api/one/memory.limit_in_bytes", "1\n"),
        ];
        let file = "/sys/fs/cgroup/memory/api/one/memory.limit_in_bytes".to_owned();
        assert_eq!(limit(&files, cgroup, mountinfo), Some((4096, file)));
    }

    #[test]
    fn a_container_without_a_namespace_sees_its_part_at_the_mount_point() {
        let mountinfo =
            "700 699 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let files = [("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n")];
        let file = "/sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned();
        for cgroup in ["4:memory:/docker/abc\n", "4:memory:/elsewhere\n", "4:memory:/../..\n"] {
            assert_eq!(limit(&files, cgroup, mountinfo), Some((5000, file.clone())), "{cgroup}");
        }
    }

    #[test]
    fn new_groups_go_where_memory_can_be_limited() {
        let first = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let both = format!("41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n{first}");
        let own = "4:memory:/api/one\n0::/a.slice\n";
        let wanted = Some(PathBuf::from("/sys/fs/cgroup/memory/api/one"));
        assert_eq!(parent_in(own, &both), wanted);
        assert_eq!(parent_in(own, V2_MOUNT), Some(PathBuf::from("/sys/fs/cgroup")));
        assert_eq!(parent_in("0::/a.slice\n", first), None);
        assert_eq!(parent_in(own, ""), None);
    }

    #[test]
    fn no_limit_is_no_limit() {
        let files = [("sys/fs/cgroup/a/memory.max", "max\n")];
        assert_eq!(limit(&files, "0::/a\n", V2_MOUNT), None);
        assert_eq!(limit(&[], "", ""), None);
        assert_eq!(limit(&files, "garbage\n0:\n", "garbage - x\n"), None);
    }

    #[test]
    fn mount_points_with_spaces_are_found() {
        let files = [("mnt/a b/g/memory.max", "7000\n")];
        let mountinfo = "35 24 0:30 / /mnt/a\\040b rw - cgroup2 none rw\n";
        let found = limit(&files, "0::/g\n", mountinfo);
        assert_eq!(found, Some((7000, "/mnt/a b/g/memory.max".to_owned())));
        assert_eq!(unescape("a\\"), Path::new("a\\"));
        assert_eq!(unescape("a\\9z"), Path::new("a\\9z"));
    }

    #[test]
    fn what_a_limit_leaves_is_less_what_is_used_beside_it() {
        let left = |limit: &str, used: &str, number: &str| {
            let base = tree(&[(limit, "1000\n"), (used, number)]);
            let limit = Limit { bytes: Bytes(1000), file: Path::new("/").join(limit) };
            left_of(base.path(), &limit)
        };
        assert_eq!(left("a/b/memory.max", "a/b/memory.current", "400\n"), Some(Bytes(600)));
        assert_eq!(left("memory.high", "memory.current", "1400\n"), Some(Bytes(0)));
        let version_1 = ["m/memory.limit_in_bytes", "m/memory.usage_in_bytes"];
        assert_eq!(left(version_1[0], version_1[1], "1\n"), Some(Bytes(999)));
        assert_eq!(left("a/memory.max", "memory.current", "400\n"), None);
        assert!(room_of(std::process::id()).unwrap() > Bytes(0));
    }

    #[test]
    fn the_machine_has_memory() {
        let text = "MemFree: 1 kB\nMemTotal:  2048 kB\n";
        assert_eq!(parse_meminfo(text, "MemTotal:"), Some(Bytes::mib(2)));
        assert_eq!(parse_meminfo("MemFree: 1 kB\n", "MemTotal:"), None);
        assert!(machine_memory().unwrap() > Bytes::mib(16));
    }
}
