//! The view: what the program is shown as the memory of the machine (`--show-memory`).
//!
//! The launcher keeps what is shown in the directory of its run, in files that it overwrites as
//! memory is taken: `meminfo.N` as of /proc, `node.N` as of the only node, `limit.N` and `usage.N`
//! as of a cgroup. N is the number of budgets that are shown; 0 stands for what a user asked for. A
//! program that opens a file about memory gets one of these files in its place. A program that
//! keeps the file open reads the current values. `sysinfo(2)` answers by the same files. So an
//! answer takes system calls on files alone: no lock, no malloc and no thread-local memory, because
//! `open` may be called anywhere.
//!
//! A lower limit of a cgroup stays, a cgroup without a limit keeps none, and other programs'
//! cgroups are shown as they are. What cannot be found out is shown as it is.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use coldpress_sys::raw;
use linux_raw_sys::general as linux;

use super::asked::{self, Asked, Search};
use super::{CONTROL, run_directory};
use crate::wire::View;

/// The numbers by which `statfs(2)` names file systems (linux/magic.h).
const SYSFS: i64 = 0x6265_6572;
const CGROUP: i64 = 0x0027_e0eb;
const CGROUP2: i64 = 0x6367_7270;
/// The longest path that matters: all files that are asked for here have shorter ones.
const PATH_MAX: usize = 512;
/// The bytes of /proc/thread-self/maps that are read at a time: they lie on the stack, which may be
/// small.
const PART: usize = 2048;
/// The number of looks after which a program is taken to have loaded what it will.
const LOOKS: u32 = 64;

/// The number of budgets shown to programs that nothing else suits: such programs take from two
/// fifths to nine tenths.
const MOSTLY: u8 = 2;

/// The view that is shown: 0 for the truth, 1 for what the user asked for, 2 for what suits the
/// program that asks.
static SHOWN: AtomicU8 = AtomicU8::new(0);
/// The number of budgets that suits this program, once that is known for good; 0 before.
static TIMES: AtomicU8 = AtomicU8::new(0);
/// The number of times that this was looked for.
static LOOKED: AtomicU32 = AtomicU32::new(0);

/// Notes what is to be shown.
pub(super) fn begin(view: View) {
    let shown = match view {
        View::Truth => 0,
        View::Fixed => 1,
        View::ByAsker => 2,
    };
    // Relaxed: set before the program's first thread.
    SHOWN.store(shown, Ordering::Relaxed);
}

/// Returns whether anything is shown.
pub(super) fn is_shown() -> bool {
    // Relaxed: set before the program's first thread.
    SHOWN.load(Ordering::Relaxed) != 0
}

/// Whether this is coldpress itself, in a run: it is shown the truth.
pub(super) fn is_our_own() -> bool {
    let mut room = [0; PATH_MAX];
    let path = link(c"/proc/thread-self/exe", &mut room).unwrap_or_default();
    path.rsplit(|byte| *byte == b'/').next() == Some(b"coldpress")
}

/// Returns the number of budgets that is shown, by which the launcher names its files.
fn times() -> u8 {
    // Relaxed, all: every thread that looks finds the same number, sooner or later.
    if SHOWN.load(Ordering::Relaxed) == 1 {
        return 0;
    }
    let known = TIMES.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let mut room = [0; PATH_MAX];
    let by_name = link(c"/proc/thread-self/exe", &mut room).and_then(asked::times_by_name);
    let found = by_name.or_else(by_mapped);
    // Relaxed, both: as above.
    let is_last = LOOKED.fetch_add(1, Ordering::Relaxed) >= LOOKS;
    if found.is_some() || is_last {
        TIMES.store(found.unwrap_or(MOSTLY), Ordering::Relaxed);
    }
    found.unwrap_or(MOSTLY)
}

/// Returns the number of budgets by what the program has mapped now.
#[cold]
#[inline(never)]
fn by_mapped() -> Option<u8> {
    let maps = File::open(c"/proc/thread-self/maps")?;
    let (mut search, mut part, mut kept) = (Search::default(), [0; PART], 0);
    loop {
        let count = maps.read(&mut part[kept..]);
        if count == 0 {
            return search.found;
        }
        let length = kept + count;
        let again = search.look(&part[..length]);
        if search.found.is_some() {
            return search.found;
        }
        part.copy_within(length - again..length, 0);
        kept = again;
    }
}

/// A file that we read ourselves.
struct File(usize);

impl File {
    fn open(path: &CStr) -> Option<Self> {
        let flags = (linux::O_RDONLY | linux::O_CLOEXEC) as usize;
        let folder = linux::AT_FDCWD as isize as usize;
        let arguments = [folder, path.as_ptr().expose_provenance(), flags, 0, 0, 0];
        // SAFETY: a path that ends with a zero.
        let result = unsafe { raw::syscall(linux::__NR_openat, arguments) };
        usize::try_from(result).ok().map(Self)
    }

