//! The environment, which is the program's user's: what names this library and the run is taken out
//! before the program looks, and put into that of each program that it starts, whatever becomes of
//! it in between (a start script that sets LD_PRELOAD, `env -i`).
//!
//! An environment that names a run is left as it is: it is of a run inside this one.

use core::ffi::{CStr, c_char};
use core::ops::Range;
use core::ptr;

use coldpress_sys::raw;
use linux_raw_sys::general as linux;

use crate::wire::{BUDGET_VARIABLE, SOCKET_PATH_MAX, SOCKET_VARIABLE};

const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// The library's name, beside the socket.
const LIBRARY: &[u8] = b"/libcoldpress.so";
/// Longest string of ours, with its zero.
const KEPT_BYTES: usize = SOCKET_PATH_MAX + 32;
/// An environment of so many words is laid out on the stack: that of a child by `posix_spawn` has
/// 32 KiB. For a larger one memory is mapped, which such a child leaves to its parent.
const ON_STACK: [usize; 3] = [128, 512, 2048];

/// A string of ours.
#[derive(Debug)]
struct Kept {
    bytes: [u8; KEPT_BYTES],
    length: usize,
}

impl Kept {
    const NONE: Self = Self { bytes: [0; KEPT_BYTES], length: 0 };

    /// Keeps these, one behind the other, with a zero. Nothing if there is no room.
    fn keep(&mut self, parts: [&[u8]; 2]) {
        *self = Self::NONE;
        let length = parts.iter().map(|part| part.len()).sum();
        if length < KEPT_BYTES {
            let (first, second) = self.bytes[..length].split_at_mut(parts[0].len());
            first.copy_from_slice(parts[0]);
            second.copy_from_slice(parts[1]);
            self.length = length;
        }
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// What is ours of an environment.
#[derive(Debug)]
pub(super) struct Ours {
    /// The two variables, as they stand in an environment.
    variables: [Kept; 2],
    /// The library's path.
    library: Kept,
}

/// Takes what is ours out of a variable; whether anything is left of it.
///
/// # Safety
/// It must be a C string that may be written to.
unsafe fn take_from(variable: *const c_char, library: &[u8]) -> bool {
    // SAFETY: the caller's promise.
    let entry = unsafe { CStr::from_ptr(variable) }.to_bytes();
    if [SOCKET_VARIABLE, BUDGET_VARIABLE].iter().any(|name| value_of(entry, name).is_some()) {
        return false;
    }
    let length = entry.len();
    if !entry.starts_with(PRELOAD) {
        return true;
    }
    // SAFETY: the caller's promise; the shared slice is not used any more.
    let entry =
        unsafe { core::slice::from_raw_parts_mut(variable.cast_mut().cast::<u8>(), length) };
    let Some(found) = names(entry).find(|name| entry[name.clone()] == *library) else {
        return true;
    };
    if found == (PRELOAD.len()..length) {
        return false;
    }
    // With the separator behind it, which is there also if nothing else is.
    let behind = (found.end + 1).min(length);
    entry.copy_within(behind.., found.start);
    entry[found.start + length - behind..].fill(0);
    true
}

/// The names that LD_PRELOAD has, by their places in the variable: spaces or colons separate them
/// (ld.so(8)).
fn names(variable: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = PRELOAD.len();
    core::iter::from_fn(move || {
        let rest = variable.get(at..)?;
        let length = rest.iter().position(|byte| matches!(byte, b' ' | b':'));
        let name = at..at + length.unwrap_or(rest.len());
        at = name.end + 1;
        Some(name)
    })
}

/// What a variable is set to, if it is of this name.
pub(super) fn value_of<'e>(entry: &'e [u8], name: &str) -> Option<&'e [u8]> {
    entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// The strings of an environment, which may be null.
///
/// # Safety
/// It must be null, or a list of C strings that ends with a null, and stay as it is meanwhile.
pub(super) unsafe fn entries<'e>(
    environment: *const *const c_char,
) -> impl Iterator<Item = &'e [u8]> + Clone {
    let mut at = environment;
    core::iter::from_fn(move || {
        // SAFETY: the caller's promise: before the null there are strings.
        unsafe {
            if at.is_null() || (*at).is_null() {
                return None;
            }
            let entry = CStr::from_ptr(*at);
            at = at.add(1);
            Some(entry.to_bytes())
        }
    })
}

