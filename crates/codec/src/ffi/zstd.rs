//! zstd through contexts in static memory.

use core::ffi::c_int;

use coldpress_sys::{Bytes, PAGE_BYTES, Page};
use zstd_sys::{
    ZSTD_CCtx_refCDict, ZSTD_CCtx_reset, ZSTD_CCtx_setCParams, ZSTD_CCtx_setFParams,
    ZSTD_CCtx_setParameter, ZSTD_DCtx_setParameter, ZSTD_ErrorCode, ZSTD_ResetDirective,
    ZSTD_adjustCParams, ZSTD_cParameter, ZSTD_compress2, ZSTD_compressionParameters,
    ZSTD_dParameter, ZSTD_decompress_usingDict, ZSTD_dictContentType_e, ZSTD_dictLoadMethod_e,
    ZSTD_estimateCCtxSize_usingCParams, ZSTD_estimateCDictSize_advanced, ZSTD_estimateDCtxSize,
    ZSTD_format_e, ZSTD_frameParameters, ZSTD_getCParams, ZSTD_getErrorCode, ZSTD_initStaticCCtx,
    ZSTD_initStaticCDict, ZSTD_initStaticDCtx, ZSTD_isError,
};

use super::Workspace;
use crate::error::CodecError;

/// A zstd compressor of pages of one level.
pub(crate) struct ZstdEncoder {
    workspace: Workspace,
}

impl ZstdEncoder {
    /// Makes a context in static memory of just the size that one page needs at `level`.
    pub(crate) fn new(level: c_int) -> Result<Self, CodecError> {
        // SAFETY: a pure function of its arguments.
        Self::with_params(unsafe { ZSTD_getCParams(level, PAGE_BYTES as u64, 0) })
    }