    /// Reads bytes. Returns their number, 0 at the end and where the file cannot be read.
    fn read(&self, room: &mut [u8]) -> usize {
        let arguments = [self.0, room.as_mut_ptr().expose_provenance(), room.len(), 0, 0, 0];
        // SAFETY: the kernel writes no more than the room has.
        let count = unsafe { raw::syscall(linux::__NR_read, arguments) };
        usize::try_from(count).unwrap_or(0)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: a descriptor of ours.
        unsafe { raw::syscall(linux::__NR_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Reads a short file into `room`.
fn text_of<'r>(path: &CStr, room: &'r mut [u8]) -> Option<&'r [u8]> {
    let count = File::open(path)?.read(room);
    Some(&room[..count])
}

/// Reads the start of a descriptor's file, whose position stays as it is.
fn start_of(fd: usize, room: &mut [u8]) -> &[u8] {
    let arguments = [fd, room.as_mut_ptr().expose_provenance(), room.len(), 0, 0, 0];
    // SAFETY: the kernel writes no more than the room has.
    let count = unsafe { raw::syscall(linux::__NR_pread64, arguments) };
    &room[..usize::try_from(count).unwrap_or(0)]
}

/// Returns where a symbolic link leads.
fn link<'r>(path: &CStr, room: &'r mut [u8; PATH_MAX]) -> Option<&'r [u8]> {
    let room_at = room.as_mut_ptr().expose_provenance();
    let arguments = [path.as_ptr().expose_provenance(), room_at, room.len(), 0, 0, 0];
    // SAFETY: a path that ends with a zero; the kernel writes no more than the room has.
    let count = unsafe { raw::syscall(linux::__NR_readlink, arguments) };
    let count = usize::try_from(count).ok().filter(|count| *count < PATH_MAX)?;
    Some(&room[..count])
}

/// A path that is put together on the stack.
struct Path {
    bytes: [u8; PATH_MAX],
    length: usize,
}

impl Path {
    fn of(parts: &[&[u8]]) -> Option<Self> {
        let mut path = Self { bytes: [0; PATH_MAX], length: 0 };
        for part in parts {
            let end = path.length + part.len();
            // The last byte stays a zero.
            path.bytes[..PATH_MAX - 1].get_mut(path.length..end)?.copy_from_slice(part);
            path.length = end;
        }
        Some(path)
    }

    fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).ok()
    }

    /// Returns the path of a descriptor's own link.
    fn of_descriptor(fd: usize) -> Option<Self> {
        let mut digits = [b'0'; 10];
        let mut rest = fd;
        for digit in digits.iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        let first = digits.iter().position(|digit| *digit != b'0').unwrap_or(digits.len() - 1);
        Self::of(&[b"/proc/thread-self/fd/", &digits[first..]])
    }
}

/// Returns the path of a file of the launcher's, by the start of its name and what suits the
/// program.
fn kept(name: &[u8]) -> Option<Path> {
    Path::of(&[run_directory(), name, b".", &[b'0' + times()]])
}

/// Returns the total and the free memory that are shown, in bytes.
#[cold]
#[inline(never)]
fn totals() -> Option<[u64; 2]> {
    let mut room = [0; 96];
    asked::totals_in(text_of(kept(b"/meminfo")?.as_c_str()?, &mut room)?)
}

/// `struct sysinfo` of linux/sysinfo.h.
#[repr(C)]
struct Info {
    uptime: i64,
    loads: [u64; 3],
    total: u64,
    free: u64,
    shared: u64,
    buffers: u64,
    total_swap: u64,
    free_swap: u64,
    processes: u16,
    padding: u16,
    total_high: u64,
    free_high: u64,
    unit: u32,
}

/// Replaces what `sysinfo(2)` has just answered by what is shown, and returns the call's result.
/// Without a view, notes that the program has asked.
///
/// # Safety
/// `info` must be what the kernel has just written to.
pub(super) unsafe extern "C" fn told_of_machine(
    info: usize,
    _: usize,
    _: usize,
    result: isize,
) -> isize {
    if !is_shown() {
        CONTROL.note_asked();
        return result;
    }
    let Some([total, free]) = totals() else { return result };
    // SAFETY: the caller's promise.
    let info = unsafe { &mut *core::ptr::with_exposed_provenance_mut::<Info>(info) };
    let unit = u64::from(info.unit.max(1));
    info.total = info.total.min(total / unit);
    info.free = info.total.min(free / unit);
    for other in [
        &mut info.shared,
        &mut info.buffers,
        &mut info.total_swap,
        &mut info.free_swap,
        &mut info.total_high,
        &mut info.free_high,
    ] {
        *other = 0;
    }
    result
}

