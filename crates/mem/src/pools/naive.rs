//! The oracle every pool is held to: a map from names to bytes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use super::*;

/// A pool without any idea.
#[derive(Default)]
pub(super) struct Naive(Mutex<Objects>);

#[derive(Default)]
struct Objects {
    by_name: HashMap<u32, Vec<u8>>,
    names: u32,
}

impl Naive {
    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.0.lock().unwrap()
    }
}

impl Pool for Naive {
    fn alloc(&self, size: Bytes) -> Result<Handle, AllocError> {
        check_size(size)?;
        let mut objects = self.lock();
        objects.names += 1;
        let name = objects.names;
        objects.by_name.insert(name, vec![0; size.0]);
        Ok(Handle(name))
    }

    fn free(&self, handle: Handle) {
        self.lock().by_name.remove(&handle.0).expect("the handle is allocated");
    }

    fn size(&self, handle: Handle) -> Bytes {
        Bytes(self.lock().by_name[&handle.0].len())
    }

    fn write(&self, handle: Handle, bytes: &[u8]) {
        let mut objects = self.lock();
        objects.by_name.get_mut(&handle.0).expect("the handle is allocated").copy_from_slice(bytes);
    }

    fn read<R>(&self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> R {
        f(&self.lock().by_name[&handle.0])
    }

    fn stats(&self) -> PoolStats {
        let objects = self.lock();
        let bytes = objects.by_name.values().map(Vec::len).sum();
        let (objects, bytes_stored) = (objects.by_name.len(), Bytes(bytes));
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
