//! Memory from the global allocator, which may refuse it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use coldpress_sys::Bytes;

use crate::error::CodecError;

/// Allocates a table of `count` times `value`.
///
/// # Errors
/// [`CodecError::NoMemory`] when the allocator has no memory.
pub(crate) fn table<T: Clone>(count: usize, value: T) -> Result<Box<[T]>, CodecError> {
    let mut items = Vec::new();
    let bytes = Bytes(count.saturating_mul(size_of::<T>()));
    items.try_reserve_exact(count).map_err(|_| CodecError::NoMemory(bytes))?;
    items.resize(count, value);
    Ok(items.into_boxed_slice())
}
