//! What the kernel reports about this process: its mappings, its resident pages, where its threads
//! run.
//!
//! The files are parsed by hand because the thread that reads them has no allocator. See proc(5).
//! /proc/self is the thread that the process began with. Once that thread has ended (`pthread_exit`
//! in `main`), /proc/self says nothing, though other threads go on. So every question is asked of
//! the calling thread, which has the same memory.

mod thread;

use core::ffi::CStr;
use core::ops::Range;

use linux_raw_sys::general as linux;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Opcode};

use crate::errno;
use crate::error::{SysError, SysResult};
use crate::page::{Bytes, PAGE_BYTES, PageCount};
use crate::raw;
pub(crate) use thread::open_of;
pub use thread::{Enlarged, enlarges};

/// `_IOWR('f', 16, struct pm_scan_arg)`, Linux 6.7.
const PAGEMAP_SCAN: Opcode = ioctl::opcode::read_write::<linux::pm_scan_arg>(b'f', 16);

pub(crate) fn open_read(path: &CStr) -> SysResult<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(SysError::of("open"))
}

pub(crate) fn read_at<'b>(fd: &OwnedFd, buffer: &'b mut [u8], offset: u64) -> SysResult<&'b [u8]> {
    let count = rustix::io::pread(fd, &mut *buffer, offset).map_err(SysError::of("pread"))?;
    Ok(&buffer[..count])
}

/// The resident pages of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Anonymous pages: `resident - shared` of statm, that is RssAnon.
    pub anonymous: PageCount,
    /// Pages of files and of shared memory: `shared` of statm, RssFile and RssShmem.
    pub others: PageCount,
}

/// A gauge of this process's resident memory, read repeatedly from one open file.
#[derive(Debug)]
pub struct ResidentGauge {
    statm: OwnedFd,
}

impl ResidentGauge {
    /// Opens /proc/thread-self/statm. Fails with `ENOENT` where /proc is not mounted.
    pub fn open() -> SysResult<Self> {
        open_read(c"/proc/thread-self/statm").map(|statm| Self { statm })
    }

    /// Returns the pages that are resident.
    pub fn resident(&self) -> SysResult<Resident> {
        let [_size, resident, shared, ..] = self.read()?;
        Ok(Resident { anonymous: resident.saturating_sub(shared), others: shared })
    }

    /// Returns the pages of writable private mappings and of stacks, resident or not: `data` of
    /// statm, that is VmData and VmStk.
    pub fn writable(&self) -> SysResult<PageCount> {
        let [.., data] = self.read()?;
        Ok(data)
    }

    /// Returns the number of mapped pages.
    pub fn size(&self) -> SysResult<PageCount> {
        first_number(&self.statm)
    }

    /// Reads the first six numbers of statm: size, resident, shared, text, lib, data.
    fn read(&self) -> SysResult<[PageCount; 6]> {
        let mut buffer = [0; 128];
        let text = read_at(&self.statm, &mut buffer, 0)?;
        let mut numbers = text.split(|byte| *byte == b' ').map(decimal);
        let mut read = [PageCount(0); 6];
        for number in &mut read {
            let Some(count) = numbers.next().flatten() else {
                return Err(SysError { call: "parse(/proc/self/statm)", errno: errno::EINVAL });
            };
            *number = PageCount(count as usize);
        }
        Ok(read)
    }
}

/// Returns the first number of a statm file: the pages that are mapped.
pub(crate) fn first_number(statm: &OwnedFd) -> SysResult<PageCount> {
    number_at(statm, 0)
}

/// Returns the number at index `field` of a statm file, counted from 0.
pub(crate) fn number_at(statm: &OwnedFd, field: usize) -> SysResult<PageCount> {
    let mut buffer = [0; 128];
    let text = read_at(statm, &mut buffer, 0)?;
    let number = text.split(|byte| *byte == b' ').nth(field).and_then(decimal);
    let parse = SysError { call: "parse(statm)", errno: errno::EINVAL };
    number.map(|count| PageCount(count as usize)).ok_or(parse)
}

/// Returns the number that follows `name` at the start of a line.
pub(crate) fn number_after(text: &[u8], name: &[u8]) -> Option<u64> {
    text.split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.trim_ascii().split(|byte| *byte == b' ').next())
        .and_then(decimal)
}

