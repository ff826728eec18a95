//! The environment, which belongs to the program's user. What names this library and the run is
//! taken out before the program looks, and put into the environment of each program that it starts,
//! whatever happens in between (a start script that sets LD_PRELOAD, `env -i`).
//!
//! An environment that names another run is left as it is: it belongs to a run inside this one.
//!
//! After the list comes what the kernel reports about the program (getauxval(3)), and some runtimes
//! look for it there (Go's). So an even number of entries is taken out, and pairs that say nothing
//! take their place.

use core::ffi::{CStr, c_char};
use core::ops::Range;
use core::ptr;

use crate::wire::{BUDGET_VARIABLE, PADDING_VARIABLE, SOCKET_PATH_MAX, SOCKET_VARIABLE};

const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// The library's file name, in the directory of the socket.
const LIBRARY: &[u8] = b"/libcoldpress.so";
/// The longest string of ours, with its zero.
const KEPT_BYTES: usize = SOCKET_PATH_MAX + 32;
/// The type of an entry that says nothing in the auxiliary vector (elf.h).
const AT_IGNORE: usize = 1;
const OURS: [&str; 3] = [SOCKET_VARIABLE, BUDGET_VARIABLE, PADDING_VARIABLE];
/// The variable that is there when LD_PRELOAD was not set.
const PADDING: &CStr = c"COLDPRESS_PADDING=";

/// A string of ours.
#[derive(Debug)]
struct Kept {
    bytes: [u8; KEPT_BYTES],
    length: usize,
}

impl Kept {
    const NONE: Self = Self { bytes: [0; KEPT_BYTES], length: 0 };

    /// Keeps the two parts, one after the other, with a zero. Keeps nothing if there is no room.
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

/// The part of an environment that is ours.
#[derive(Debug)]
pub(super) struct Ours {
    /// The two variables, as they stand in an environment.
    variables: [Kept; 2],
    /// The library's path.
    library: Kept,
}

impl Ours {
    /// The value where nothing of ours was found.
    pub(super) const NONE: Self = Self { variables: [Kept::NONE; 2], library: Kept::NONE };

    /// Returns what is ours in an environment.
    ///
    /// # Safety
    /// `environment` must be a list of C strings that ends with a null, which no thread changes
    /// meanwhile.
    pub(super) unsafe fn find(environment: *const *const c_char) -> Self {
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
        let is_all = ours.variables.iter().chain([&ours.library]).all(|kept| kept.length > 0);
        if is_all { ours } else { Self::NONE }
    }

    /// Takes what is ours out of an environment.
    ///
    /// # Safety
    /// The same as for [`Ours::find`]; both the list and its strings must be writable.
    pub(super) unsafe fn take_out(&self, environment: *mut *const c_char) {
        if self.library.length == 0 {
            return;
        }
        let (mut to, mut from) = (environment, environment);
        // SAFETY: the caller's promise; `to` is never behind `from`.
        unsafe {
            while !(*from).is_null() {
                if take_from(*from, self.library.text()) {
                    *to = *from;
                    to = to.add(1);
                }
                from = from.add(1);
            }
            *to = ptr::null();
            let left = from.offset_from_unsigned(to);
            for index in 0..left {
                let word = if index.is_multiple_of(2) { AT_IGNORE } else { 0 };
                *to.add(1 + index) = ptr::without_provenance(word);
            }
        }
    }

    /// Returns the library's path as a C string, `None` where nothing was found.
    pub(super) fn library(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.library.bytes).ok().filter(|path| !path.is_empty())
    }

    /// Whether what is ours belongs into an environment: whether anything was found, and the
    /// environment is of no other run.
    ///
    /// # Safety
    /// `environment` must be null, or a list of C strings that ends with a null.
    pub(super) unsafe fn belongs_into(&self, environment: *const *const c_char) -> bool {
        let is_others = |entry: &[u8]| {
            value_of(entry, SOCKET_VARIABLE).is_some() && entry != self.variables[0].text()
        };
        // SAFETY: the caller's promise.
        self.library.length > 0 && !unsafe { entries(environment) }.any(is_others)
    }

    /// Returns the number of words that an environment takes with ours in it, followed by the
    /// string of its LD_PRELOAD.
    ///
    /// # Safety
    /// The same as for [`Ours::belongs_into`].
    pub(super) unsafe fn words_for(&self, environment: *const *const c_char) -> usize {
        // SAFETY: the caller's promise.
        let entries = unsafe { entries(environment) };
        let (count, preload) = entries.fold((0, 0), |(count, longest), entry| {
            let is_preload = entry.starts_with(PRELOAD);
            (count + 1, if is_preload { entry.len().max(longest) } else { longest })
        });
        let line = PRELOAD.len() + self.library.length + 2 + preload;
        // LD_PRELOAD, what is ours, and the null are added.
        count + 2 + OURS.len() + line.div_ceil(size_of::<usize>())
    }

