//! Memory for tables, requested so that a refusal is an answer and not the end of the program.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// The error of a table that got no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMemory;

/// Asks for memory on behalf of code that allocates by itself: only a test refuses it.
pub(crate) fn allowed() -> Result<(), NoMemory> {
    #[cfg(test)]
    failing::step()?;
    Ok(())
}

/// Allocates a table of `length` values made by `make`, in memory that has been touched.
pub(crate) fn table<T>(length: usize, make: impl FnMut() -> T) -> Result<Box<[T]>, NoMemory> {
    #[cfg(test)]
    failing::step()?;
    let mut values = Vec::new();
    values.try_reserve_exact(length).map_err(|_| NoMemory)?;
    values.resize_with(length, make);
    Ok(values.into_boxed_slice())
}

/// Allocates an empty list with room for `length` values.
pub(crate) fn reserved<T>(length: usize) -> Result<Vec<T>, NoMemory> {
    #[cfg(test)]
    failing::step()?;
    let mut values = Vec::new();
    values.try_reserve_exact(length).map_err(|_| NoMemory)?;
    Ok(values)
}

/// Makes room for one more element, so that the next insertion cannot fail.
pub(crate) fn reserve_one<T>(values: &mut Vec<T>) -> Result<(), NoMemory> {
    #[cfg(test)]
    failing::step()?;
    values.try_reserve(1).map_err(|_| NoMemory)
}

/// Memory that runs out on request, so that tests reach each refusal.
#[cfg(test)]
pub(crate) mod failing {
    use core::cell::Cell;

    use super::NoMemory;

    std::thread_local! {
        static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Lets this thread have `left` more tables; `None` for no limit.
    pub(crate) fn after(left: Option<u64>) {
        LEFT.set(left);
    }

    /// Counts one request, and refuses it if none is left.
    pub(super) fn step() -> Result<(), NoMemory> {
        match LEFT.get() {
            Some(0) => Err(NoMemory),
            left => {
                LEFT.set(left.map(|left| left - 1));
                Ok(())
            }
        }
    }
}
