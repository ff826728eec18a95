//! tcmalloc as a library that is loaded beside the others: gperftools' minimal one, which Debian
//! packages as libtcmalloc-minimal4.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, c_void};
use std::mem::transmute;

/// The library's name for the loader.
const LIBRARY: &CStr = c"libtcmalloc_minimal.so.4";
/// The alignment that its malloc gives to every size it can.
const ALIGN_MAX: usize = 8;

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Memalign = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);

/// Its functions.
pub(crate) struct TcMalloc {
    malloc: Malloc,
    memalign: Memalign,
    free: Free,
}

impl TcMalloc {
    /// Loads it. Fails with the loader's words when it is not installed.
    pub(crate) fn load() -> Result<Self, String> {
        // SAFETY: the name ends in a zero; what runs on loading is tcmalloc's own start, which
        // replaces nobody's malloc as all symbols of this program are bound by now.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(loader_error());
        }
        let (malloc, memalign, free) = (
            symbol(library, c"tc_malloc")?,
            symbol(library, c"tc_memalign")?,
            symbol(library, c"tc_free")?,
        );
        // SAFETY: gperftools/tcmalloc.h declares these three with the types of the fields, and the
        // library is never unloaded.
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
    // SAFETY: dlerror gives null or a text that is good until the loader's next call, and no other
    // thread calls the loader before it is copied.
    unsafe {
        let text = libc::dlerror();
        let text = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
        text.unwrap_or_else(|| "the loader gave no reason".to_owned())
    }
}

// SAFETY: malloc gives `ALIGN_MAX` bytes of alignment to sizes of at least that, memalign what it
// is asked for; free takes what either gave.
unsafe impl GlobalAlloc for TcMalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: both take any size; `align` is a power of two, as a layout's always is.
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
        // SAFETY: the caller frees what `alloc` gave, which came from this library.
        unsafe { (self.free)(object.cast()) };
    }
}
