//! The code of libc's functions, found by libc's own table of names.
//!
//! The loader gives the size of a function too (`dladdr1`), but looks at every symbol of libc for
//! that, some three thousand: for six functions, a twentieth of the time in which a small program
//! starts.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::Range;
use core::ptr;

use linux_raw_sys::elf;

/// `struct r_debug` of link.h, as far as it is used here.
#[repr(C)]
struct Loaded {
    version: c_int,
    first: *const Map,
}

/// `struct link_map` of link.h, as far as it is used here.
#[repr(C)]
struct Map {
    base: usize,
    name: *const c_char,
    dynamic: *const elf::Elf_Dyn,
    next: *const Map,
}

/// A loaded object with a table of hashes, which is never unloaded.
pub(super) struct Object {
    base: usize,
    symbols: *const elf::Elf_Sym,
    strings: *const c_char,
    hashes: *const u32,
}

impl Object {
    /// Returns the object that contains `address`.
    ///
    /// # Safety
    /// `loaded` must be null or the loader's `_r_debug`, and nothing may be loaded or unloaded
    /// meanwhile.
    pub(super) unsafe fn of(loaded: *const c_void, address: usize) -> Option<Self> {
        // SAFETY: the loader's variable has this type, and its list ends with a null.
        let mut next = unsafe { loaded.cast::<Loaded>().as_ref() }?.first;
        let mut found = None::<&Map>;
        // SAFETY: null, or an element of the list.
        while let Some(map) = unsafe { next.as_ref() } {
            // Objects lie apart, so the last one that begins before the address contains it.
            if map.base <= address && found.is_none_or(|other| other.base <= map.base) {
                found = Some(map);
            }
            next = map.next;
        }
        found.and_then(Self::new)
    }

    fn new(map: &Map) -> Option<Self> {
        let table = |tag| {
            // SAFETY: a loaded object has a dynamic section, which ends with an entry of this tag.
            let entries = (0..).map(|index| unsafe { &*map.dynamic.add(index) });
            let mut entries = entries.take_while(|entry| entry.d_tag != elf::DT_NULL);
            let entry = entries.find(|entry| entry.d_tag == tag)?;
            // SAFETY: an entry of a table has an address.
            let value = unsafe { entry.d_un.d_ptr };
            // The entry is an offset, which the loader turns into an address where the section is
            // writable.
            Some(if value < map.base { map.base + value } else { value })
        };
        Some(Self {
            base: map.base,
            symbols: ptr::with_exposed_provenance(table(elf::DT_SYMTAB)?),
            strings: ptr::with_exposed_provenance(table(elf::DT_STRTAB)?),
            hashes: ptr::with_exposed_provenance(table(elf::DT_GNU_HASH)?),
        })
    }

    /// Returns the code of the function of this name, if the object has it.
    pub(super) fn code_of(&self, name: &CStr) -> Option<&'static [u8]> {
        // The table: four words, a filter of words of twice their size, the start of each bucket's
        // chain, and the hashes, of which the last of a chain is odd (`.gnu.hash`).
        // SAFETY: the object's own table, which says how long its parts are.
        let word = |index: usize| unsafe { *self.hashes.add(index) };
        let [buckets, first, filter] = [0, 1, 2].map(|index| word(index) as usize);
        let starts = 4 + 2 * filter;
        let hash = hash_of(name.to_bytes());
        let start = (hash as usize).checked_rem(buckets).map(|bucket| word(starts + bucket))?;
        // The start of an empty chain lies before the first symbol.
        for index in start as usize.. {
            let other = word(starts + buckets + index.checked_sub(first)?);
            // SAFETY: a chain consists of symbols of the object.
            let symbol = unsafe { &*self.symbols.add(index) };
            // SAFETY: the name of a symbol is a string in the object's table of them.
            let is_named = || unsafe { CStr::from_ptr(self.strings.add(symbol.st_name as usize)) };
            if other | 1 == hash | 1 && is_named() == name {
                let is_here = symbol.st_shndx != 0 && symbol.st_info & 0xf == elf::STT_FUNC;
                let start = ptr::with_exposed_provenance(self.base + symbol.st_value);
                // SAFETY: the symbol says that the function has this length, in an object that
                // stays.
                return is_here
                    .then(|| unsafe { core::slice::from_raw_parts(start, symbol.st_size) });
            }
            if other & 1 == 1 {
                break;
            }
        }
        None
    }
}

