//! What becomes of the store in the child of a fork: files of ancestors, a file of its own.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use coldpress_backing::{Backing, FileBacking, Layer};
use coldpress_sys::file::SpillFile;
use coldpress_sys::ring::Ring;
use coldpress_sys::{AsRawFd, FromRawFd, OwnedFd, SysResult};

use super::{NO_MEMORY, Store, open_sealer};
use crate::control::Control;
use crate::link::Joined;

impl Store {
    /// Returns the files of ancestors, by this process's own descriptors.
    pub(crate) fn take_files(&mut self, control: &Control) -> Vec<Layer> {
        let files = mem::take(&mut self.spills).into_iter().zip(control.fork.files());
        let layer = |((_, first), file)| {
            self.spills.push((file, first));
            // SAFETY: the forker has opened the file for its child, of which this is the one owner.
            let file = SpillFile::from_fd(unsafe { OwnedFd::from_raw_fd(file) });
            Layer { file, first }
        };
        files.map(layer).collect()
    }

    /// Makes the store's disk this process's own. With what the process has `joined`, new pages go
    /// to a file of its own.
    pub(crate) fn own_store(
        &mut self,
        ancestors: Vec<Layer>,
        joined: Option<&mut Joined>,
    ) -> SysResult<()> {
        let first = self.zswap.lend();
        let mut own = None;
        if let Some(Joined { link, terms, spill, .. }) = joined
            && let Some(sealer) = open_sealer(link, terms)
            && let Some(file) = spill.take()
        {
            self.spills.push((file.as_raw_fd(), first));
            own = Some((sealer, (SpillFile::from_fd(file), terms.spill_max)));
        }
        let (sealer, file) = own.unzip();
        let has_any = file.is_some() || !ancestors.is_empty();
        let ring = file.as_ref().and_then(|_| Ring::new().ok());
        let backing = has_any.then(|| FileBacking::of_heir(ancestors, first, file, ring));
        let backing = backing.map(|backing| Box::new(backing) as Box<dyn Backing>);
        self.zswap.become_own(backing, sealer).map_err(|_| NO_MEMORY)
    }
}
