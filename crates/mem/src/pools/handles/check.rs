//! The checks of the handle table, for tests.
//!
//! Loads are Relaxed because the lock of the names is held, under which everything here changes.

#![forbid(unsafe_code)]

use core::sync::atomic::Ordering;

use coldpress_sys::Bytes;

use super::{END, FREE_NUMBER, HandleTable, NONE, Names, SLOTS, next_slot, size_of_word};
use crate::pools::pin::SIZE_MASK;

impl HandleTable<'_> {
    /// Walks the whole table, which no thread uses, and panics when an invariant is broken.
    pub(in crate::pools) fn check(&mut self) {
        let (mut objects, mut bytes) = (0, Bytes(0));
        self.for_each(|name, word| {
            let pin = self.try_pin(name).expect("no pin was left behind");
            assert_eq!(pin.word(), word);
            (objects, bytes) = (objects + 1, bytes + size_of_word(word));
        });
        let names = &mut *self.names.lock();
        assert_eq!((objects, bytes), (names.objects, names.bytes), "objects stored");
        let (mut leaves, mut with_room) = (0, 0);
        for number in 0..self.numbers.load(Ordering::Relaxed) {
            if self.entry(names, number).load(Ordering::Relaxed) & FREE_NUMBER != 0 {
                continue;
            }
            let (chained, used) = (self.check_chain(names, number), self.head(names, number).used);
            assert!(used > 0, "leaf {number} is empty and was not given back");
            assert_eq!(used + chained, END, "leaf {number} lost slots");
            leaves += 1;
            with_room += usize::from(usize::from(used) < SLOTS);
        }
        assert_eq!(leaves, names.leaves);
        let (mut number, mut prev) = (names.with_room, NONE);
        while number != NONE {
            let leaf = self.head(names, number);
            assert!(usize::from(leaf.used) < SLOTS, "leaf {number} has no room but is listed");
            assert_eq!(leaf.prev, prev, "the list is broken at leaf {number}");
            (number, prev) = (leaf.next, number);
            with_room = with_room.checked_sub(1).expect("the list is a ring");
        }
        assert_eq!(with_room, 0, "a leaf with room is not listed");
        self.check_numbers(names);
    }

    /// Follows the chain of free leaf numbers.
    fn check_numbers(&self, names: &Names) {
        let numbers = self.numbers.load(Ordering::Relaxed) as usize;
        let (mut entry, mut free) = (names.free_number, 0);
        while entry != NONE {
            assert!(entry & FREE_NUMBER != 0, "a leaf in use is chained as free");
            free += 1;
            assert!(free + names.leaves <= numbers, "the chain is a ring");
            entry = self.entry(names, entry & !FREE_NUMBER).load(Ordering::Relaxed);
        }
        assert_eq!(free + names.leaves, numbers, "leaf numbers lost");
    }

    /// Follows the chain of free slots of a leaf and returns its length.
    fn check_chain(&self, names: &mut Names, number: u32) -> u16 {
        let (mut slot, mut count) = (self.head(names, number).free, 0);
        while slot != END {
            assert!(slot < END, "the chain leaves the leaf");
            let word = self.word(names, number, slot).load(Ordering::Relaxed);
            assert!(word & SIZE_MASK == 0, "a chained slot is in use");
            count += 1;
            assert!(count <= END, "the chain is a ring");
            slot = next_slot(slot, word);
        }
        count
    }
}