/// Returns the hash of a name in a `.gnu.hash` table.
fn hash_of(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

/// Returns the places where code makes system call `number`: `mov $number, %eax; syscall`.
pub(super) fn calls_in(code: &[u8], number: u32) -> impl Iterator<Item = Range<usize>> {
    let [a, b, c, d] = number.to_le_bytes();
    let call = [0xb8, a, b, c, d, 0x0f, 0x05];
    let is_it = move |bytes: &[u8]| bytes == call;
    let places = code.windows(call.len()).enumerate().filter(move |(_, bytes)| is_it(bytes));
    places.map(move |(at, _)| at..at + call.len())
}

/// Returns the place where code makes system call `number`, if there is only one.
pub(super) fn call_in(code: &[u8], number: u32) -> Option<Range<usize>> {
    let mut places = calls_in(code, number);
    let place = places.next()?;
    places.next().is_none().then_some(place)
}

/// A call of another function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The address of the call.
    pub(super) place: usize,
    /// The address of the function that is called.
    pub(super) function: usize,
}

/// Returns the call that comes next after the only `push $number`, its last argument. The search
/// goes no further than the other arguments take, some of which may come after it.
pub(super) fn call_behind(code: &[u8], number: u32) -> Option<Call> {
    /// The opcode of `call`; an offset of four bytes follows, from the instruction's end.
    const CALL: u8 = 0xe8;
    const NEAR: usize = 40;
    let [a, b, c, d] = number.to_le_bytes();
    let push = [0x68, a, b, c, d];
    let mut places = (0..code.len()).filter(|at| code[*at..].starts_with(&push));
    let (place, None) = (places.next()?, places.next()) else { return None };
    let behind = place + push.len();
    let start = (behind..behind + NEAR).find(|at| code.get(*at) == Some(&CALL))?;
    let end = start + 1 + size_of::<i32>();
    let by = i32::from_le_bytes(code.get(start + 1..end)?.try_into().ok()?);
    let at = code.as_ptr().addr();
    Some(Call { place: at + start, function: (at + end).wrapping_add_signed(by as isize) })
}

#[cfg(test)]
mod tests {
    //! The risk: code is overwritten that is not the call, or that belongs to another function.

    use super::*;

    unsafe extern "C" {
        static _r_debug: c_void;
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }

    #[test]
    fn functions_are_found_where_the_loader_finds_them() {
        // SAFETY: the loader's own variable; no test here loads anything.
        let object = |address| unsafe { Object::of(&raw const _r_debug, address) };
        // SAFETY: a lookup by name in what is loaded.
        let known = |name: &CStr| unsafe { dlsym(ptr::null_mut(), name.as_ptr()) }.addr();
        let libc = object(known(c"getpid")).expect("it is loaded");
        for name in [c"_Fork", c"mmap", c"mremap", c"brk", c"execve", c"execveat"] {
            let code = libc.code_of(name).expect("glibc has it");
            assert_eq!(code.as_ptr().addr(), known(name), "{name:?}");
            assert!((16..1024).contains(&code.len()), "{name:?}: {} bytes", code.len());
        }
        assert!(libc.code_of(c"no such function").is_none());
        assert!(libc.code_of(c"environ").is_none(), "it is no function");
        assert!(object(0).is_none());
    }

    #[test]
    fn hashes_are_those_of_the_format() {
        assert_eq!((hash_of(b""), hash_of(b"printf")), (0x1505, 0x156b_2bb8));
    }

    #[test]
    fn a_call_is_found_where_it_is_once() {
        // `xor %edx, %edx; mov $56, %eax; syscall; cmp $-4096, %rax`, as in `_Fork` of glibc 2.41.
        let code = b"\x31\xd2\xb8\x38\0\0\0\x0f\x05\x48\x3d\0\xf0\xff\xff";
        assert_eq!(call_in(code, 56), Some(2..9));
        assert_eq!(call_in(code, 57), None, "another call");
        let twice = [*code, *code].concat();
        assert_eq!(call_in(&twice, 56), None, "which of the two is not known");
        assert_eq!(calls_in(&twice, 56).collect::<std::vec::Vec<_>>(), [2..9, 17..24]);
        assert_eq!(call_in(&code[..8], 56), None, "its end is missing");
        assert_eq!(call_in(&[], 56), None);
    }

    #[test]
    fn a_call_is_found_behind_its_number() {
        // `push $257; xor %r8d, %r8d; mov $-100, %rdi; call; pop %rdx`, as in `open64` of glibc
        // 2.41.
        let code = b"\x68\x01\x01\0\0\x45\x31\xc0\x48\xc7\xc7\x9c\xff\xff\xff\xe8\x08\0\0\0\x5a";
        let at = code.as_ptr().addr();
        assert_eq!(call_behind(code, 257), Some(Call { place: at + 15, function: at + 28 }));
        assert_eq!(call_behind(code, 258), None, "another number");
        assert_eq!(call_behind(&code[..19], 257), None, "its end is missing");
        assert_eq!(call_behind(&[*code, *code].concat(), 257), None, "which of the two?");
        assert_eq!(call_behind(&[&code[..15], &[0x90; 40], &code[15..]].concat(), 257), None);
    }
}