/// Puts one of the launcher's files in the place of `fd`, which was just opened, if it reports
/// memory. Returns `fd`.
///
/// # Safety
/// `path` must be a string that the kernel has just read.
pub(super) unsafe extern "C" fn opened(_: usize, path: usize, flags: usize, fd: isize) -> isize {
    let other = linux::O_ACCMODE | linux::O_PATH | linux::O_DIRECTORY;
    let path = core::ptr::with_exposed_provenance::<c_char>(path);
    if flags as u32 & other == 0 && !path.is_null() {
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        if let Some(asked) = asked::of_path(path) {
            show(asked, fd as usize, flags);
        }
    }
    fd
}

/// Puts a file of the launcher's in the place of `fd`, if `fd` is what its name suggests. This is
/// not a part of `opened`, which must take no more of a small stack than it needs.
#[cold]
#[inline(never)]
fn show(asked: Asked, fd: usize, flags: usize) -> Option<()> {
    let mut room = [0; PATH_MAX];
    let path = link(Path::of_descriptor(fd)?.as_c_str()?, &mut room)?;
    let name = match (asked, system_of(fd)?) {
        // The file system does not matter: LXCFS has its own there.
        (Asked::Machine, _) if path == b"/proc/meminfo" => kept(b"/meminfo"),
        (Asked::Machine, SYSFS) if path == b"/sys/devices/system/node/node0/meminfo" => {
            kept(b"/node")
        }
        (Asked::Limit, system @ (CGROUP | CGROUP2)) => {
            let limit = asked::limit_in(start_of(fd, &mut [0; 32]))?;
            is_lowered(limit, path, system)?.then(|| kept(b"/limit"))?
        }
        (Asked::Usage, system @ (CGROUP | CGROUP2)) => {
            let folder = folder_of(path);
            let beside = Path::of(&[folder, b"/", asked::limit_beside(path)])?;
            let limit = asked::limit_in(text_of(beside.as_c_str()?, &mut [0; 32])?)?;
            is_lowered(limit, path, system)?.then(|| kept(b"/usage"))?
        }
        _ => None,
    }?;
    let file = File::open(name.as_c_str()?)?;
    let flags = flags & linux::O_CLOEXEC as usize;
    // SAFETY: both are descriptors that no other thread knows yet.
    unsafe { raw::syscall(linux::__NR_dup3, [file.0, fd, flags, 0, 0, 0]) };
    Some(())
}

/// Whether a cgroup's file belongs to this process's own cgroup or one above, and a lower limit is
/// shown.
fn is_lowered(limit: u64, path: &[u8], system: i64) -> Option<bool> {
    let shown = asked::limit_in(text_of(kept(b"/limit")?.as_c_str()?, &mut [0; 32])?)?;
    let folder = folder_of(path);
    let inside = &folder[mount_point(folder, system)?..];
    let mut room = [0; PART];
    let own = text_of(c"/proc/thread-self/cgroup", &mut room)?;
    Some(limit > shown && asked::is_own_or_above(inside, own, system == CGROUP2))
}

fn folder_of(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    &path[..end]
}

/// Returns the length of the path at which the file system of this directory is mounted.
fn mount_point(folder: &[u8], system: i64) -> Option<usize> {
    let mut length = folder.len();
    loop {
        let above = folder_of(&folder[..length]).len();
        let path = Path::of(&[&folder[..above], b"/"])?;
        let mut found = Statfs::default();
        let at = (&raw mut found).expose_provenance();
        let arguments = [path.as_c_str()?.as_ptr().expose_provenance(), at, 0, 0, 0, 0];
        // SAFETY: a path that ends with a zero, and room for what the kernel writes.
        let result = unsafe { raw::syscall(linux::__NR_statfs, arguments) };
        if length == 0 || result != 0 || found.system != system {
            return Some(length);
        }
        length = above;
    }
}

/// `struct statfs` of asm-generic/statfs.h, of which only the first word is used.
#[repr(C)]
#[derive(Default)]
struct Statfs {
    system: i64,
    rest: [i64; 15],
}

fn system_of(fd: usize) -> Option<i64> {
    let mut found = Statfs::default();
    let arguments = [fd, (&raw mut found).expose_provenance(), 0, 0, 0, 0];
    // SAFETY: room for what the kernel writes.
    let result = unsafe { raw::syscall(linux::__NR_fstatfs, arguments) };
    (result == 0).then_some(found.system)
}

/// Whether a program inside a run asks for the truth: `COLDPRESS_SHOW_MEMORY=off`.
pub(super) fn is_refused(value: &[u8]) -> bool {
    value == b"off"
}
