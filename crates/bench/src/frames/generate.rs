//! Traces by a model, for where none was recorded. The model is a program that keeps compressed
//! pages.
//!
//! The program grows to a number of frames and works in phases. Within a phase it replaces frames
//! one by one; at the end of a phase it frees most of them at once, as a build does when a compiler
//! ends. A small part of its frames is bookkeeping that cannot be moved (core). Most core frames
//! come and go; a few, allocated now and then between all the others, stay forever. These few break
//! huge pages: one in a block is enough. At its end the program frees everything except these and a
//! few movable frames, which only a sweep gets rid of.
//!
//! 1. The trace follows from seed and size alone.
//! 2. The trace ends with about [`Model::stay_permille`] of the core frames and
//!    [`Model::left_permille`] of the movable frames still allocated.

use super::Mobility;
use super::trace::{Event, Trace};
use crate::random::Random;

/// The model of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    /// The number of frames that the program grows to.
    pub(crate) frames: usize,
    /// The number of phases of work.
    pub(crate) phases: usize,
    /// The core frames in a thousand: an entry, a handle and a share of a zspage's descriptor are
    /// some 60 bytes for a page compressed to 1.4 KiB.
    pub(crate) core_permille: usize,
    /// The core frames in a thousand that stay forever.
    pub(crate) stay_permille: usize,
    /// The movable frames in a thousand that are left at the end.
    pub(crate) left_permille: usize,
    /// The frames in a thousand that are freed at the end of a phase.
    pub(crate) freed_permille: usize,
}

impl Model {
    /// Makes the model of a program of `frames` frames.
    pub(crate) const fn new(frames: usize) -> Self {
        Self {
            frames,
            phases: 12,
            core_permille: 43,
            stay_permille: 400,
            left_permille: 20,
            freed_permille: 667,
        }
    }

    /// Makes the trace of `seed`.
    pub(crate) fn trace(&self, seed: u64) -> Trace {
        let mut program = Program {
            random: Random::new(seed),
            events: Vec::new(),
            spare: Vec::new(),
            next: 0,
            core: Vec::new(),
            movable: Vec::new(),
            stay: 0,
        };
        for _ in 0..self.phases {
            program.phase(self);
        }
        program.end(self);
        Trace::new(program.events).expect("an id is spare until it is allocated")
    }
}

/// A program at work.
struct Program {
    random: Random,
    events: Vec<Event>,
    /// The ids that were freed.
    spare: Vec<u32>,
    /// The first id never used.
    next: u32,
    /// The allocated frames, without those that stay.
    core: Vec<u32>,
    movable: Vec<u32>,
    /// The number of core frames that stay.
    stay: usize,
}

impl Program {
    /// Grows to the full size, then replaces as many frames as there are.
    fn phase(&mut self, model: &Model) {
        while self.core.len() + self.movable.len() + self.stay < model.frames {
            self.alloc(model);
        }
        for _ in 0..model.frames {
            self.free_one(model);
            self.alloc(model);
        }
        let kept = |alive: usize| alive * (1000 - model.freed_permille) / 1000;
        self.free_movable_down_to(kept(self.movable.len()));
        self.free_core_down_to(kept(self.core.len()));
    }

    fn end(&mut self, model: &Model) {
        let left = model.frames * model.left_permille / 1000;
        self.free_movable_down_to(left);
        self.free_core_down_to(0);
    }

    fn free_core_down_to(&mut self, kept: usize) {
        while self.core.len() > kept {
            if let Some(id) = take(&mut self.core, &mut self.random) {
                self.free(id);
            }
        }
    }

    fn free_movable_down_to(&mut self, kept: usize) {
        while self.movable.len() > kept {
            if let Some(id) = take(&mut self.movable, &mut self.random) {
                self.free(id);
            }
        }
    }

    fn alloc(&mut self, model: &Model) {
        let id = self.spare.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let is_core = self.random.happens(model.core_permille);
        let mobility = if is_core { Mobility::Core } else { Mobility::EasyReclaim };
        self.events.push(Event::Alloc { id, order: 0, mobility });
        // All phases allocate about as much, so the frames that stay are spread over the whole
        // trace.
        let stay_max = model.frames * model.core_permille * model.stay_permille / 1_000_000;
        let allocated = model.frames * (model.phases + model.phases * model.freed_permille / 1000);
        let core_allocated = (allocated * model.core_permille / 1000).max(1);
        if !is_core {
            self.movable.push(id);
        } else if self.stay < stay_max && self.random.below(core_allocated) < stay_max {
            self.stay += 1;
        } else {
            self.core.push(id);
        }
    }

    /// Frees a frame; core frames live as long as the others on average.
    fn free_one(&mut self, model: &Model) {
        let is_core = self.random.happens(model.core_permille) && !self.core.is_empty();
        let alive = if is_core { &mut self.core } else { &mut self.movable };
        if let Some(id) = take(alive, &mut self.random) {
            self.free(id);
        }
    }

    fn free(&mut self, id: u32) {
        self.events.push(Event::Free { id, order: 0 });
        self.spare.push(id);
    }
}

/// Removes any one of `ids` and returns it.
fn take(ids: &mut Vec<u32>, random: &mut Random) -> Option<u32> {
    (!ids.is_empty()).then(|| ids.swap_remove(random.below(ids.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_follows_from_its_seed_and_ends_as_said() {
        let model = Model::new(2000);
        let trace = model.trace(7);
        assert_eq!(trace, model.trace(7));
        assert_ne!(trace, model.trace(8));
        let (mut core, mut movable, mut peak) = (0_usize, 0_usize, 0);
        let mut mobilities = std::collections::HashMap::new();
        for event in trace.events() {
            match *event {
                Event::Alloc { id, mobility, .. } => {
                    mobilities.insert(id, mobility);
                    *(if mobility == Mobility::Core { &mut core } else { &mut movable }) += 1;
                }
                Event::Free { id, .. } => {
                    *(if mobilities[&id] == Mobility::Core { &mut core } else { &mut movable }) -=
                        1;
                }
            }
            peak = peak.max(core + movable);
        }
        assert_eq!((peak, movable), (2000, 40));
        // 2000 x 43/1000 x 400/1000.
        assert!((15..=34).contains(&core), "{core}");
    }
}
