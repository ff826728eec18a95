//! Why memory stays in place: the reason of each mapping, from what the kernel says of it.
//!
//! The service takes in what `memory/regions.rs` of the runtime accepts; what it has really
//! registered, the kernel shows as a flag. So a mapping with the flags is managed, and for any
//! other one there is a reason here, in the order in which the service asks.

use coldpress_runtime::{GUARD_BYTES_MAX, REGION_BYTES_MIN};

use super::area::Area;

/// What keeps memory in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// Nothing: its pages may leave.
    Managed,
    Ours,
    Watched,
    Kernel,
    Huge,
    Device,
    Shared,
    SharedFile,
    File,
    Written,
    Stack,
    Locked,
    Executable,
    Access,
    Small,
    Guarded,
    Unregistered,
}

impl Reason {
    /// Returns the key in the document.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Managed => "managed",
            Self::Ours => "coldpress",
            Self::Watched => "userfaultfd",
            Self::Kernel => "kernel",
            Self::Huge => "hugetlb",
            Self::Device => "device",
            Self::Shared => "shared",
            Self::SharedFile => "shared_file",
            Self::File => "file",
            Self::Written => "written_file",
            Self::Stack => "stack",
            Self::Locked => "locked",
            Self::Executable => "executable",
            Self::Access => "access",
            Self::Small => "small",
            Self::Guarded => "guarded",
            Self::Unregistered => "not_taken_in",
        }
    }

    /// Returns the reason in words.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Managed => "managed",
            Self::Ours => "coldpress's own: pool, tables, buffers",
            Self::Watched => "watched by a userfaultfd of the program",
            Self::Kernel => "the kernel's own, as [vdso]",
            Self::Huge => "huge pages of hugetlbfs, which the kernel does not move",
            Self::Device => "of a device",
            Self::Shared => "shared memory, which other processes may have too",
            Self::SharedFile => "a shared file: the kernel writes it back by itself",
            Self::File => "pages of files: the kernel drops and reads them by itself",
            Self::Written => "written data of programs and libraries",
            Self::Stack => "the stack: the kernel writes there without waiting for a page",
            Self::Locked => "locked (mlock)",
            Self::Executable => "executable",
            Self::Access => "cannot be both read and written",
            Self::Small => "mappings smaller than 128 KiB",
            Self::Guarded => "stacks of threads: above a guard page, or of that name",
            Self::Unregistered => {
                "left alone: new, with guard pages inside, or of coldpress's library"
            }
        }
    }

    /// Returns why what is in memory of a mapping is there. A private mapping of a file may have
    /// pages of two kinds.
    pub(super) fn of(area: &Area) -> Vec<(Self, u64)> {
        let all = |reason| vec![(reason, area.resident)];
        let is_ours =
            area.name.starts_with("/memfd:coldpress-") || area.name.contains("/libcoldpress");
        if area.huge > 0 || area.has("ht") {
            return vec![(Self::Huge, area.huge)];
        }
        // What coldpress maps for itself is kept from children, and reserves nothing.
        if is_ours || area.is_anonymous() && area.has("dc") && area.has("nr") && !area.has("um") {
            return all(Self::Ours);
        }
        if area.has("lo") {
            return all(Self::Locked);
        }
        // What became executable after it was registered stays.
        if area.has("um") && area.access.starts_with("r-x") {
            return all(Self::Executable);
        }
        if area.has("um") {
            return all(if area.has("uw") { Self::Managed } else { Self::Watched });
        }
        if area.has("pf") || area.has("io") {
            return all(Self::Device);
        }
        if area.is_shared() {
            let is_memory = ["/dev/zero", "/memfd:", "/SYSV", "/dev/shm/", "[anon_shmem"];
            let is_memory = is_memory.iter().any(|start| area.name.starts_with(start));
            return all(if is_memory { Self::Shared } else { Self::SharedFile });
        }
        if area.name.starts_with("[stack") {
            return all(Self::Stack);
        }
        if !area.is_anonymous() && area.name.starts_with('[') {
            return all(Self::Kernel);
        }
        if !area.is_anonymous() {
            let of_file = area.resident.saturating_sub(area.anonymous);
            return vec![(Self::File, of_file), (Self::Written, area.anonymous)];
        }
        all(Self::of_anonymous(area))
    }

    fn of_anonymous(area: &Area) -> Self {
        let access = &area.access;
        let is_guarded = area.guard.is_some_and(|guard| guard <= GUARD_BYTES_MAX.0 as u64);
        let is_stack = is_guarded || area.name.contains("stack");
        if access.contains('x') {
            Self::Executable
        } else if !access.starts_with("rw") {
            Self::Access
        } else if area.length() < REGION_BYTES_MIN.0 as u64 {
            Self::Small
        } else if is_stack {
            Self::Guarded
        } else {
            Self::Unregistered
        }
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a user is told the wrong reason, and changes what does not help.

    use super::super::area::areas;
    use super::*;

    /// Returns the reasons of mappings, each a line of its head, resident and anonymous KiB, and
    /// its flags.
    fn reasons(mappings: &[(&str, u64, u64, &str)]) -> Vec<Vec<(Reason, u64)>> {
        let text = |(head, resident, anonymous, flags): &(&str, u64, u64, &str)| {
            format!("{head}\nRss: {resident} kB\nAnonymous: {anonymous} kB\nVmFlags: {flags}\n")
        };
        areas(&mappings.iter().map(text).collect::<String>()).iter().map(Reason::of).collect()
    }

    #[test]
    fn each_kind_of_memory_has_its_reason() {
        let rest = "00000000 00:00 0";
        let one = |range: &str, access: &str, name: &str, flags: &str| {
            let found = reasons(&[(&format!("{range} {access} {rest} {name}"), 8, 8, flags)]);
            found[0][0].0
        };
        for (access, name, flags, reason) in [
            ("rw-p", "", "rd wr um uw", Reason::Managed),
            ("rw-p", "[heap]", "rd wr um uw dc", Reason::Managed),
            ("rw-p", "", "rd wr um", Reason::Watched),
            ("rw-p", "", "rd wr dc nr", Reason::Ours),
            ("rw-s", "/memfd:coldpress-ledger (deleted)", "rd wr sh", Reason::Ours),
            ("rw-s", "/memfd:x (deleted)", "rd wr sh", Reason::Shared),
            ("rw-s", "/dev/zero (deleted)", "rd wr sh", Reason::Shared),
            ("rw-s", "/SYSV00000000 (deleted)", "rd wr sh", Reason::Shared),
            ("rw-s", "/srv/a b", "rd wr sh", Reason::SharedFile),
            ("rw-s", "/dev/dri/card0", "rd wr sh io pf", Reason::Device),
            ("rw-p", "[stack]", "rd wr gd", Reason::Stack),
            ("r-xp", "[vdso]", "rd ex", Reason::Kernel),
            ("rw-p", "", "rd wr lo", Reason::Locked),
            ("rw-p", "", "rd wr um uw lo", Reason::Locked),
            ("rwxp", "", "rd wr ex", Reason::Executable),
            ("rwxp", "", "rd wr ex um uw", Reason::Managed),
            ("r-xp", "", "rd ex um uw", Reason::Executable),
            ("r--p", "[anon:x]", "rd", Reason::Access),
            ("rw-p", "", "rd wr", Reason::Unregistered),
            ("rw-p", "[anon: glibc: pthread stack: 7]", "rd wr", Reason::Guarded),
            ("rw-p", "/anon_hugepage (deleted)", "rd wr ht", Reason::Huge),
        ] {
            assert_eq!(
                one("100000-200000", access, name, flags),
                reason,
                "{access} {name} {flags}"
            );
        }
        assert_eq!(one("100000-11f000", "rw-p", "", "rd wr"), Reason::Small);
    }

    #[test]
    fn a_private_file_has_pages_of_two_kinds() {
        let found = reasons(&[("1000-9000 rw-p 0 fe:00 7 /usr/lib/libc.so.6", 20, 8, "rd wr")]);
        assert_eq!(found, [[(Reason::File, 12 << 10), (Reason::Written, 8 << 10)]]);
    }

    #[test]
    fn what_lies_above_a_guard_page_is_a_stack() {
        let found = reasons(&[
            ("100000-101000 ---p 0 00:00 0", 0, 0, "mr"),
            ("101000-901000 rw-p 0 00:00 0", 12, 12, "rd wr"),
            ("a00000-b00000 ---p 0 00:00 0", 0, 0, "mr"),
            ("b00000-c00000 rw-p 0 00:00 0", 4, 4, "rd wr"),
        ]);
        assert_eq!(found[1], [(Reason::Guarded, 12 << 10)]);
        // What is inaccessible below this one is too large for a guard.
        assert_eq!(found[3], [(Reason::Unregistered, 4 << 10)]);
    }

    #[test]
    fn no_text_hangs_it_up() {
        for text in ["", "x", "9-1 rw-p", "Rss: 5 kB", "1-2\nRss: x\nVmFlags:\n\u{e9}-\u{e9}"] {
            areas(text).iter().for_each(|area| drop(Reason::of(area)));
        }
    }
}