    /// Lays out an environment with ours in it in `room`, and returns its start. Returns `None`
    /// when `room` is too short, because another thread has changed the environment.
    ///
    /// # Safety
    /// The same as for [`Ours::belongs_into`].
    pub(super) unsafe fn put_into(
        &self,
        environment: *const *const c_char,
        room: &mut [usize],
    ) -> Option<*const *const c_char> {
        let is_ours = |entry: &[u8]| OURS.iter().any(|name| value_of(entry, name).is_some());
        // SAFETY: the caller's promise.
        let entries = unsafe { entries(environment) }.filter(|entry| !is_ours(entry));
        let count = entries.clone().count();
        let (list, rest) = room.split_at_mut_checked(count + 2 + OURS.len())?;
        // SAFETY: words are made of bytes, and no other slice has these.
        let line = unsafe {
            core::slice::from_raw_parts_mut(rest.as_mut_ptr().cast::<u8>(), size_of_val(rest))
        };
        // Of several LD_PRELOADs the loader takes the last.
        let is_preload = |entry: &(usize, &[u8])| entry.1.starts_with(PRELOAD);
        let theirs = entries.clone().enumerate().filter(is_preload).last();
        let value = theirs.map(|(_, entry)| &entry[PRELOAD.len()..]);
        self.write_line(value, line)?;
        let line = line.as_ptr();
        let at = theirs.map(|(index, _)| index);
        let others = entries.enumerate().map(
            |(index, entry)| {
                if Some(index) == at { line } else { entry.as_ptr() }
            },
        );
        let new = at.is_none().then_some(line);
        // LD_PRELOAD is taken out with ours then, and the padding makes the number even.
        let is_ours = value.is_none_or(|value| value == self.library.text());
        let new = new.into_iter().chain(is_ours.then_some(PADDING.as_ptr().cast()));
        let ours = self.variables.iter().map(|kept| kept.bytes.as_ptr());
        let mut places = list.iter_mut();
        for string in others.take(count).chain(new).chain(ours).chain([ptr::null()]) {
            *places.next()? = string.expose_provenance();
        }
        Some(list.as_ptr().cast())
    }

    /// Writes LD_PRELOAD with ours in it; `theirs` is what it was set to.
    fn write_line(&self, theirs: Option<&[u8]>, line: &mut [u8]) -> Option<()> {
        let mut at = 0;
        let mut append = |part: &[u8]| {
            line.get_mut(at..at + part.len())?.copy_from_slice(part);
            at += part.len();
            Some(())
        };
        append(PRELOAD)?;
        let has_ours = theirs
            .is_some_and(|value| names(value).any(|name| value[name] == *self.library.text()));
        if !has_ours {
            append(self.library.text())?;
            append(if theirs.is_some() { b":" } else { b"" })?;
        }
        append(theirs.unwrap_or_default())?;
        append(b"\0")
    }
}

/// Returns whether anything is left of a variable once what is ours is taken out of it.
///
/// # Safety
/// `variable` must be a C string that may be written to.
unsafe fn take_from(variable: *const c_char, library: &[u8]) -> bool {
    // SAFETY: the caller's promise.
    let entry = unsafe { CStr::from_ptr(variable) }.to_bytes();
    if OURS.iter().any(|name| value_of(entry, name).is_some()) {
        return false;
    }
    let length = entry.len();
    if !entry.starts_with(PRELOAD) {
        return true;
    }
    // SAFETY: the caller's promise; the shared slice is not used any more.
    let entry =
        unsafe { core::slice::from_raw_parts_mut(variable.cast_mut().cast::<u8>(), length) };
    let value = &mut entry[PRELOAD.len()..];
    let Some(found) = names(value).find(|name| value[name.clone()] == *library) else {
        return true;
    };
    if found == (0..value.len()) {
        return false;
    }
    // The separator after the name goes too; it is there even if no other name follows.
    let behind = (found.end + 1).min(value.len());
    let left = found.start + value.len() - behind;
    value.copy_within(behind.., found.start);
    value[left..].fill(0);
    true
}

/// Returns the names in a value of LD_PRELOAD, by their places in it: spaces or colons separate
/// them (ld.so(8)).
fn names(value: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    core::iter::from_fn(move || {
        let rest = value.get(at..)?;
        let length = rest.iter().position(|byte| matches!(byte, b' ' | b':'));
        let name = at..at + length.unwrap_or(rest.len());
        at = name.end + 1;
        Some(name)
    })
}

/// Returns what a variable is set to, if it has this name.
pub(super) fn value_of<'e>(entry: &'e [u8], name: &str) -> Option<&'e [u8]> {
    entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// Returns the strings of an environment, which may be null.