    /// Makes a context of just the size that one page needs with `params`.
    fn with_params(params: ZSTD_compressionParameters) -> Result<Self, CodecError> {
        let frame = ZSTD_frameParameters { contentSizeFlag: 0, checksumFlag: 0, noDictIDFlag: 1 };
        let format = ZSTD_format_e::ZSTD_f_zstd1_magicless as c_int;
        // SAFETY: a pure function of its arguments.
        let bytes = unsafe { ZSTD_estimateCCtxSize_usingCParams(params) };
        zstd_result(bytes, "ZSTD_estimateCCtxSize")?;
        let mut workspace = Workspace::new(bytes)?;
        let start = workspace.start();
        // SAFETY: `start` has `bytes` bytes, aligned to 8; the context is returned "at the same
        // address" (zstd.h), so `compress` may find it there, and lives as long as the workspace.
        let context = unsafe { ZSTD_initStaticCCtx(start, bytes) };
        if context.cast() != start {
            return Err(CodecError::Library("ZSTD_initStaticCCtx"));
        }
        // SAFETY: the context is fresh, and no other code uses it yet.
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

    /// Compresses `page` to the front of `out`. Returns the number of bytes written, or `None` if
    /// they do not fit.
    pub(crate) fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        // SAFETY: the workspace starts with the context `new` made; `page` and `out` have the sizes
        // passed and cannot overlap. The call resets the session, also after a result that did not
        // fit.
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

/// A zstd compressor that also copies from a dictionary, once it has one.
///
/// The dictionary's tables are made once and attached to each page (`ZSTD_shouldAttachDict` in
/// zstd_compress.c: pages are below the limit at each level), so a page costs no copy of them.
pub(crate) struct ZstdDictionaryEncoder {
    encoder: ZstdEncoder,
    /// The dictionary and its tables; `encoder` points into it.
    dictionary: Workspace,
    params: ZSTD_compressionParameters,
}

impl ZstdDictionaryEncoder {
    /// Makes contexts in static memory for dictionaries of up to `longest` bytes, a power of two.
    pub(crate) fn new(level: c_int, longest: usize) -> Result<Self, CodecError> {
        let log = longest.ilog2();
        // SAFETY: pure functions of their arguments.
        let (params, page_params, bytes) = unsafe {
            let mut params = ZSTD_getCParams(level, PAGE_BYTES as u64, longest);
            // One slot for each position is enough; zstd would take eight times as many.
            params.hashLog = params.hashLog.min(log);
            params.chainLog = params.chainLog.min(log);
            // Above 14 zstd turns to its row matcher, which is less dense with these tables. The
            // window need not span the dictionary, only the data to decompress.
            params.windowLog = PAGE_BYTES.ilog2();
            let by_copy = ZSTD_dictLoadMethod_e::ZSTD_dlm_byCopy;
            let bytes = ZSTD_estimateCDictSize_advanced(longest, params, by_copy);
            (params, ZSTD_adjustCParams(params, PAGE_BYTES as u64, 0), bytes)
        };
        zstd_result(bytes, "ZSTD_estimateCDictSize_advanced")?;
        let dictionary = Workspace::new(bytes)?;
        Ok(Self { encoder: ZstdEncoder::with_params(page_params)?, dictionary, params })
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.encoder.bytes() + self.dictionary.bytes()
    }

    /// Copies from `content` from now on, and no longer from the former dictionary. After an error
    /// it copies from nothing.
    pub(crate) fn set_dictionary(&mut self, content: &[u8]) -> Result<(), CodecError> {
        let context = self.encoder.workspace.start().cast();
        let session = ZSTD_ResetDirective::ZSTD_reset_session_only;
        // SAFETY: the workspace starts with the context `with_params` made. Afterwards the context
        // no longer points into `dictionary`.
        unsafe {
            zstd_result(ZSTD_CCtx_reset(context, session), "ZSTD_CCtx_reset")?;
            zstd_result(ZSTD_CCtx_refCDict(context, core::ptr::null()), "ZSTD_CCtx_refCDict")?;
        }
        let room = self.dictionary.bytes().0;
        // SAFETY: `start` has `room` bytes, aligned to 8, which nothing points into; the call
        // refuses content for which they are too few, and copies the content.
        let dictionary = unsafe {
            ZSTD_initStaticCDict(
                self.dictionary.start(),
                room,
                content.as_ptr().cast(),
                content.len(),
                ZSTD_dictLoadMethod_e::ZSTD_dlm_byCopy,
                ZSTD_dictContentType_e::ZSTD_dct_rawContent,
                self.params,
            )
        };
        if dictionary.is_null() {
            return Err(CodecError::Library("ZSTD_initStaticCDict"));
        }
        // SAFETY: the dictionary lies in memory that lives as long as the context, and is changed
        // only above, where the context lets go of it first.
        zstd_result(unsafe { ZSTD_CCtx_refCDict(context, dictionary) }, "ZSTD_CCtx_refCDict")
    }

    /// Compresses `page` to the front of `out`. Returns the number of bytes written, or `None` if
    /// they do not fit.
    pub(crate) fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        self.encoder.compress(page, out)
    }
}

/// A zstd decompressor.
pub(crate) struct ZstdDecoder {
    workspace: Workspace,
}

impl ZstdDecoder {
    /// Makes a context in static memory. Its size does not depend on the level.
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
        // SAFETY: the context is fresh, and no other code uses it yet.
        let set = unsafe { ZSTD_DCtx_setParameter(context, key, format) };
        zstd_result(set, "ZSTD_DCtx_setParameter")?;
        Ok(Self { workspace })
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.workspace.bytes()
    }

    /// Decompresses `data` to the front of `page`. Returns the number of bytes written, or `None`
    /// if `data` is malformed or longer than the page. `dictionary` is the content that the
    /// compressor had, or nothing.
    pub(crate) fn decompress(
        &mut self,
        data: &[u8],
        dictionary: &[u8],
        page: &mut Page,
    ) -> Option<usize> {
        // SAFETY: the workspace starts with the context `new` made; the slices and `page` have the
        // sizes passed, and none overlaps `page`. The decoder checks each access, whatever the
        // data, and starts afresh with each call, so it keeps no use of the dictionary.
        let length = unsafe {
            ZSTD_decompress_usingDict(
                self.workspace.start().cast(),
                page.as_mut_ptr().cast(),
                PAGE_BYTES,
                data.as_ptr().cast(),
                data.len(),
                dictionary.as_ptr().cast(),
                dictionary.len(),
            )
        };
        zstd_result(length, "ZSTD_decompress_usingDict").ok().map(|()| length)
    }
}

/// Returns an error if zstd takes `value`, the result of `call`, for an error code.
fn zstd_result(value: usize, call: &'static str) -> Result<(), CodecError> {
    // SAFETY: the function takes a number by value and only compares it.
    if unsafe { ZSTD_isError(value) } == 0 { Ok(()) } else { Err(CodecError::Library(call)) }
}

/// Returns the content of a file made by the `zstd` command, of at most `capacity` bytes.
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
