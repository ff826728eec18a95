//! Load: a page comes back. The copy stays stored until the caller invalidates it, so that a page
//! that cannot be placed, or is not changed, need not be stored again.

use coldpress_backing::BackingError;
use coldpress_codec::{Codec, checksum, fill};
use coldpress_mem::pools::Pool;
use coldpress_sys::{Bytes, PAGE_BYTES, Page};

use crate::Zswap;
use crate::entry::Place;
use crate::error::LoadError;
use crate::key::Key;

/// Where a page came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A repeated word.
    SameFilled,
    /// The pool.
    Pool,
    /// The backing store.
    Backing,
}

impl<P: Pool> Zswap<P> {
    /// Copies the page stored under `key` into `page`. `None` when there is none, and `page` is
    /// untouched then. After an error `page` is unspecified, and the page is still stored.
    pub fn load(&mut self, key: Key, page: &mut Page) -> Result<Option<Source>, LoadError> {
        let Some(id) = self.index.get(key) else {
            self.counters.load_missed += 1;
            return Ok(None);
        };
        let result = match &mut self.entries[id].place {
            &mut Place::SameFilled { word } => {
                fill(page, word);
                Ok(Source::SameFilled)
            }
            Place::Pool { handle, checksum, referenced, .. } => {
                *referenced = true;
                let (codec, checksum) = (&mut self.codec, *checksum);
                self.pool
                    .read(*handle, |bytes| decode(codec, bytes, checksum, page))
                    .map(|()| Source::Pool)
            }
            &mut Place::Backing { slot, checksum, offset, length } => {
                let bytes = &mut self.batch[..length as usize];
                // A place in a backing store is only made with a backing store.
                let backing = self.backing.as_mut().ok_or(BackingError::OutOfRange);
                backing
                    .and_then(|backing| backing.read(slot, Bytes(offset as usize), bytes))
                    .map_err(LoadError::Backing)
                    .and_then(|()| decode(&mut self.codec, bytes, checksum, page))
                    .map(|()| Source::Backing)
            }
        };
        let counters = &mut self.counters;
        *match result {
            Ok(Source::SameFilled) => &mut counters.loaded_same_filled,
            Ok(Source::Pool) => &mut counters.loaded_from_pool,
            Ok(Source::Backing) => &mut counters.loaded_from_backing,
            Err(LoadError::Corrupt) => &mut counters.load_corrupt,
            Err(LoadError::Backing(_)) => &mut counters.load_backing_fail,
        } += 1;
        result.map(Some)
    }
}

/// Makes the page of `bytes`, which are compressed unless they are a whole page.
fn decode(
    codec: &mut Codec,
    bytes: &[u8],
    expected: u32,
    page: &mut Page,
) -> Result<(), LoadError> {
    if checksum(bytes) != expected {
        return Err(LoadError::Corrupt);
    }
    if bytes.len() == PAGE_BYTES {
        page.copy_from_slice(bytes);
        return Ok(());
    }
    codec.decompress(bytes, page).map_err(|_| LoadError::Corrupt)
}
