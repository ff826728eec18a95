//! The C libraries behind safe functions. All `unsafe` of this crate is here.
//!
//! Nothing here reaches `malloc`: LZ4 is called through its external-state entry points, which have
//! no allocation in them, and zstd through contexts made by `ZSTD_initStatic*`, whose memory the
//! library cannot grow ("static cctx : no resize", zstd_compress.c). zstd allocates elsewhere only
//! for dictionaries, worker threads and streams: none is used. `tests/no_malloc.rs` counts.
//!
//! Invariants:
//! 1. A library writes only into its [`Workspace`] and into the slice passed as its output.
//! 2. A [`Workspace`] never moves: zstd keeps pointers into it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::NonNull;

use coldpress_sys::{Bytes, PAGE_BYTES, Page};
// Names the crate so that its library is linked: it lacks the declarations below.
use lz4_sys as _;
use zstd_sys::{
    ZSTD_CCtx_setCParams, ZSTD_CCtx_setFParams, ZSTD_CCtx_setParameter, ZSTD_DCtx_setParameter,
    ZSTD_ErrorCode, ZSTD_cParameter, ZSTD_compress2, ZSTD_dParameter, ZSTD_decompressDCtx,
    ZSTD_estimateCCtxSize_usingCParams, ZSTD_estimateDCtxSize, ZSTD_format_e, ZSTD_frameParameters,
    ZSTD_getCParams, ZSTD_getErrorCode, ZSTD_initStaticCCtx, ZSTD_initStaticDCtx, ZSTD_isError,
};

use crate::error::CodecError;

// lz4.h of LZ4 1.10.
unsafe extern "C" {
    safe fn LZ4_sizeofState() -> c_int;
    fn LZ4_compress_fast_extState(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_size: c_int,
        dst_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_decompress_safe(
        src: *const c_char,
        dst: *mut c_char,
        compressed_size: c_int,
        dst_capacity: c_int,
    ) -> c_int;
}

/// [`PAGE_BYTES`] as C counts.
const PAGE_INT: c_int = PAGE_BYTES as c_int;

/// Zeroed memory aligned to 8 bytes (what both libraries ask for), owned through a raw pointer:
/// zstd keeps pointers into it, which an owning `Box` would not allow.
struct Workspace {
    words: NonNull<[u64]>,
}

// SAFETY: the memory is owned and reached only through `&mut self`; neither library keeps anything
// of the thread that uses a context.
unsafe impl Send for Workspace {}

impl Workspace {
    fn new(bytes: usize) -> Result<Self, CodecError> {
        let count = bytes.div_ceil(size_of::<u64>());
        let mut words = Vec::new();
        words.try_reserve_exact(count).map_err(|_| CodecError::NoMemory(Bytes(bytes)))?;
        words.resize(count, 0_u64);
        Ok(Self { words: NonNull::from(Box::leak(words.into_boxed_slice())) })
    }

    fn bytes(&self) -> Bytes {
        Bytes(self.words.len() * size_of::<u64>())
    }

    fn start(&mut self) -> *mut c_void {
        self.words.as_ptr().cast()
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // SAFETY: the pointer is that of the box leaked in `new`, and nobody frees it but this.
        drop(unsafe { Box::from_raw(self.words.as_ptr()) });
    }
}

/// The state of an LZ4 compressor.
pub(crate) struct Lz4State {
    workspace: Workspace,
}

impl Lz4State {
    pub(crate) fn new() -> Result<Self, CodecError> {
        let bytes = usize::try_from(LZ4_sizeofState())
            .map_err(|_| CodecError::Library("LZ4_sizeofState"))?;
        Ok(Self { workspace: Workspace::new(bytes)? })
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.workspace.bytes()
    }

    /// Bytes written to the front of `out`, or `None` if the result does not fit.
    pub(crate) fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        let room = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
        // SAFETY: the state has LZ4_sizeofState() bytes and is initialised by the call; `page` has
        // PAGE_INT bytes to read, `out` at least `room` to write, and they cannot overlap.
        let length = unsafe {
            LZ4_compress_fast_extState(
                self.workspace.start(),
                page.as_ptr().cast(),
                out.as_mut_ptr().cast(),
                PAGE_INT,
                room,
                1,
            )
        };
        usize::try_from(length).ok().filter(|length| *length > 0)
    }
}

/// Bytes written to the front of `page`, or `None` if `data` is malformed or longer.
pub(crate) fn lz4_decompress(data: &[u8], page: &mut Page) -> Option<usize> {
    let size = c_int::try_from(data.len()).ok()?;
    // SAFETY: `data` has `size` bytes to read and `page` PAGE_INT to write, they cannot overlap;
    // this decoder checks each read and write against these sizes whatever the data (lz4.h).
    let length = unsafe {
        LZ4_decompress_safe(data.as_ptr().cast(), page.as_mut_ptr().cast(), size, PAGE_INT)
    };
    usize::try_from(length).ok()
}

/// A zstd compressor of pages of one level.
pub(crate) struct ZstdEncoder {
    workspace: Workspace,
}

