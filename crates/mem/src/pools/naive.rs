//! The oracle every pool is held to: a map from names to bytes.

use std::collections::HashMap;

use super::*;

/// A pool without any idea.
#[derive(Default)]
pub(super) struct Naive {
    objects: HashMap<u32, Vec<u8>>,
    names: u32,
}

impl Pool for Naive {
    fn alloc(&mut self, size: Bytes) -> Result<Handle, AllocError> {
        check_size(size)?;
        self.names += 1;
        self.objects.insert(self.names, vec![0; size.0]);
        Ok(Handle(self.names))
    }

    fn free(&mut self, handle: Handle) {
        self.objects.remove(&handle.0).expect("the handle is allocated");
    }

    fn size(&self, handle: Handle) -> Bytes {
        Bytes(self.objects[&handle.0].len())
    }

    fn write(&mut self, handle: Handle, bytes: &[u8]) {
        self.objects.get_mut(&handle.0).expect("the handle is allocated").copy_from_slice(bytes);
    }

    fn read<R>(&mut self, handle: Handle, f: impl FnOnce(&[u8]) -> R) -> R {
        f(&self.objects[&handle.0])
    }

    fn stats(&self) -> PoolStats {
        let bytes = self.objects.values().map(Vec::len).sum();
        let (objects, bytes_stored) = (self.objects.len(), Bytes(bytes));
        PoolStats { objects, bytes_stored, ..PoolStats::default() }
    }

    fn classes(&self, _: &mut dyn FnMut(ClassStats)) {}

    fn compact(&mut self, _: Bytes) -> Compacted {
        Compacted::default()
    }

    fn shrink_frames(&mut self, online: Bytes) -> Shrunk {
        Shrunk { online, held_back_by: None }
    }

    fn check(&mut self) {}
}