/// Returns the number that follows `name`, in KiB, as bytes.
fn kib_after(text: &[u8], name: &[u8]) -> Option<Bytes> {
    number_after(text, name).map(|count| Bytes::kib(count as usize))
}

/// The kernel's files about this process's memory, opened once: reading them later needs no
/// privilege.
#[derive(Debug)]
pub struct Files {
    status: OwnedFd,
    smaps: OwnedFd,
    /// smaps_rollup, since Linux 4.14.
    rollup: Option<OwnedFd>,
    /// The mappings of the process, looked up one at a time.
    pub mappings: Mappings,
    /// The pages of the process.
    pub pagemap: Pagemap,
}

impl Files {
    /// Opens the files. Fails with `EACCES` in a process that may not look at itself: one that has
    /// forbidden core files (PR_SET_DUMPABLE), or has dropped its user.
    pub fn open() -> SysResult<Self> {
        Ok(Self {
            status: open_read(c"/proc/thread-self/status")?,
            smaps: open_read(c"/proc/thread-self/smaps")?,
            rollup: open_read(c"/proc/thread-self/smaps_rollup").ok(),
            mappings: Mappings::open()?,
            pagemap: Pagemap::open()?,
        })
    }

    /// Returns the size of locked memory (VmLck).
    pub fn locked(&self) -> SysResult<Bytes> {
        let mut buffer = [0; 4096];
        let text = read_at(&self.status, &mut buffer, 0)?;
        Ok(kib_after(text, b"VmLck:").unwrap_or_default())
    }

    /// Returns the resident shared memory (RssShmem), which includes files in tmpfs, memfd and
    /// System V segments.
    pub fn shared(&self) -> SysResult<PageCount> {
        let mut buffer = [0; 4096];
        let text = read_at(&self.status, &mut buffer, 0)?;
        Ok(kib_after(text, b"RssShmem:").unwrap_or_default().pages_up())
    }

    /// Returns the resident anonymous memory of this process, each page divided by the number of
    /// mappings that share it (Pss_Anon of smaps_rollup, Linux 5.14). The kernel looks at every
    /// page for this.
    pub fn fair_part(&self) -> SysResult<PageCount> {
        let parse = SysError { call: "parse(/proc/self/smaps_rollup)", errno: errno::EINVAL };
        let mut buffer = [0; 4096];
        let text = read_at(self.rollup.as_ref().ok_or(parse)?, &mut buffer, 0)?;
        kib_after(text, b"Pss_Anon:").map(Bytes::pages_up).ok_or(parse)
    }

    /// Returns the memory in private mappings of files that no longer matches the file: written
    /// data, and tables that the dynamic linker has filled in. The kernel looks at every page for
    /// this. `buffer` is as for [`Mappings::for_each`].
    pub fn data_of_files(&self, buffer: &mut [u8]) -> SysResult<Bytes> {
        let (mut sum, mut is_file) = (Bytes(0), false);
        for_each_line(&self.smaps, buffer, |line| {
            if parse_mapping(line).is_some() {
                is_file = line.windows(2).any(|part| part == b" /");
            } else if is_file && let Some(anonymous) = kib_after(line, b"Anonymous:") {
                sum += anonymous;
            }
        })?;
        Ok(sum)
    }
}

/// Calls `visit` for each line of a file, without its line end. `buffer` is as for
/// [`Mappings::for_each`].
fn for_each_line(file: &OwnedFd, buffer: &mut [u8], mut visit: impl FnMut(&[u8])) -> SysResult<()> {
    let (mut kept, mut offset) = (0, 0);
    loop {
        let count = read_at(file, &mut buffer[kept..], offset)?.len();
        if count == 0 {
            return Ok(());
        }
        offset += count as u64;
        let filled = kept + count;
        let mut line_start = 0;
        while let Some(length) = buffer[line_start..filled].iter().position(|byte| *byte == b'\n') {
            visit(&buffer[line_start..line_start + length]);
            line_start += length + 1;
        }
        buffer.copy_within(line_start..filled, 0);
        kept = filled - line_start;
    }
}

/// One mapping, as a line of /proc/thread-self/maps describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: usize,
    /// One past the last address.
    pub end: usize,
    /// The kind of memory.
    pub kind: MappingKind,
}