#[inline(never)]
fn on_stack<const WORDS: usize>(run: &mut dyn FnMut(&mut [usize]) -> isize) -> isize {
    run(&mut [0; WORDS])
}

fn mapped(words: usize, run: &mut dyn FnMut(&mut [usize]) -> isize) -> isize {
    let length = words * size_of::<usize>();
    let protection = (linux::PROT_READ | linux::PROT_WRITE) as usize;
    let flags = (linux::MAP_PRIVATE | linux::MAP_ANONYMOUS) as usize;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let start =
        unsafe { raw::syscall(linux::__NR_mmap, [0, length, protection, flags, usize::MAX, 0]) };
    if start < 0 {
        return start;
    }
    let first = ptr::with_exposed_provenance_mut(start as usize);
    // SAFETY: so long is the mapping, which nobody else has.
    let result = run(unsafe { core::slice::from_raw_parts_mut(first, words) });
    // SAFETY: as above; the program was not started.
    unsafe { raw::syscall(linux::__NR_munmap, [start as usize, length, 0, 0, 0, 0]) };
    result
}

impl Ours {
    /// Nothing.
    pub(super) const NONE: Self = Self { variables: [Kept::NONE; 2], library: Kept::NONE };

    /// Takes what is ours out of a program's environment.
    ///
    /// # Safety
    /// It must be a list of C strings that ends with a null, both of which may be written to, and
    /// nobody else uses it meanwhile.
    pub(super) unsafe fn take_out(environment: *const *const c_char) -> Self {
        let mut ours = Self::NONE;
        // SAFETY: the caller's promise.
        for entry in unsafe { entries(environment) } {
            if let Some(path) = value_of(entry, SOCKET_VARIABLE) {
                ours.variables[0].keep([entry, b""]);
                let folder = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                ours.library.keep([&path[..folder], LIBRARY]);
            } else if value_of(entry, BUDGET_VARIABLE).is_some() {
                ours.variables[1].keep([entry, b""]);
            }
        }
        if ours.variables.iter().chain([&ours.library]).any(|kept| kept.length == 0) {
            return Self::NONE;
        }
        let (mut to, mut from) = (environment.cast_mut(), environment);
        // SAFETY: the caller's promise; `to` is never behind `from`.
        unsafe {
            while !(*from).is_null() {
                if take_from(*from, ours.library.text()) {
                    *to = *from;
                    to = to.add(1);
                }
                from = from.add(1);
            }
            *to = ptr::null();
        }
        ours
    }

    /// Runs `call` with an environment that has what is ours beside what is in `environment`.
    ///
    /// # Safety
    /// It must be null, or a list of C strings that ends with a null, and stay as it is meanwhile.
    pub(super) unsafe fn put_back(
        &self,
        environment: *const *const c_char,
        call: impl Fn(*const *const c_char) -> isize,
    ) -> isize {
        // SAFETY: the caller's promise.
        let all = unsafe { entries(environment) };
        let names_a_run = |entry| value_of(entry, SOCKET_VARIABLE).is_some();
        if self.library.length == 0 || all.clone().any(names_a_run) {
            return call(environment);
        }
        let words = self.words_for(all.clone());
        let mut run = |room: &mut [usize]| call(self.put_into(all.clone(), room));
        let [small, medium, large] = ON_STACK;
        match words {
            words if words <= small => on_stack::<{ ON_STACK[0] }>(&mut run),
            words if words <= medium => on_stack::<{ ON_STACK[1] }>(&mut run),
            words if words <= large => on_stack::<{ ON_STACK[2] }>(&mut run),
            words => mapped(words, &mut run),
        }
    }

