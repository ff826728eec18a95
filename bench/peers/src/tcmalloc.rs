//! tcmalloc, loaded at run time beside the other allocators: the minimal library of gperftools,
//! which Debian packages as libtcmalloc-minimal4.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, c_void};
use std::mem::transmute;

/// The name by which the loader finds the library.
const LIBRARY: &CStr = c"libtcmalloc_minimal.so.4";
/// The alignment of objects from tcmalloc's malloc, for sizes of at least this.
const ALIGN_MAX: usize = 8;

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Memalign = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);

/// The functions of tcmalloc.
pub(crate) struct TcMalloc {
    malloc: Malloc,
    memalign: Memalign,
    free: Free,
}

impl TcMalloc {
    /// Loads tcmalloc. Fails with the loader's message when the library is not installed.
    pub(crate) fn load() -> Result<Self, String> {
        // SAFETY: the name ends in a zero. Loading runs only tcmalloc's own initializers, which
        // replace no other malloc: all symbols of this program are bound by now.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(loader_error());
        }
        let (malloc, memalign, free) = (
            symbol(library, c"tc_malloc")?,
            symbol(library, c"tc_memalign")?,
            symbol(library, c"tc_free")?,
        );
        // SAFETY: gperftools/tcmalloc.h declares these three functions with the types of the
        // fields, and the library is never unloaded.
        Ok(unsafe {
            Self {
                malloc: transmute::<*mut c_void, Malloc>(malloc),
                memalign: transmute::<*mut c_void, Memalign>(memalign),
                free: transmute::<*mut c_void, Free>(free),
            }
        })
    }
}

fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: `library` came from dlopen and was not closed; the name ends in a zero.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() { Err(loader_error()) } else { Ok(found) }
}

fn loader_error() -> String {
    // SAFETY: dlerror returns null or a text that stays valid until the loader's next call. No
    // other thread calls the loader before the text is copied.
    unsafe {
        let text = libc::dlerror();
        let text = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
        text.unwrap_or_else(|| "the loader gave no reason".to_owned())
    }
}

// SAFETY: malloc aligns objects of at least `ALIGN_MAX` bytes to `ALIGN_MAX`, and memalign aligns
// to what the caller asks for; free takes objects of both.
unsafe impl GlobalAlloc for TcMalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: both functions take any size; `align` is a power of two, as in every layout.
        let object = unsafe {
            if align <= ALIGN_MAX && align <= size {
                (self.malloc)(size)
            } else {
                (self.memalign)(align, size)
            }
        };
        object.cast()
    }

    unsafe fn dealloc(&self, object: *mut u8, _: Layout) {
        // SAFETY: the caller frees an object that `alloc` returned, so it came from this library.
        unsafe { (self.free)(object.cast()) };
    }
}