impl ZstdEncoder {
    /// A context in static memory of just the size one page needs at `level`.
    pub(crate) fn new(level: c_int) -> Result<Self, CodecError> {
        let frame = ZSTD_frameParameters { contentSizeFlag: 0, checksumFlag: 0, noDictIDFlag: 1 };
        let format = ZSTD_format_e::ZSTD_f_zstd1_magicless as c_int;
        // SAFETY: pure functions of their arguments.
        let (params, bytes) = unsafe {
            let params = ZSTD_getCParams(level, PAGE_BYTES as u64, 0);
            (params, ZSTD_estimateCCtxSize_usingCParams(params))
        };
        zstd_result(bytes, "ZSTD_estimateCCtxSize")?;
        let mut workspace = Workspace::new(bytes)?;
        let start = workspace.start();
        // SAFETY: `start` has that many bytes, aligned to 8; the context is returned "at the same
        // address" (zstd.h), so `compress` may find it there, and lives as long as the workspace.
        let context = unsafe { ZSTD_initStaticCCtx(start, bytes) };
        if context.cast() != start {
            return Err(CodecError::Library("ZSTD_initStaticCCtx"));
        }
        // SAFETY: a fresh context, used by nobody else.
        unsafe {
            zstd_result(ZSTD_CCtx_setCParams(context, params), "ZSTD_CCtx_setCParams")?;
            zstd_result(ZSTD_CCtx_setFParams(context, frame), "ZSTD_CCtx_setFParams")?;
            // ZSTD_c_format in zstd.h.
            let key = ZSTD_cParameter::ZSTD_c_experimentalParam2;
            zstd_result(ZSTD_CCtx_setParameter(context, key, format), "ZSTD_CCtx_setParameter")?;
        }
        Ok(Self { workspace })
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.workspace.bytes()
    }

    /// Bytes written to the front of `out`, or `None` if the result does not fit.
    pub(crate) fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        // SAFETY: the workspace starts with the context `new` made; `page` and `out` have the sizes
        // passed and cannot overlap. The call resets the session, also after one that did not fit.
        let length = unsafe {
            ZSTD_compress2(
                self.workspace.start().cast(),
                out.as_mut_ptr().cast(),
                out.len(),
                page.as_ptr().cast(),
                PAGE_BYTES,
            )
        };
        if zstd_result(length, "ZSTD_compress2").is_ok() {
            return Some(length);
        }
        debug_assert_eq!(
            // SAFETY: a pure function, and the value is an error of this library.
            unsafe { ZSTD_getErrorCode(length) },
            ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall,
            "compressing a page fails for want of room only"
        );
        None
    }
}

/// A zstd decompressor.
pub(crate) struct ZstdDecoder {
    workspace: Workspace,
}

impl ZstdDecoder {
    /// A context in static memory. Its size does not depend on the level.
    pub(crate) fn new() -> Result<Self, CodecError> {
        // SAFETY: the function has no arguments and computes a size from constants.
        let bytes = unsafe { ZSTD_estimateDCtxSize() };
        let mut workspace = Workspace::new(bytes)?;
        let start = workspace.start();
        // SAFETY: as in `ZstdEncoder::new`.
        let context = unsafe { ZSTD_initStaticDCtx(start, bytes) };
        if context.cast() != start {
            return Err(CodecError::Library("ZSTD_initStaticDCtx"));
        }
        let format = ZSTD_format_e::ZSTD_f_zstd1_magicless as c_int;
        // ZSTD_d_format in zstd.h.
        let key = ZSTD_dParameter::ZSTD_d_experimentalParam1;
        // SAFETY: a fresh context, used by nobody else.
        let set = unsafe { ZSTD_DCtx_setParameter(context, key, format) };
        zstd_result(set, "ZSTD_DCtx_setParameter")?;
        Ok(Self { workspace })
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.workspace.bytes()
    }

    /// Bytes written to the front of `page`, or `None` if `data` is malformed or longer.
    pub(crate) fn decompress(&mut self, data: &[u8], page: &mut Page) -> Option<usize> {
        // SAFETY: the workspace starts with the context `new` made; `data` and `page` have the
        // sizes passed and cannot overlap. The decoder checks each access, whatever the data, and
        // starts afresh with each call.
        let length = unsafe {
            ZSTD_decompressDCtx(
                self.workspace.start().cast(),
                page.as_mut_ptr().cast(),
                PAGE_BYTES,
                data.as_ptr().cast(),
                data.len(),
            )
        };
        zstd_result(length, "ZSTD_decompressDCtx").ok().map(|()| length)
    }
}

/// An error if `value`, returned by `call`, is one in zstd's eyes.
fn zstd_result(value: usize, call: &'static str) -> Result<(), CodecError> {
    // SAFETY: the function takes a number by value and only compares it.
    if unsafe { ZSTD_isError(value) } == 0 { Ok(()) } else { Err(CodecError::Library(call)) }
}

/// The content of a file made by the `zstd` command, of at most `capacity` bytes.
#[cfg(test)]
pub(crate) fn unzstd(file: &[u8], capacity: usize) -> Option<Vec<u8>> {
    let mut content = alloc::vec![0; capacity];
    // SAFETY: both slices have the sizes passed. Tests may allocate.
    let length = unsafe {
        zstd_sys::ZSTD_decompress(
            content.as_mut_ptr().cast(),
            capacity,
            file.as_ptr().cast(),
            file.len(),
        )
    };
    zstd_result(length, "ZSTD_decompress").ok()?;
    content.truncate(length);
    Some(content)
}