/// The kinds of mappings that a memory manager distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingKind {
    /// Private, anonymous, readable and writable, not executable, and not a stack.
    PrivateAnonymous,
    /// As [`MappingKind::PrivateAnonymous`], but executable.
    Executable,
    /// Private and anonymous, without any access: a guard or a reservation.
    Inaccessible,
    /// Private and anonymous, but never both readable and writable.
    OtherAnonymous,
    /// Everything else: files, shared memory, stacks, the kernel's own mappings.
    Other,
}

/// Parses `start-end perms offset dev inode   name`.
fn parse_mapping(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let mut addresses = fields.next()?.split(|byte| *byte == b'-').map(hexadecimal);
    let (start, end) = (addresses.next()??, addresses.next()??);
    let permissions = fields.next()?;
    let inode = fields.nth(2)?;
    let name = fields.next().unwrap_or_default();
    let anonymous =
        inode == b"0" && (name.is_empty() || name == b"[heap]" || name.starts_with(b"[anon:"));
    let is_stack = anonymous && line.windows(5).any(|part| part == b"stack");
    let kind = match permissions {
        b"rw-p" if anonymous && !is_stack => MappingKind::PrivateAnonymous,
        b"rwxp" if anonymous && !is_stack => MappingKind::Executable,
        b"---p" if anonymous => MappingKind::Inaccessible,
        [.., b'p'] if anonymous => MappingKind::OtherAnonymous,
        _ => MappingKind::Other,
    };
    Some(Mapping { start: start as usize, end: end as usize, kind })
}

/// The mappings of this process, looked up by address or visited in order.
#[derive(Debug)]
pub struct Mappings {
    maps: OwnedFd,
}

/// `struct procmap_query` (linux/fs.h); only its first words are used.
#[repr(C)]
struct MapQuery {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    others: [u64; 8],
}

impl Mappings {
    /// Opens /proc/thread-self/maps.
    pub fn open() -> SysResult<Self> {
        open_read(c"/proc/thread-self/maps").map(|maps| Self { maps })
    }

    /// Calls `visit` for each mapping in address order. `buffer` holds what one read returns; it
    /// must be longer than the longest line, 4 KiB of path included.
    pub fn for_each(&self, buffer: &mut [u8], mut visit: impl FnMut(Mapping)) -> SysResult<()> {
        for_each_line(&self.maps, buffer, |line| {
            if let Some(mapping) = parse_mapping(line) {
                visit(mapping);
            }
        })
    }

    /// Returns the end of the mapping that contains `address`. Fails as [`Mappings::at`] does.
    pub fn end_at(&self, address: usize) -> SysResult<usize> {
        self.at(address).map(|mapping| mapping.end)
    }

    /// Returns the mapping that contains `address`. Fails with `ENOENT` when there is none. Before
    /// Linux 6.11 this reads all mappings.
    pub fn at(&self, address: usize) -> SysResult<Range<usize>> {
        match self.ask_for(address) {
            Err(error) if error.is(Errno::NOTTY) => self.find(address),
            result => result,
        }
    }

    /// Looks up `address` as [`Mappings::at`] does, by the kernel's own search, which takes a
    /// microsecond however many mappings there are. Fails with `ENOTTY` before Linux 6.11
    /// (PROCMAP_QUERY).
    pub fn ask_for(&self, address: usize) -> SysResult<Range<usize>> {
        // _IOWR('f', 17, struct procmap_query)
        const PROCMAP_QUERY: usize = 0xc068_6611;
        let size = size_of::<MapQuery>() as u64;
        let mut query =
            MapQuery { size, flags: 0, address: address as u64, start: 0, end: 0, others: [0; 8] };
        let arguments =
            [self.maps.as_raw_fd() as usize, PROCMAP_QUERY, &raw mut query as usize, 0, 0, 0];
        // SAFETY: the structure states its own size and asks the kernel to write no name.
        let result = unsafe { raw::syscall(linux::__NR_ioctl, arguments) };
        raw::checked("ioctl(PROCMAP_QUERY)", result)?;
        Ok(query.start as usize..query.end as usize)
    }

    /// Looks up `address` as [`Mappings::at`] does, by reading every mapping that the kernel lists.
    fn find(&self, address: usize) -> SysResult<Range<usize>> {
        let mut found = Err(SysError::of("mapping")(Errno::NOENT));
        let mut buffer = [0; PAGE_BYTES + 256];
        self.for_each(&mut buffer, |mapping| {
            let range = mapping.start..mapping.end;
            if range.contains(&address) {
                found = Ok(range);
            }
        })?;
        found
    }

