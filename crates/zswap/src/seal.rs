//! Seals: what makes an object unreadable and unforgeable while it lies in the backing store.
//!
//! AES-256 in Galois/counter mode (NIST SP 800-38D), by the crate `aes-gcm`; behind each object
//! lies its tag. The key is made with the store, and exists in memory only. A nonce is the number
//! of a batch and the object's offset in it. Slots are stamped with the number of their batch, so
//! an object is opened only at its own place and as it was written last.
//!
//! ```text
//! nonce, 12 bytes:  batch, 8 | offset, 4        slot:  object tag object tag ... unused
//! ```
//!
//! Invariants:
//! 1. No two objects are sealed with one key and one nonce: a batch has a number of its own, and
//!    its objects different offsets.
//! 2. A [`Sealer`] exists only where the cipher has given the right answers.

use alloc::vec::Vec;

use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::{AeadInOut, Aes256Gcm, KeyInit};
use core::sync::atomic::{AtomicU64, Ordering};

use coldpress_backing::SlotId;
use coldpress_sys::secret::{Secret, fill_random};
use coldpress_sys::{Bytes, PAGE_BYTES, SysError};

use crate::error::{LoadError, NewError};
use crate::room::{self, NoMemory};

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;
/// Bytes of the tag behind each object. The full length: each bit less doubles a forger's chances.
pub const TAG_BYTES: usize = 16;

/// Returns the bytes that an object of `length` bytes takes in a slot.
pub(crate) const fn sealed_length(length: u16) -> Bytes {
    Bytes(length as usize + TAG_BYTES)
}

/// Bytes of a nonce: the mode's own length, which needs no hashing.
const NONCE_BYTES: usize = 12;
type Nonce = [u8; NONCE_BYTES];

/// Returns the nonce of the object at `offset` of the slot with batch number `batch`.
fn nonce_of(batch: u64, offset: u16) -> Nonce {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..8].copy_from_slice(&batch.to_le_bytes());
    nonce[8..].copy_from_slice(&u32::from(offset).to_le_bytes());
    nonce
}

/// A key that seals objects and opens them, neither of which allocates.
#[derive(Debug)]
pub struct Sealer {
    /// The expanded key.
    cipher: Secret<Aes256Gcm>,
    batches: AtomicU64,
}

impl Sealer {
    /// Makes a sealer with a new key from the kernel, which no other sealer ever has.
    pub fn random() -> Result<Self, NewError> {
        let mut key = Secret::new(|| [0; KEY_BYTES]).map_err(NewError::NoKey)?;
        fill_random(&mut *key).map_err(NewError::NoKey)?;
        Self::new(&key)
    }

    /// Makes a sealer with `key`, which must have sealed nothing before.
    pub(crate) fn new(key: &[u8; KEY_BYTES]) -> Result<Self, NewError> {
        test_cipher(&ANSWERS)?;
        Self::untested(key).map_err(NewError::NoKey)
    }

    fn untested(key: &[u8; KEY_BYTES]) -> Result<Self, SysError> {
        Ok(Self { cipher: Secret::new(|| Aes256Gcm::new(key.into()))?, batches: AtomicU64::new(0) })
    }

    /// Returns a number that no batch has had. The numbers outlast any machine.
    pub fn next_batch(&self) -> u64 {
        // Relaxed: the numbers only need to differ.
        self.batches.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Writes `object` and its tag to `sealed`, which is longer by [`TAG_BYTES`]. Nothing may have
    /// been sealed at this `offset` of the slot, in bytes, with this number of a `batch` before.
    pub fn seal(&self, batch: u64, offset: u16, object: &[u8], sealed: &mut [u8]) {
        assert_eq!(sealed.len(), object.len() + TAG_BYTES, "no room for the tag");
        self.encrypt(&nonce_of(batch, offset), object, sealed);
    }

    /// Opens `sealed` in place, and returns what was sealed at this `offset` of the slot, in bytes,
    /// in this `batch`. Bytes that were not sealed there, with this key, are
    /// [`LoadError::Corrupt`], and stay as they are.
    pub fn open<'s>(
        &self,
        batch: u64,
        offset: u16,
        sealed: &'s mut [u8],
    ) -> Result<&'s [u8], LoadError> {
        self.decrypt(&nonce_of(batch, offset), sealed)
    }

    fn encrypt(&self, nonce: &Nonce, object: &[u8], sealed: &mut [u8]) {
        let (out, tag) = sealed.split_at_mut(object.len());
        let both = InOutBuf::new(object, out).expect("split at the object's length");
        let made = self.cipher.encrypt_inout_detached(nonce.into(), &[], both);
        tag.copy_from_slice(&made.expect("an object is not too long, which begins at 64 GiB"));
    }

    fn decrypt<'s>(&self, nonce: &Nonce, sealed: &'s mut [u8]) -> Result<&'s [u8], LoadError> {
        let (object, tag) = sealed.split_last_chunk_mut().ok_or(LoadError::Corrupt)?;
        let tag: &[u8; TAG_BYTES] = tag;
        let both = InOutBuf::from(&mut *object);
        let opened = self.cipher.decrypt_inout_detached(nonce.into(), &[], both, tag.into());
        opened.map_or(Err(LoadError::Corrupt), |()| Ok(object))
    }

    /// Returns the memory of the expanded key.
    pub(crate) fn memory(&self) -> Bytes {
        self.cipher.memory()
    }
}