///
/// # Safety
/// `environment` must be null, or a list of C strings that ends with a null.
unsafe fn entries<'e>(environment: *const *const c_char) -> impl Iterator<Item = &'e [u8]> + Clone {
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

#[cfg(test)]
mod tests {
    //! The risk: a program sees what is not its user's, or loses a library of its user's; or a
    //! program that it starts is not managed.

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

    const PAD: &str = "COLDPRESS_PADDING=";
    const LINE: &str = "LD_PRELOAD=/tmp/x/libcoldpress.so";

    /// Returns what is found in an environment that is as a launcher makes it.
    fn found() -> Ours {
        let environment = Environment::of(&[LINE, SOCKET, BUDGET, PAD]);
        // SAFETY: as the test made it.
        unsafe { Ours::find(environment.list.as_ptr()) }
    }

    /// Puts what is ours into an environment, with room for `more` words than that takes.
    fn put_into(ours: &Ours, entries: &[&str], more: isize) -> Option<Vec<String>> {
        let environment = Environment::of(entries);
        let list = environment.list.as_ptr();
        // SAFETY: as the test made it.
        let words = unsafe { ours.words_for(list) };
        let mut room = std::vec![7; words.saturating_add_signed(more)];
        // SAFETY: as above: the test made it.
        unsafe { ours.put_into(list, &mut room) }.map(Environment::texts)
    }

    #[test]
    fn ours_is_taken_out_and_nothing_is_said_in_its_place() {
        for (given, left) in [
            (&["A=1", LINE, SOCKET, "B=2", BUDGET, PAD][..], &["A=1", "B=2"][..]),
            (
                &["LD_PRELOAD=/tmp/x/libcoldpress.so:/a.so b.so", BUDGET, SOCKET, "C="],
                &["LD_PRELOAD=/a.so b.so", "C="],
            ),
            (
                &["COLDPRESS_SOCKETS=theirs", LINE, PAD, BUDGET, SOCKET],
                &["COLDPRESS_SOCKETS=theirs"],
            ),
        ] {
            let mut environment = Environment::of(given);
            // SAFETY: as the test made it.
            unsafe {
                let ours = Ours::find(environment.list.as_ptr());
                ours.take_out(environment.list.as_mut_ptr());
            }
            assert_eq!(Environment::texts(environment.list.as_ptr()), left);
            let rest: Vec<usize> =
                environment.list[left.len() + 1..].iter().map(|word| word.addr()).collect();
            let (pairs, odd) = rest.as_chunks::<2>();
            assert!(odd.is_empty() && pairs.iter().all(|pair| *pair == [AT_IGNORE, 0]), "{rest:?}");
        }
        // Where a part of ours is missing, nothing is taken out.
        let mut environment = Environment::of(&[SOCKET, "A=1"]);
        // SAFETY: as the test made it.
        unsafe {
            Ours::find(environment.list.as_ptr()).take_out(environment.list.as_mut_ptr());
        }
        assert_eq!(Environment::texts(environment.list.as_ptr()), [SOCKET, "A=1"]);
    }

    #[test]
    fn ours_is_put_back_whatever_was_set_meanwhile() {
        let ours = found();
        let put = |entries: &[&str]| put_into(&ours, entries, 0).unwrap();
        assert_eq!(put(&[]), [LINE, PAD, SOCKET, BUDGET]);
        let theirs = ["A=1", "LD_PRELOAD=/a.so b.so", "B=2"];
        let line = std::format!("{LINE}:/a.so b.so");
        assert_eq!(put(&theirs), ["A=1", &line, "B=2", SOCKET, BUDGET]);
        assert_eq!(put(&["LD_PRELOAD="]), [&std::format!("{LINE}:"), SOCKET, BUDGET]);
        assert_eq!(put(&[LINE]), [LINE, PAD, SOCKET, BUDGET]);
        // Of two LD_PRELOADs the last counts; what is ours is not there twice.
        let last = "LD_PRELOAD=/d.so::/tmp/x/libcoldpress.so";
        let two = put(&["LD_PRELOAD=/c.so", SOCKET, last, BUDGET, PAD]);
        assert_eq!(two, ["LD_PRELOAD=/c.so", last, SOCKET, BUDGET]);
        let many: Vec<String> = (0..5_000).map(|index| std::format!("V{index}=x")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(put(&many), [&many[..], &[LINE, PAD, SOCKET, BUDGET]].concat());
        // Another thread has changed the environment since it was measured.
        assert!((-30..0).all(|less| put_into(&ours, &theirs, less).is_none_or(|it| it.len() == 5)));
    }

    #[test]
    fn an_environment_of_another_run_is_none_of_ours() {
        let ours = found();
        // SAFETY: null is no environment.
        assert!(unsafe { ours.belongs_into(ptr::null()) });
        for (entry, belongs) in [(SOCKET, true), ("COLDPRESS_SOCKET=/tmp/y/socket", false)] {
            let environment = Environment::of(&["A=1", entry]);
            // SAFETY: as the test made it.
            assert_eq!(unsafe { ours.belongs_into(environment.list.as_ptr()) }, belongs);
        }
        // SAFETY: null is no environment.
        assert!(!unsafe { Ours::NONE.belongs_into(ptr::null()) });
        assert_eq!(ours.library(), Some(c"/tmp/x/libcoldpress.so"));
        assert_eq!(Ours::NONE.library(), None);
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