    /// Returns whether one mapping contains both addresses, of which `low` is the lower one.
    pub fn have_as_one(&self, low: usize, high: usize) -> SysResult<bool> {
        match self.end_at(low) {
            Ok(end) => Ok(low <= high && high < end),
            Err(error) if error.is(Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

const _: () = assert!(size_of::<MapQuery>() == 104);

/// The memory of this process, writable through the kernel whatever its protection.
#[derive(Debug)]
pub struct Memory {
    fd: OwnedFd,
}

impl Memory {
    /// Opens /proc/thread-self/mem.
    pub fn open() -> SysResult<Self> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::open(c"/proc/thread-self/mem", flags, Mode::empty())
            .map(|fd| Self { fd })
            .map_err(SysError::of("open"))
    }

    /// Writes `bytes` at `address`, as a debugger would: all of them, which must lie in one page.
    /// Fails with `EIO` where nothing is mapped, or where a userfaultfd watches for a page that is
    /// missing.
    pub fn write(&self, address: usize, bytes: &[u8]) -> SysResult<()> {
        match rustix::io::pwrite(&self.fd, bytes, address as u64) {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(_) => Err(SysError { call: "pwrite(/proc/self/mem)", errno: errno::EIO }),
            Err(errno) => Err(SysError::of("pwrite(/proc/self/mem)")(errno)),
        }
    }
}

/// Returns whether the caller, and so its child, may open the files that report and change where
/// pages are. It may not after `chroot`, nor without a free descriptor, and usually not once it has
/// dropped its user.
pub fn may_be_opened() -> bool {
    Memory::open().is_ok() && Pagemap::open().is_ok()
}

/// The kernel's record of which pages of a range are in memory.
#[derive(Debug)]
pub struct Pagemap {
    fd: OwnedFd,
}

impl Pagemap {
    /// Opens /proc/thread-self/pagemap.
    pub fn open() -> SysResult<Self> {
        open_read(c"/proc/thread-self/pagemap").map(|fd| Self { fd })
    }

    /// Calls `visit(first address, end address)` for each run of present pages in `start..end`.
    /// Fails with `ENOTTY` where the kernel has no PAGEMAP_SCAN (before Linux 6.7).
    pub fn for_each_present(
        &self,
        start: usize,
        end: usize,
        mut visit: impl FnMut(usize, usize),
    ) -> SysResult<()> {
        let mut regions = [EMPTY_REGION; 64];
        let mut at = start;
        while at < end {
            let (count, walked_to) = self.scan(at..end, linux::PAGE_IS_PRESENT, &mut regions)?;
            for region in &regions[..count] {
                visit(region.start as usize, region.end as usize);
            }
            // The walk always gets past the pages it reported, or to the end.
            if walked_to <= at {
                break;
            }
            at = walked_to;
        }
        Ok(())
    }

    /// Returns how many pages from `start` on exist, in memory or in swap, before the first page
    /// that does not, within `start..end`.
    pub fn leading_pages(&self, start: usize, end: usize) -> SysResult<PageCount> {
        let mut region = [EMPTY_REGION];
        let exists = linux::PAGE_IS_PRESENT | linux::PAGE_IS_SWAPPED;
        let (count, _) = self.scan(start..end, exists, &mut region)?;
        let leads = count > 0 && region[0].start == start as u64;
        Ok(Bytes(if leads { region[0].end as usize - start } else { 0 }).pages_down())
    }

    /// Returns how many pages from `start` on do not exist, neither in memory nor in the system's
    /// swap, within `start..end`.
    pub fn leading_holes(&self, start: usize, end: usize) -> SysResult<PageCount> {
        let mut region = [EMPTY_REGION];
        let exists = linux::PAGE_IS_PRESENT | linux::PAGE_IS_SWAPPED;
        let (count, _) = self.scan(start..end, exists, &mut region)?;
        let first = if count > 0 { region[0].start as usize } else { end };
        Ok(Bytes(first - start).pages_down())
    }

    /// Returns whether the range has a guard page (`MADV_GUARD_INSTALL`), any access to which
    /// faults whatever the mapping allows. Fails with `EINVAL` before Linux 6.15, which does not
    /// report them.
    pub fn has_guard(&self, start: usize, end: usize) -> SysResult<bool> {
        self.scan(start..end, linux::PAGE_IS_GUARD, &mut [EMPTY_REGION]).map(|(count, _)| count > 0)
    }

    /// Returns which of the `N` times 64 pages from `start` on are in memory and mapped more than
    /// once, as by related processes: one bit a page, the lowest bit for the first page. Looking at
    /// 64 pages takes about 3 us, at 512 pages about 16 us.
    pub fn shared<const N: usize>(&self, start: usize) -> SysResult<[u64; N]> {
        // Bits of a page's word (Documentation/admin-guide/mm/pagemap.rst).
        const PRESENT: u64 = 1 << 63;
        const MAPPED_ALONE: u64 = 1 << 56;
        let mut buffer = [[0; 64 * size_of::<u64>()]; N];
        let offset = start / PAGE_BYTES * size_of::<u64>();
        let (words, _) = read_at(&self.fd, buffer.as_flattened_mut(), offset as u64)?.as_chunks();
        let mut shared = [0; N];
        for (page, word) in words.iter().enumerate() {
            let is_shared = u64::from_ne_bytes(*word) & (PRESENT | MAPPED_ALONE) == PRESENT;
            shared[page / 64] |= u64::from(is_shared) << (page % 64);
        }
        Ok(shared)
    }

    /// Makes one PAGEMAP_SCAN for pages in any of `categories`, without distinguishing them.
    /// Returns how many regions it filled in, and how far it looked.
    fn scan(
        &self,
        range: Range<usize>,
        categories: u32,
        regions: &mut [linux::page_region],
    ) -> SysResult<(usize, usize)> {
        let mut scan = linux::pm_scan_arg {
            size: size_of::<linux::pm_scan_arg>() as u64,
            flags: 0,
            start: range.start as u64,
            end: range.end as u64,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            max_pages: 0,
            category_inverted: 0,
            category_mask: 0,
            category_anyof_mask: u64::from(categories),
            return_mask: 0,
        };
        // SAFETY: the request fits the structure, and `vec` points to `vec_len` regions of ours.
        let count = unsafe { ioctl::ioctl(self.fd.as_fd(), ScanCall(&mut scan)) }
            .map_err(SysError::of("ioctl(PAGEMAP_SCAN)"))?;
        Ok((count, scan.walk_end as usize))
    }
}

const EMPTY_REGION: linux::page_region = linux::page_region { start: 0, end: 0, categories: 0 };

/// PAGEMAP_SCAN as an ioctl: its result is the number of regions, for which rustix has no pattern.
struct ScanCall<'a>(&'a mut linux::pm_scan_arg);

// SAFETY: the opcode belongs to `pm_scan_arg`, which the kernel both reads and writes; the output
// is the plain result of the call.
unsafe impl ioctl::Ioctl for ScanCall<'_> {
    type Output = usize;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        PAGEMAP_SCAN
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        (&raw mut *self.0).cast()
    }