/// The sealers of a store and, after `fork`, of its ancestors.
///
/// Invariant: an ancestor's sealer opens and never seals, because other processes use its next
/// numbers too.
#[derive(Debug, Default)]
pub(crate) struct Sealers {
    /// Each with the first slot that it has sealed, the lowest first.
    ancestors: Vec<(SlotId, Sealer)>,
    own: Option<(SlotId, Sealer)>,
}

impl Sealers {
    /// Makes `sealer` the one that seals all slots.
    pub(crate) fn new(sealer: Sealer) -> Self {
        Self { ancestors: Vec::new(), own: Some((SlotId(0), sealer)) }
    }

    /// Turns the present sealers into ancestors', in a child; `own` seals the slots from `first`
    /// on.
    pub(crate) fn inherit(&mut self, first: SlotId, own: Option<Sealer>) -> Result<(), NoMemory> {
        room::reserve_one(&mut self.ancestors)?;
        self.ancestors.extend(self.own.take().filter(|(from, _)| *from < first));
        assert!(self.ancestors.is_sorted_by_key(|(first, _)| *first), "by their first slots");
        self.own = own.map(|sealer| (first, sealer));
        Ok(())
    }

    /// Returns the sealer that seals.
    pub(crate) fn own(&self) -> Option<&Sealer> {
        self.own.as_ref().map(|(_, sealer)| sealer)
    }

    /// Returns the sealer that has sealed `slot`.
    pub(crate) fn of(&self, slot: SlotId) -> Option<&Sealer> {
        let mut all = self.own.iter().chain(self.ancestors.iter().rev());
        all.find(|(first, _)| *first <= slot).map(|(_, sealer)| sealer)
    }

    /// Returns the memory of the expanded keys.
    pub(crate) fn memory(&self) -> Bytes {
        let all = self.own.iter().chain(&self.ancestors);
        all.fold(Bytes(0), |sum, (_, sealer)| sum + sealer.memory())
    }
}

/// A question to the cipher, and the right answer.
#[derive(Clone, Copy)]
struct Answer {
    /// Byte `i` of the object.
    object: fn(usize) -> u8,
    length: usize,
    /// The first bytes of the sealed object, and its tag.
    begin: u128,
    tag: u128,
}

/// Key and nonce of the [`ANSWERS`].
const ANSWERS_KEY: u128 = 0xfeffe992_8665731c_6d6a8f94_67308308;
const ANSWERS_NONCE: u128 = 0xcafebabe_facedbad_decaf888;

/// Key, nonce and first question are test case 15 of McGrew and Viega, The Galois/Counter Mode of
/// Operation, 2004. The second question is a page long, so that the cipher takes its path for many
/// blocks at a time; its answer is that of OpenSSL 4.0.0.
const ANSWERS: [Answer; 2] = [
    Answer {
        object: |index| CASE_15[index / 16].to_be_bytes()[index % 16],
        length: 64,
        begin: 0x522dc1f0_99567d07_f47f37a3_2a84427d,
        tag: 0xb094dac5_d93471bd_ec1a5022_70e3cc6c,
    },
    Answer {
        object: |index| index as u8,
        length: PAGE_BYTES,
        begin: 0x8b1df1d6_65d77de5_592f346d_897c6ae8,
        tag: 0xf42c8978_cf7847a7_af148d85_00571562,
    },
];
const CASE_15: [u128; 4] = [
    0xd9313225_f88406e5_a55909c5_aff5269a,
    0x86a7a953_1534f7da_2e4c303d_8a318a72,
    0x1c3c0c95_95680953_2fcf0e24_49a6b525,
    0xb16aedf5_aa0de657_ba637b39_1aafd255,
];

/// Checks that the cipher gives the right `answers` here, and detects a forgery.
fn test_cipher(answers: &[Answer]) -> Result<(), NewError> {
    let mut key = [0; KEY_BYTES];
    key.chunks_exact_mut(16).for_each(|half| half.copy_from_slice(&ANSWERS_KEY.to_be_bytes()));
    let sealer = Sealer::untested(&key).map_err(NewError::NoKey)?;
    if answers.iter().all(|answer| answer.is_given_by(&sealer)) {
        Ok(())
    } else {
        Err(NewError::WrongCipher)
    }
}

