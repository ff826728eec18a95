//! LZ4 through its external-state entry points.

use core::ffi::{c_char, c_int, c_void};

use coldpress_sys::Bytes;
// Names the crate so that its library is linked; the crate lacks the declarations below.
use lz4_sys as _;

use super::Workspace;
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

    /// Compresses `data` to the front of `out`. Returns the number of bytes written, or `None` if
    /// they do not fit.
    pub(crate) fn compress(&mut self, data: &[u8], out: &mut [u8]) -> Option<usize> {
        let size = c_int::try_from(data.len()).ok()?;
        let room = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
        // SAFETY: the state has LZ4_sizeofState() bytes and is initialised by the call; `data` has
        // `size` bytes to read, `out` at least `room` to write, and they cannot overlap.
        let length = unsafe {
            LZ4_compress_fast_extState(
                self.workspace.start(),
                data.as_ptr().cast(),
                out.as_mut_ptr().cast(),
                size,
                room,
                1,
            )
        };
        usize::try_from(length).ok().filter(|length| *length > 0)
    }
}

/// Decompresses `data` to the front of `out`. Returns the number of bytes written, or `None` if
/// `data` is malformed or longer than `out`.
pub(crate) fn lz4_decompress(data: &[u8], out: &mut [u8]) -> Option<usize> {
    let size = c_int::try_from(data.len()).ok()?;
    let room = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
    // SAFETY: `data` has `size` bytes to read and `out` at least `room` to write, they cannot
    // overlap; this decoder checks each read and write against these sizes whatever the data
    // (lz4.h).
    let length =
        unsafe { LZ4_decompress_safe(data.as_ptr().cast(), out.as_mut_ptr().cast(), size, room) };
    usize::try_from(length).ok()
}
