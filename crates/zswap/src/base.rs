//! The base of a store: the parts that its verbs share.
//!
//! Each part stands alone and owns its state; what concerns several of them is done by the modules
//! above. Locks of the parts are taken in the order at the head of `shard`.

use alloc::boxed::Box;

use coldpress_backing::Backing;
use coldpress_codec::CodecError;
use coldpress_sys::Bytes;
use coldpress_sys::sync::SpinLock;

use crate::disk::Disk;
use crate::error::{NewError, Warnings};
use crate::knobs::Knobs;
use crate::limits::Limits;
use crate::objects::Objects;
use crate::pool::Pool;
use crate::seal::Sealer;
use crate::shard::Shards;
use crate::stats::Stats;

/// The parts of a store in the pool `P`.
pub(crate) struct Base<P> {
    pub(crate) objects: Objects<P>,
    pub(crate) shards: Shards,
    /// Where the oldest pages go, if anywhere.
    pub(crate) disk: Option<Disk>,
    pub(crate) limits: SpinLock<Limits>,
    pub(crate) warnings: SpinLock<Warnings>,
}

impl<P: Pool> Base<P> {
    /// Returns the parts of an empty store.
    pub(crate) fn new(
        knobs: Knobs,
        pool: P,
        backing: Option<(Box<dyn Backing>, Sealer)>,
    ) -> Result<Self, NewError> {
        Ok(Self {
            disk: backing.map(|(backing, sealer)| Disk::new(backing, sealer)).transpose()?,
            objects: Objects::new(pool, knobs.codec)?,
            shards: Shards::new()?,
            limits: SpinLock::new(Limits::of(knobs)),
            warnings: SpinLock::new(Warnings::default()),
        })
    }

    /// Returns the knobs in force.
    pub(crate) fn knobs(&self) -> Knobs {
        *self.limits.lock().knobs()
    }

    /// Puts `knobs` in force. Only a codec that could not be made is an error, and then nothing has
    /// changed.
    pub(crate) fn set_knobs(&self, knobs: Knobs) -> Result<(), CodecError> {
        let done = || self.limits.lock().set_knobs(knobs);
        let counted = self.shards.counted();
        let is_switched = self.objects.contexts.switch(knobs.codec, done).inspect_err(|_| {
            counted.reject_codec_fail.add(1);
        })?;
        counted.codec_switched.add(u64::from(is_switched));
        Ok(())
    }

    /// Returns the memory of all parts, apart from their own size and the pool's frames.
    pub(crate) fn memory(&self) -> Bytes {
        let disk = self.disk.as_ref().map_or(Bytes(0), Disk::memory);
        self.shards.memory() + disk + self.objects.memory()
    }

    /// Adds the counters and what is held now to the figures.
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        self.objects.add_to(stats);
        self.shards.add_to(stats);
        if let Some(disk) = &self.disk {
            disk.add_to(stats);
        }
    }
}
