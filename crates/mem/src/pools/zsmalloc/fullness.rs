//! Zspages by their fullness: each is on the list of its class and its group.

#![forbid(unsafe_code)]

use core::mem;

use super::lists::{FULL, ZspageRef};
use super::size_class::SizeClass;
use super::zspage::Locked;

impl Locked<'_, '_> {
    /// Puts a zspage that is on no list on the list of its fullness.
    pub(super) fn list(&mut self, zspage: ZspageRef) {
        let head = self.get(zspage);
        let group = group_of(head.in_use.get(), self.class);
        head.group.set(group as u8);
        debug_assert!(self.lists.heads[group] != zspage, "{zspage:?} is on the list");
        let next = mem::replace(&mut self.lists.heads[group], zspage);
        if next.is_some() {
            self.get(next).prev.set(zspage);
        }
        let head = self.get(zspage);
        head.next.set(next);
        head.prev.set(ZspageRef::NONE);
    }

    /// Takes a zspage off its list.
    pub(super) fn unlist(&mut self, zspage: ZspageRef) {
        let head = self.get(zspage);
        let (next, prev, group) = (head.next.get(), head.prev.get(), head.group.get());
        debug_assert!(prev.is_some() || self.lists.heads[usize::from(group)] == zspage);
        if next.is_some() {
            self.get(next).prev.set(prev);
        }
        if prev.is_some() {
            self.get(prev).next.set(next);
        } else {
            self.lists.heads[usize::from(group)] = next;
        }
    }

    /// Moves a zspage to the list of its fullness.
    pub(super) fn relist(&mut self, zspage: ZspageRef) {
        let head = self.get(zspage);
        if group_of(head.in_use.get(), self.class) != usize::from(head.group.get()) {
            self.unlist(zspage);
            self.list(zspage);
        }
    }

    /// Takes a slot of a zspage other than `except`: of the fullest that has one in the frames it
    /// holds, or else of the fullest that can have one with more frames. Looks at one zspage of
    /// each group only, so there may be a slot when it finds none.
    pub(super) fn take_listed_slot(&mut self, except: ZspageRef) -> Option<(ZspageRef, u16)> {
        for grow in [false, true] {
            for group in (0..FULL).rev() {
                let head = self.lists.heads[group];
                if !head.is_some() {
                    continue;
                }
                let zspage = if head == except { self.get(head).next.get() } else { head };
                if zspage.is_some()
                    && let Some(slot) = self.take_slot(zspage, self.class.objects, grow)
                {
                    self.relist(zspage);
                    return Some((zspage, slot));
                }
            }
        }
        None
    }

    /// Returns a zspage of the emptiest group, if one is not full: of the first two, the one with
    /// fewer objects. So no other zspage that [`Locked::take_listed_slot`] looks at has fewer.
    pub(super) fn emptiest(&self) -> Option<ZspageRef> {
        let first = *self.lists.heads[..FULL].iter().find(|head| head.is_some())?;
        let second = self.get(first).next.get();
        let in_use = |zspage| self.get(zspage).in_use.get();
        let is_emptier = second.is_some() && in_use(second) < in_use(first);
        Some(if is_emptier { second } else { first })
    }

    /// Calls `f` with every zspage that is not full.
    pub(super) fn for_each_not_full(&self, mut f: impl FnMut(ZspageRef)) {
        for head in &self.lists.heads[..FULL] {
            let mut zspage = *head;
            while zspage.is_some() {
                f(zspage);
                zspage = self.get(zspage).next.get();
            }
        }
    }

    /// Calls `f` with every zspage; `f` may destroy it.
    pub(super) fn for_each(&mut self, mut f: impl FnMut(&mut Self, ZspageRef)) {
        for head in self.lists.heads {
            let mut next = head;
            while next.is_some() {
                let zspage = next;
                next = self.get(zspage).next.get();
                f(self, zspage);
            }
        }
    }

    /// Checks the lists. Panics when a zspage is on the wrong list, or a list is broken.
    pub(super) fn check_lists(&self) {
        for (group, list) in self.lists.heads.iter().enumerate() {
            let (mut zspage, mut prev) = (*list, ZspageRef::NONE);
            while zspage.is_some() {
                let head = self.get(zspage);
                assert_eq!(head.prev.get(), prev, "broken list");
                let place = (head.class.into(), head.group.get().into());
                assert_eq!(place, (self.number, group));
                let in_use = head.in_use.get();
                let fullness = group_of(in_use, self.class);
                assert!(fullness == group && in_use > 0, "on the wrong list");
                (prev, zspage) = (zspage, head.next.get());
            }
        }
    }
}

/// Returns the group of a zspage with `in_use` objects.
fn group_of(in_use: u16, class: SizeClass) -> usize {
    usize::from(in_use) * FULL / usize::from(class.objects)
}
