//! The oracle for every pool: a map from names to bytes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use super::*;

/// The simplest pool possible.
#[derive(Default)]
pub(super) struct Naive(Mutex<Objects>);

#[derive(Default)]
struct Objects {
    by_handle: HashMap<Handle, Vec<u8>>,
    names: u32,
}

impl Naive {
    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.0.lock().expect("who has it does not panic")
    }
}

impl Pool for Naive {
    fn alloc(&self, size: Bytes) -> Result<Handle, AllocError> {
        check_size(size)?;
        let mut objects = self.lock();
        objects.names += 1;
        let handle = Handle::new(objects.names);
        objects.by_handle.insert(handle, vec![0; size.0]);
        Ok(handle)
    }

    fn free(&self, handle: Handle) -> Result<(), UnknownHandle> {
        self.lock().by_handle.remove(&handle).map(drop).ok_or(UnknownHandle)
    }

    fn size(&self, handle: Handle) -> Result<Bytes, UnknownHandle> {
        self.read(handle, |bytes| Bytes(bytes.len()))
    }

    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), UnknownHandle> {
        let mut objects = self.lock();
        let object = objects.by_handle.get_mut(&handle).ok_or(UnknownHandle)?;
        object.copy_from_slice(bytes);
        Ok(())
    }

    fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> Result<R, UnknownHandle> {
        self.lock().by_handle.get(&handle).map(|bytes| f(bytes)).ok_or(UnknownHandle)
    }

    fn stats(&self) -> PoolStats {
        let objects = self.lock();
        let bytes = objects.by_handle.values().map(Vec::len).sum();
        let (objects, bytes_stored) = (objects.by_handle.len(), Bytes(bytes));
        PoolStats { objects, bytes_stored, ..PoolStats::default() }
    }

    fn classes(&self, _: &mut dyn FnMut(ClassStats)) {}

    fn compact(&self, _: Bytes) -> Compacted {
        Compacted::default()
    }

    fn shrink_frames(&self, online: Bytes) -> Shrunk {
        Shrunk { online, held_back_by: None }
    }

    fn check(&mut self) {}
}