    /// Words that an environment of these strings takes with ours in it, and the string of its
    /// LD_PRELOAD behind it.
    fn words_for<'e>(&self, entries: impl Iterator<Item = &'e [u8]>) -> usize {
        let (count, preload) = entries.fold((0, 0), |(count, longest), entry| {
            let is_preload = entry.starts_with(PRELOAD);
            (count + 1, if is_preload { entry.len().max(longest) } else { longest })
        });
        let line = PRELOAD.len() + self.library.length + 2 + preload;
        self.count_for(count) + line.div_ceil(size_of::<usize>())
    }

    /// Of the list alone: with LD_PRELOAD, two variables and the null.
    fn count_for(&self, entries: usize) -> usize {
        entries + 2 + self.variables.len()
    }

    /// Lays such an environment out in `room`, which is long enough; where it begins.
    fn put_into<'e>(
        &self,
        entries: impl Iterator<Item = &'e [u8]> + Clone,
        room: &mut [usize],
    ) -> *const *const c_char {
        let (list, rest) = room.split_at_mut(self.count_for(entries.clone().count()));
        // SAFETY: words are bytes, and these are nobody else's.
        let line = unsafe {
            core::slice::from_raw_parts_mut(rest.as_mut_ptr().cast::<u8>(), size_of_val(rest))
        };
        let mut length = 0;
        let mut append = |part: &[u8]| {
            line[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        };
        append(PRELOAD);
        // Of several the loader takes the last.
        let is_preload = |entry: &(usize, &[u8])| entry.1.starts_with(PRELOAD);
        let theirs = entries.clone().enumerate().filter(is_preload).last();
        let has_ours = |entry: &[u8]| names(entry).any(|name| entry[name] == *self.library.text());
        if !theirs.is_some_and(|(_, entry)| has_ours(entry)) {
            append(self.library.text());
        }
        if let Some((_, entry)) = theirs {
            append(if has_ours(entry) { b"" } else { b":" });
            append(&entry[PRELOAD.len()..]);
        }
        append(b"\0");
        let line = line.as_ptr();
        let at = theirs.map(|(index, _)| index);
        let others = entries.enumerate().map(
            |(index, entry)| {
                if Some(index) == at { line } else { entry.as_ptr() }
            },
        );
        let new = at.is_none().then_some(line);
        let ours = self.variables.iter().map(|kept| kept.bytes.as_ptr());
        let strings = others.chain(new).chain(ours).chain([ptr::null()]);
        for (place, string) in list.iter_mut().zip(strings) {
            *place = string.expose_provenance();
        }
        list.as_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a program that sees what is not its user's, or loses a library of its user's; one
    //! that it starts is not managed.

    use std::ffi::CString;
    use std::vec::Vec;

    use super::*;

    const SOCKET: &str = "COLDPRESS_SOCKET=/tmp/x/socket";
    const BUDGET: &str = "COLDPRESS_BUDGET_BYTES=7";

    /// An environment that may be written to.
    struct Environment {
        _strings: Vec<Vec<u8>>,
        list: Vec<*const c_char>,
    }

    impl Environment {
        fn of(entries: &[&str]) -> Self {
            let with_zero = |entry: &&str| CString::new(*entry).unwrap().into_bytes_with_nul();
            let mut strings: Vec<Vec<u8>> = entries.iter().map(with_zero).collect();
            let mut list: Vec<*const c_char> =
                strings.iter_mut().map(|string| string.as_mut_ptr().cast_const().cast()).collect();
            list.push(ptr::null());
            Self { _strings: strings, list }
        }

        fn texts(list: *const *const c_char) -> Vec<String> {
            // SAFETY: a list as above, or as it was laid out.
            let all = unsafe { entries(list) };
            all.map(|entry| String::from_utf8(entry.to_vec()).unwrap()).collect()
        }
    }

    #[test]
    fn ours_is_taken_out_and_put_back_whatever_was_set_meanwhile() {
        let given = [
            "A=1",
            "LD_PRELOAD=/tmp/x/libcoldpress.so:/a.so b.so",
            SOCKET,
            BUDGET,
            "COLDPRESS_SOCKETS=theirs",
        ];
        let environment = Environment::of(&given);
        // SAFETY: as the test made it.
        let taken = unsafe { Ours::take_out(environment.list.as_ptr()) };
        let left = ["A=1", "LD_PRELOAD=/a.so b.so", "COLDPRESS_SOCKETS=theirs"];
        assert_eq!(Environment::texts(environment.list.as_ptr()), left);
        let put = |entries: &[&str]| {
            let environment = Environment::of(entries);
            let mut seen = Vec::new();
            let keep = core::cell::RefCell::new(&mut seen);
            let call = |list| {
                keep.borrow_mut().extend(Environment::texts(list));
                -7
            };
            // SAFETY: as the test made it.
            assert_eq!(unsafe { taken.put_back(environment.list.as_ptr(), call) }, -7);
            seen
        };
        let ours = "LD_PRELOAD=/tmp/x/libcoldpress.so";
        assert_eq!(put(&[]), [ours, SOCKET, BUDGET]);
        let all = format!("{ours}:/a.so b.so");
        assert_eq!(put(&left), ["A=1", &all, "COLDPRESS_SOCKETS=theirs", SOCKET, BUDGET]);
        // Of two the last counts; ours is not there twice.
        let two = put(&["LD_PRELOAD=/c.so", "LD_PRELOAD=/d.so::/tmp/x/libcoldpress.so"]);
        let last = "LD_PRELOAD=/d.so::/tmp/x/libcoldpress.so";
        assert_eq!(two, ["LD_PRELOAD=/c.so", last, SOCKET, BUDGET]);
        // Of another run.
        let other = ["COLDPRESS_SOCKET=/tmp/y/socket", "B=2"];
        assert_eq!(put(&other), other);
        for count in [100, 400, 1_500, 5_000] {
            let many: Vec<String> = (0..count).map(|index| format!("V{index}=x")).collect();
            let many: Vec<&str> = many.iter().map(String::as_str).collect();
            assert_eq!(put(&many), [&many[..], &[ours, SOCKET, BUDGET]].concat());
        }
        // SAFETY: null is no environment.
        assert_eq!(unsafe { taken.put_back(ptr::null(), |list| (!list.is_null()).into()) }, 1);
        // SAFETY: null is no environment.
        assert_eq!(unsafe { Ours::NONE.put_back(ptr::null(), |list| list.is_null().into()) }, 1);
    }

    #[test]
    fn a_variable_with_nothing_but_ours_goes_and_one_without_it_stays() {
        let take = |text: &str| {
            let mut string = CString::new(text).unwrap().into_bytes_with_nul();
            // SAFETY: a string that may be written to.
            let is_left = unsafe { take_from(string.as_mut_ptr().cast(), b"/l/ours.so") };
            let end = string.iter().position(|byte| *byte == 0).unwrap();
            is_left.then(|| String::from_utf8(string[..end].to_vec()).unwrap())
        };
        assert_eq!(take("LD_PRELOAD=/l/ours.so"), None);
        assert_eq!(take("LD_PRELOAD=/l/ours.so:").as_deref(), Some("LD_PRELOAD="));
        assert_eq!(take("LD_PRELOAD=").as_deref(), Some("LD_PRELOAD="));
        assert_eq!(take("LD_PRELOAD=/a/l/ours.so").as_deref(), Some("LD_PRELOAD=/a/l/ours.so"));
        assert_eq!(take("LD_PRELOAD=a:/l/ours.so:b").as_deref(), Some("LD_PRELOAD=a:b"));
        assert_eq!(take("LD_PRELOAD=a:/l/ours.so").as_deref(), Some("LD_PRELOAD=a:"));
        assert_eq!(take("LD_PRELOADED=/l/ours.so").as_deref(), Some("LD_PRELOADED=/l/ours.so"));
    }
}
