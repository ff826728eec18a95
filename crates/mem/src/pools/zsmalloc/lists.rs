//! The lists of zspages, by class and fullness.

#![forbid(unsafe_code)]

use core::mem;

use super::size_class::{CLASSES, SizeClass, SizeClasses};
use super::zspage::{Zspage, ZspageRef, Zspages};

/// Groups of fullness: quarters, and the full ones. The kernel has twelve; more than these do not
/// pack denser.
const GROUPS: usize = 5;
const FULL: usize = GROUPS - 1;

/// The first zspage of each class and group.
pub(super) struct Lists([[ZspageRef; GROUPS]; CLASSES]);

impl Lists {
    pub(super) const EMPTY: Self = Self([[ZspageRef::NONE; GROUPS]; CLASSES]);

    /// Puts a zspage that is on no list on the one it belongs on.
    pub(super) fn insert(
        &mut self,
        zspages: &mut Zspages<'_>,
        zspage: ZspageRef,
        class: SizeClass,
    ) {
        let Zspage { class: number, in_use, .. } = *zspages.get(zspage);
        let group = group_of(in_use, class);
        let next = mem::replace(&mut self.0[usize::from(number)][group], zspage);
        if next.is_some() {
            zspages.get_mut(next).prev = zspage;
        }
        let head = zspages.get_mut(zspage);
        (head.next, head.prev, head.group) = (next, ZspageRef::NONE, group as u8);
    }

    /// Takes a zspage off its list.
    pub(super) fn remove(&mut self, zspages: &mut Zspages<'_>, zspage: ZspageRef) {
        let Zspage { next, prev, class, group, .. } = *zspages.get(zspage);
        if next.is_some() {
            zspages.get_mut(next).prev = prev;
        }
        if prev.is_some() {
            zspages.get_mut(prev).next = next;
        } else {
            self.0[usize::from(class)][usize::from(group)] = next;
        }
    }

    /// Moves a zspage to the list of its fullness.
    pub(super) fn update(
        &mut self,
        zspages: &mut Zspages<'_>,
        zspage: ZspageRef,
        class: SizeClass,
    ) {
        let Zspage { in_use, group, .. } = *zspages.get(zspage);
        if group_of(in_use, class) != usize::from(group) {
            self.remove(zspages, zspage);
            self.insert(zspages, zspage, class);
        }
    }

    /// Takes a slot of a zspage of the class, but not of `except`: of the fullest that has one in
    /// the frames it holds, or else of the fullest that can have one with more frames. Looks at one
    /// zspage of each group only, so there may be a slot when it finds none.
    pub(super) fn take_slot(
        &mut self,
        zspages: &mut Zspages<'_>,
        number: usize,
        class: SizeClass,
        except: ZspageRef,
    ) -> Option<(ZspageRef, u16)> {
        for grow in [false, true] {
            for head in self.0[number][..FULL].iter().rev().filter(|head| head.is_some()) {
                let next = || zspages.get(*head).next;
                let zspage = if *head == except { next() } else { *head };
                if zspage.is_some()
                    && let Some(slot) = zspages.take_slot(zspage, class, class.objects, grow)
                {
                    self.update(zspages, zspage, class);
                    return Some((zspage, slot));
                }
            }
        }
        None
    }

    /// A zspage of the emptiest group of the class, if one is not full: of the first two, that with
    /// fewer objects. So no other that [`Lists::take_slot`] looks at has fewer.
    pub(super) fn emptiest(&self, zspages: &Zspages<'_>, number: usize) -> Option<ZspageRef> {
        let first = *self.0[number][..FULL].iter().find(|head| head.is_some())?;
        let second = zspages.get(first).next;
        let in_use = |zspage| zspages.get(zspage).in_use;
        let is_emptier = second.is_some() && in_use(second) < in_use(first);
        Some(if is_emptier { second } else { first })
    }

    /// Calls `f` with every zspage of a class that is not full.
    pub(super) fn for_each_not_full(
        &self,
        zspages: &Zspages<'_>,
        number: usize,
        mut f: impl FnMut(ZspageRef),
    ) {
        for head in &self.0[number][..FULL] {
            let mut zspage = *head;
            while zspage.is_some() {
                f(zspage);
                zspage = zspages.get(zspage).next;
            }
        }
    }

    /// Calls `f` with every zspage; it may destroy it.
    pub(super) fn for_each<'f>(
        &self,
        zspages: &mut Zspages<'f>,
        classes: &SizeClasses,
        mut f: impl FnMut(&mut Zspages<'f>, ZspageRef, SizeClass),
    ) {
        for (number, groups) in self.0[..classes.count()].iter().enumerate() {
            for head in groups {
                let mut next = *head;
                while next.is_some() {
                    let zspage = next;
                    next = zspages.get(zspage).next;
                    f(zspages, zspage, classes.class(number));
                }
            }
        }
    }

    /// Panics when a zspage is on the wrong list, or a list is broken.
    pub(super) fn check(&self, zspages: &Zspages<'_>, classes: &SizeClasses) {
        for (number, groups) in self.0.iter().enumerate() {
            for (group, list) in groups.iter().enumerate() {
                let (mut zspage, mut prev) = (*list, ZspageRef::NONE);
                while zspage.is_some() {
                    let head = zspages.get(zspage);
                    assert_eq!(head.prev, prev, "broken list");
                    assert_eq!((head.class.into(), head.group.into()), (number, group));
                    let fullness = group_of(head.in_use, classes.class(number));
                    assert!(fullness == group && head.in_use > 0, "on the wrong list");
                    (prev, zspage) = (zspage, head.next);
                }
            }
        }
    }
}

/// The group of a zspage with `in_use` objects.
fn group_of(in_use: u16, class: SizeClass) -> usize {
    usize::from(in_use) * FULL / usize::from(class.objects)
}
