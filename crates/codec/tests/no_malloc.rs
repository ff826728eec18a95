//! The risk: a codec calls `malloc`. It works inside programs whose allocator may be the one that
//! waits for it, so a single call can stop the program for good.
//!
//! This binary defines the C allocator itself, forwards to that of glibc, and counts the calls of a
//! watched thread. Rust's allocator ends there as well.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::cell::Cell;
use std::ffi::c_void;

use coldpress_codec::{
    Codec, CodecId, Dictionary, DictionaryCodec, GENERATIONS, Trainer, ZSTD_LEVELS, checksum, fill,
    same_filled,
};

thread_local! {
    /// Calls into the allocator by this thread. No initialiser and no destructor: reading it does
    /// not allocate.
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    CALLS.set(CALLS.get() + 1);
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, size: usize) -> *mut c_void;
    fn __libc_free(old: *mut c_void);
    safe fn malloc_usable_size(old: *mut c_void) -> usize;
}

// Each function below has the contract of the C function of its name and passes its arguments to
// the implementation of it in glibc; the counter is of the calling thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: the caller keeps the contract of the C function of this name, which glibc's has too.
    unsafe { __libc_malloc(size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(items: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: the caller keeps the contract of the C function of this name, which glibc's has too.
    unsafe { __libc_calloc(items, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: the caller keeps the contract of the C function of this name, which glibc's has too.
    unsafe { __libc_realloc(old, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: the caller keeps the contract of the C function of this name, which glibc's has too.
    unsafe { __libc_memalign(align, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(old: *mut c_void) {
    count();
    // SAFETY: the caller keeps the contract of the C function of this name, which glibc's has too.
    unsafe { __libc_free(old) }
}

/// A page of zeros, one of random bytes and one of few letters.
fn pages() -> [[u8; 4096]; 3] {
    let (mut random, mut text) = ([0; 4096], [0; 4096]);
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    for (random, text) in random.iter_mut().zip(&mut text) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        *random = word as u8;
        *text = b"coldpress"[(word >> 60) as usize % 9];
    }
    [[0; 4096], random, text]
}

#[test]
fn no_page_reaches_the_allocator() {
    let levels = ZSTD_LEVELS.map(|level| CodecId::Zstd { level });
    let ids = [CodecId::Wk, CodecId::Lz4, CodecId::Lzo].into_iter().chain(levels);
    let pages = pages();
    let (mut out, mut back) = ([0; 4200], [0; 4096]);
    for id in ids {
        let before_new = CALLS.get();
        let mut codec = Codec::new(id).expect("a codec of a valid level");
        assert!(CALLS.get() > before_new, "{id}: the allocator is not watched");

        let before = CALLS.get();
        for page in pages.iter().cycle().take(150) {
            let data = codec.compress(page, &mut out).expect("there is room");
            let intact = codec.decompress(data, &mut back).is_ok() && back == *page;
            let garbage = codec.decompress(&page[..100], &mut back).is_err();
            let tight = codec.compress(page, &mut out[..5]).is_none();
            assert!(intact && garbage && tight, "{id}");
            fill(&mut back, u64::from(checksum(page)));
            assert!(same_filled(&back).is_some());
        }
        assert_eq!(CALLS.get(), before, "{id} calls the allocator for a page");
    }
}

#[test]
fn dictionaries_are_trained_and_used_without_the_allocator() {
    let trained = {
        let mut trainer = Trainer::new().expect("there is memory");
        let before = CALLS.get();
        while trainer.wants_page() {
            pages().iter().for_each(|page| trainer.offer(page));
        }
        while trainer.step() {}
        assert_eq!(CALLS.get(), before, "training calls the allocator");
        trainer.finish().expect("the pages are alike")
    };
    let again = || Dictionary::new(trained.content().to_vec());
    let (mut out, mut back) = ([0; 4200], [0; 4096]);
    for level in ZSTD_LEVELS {
        let mut dictionaries = std::array::from_fn::<_, GENERATIONS, _>(|_| Some(again()));
        let first = dictionaries[0].take().expect("it was made");
        let mut codec = DictionaryCodec::new(level, first).expect("a valid level");
        let before = CALLS.get();
        for dictionary in &mut dictionaries {
            if let Some(dictionary) = dictionary.take() {
                codec.adopt(dictionary).expect("there is room");
            }
            for page in pages().iter().cycle().take(150) {
                let data = codec.compress(page, &mut out).expect("there is room");
                let intact = codec.decompress(codec.newest(), data, &mut back).is_ok();
                assert!(intact && back == *page, "level {level}");
                assert!(codec.compress(page, &mut out[..10]).is_none());
            }
        }
        assert_eq!(CALLS.get(), before, "level {level} calls the allocator");
    }
}

/// A library that was built against C is watched as well: `malloc` is ours for all of the process.
#[test]
fn calls_from_c_are_counted() {
    unsafe extern "C" {
        fn strdup(text: *const std::ffi::c_char) -> *mut std::ffi::c_char;
    }
    let before = CALLS.get();
    // SAFETY: a literal ends with its zero, and the copy is freed once.
    let size = unsafe {
        let copy = strdup(c"coldpress".as_ptr()).cast();
        let size = malloc_usable_size(copy);
        free(copy);
        size
    };
    assert!(size >= 10 && CALLS.get() == before + 2);
}