impl Answer {
    fn is_given_by(&self, sealer: &Sealer) -> bool {
        let (mut object, mut sealed) = ([0; PAGE_BYTES], [0; PAGE_BYTES + TAG_BYTES]);
        let (object, sealed) = (&mut object[..self.length], &mut sealed[..self.length + TAG_BYTES]);
        object.iter_mut().enumerate().for_each(|(index, byte)| *byte = (self.object)(index));
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&ANSWERS_NONCE.to_be_bytes()[16 - NONCE_BYTES..]);
        sealer.encrypt(&nonce, object, sealed);
        let is_right = sealed.starts_with(&self.begin.to_be_bytes())
            && sealed.ends_with(&self.tag.to_be_bytes());
        sealed[self.length] ^= 1;
        let is_forgery_told = sealer.decrypt(&nonce, sealed).is_err();
        sealed[self.length] ^= 1;
        is_right
            && is_forgery_told
            && sealer.decrypt(&nonce, sealed).is_ok_and(|back| back == object)
    }
}

#[cfg(test)]
mod tests {
    //! Risk: bytes that can be read on the disk, a nonce used twice, damage or a forgery that is
    //! taken for a page, or the use of a cipher that is wrong on this machine.

    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn sealer(number: u8) -> Sealer {
        Sealer::new(&[number; KEY_BYTES]).unwrap()
    }

    #[test]
    fn a_wrong_answer_is_no_sealer() {
        assert_eq!(test_cipher(&ANSWERS), Ok(()));
        for number in 0..ANSWERS.len() {
            for bit in [0, 77, 127] {
                let (mut begin, mut tag, mut object) = (ANSWERS, ANSWERS, ANSWERS);
                begin[number].begin ^= 1 << bit;
                tag[number].tag ^= 1 << bit;
                object[number].object = |index| !(index as u8);
                for wrong in [begin, tag, object] {
                    assert_eq!(test_cipher(&wrong), Err(NewError::WrongCipher));
                }
            }
        }
    }

    #[test]
    fn keys_and_batches_are_never_the_same_twice() {
        let (one, other) = (Sealer::random().unwrap(), Sealer::random().unwrap());
        let batch = one.next_batch();
        let (mut by_one, mut by_other) = ([0; 48], [0; 48]);
        one.seal(batch, 0, &[7; 32], &mut by_one);
        other.seal(batch, 0, &[7; 32], &mut by_other);
        assert_ne!(by_one, by_other);
        assert_eq!(other.open(batch, 0, &mut by_one), Err(LoadError::Corrupt));
        let numbers: HashSet<_> = (0..1000).map(|_| one.next_batch()).collect();
        assert!(numbers.len() == 1000 && !numbers.contains(&batch));
    }

    #[test]
    fn nonces_differ_where_positions_do() {
        let batches = [0, 1, 255, 256, u64::from(u32::MAX), 1 << 32, u64::MAX];
        let all = batches.iter().flat_map(|&batch| (0..=u16::MAX).map(move |at| (batch, at)));
        let nonces: HashSet<_> =
            all.clone().map(|(batch, offset)| nonce_of(batch, offset)).collect();
        assert_eq!(nonces.len(), all.count());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Checks the whole promise: what was sealed is opened at its own place with its own key,
        /// and nothing else is. No bit may differ, no byte may be missing.
        #[test]
        fn only_what_was_sealed_is_opened(
            object in prop::collection::vec(any::<u8>(), 1..=PAGE_BYTES),
            batch in any::<u64>(), offset in any::<u16>(), bit in any::<usize>(),
        ) {
            let (sealer, other) = (sealer(1), sealer(2));
            let mut sealed = vec![0; object.len() + TAG_BYTES];
            sealer.seal(batch, offset, &object, &mut sealed);
            prop_assert!(object.len() < 8 || !sealed.windows(8).any(|some| some == &object[..8]));
            let mut opened = sealed.clone();
            prop_assert_eq!(sealer.open(batch, offset, &mut opened), Ok(&object[..]));
            let is_broken = |sealer: &Sealer, batch, offset, sealed: &[u8]| {
                sealer.open(batch, offset, &mut sealed.to_vec()) == Err(LoadError::Corrupt)
            };
            prop_assert!(is_broken(&other, batch, offset, &sealed));
            prop_assert!(is_broken(&sealer, batch ^ 1 << (bit % 64), offset, &sealed));
            prop_assert!(is_broken(&sealer, batch, offset ^ 1 << (bit % 16), &sealed));
            let shorter = bit % sealed.len();
            prop_assert!(is_broken(&sealer, batch, offset, &sealed[..shorter]));
            sealed[bit / 8 % (object.len() + TAG_BYTES)] ^= 1 << (bit % 8);
            prop_assert!(is_broken(&sealer, batch, offset, &sealed));
        }
    }
}