    unsafe fn output_from_ptr(
        output: ioctl::IoctlOutput,
        _pointer: *mut core::ffi::c_void,
    ) -> rustix::io::Result<usize> {
        Ok(output as usize)
    }
}

/// Returns whether two processes share their memory, as a child of `vfork` does until it calls
/// `exec`. Fails where the kernel does not compare them: one has ended, or belongs to another user.
/// Source: kcmp(2).
pub fn share_memory(one: u32, other: u32) -> SysResult<bool> {
    const KCMP_VM: usize = 1;
    let args = [one as usize, other as usize, KCMP_VM, 0, 0, 0];
    // SAFETY: the call reads no memory of ours; its arguments are two numbers and a kind.
    let result = unsafe { raw::syscall(linux::__NR_kcmp, args) };
    raw::checked("kcmp", result).map(|order| order == 0)
}

/// Writes `head`, `number` in decimal digits and `tail` into `path`, and returns their length.
pub(crate) fn write_path(path: &mut [u8], head: &[u8], number: u32, tail: &[u8]) -> usize {
    let mut digits = [0; 10];
    let mut first = digits.len();
    let mut rest = number;
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let mut length = 0;
    for part in [head, &digits[first..], tail] {
        path[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    }
    length
}

pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(text).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_told_apart() {
        let kind = |line: &str| parse_mapping(line.as_bytes()).unwrap().kind;
        use MappingKind::{Executable, Inaccessible, Other, OtherAnonymous, PrivateAnonymous};
        assert_eq!(kind("7f00-8f00 rw-p 00000000 00:00 0 "), PrivateAnonymous);
        assert_eq!(kind("7f00-8f00 rw-p 00000000 00:00 0    [heap]"), PrivateAnonymous);
        assert_eq!(
            kind("7f00-8f00 rw-p 00000000 00:00 0  [anon: glibc: malloc]"),
            PrivateAnonymous
        );
        // A mapping can have this name while some of its pages are away.
        assert_eq!(
            kind("7f00-8f00 rw-p 00000000 00:00 0  [anon: glibc: pthread stack: 7]"),
            OtherAnonymous
        );
        assert_eq!(kind("7f00-8f00 rw-p 00000000 00:00 0          [stack]"), Other);
        assert_eq!(kind("7f00-8f00 ---p 00000000 00:00 0 "), Inaccessible);
        assert_eq!(kind("7f00-8f00 rwxp 00000000 00:00 0 "), Executable);
        assert_eq!(kind("7f00-8f00 r-xp 00000000 00:00 0 "), OtherAnonymous);
        assert_eq!(kind("7f00-8f00 r--p 00000000 00:00 0 "), OtherAnonymous);
        assert_eq!(kind("7f00-8f00 r--s 00000000 00:00 0 "), Other);
        assert_eq!(kind("7f00-8f00 rw-s 00000000 00:01 77  /dev/zero (deleted)"), Other);
        assert_eq!(kind("7f00-8f00 rw-p 00001000 fe:00 123  /usr/lib/libc.so.6"), Other);
        let mapping = parse_mapping(b"55d0c000-55d0e000 rw-p 0 00:00 0").unwrap();
        assert_eq!((mapping.start, mapping.end), (0x55d0_c000, 0x55d0_e000));
    }

    #[test]
    fn a_mapping_is_found_as_the_kernel_tells_it() {
        let mappings = Mappings::open().unwrap();
        let here = (&raw const mappings).addr();
        let code = a_mapping_is_found_as_the_kernel_tells_it as fn() as usize;
        for address in [0, here, code, code + PAGE_BYTES, usize::MAX / 4] {
            let found = mappings.find(address).map_err(|error| error.errno);
            assert!(found.as_ref().map_or(address != here, |range| range.contains(&address)));
            match mappings.ask_for(address) {
                Err(error) if error.is(Errno::NOTTY) => println!("skipped: needs Linux 6.11"),
                told => assert_eq!(found, told.map_err(|error| error.errno), "{address:x}"),
            }
        }
    }

    #[test]
    fn a_small_buffer_sees_every_mapping() {
        let mappings = Mappings::open().unwrap();
        let count = |size: usize| {
            let mut buffer = std::vec![0; size];
            let mut count = 0_usize;
            mappings.for_each(&mut buffer, |_| count += 1).unwrap();
            count
        };
        assert!(count(4096) > 10);
        // Other tests map memory meanwhile, so the two readings are repeated until they agree.
        assert!((0..100).any(|_| count(4096) == count(1 << 20)));
    }

    #[test]
    fn written_pages_of_a_file_are_data() {
        let mut buffer = std::vec![0; 4096];
        let files = Files::open().unwrap();
        let before = files.data_of_files(&mut buffer).unwrap();
        let file = open_read(c"/proc/self/exe").unwrap();
        let (length, flags) = (256 << 10, rustix::mm::MapFlags::PRIVATE);
        let all = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        // SAFETY: a new private mapping, of a file that is as long.
        unsafe {
            let start = rustix::mm::mmap(core::ptr::null_mut(), length, all, flags, &file, 0);
            let start = start.unwrap().cast::<u8>();
            (0..length).step_by(2 * PAGE_BYTES).for_each(|offset| start.add(offset).write(1));
            let data = files.data_of_files(&mut buffer).unwrap();
            rustix::mm::munmap(start.cast(), length).unwrap();
            // Other tests write to our data meanwhile.
            let grown = data.0 - before.0;
            assert!((128 << 10..192 << 10).contains(&grown), "{grown} bytes");
        }
    }

    #[test]
    fn touched_pages_are_present_and_counted() {
        let gauge = ResidentGauge::open().unwrap();
        let before = gauge.resident().unwrap().anonymous;
        let span = crate::map::Span::reserve(Bytes::mib(8), Bytes(PAGE_BYTES)).unwrap();
        span.forbid_huge_pages();
        for page in (0..2048).step_by(2) {
            // SAFETY: the page lies inside the span of 2048 pages.
            unsafe { span.base().as_ptr().add(page * PAGE_BYTES).write(1) };
        }
        let mut present = 0;
        let pagemap = Pagemap::open().unwrap();
        pagemap
            .for_each_present(span.address(), span.address() + span.length().0, |start, end| {
                present += (end - start) / PAGE_BYTES;
            })
            .unwrap();
        assert_eq!(present, 1024);
        let leading = |page: usize, count: usize| {
            let start = span.address() + page * PAGE_BYTES;
            pagemap.leading_pages(start, start + count * PAGE_BYTES).unwrap().0
        };
        assert_eq!([leading(0, 1), leading(0, 32), leading(1, 32)], [1, 1, 0]);
        // SAFETY: page 3 lies inside the span.
        unsafe { span.base().as_ptr().add(3 * PAGE_BYTES).write(1) };
        assert_eq!([leading(2, 32), leading(2, 2)], [3, 2]);
        let holes = |first: usize, end: usize| {
            let [start, end] = [first, end].map(|page| span.address() + page * PAGE_BYTES);
            pagemap.leading_holes(start, end).unwrap().0
        };
        assert_eq!([holes(1, 2), holes(1, 9), holes(0, 9), holes(5, 9)], [1, 1, 0, 1]);
        assert_eq!(pagemap.shared(span.address()).unwrap(), [0; 8]);
        let grown = gauge.resident().unwrap().anonymous.0.saturating_sub(before.0);
        assert!((900..1400).contains(&grown), "grew by {grown} pages");
        let writable = gauge.writable().unwrap();
        drop(span);
        let less = writable.saturating_sub(gauge.writable().unwrap());
        assert!((1900..2200).contains(&less.0), "{less:?}");
    }

    /// The risk: a page shared with a relative passes for the process's own, or the other way
    /// round.
    #[test]
    fn pages_mapped_twice_are_told_by_their_places() {
        use core::sync::atomic::{AtomicU8, Ordering};
        type Pages = [[AtomicU8; PAGE_BYTES]; 512];
        let fd = crate::shared::create(c"twice", Bytes(size_of::<Pages>())).unwrap();
        // SAFETY: the mapped type consists of atomics.
        let map = || unsafe { crate::shared::Shared::<Pages>::map(fd.as_fd()).unwrap() };
        let (first, second) = (map(), map());
        let twice = [1, 63, 64, 300, 511];
        // Relaxed: there is one thread.
        (0..512).step_by(2).chain(twice).for_each(|at| first[at][0].store(1, Ordering::Relaxed));
        twice.into_iter().for_each(|at| second[at][0].store(1, Ordering::Relaxed));
        let pagemap = Pagemap::open().unwrap();
        let start = first.as_ptr() as usize;
        let all: [u64; 8] = pagemap.shared(start).unwrap();
        let found = (0..512).filter(|page| all[page / 64] >> (page % 64) & 1 == 1);
        assert_eq!(found.collect::<std::vec::Vec<_>>(), twice);
        assert_eq!(pagemap.shared(start + 63 * PAGE_BYTES).unwrap(), [3]);
    }

    #[test]
    fn guard_pages_are_found_where_the_kernel_tells() {
        const MADV_GUARD_INSTALL: usize = 102;
        let span = crate::map::Span::reserve(Bytes::mib(1), Bytes(PAGE_BYTES)).unwrap();
        let pagemap = Pagemap::open().unwrap();
        let (start, end) = (span.address(), span.address() + span.length().0);
        assert!(!pagemap.has_guard(start, end).unwrap_or(false));
        let advice = [start + PAGE_BYTES, PAGE_BYTES, MADV_GUARD_INSTALL, 0, 0, 0];
        // SAFETY: a page of the span, which holds nothing.
        let result = unsafe { crate::raw::syscall(linux_raw_sys::general::__NR_madvise, advice) };
        if result != 0 {
            return eprintln!("skipped: no guard pages in this kernel");
        }
        let Ok(found) = pagemap.has_guard(start, end) else {
            return eprintln!("skipped: this kernel does not tell");
        };
        assert!(found && !pagemap.has_guard(start + 2 * PAGE_BYTES, end).unwrap());
    }
}
