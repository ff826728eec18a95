//! The allocator beside an array of frames, each offline, free or used.

use super::*;

const SPAN_BLOCKS: usize = 6;
const SPAN_FRAMES: usize = SPAN_BLOCKS * FRAMES_PER_BLOCK;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Offline,
    Free,
    Used,
}

/// Frames in use that never move.
struct Fixed {
    head: FrameId,
    order: u8,
    value: u32,
}

struct World<'f> {
    frames: &'f FrameAllocator,
    two_zones: bool,
    hot_zone: Mobility,
    zones: [Option<Mobility>; SPAN_BLOCKS],
    states: Vec<State>,
    held: Vec<bool>,
    fixed: Vec<Fixed>,
    owners: Owners<'f>,
    names: u32,
}

impl<'f> World<'f> {
    fn new(frames: &'f FrameAllocator, config: Config) -> Self {
        frames.init(config).unwrap();
        let mut world = Self {
            frames,
            two_zones: config.core.is_some(),
            hot_zone: Mobility::Core,
            zones: [None; SPAN_BLOCKS],
            states: vec![State::Offline; SPAN_FRAMES],
            held: vec![false; SPAN_FRAMES],
            fixed: Vec::new(),
            owners: Owners::new(frames),
            names: 0,
        };
        if world.two_zones && config.easy_reclaim_hot_add {
            world.hot_zone = Mobility::EasyReclaim;
        }
        let core = config.core.unwrap_or(config.span).0 / BLOCK_BYTES;
        for block in 0..config.online.0 / BLOCK_BYTES {
            let zone = if block < core { Mobility::Core } else { Mobility::EasyReclaim };
            world.bring_online(block, zone);
        }
        world
    }

    fn bring_online(&mut self, block: usize, zone: Mobility) {
        self.zones[block] = Some(zone);
        self.states[block * FRAMES_PER_BLOCK..][..FRAMES_PER_BLOCK].fill(State::Free);
    }

    fn frames_of(&self, zone: Mobility) -> impl Iterator<Item = usize> {
        (0..SPAN_FRAMES).filter(move |frame| self.zones[frame / FRAMES_PER_BLOCK] == Some(zone))
    }

    /// Returns whether a zone has `1 << order` free frames side by side, aligned.
    fn has(&self, zone: Mobility, order: u8) -> bool {
        let fits = |frame: &usize| {
            frame.is_multiple_of(1 << order)
                && self.states[*frame..][..1 << order].iter().all(|state| *state == State::Free)
        };
        self.frames_of(zone).any(|frame| fits(&frame))
    }

    /// Returns the zone that must serve a request.
    fn serving(&self, mobility: Mobility, order: u8) -> Option<Mobility> {
        let zones: &[_] = match mobility {
            Mobility::EasyReclaim if self.two_zones => &[Mobility::EasyReclaim, Mobility::Core],
            _ => &[Mobility::Core],
        };
        zones.iter().copied().find(|zone| self.has(*zone, order))
    }

    /// Returns whether a frame was given, after comparing the answer with the expected one and
    /// noting it.
    fn note_taken(&mut self, zone: Option<Mobility>, order: u8, given: Option<FrameId>) -> bool {
        assert_eq!(given.is_some(), zone.is_some(), "order {order} from {zone:?}");
        let (Some(head), Some(zone)) = (given, zone) else { return false };
        let head = head.0 as usize;
        assert_eq!(self.zones[head / FRAMES_PER_BLOCK], Some(zone));
        assert!(head.is_multiple_of(1 << order));
        if order == 0 && !self.held[head] {
            let idle = |frame: usize| self.held[frame] && self.states[frame] == State::Free;
            assert!(!self.frames_of(zone).any(idle), "frames with memory come first");
        }
        for frame in head..head + (1 << order) {
            assert_eq!(self.states[frame], State::Free, "frame {frame} was given out twice");
            (self.states[frame], self.held[frame]) = (State::Used, true);
        }
        true
    }

    fn note_freed(&mut self, head: FrameId, order: u8) {
        for frame in head.0 as usize..head.0 as usize + (1 << order) {
            assert_eq!(self.states[frame], State::Used);
            self.states[frame] = State::Free;
        }
    }

    fn alloc(&mut self, mobility: Mobility, order: u8) -> bool {
        let zone = self.serving(mobility, order);
        let given = match order {
            0 => self.frames.alloc(mobility),
            _ => self.frames.alloc_order(order, mobility),
        };
        if !self.note_taken(zone, order, given) {
            return false;
        }
        self.keep(given.unwrap(), order);
        true
    }

    /// Notes a chunk that is freed as a whole.
    fn keep(&mut self, head: FrameId, order: u8) {
        let value = self.names;
        self.names += 1;
        for frame in head.0..head.0 + (1 << order) {
            mark(self.frames, FrameId(frame), value);
        }
        self.fixed.push(Fixed { head, order, value });
    }

    /// Notes frames that are freed one by one.
    fn keep_frames(&mut self, head: FrameId, order: u8) {
        (head.0..head.0 + (1 << order)).for_each(|frame| self.keep(FrameId(frame), 0));
    }

    /// Returns whether a run was given, after extending it as far as it goes, by frames of `step`.
    fn alloc_run(&mut self, mobility: Mobility, (order, whole): (u8, u8), step: u8) -> bool {
        let zone = self.serving(mobility, order);
        let largest =
            (order..=whole).rev().find(|order| zone.is_some_and(|zone| self.has(zone, *order)));
        let given = self.frames.alloc_run(order, whole, mobility);
        assert_eq!(given.map(|(_, whole)| whole), largest);
        // A run need not start with memory.
        if let Some((head, whole)) = given {
            assert!(head.0.is_multiple_of(1 << whole), "a run starts a chunk");
            self.held[head.0 as usize] = true;
        }
        if !self.note_taken(zone, order, given.map(|(head, _)| head)) {
            return false;
        }
        let (head, _) = given.unwrap();
        self.keep_frames(head, order);
        let mut next = head.0 as usize + (1 << order);
        while !next.is_multiple_of(FRAMES_PER_BLOCK) {
            let step = step.min(next.trailing_zeros() as u8);
            let free = self.states[next..][..1 << step].iter().all(|state| *state == State::Free);
            let frame = FrameId(next as u32);
            assert_eq!(self.frames.extend_run(frame, step, mobility), free);
            if !free {
                break;
            }
            self.held[next] = true;
            self.note_taken(zone, step, Some(frame));
            self.keep_frames(frame, step);
            next += 1 << step;
        }
        true
    }

    fn alloc_owned(&mut self) -> bool {
        let zone = self.serving(Mobility::EasyReclaim, 0);
        let owner = self.names;
        self.names += 1;
        let taken = self.owners.take(owner);
        let given = taken.then(|| self.owners.places[&owner]);
        self.note_taken(zone, 0, given)
    }

    fn free(&mut self, which: usize) {
        let all = self.fixed.len() + self.owners.places.len();
        if all == 0 {
            return;
        }
        let which = which % all;
        if which < self.fixed.len() {
            let Fixed { head, order, value } = self.fixed.swap_remove(which);
            for frame in head.0..head.0 + (1 << order) {
                assert_eq!(marks(self.frames, FrameId(frame)), [value; 2]);
            }
            // SAFETY: the chunk belongs to the test, and is no longer used.
            unsafe {
                match order {
                    0 => self.frames.free(head),
                    _ => self.frames.free_order(head, order),
                }
            }
            self.note_freed(head, order);
        } else {
            let mut names: Vec<_> = self.owners.places.keys().copied().collect();
            names.sort_unstable();
            let frame = self.owners.take_back(names[which - self.fixed.len()]);
            self.note_freed(frame, 0);
        }
    }

    fn idle(&self) -> usize {
        let idle = |frame: &usize| self.held[*frame] && self.states[*frame] == State::Free;
        (0..SPAN_FRAMES).filter(idle).count()
    }

    fn trim(&mut self, keep: usize) {
        let expected = self.idle().saturating_sub(keep);
        assert_eq!(self.frames.trim(PageCount(keep)), PageCount(expected));
        let tables = &self.frames.spans().unwrap().tables;
        for frame in 0..SPAN_FRAMES {
            if self.states[frame] == State::Free && self.held[frame] {
                self.held[frame] = tables.held(frame as u32..frame as u32 + 1) > 0;
            }
        }
        assert!(self.idle() <= keep);
    }

    fn grow(&mut self, count: usize) {
        let offline: Vec<_> =
            (0..SPAN_BLOCKS).filter(|block| self.zones[*block].is_none()).collect();
        let result = self.frames.grow(blocks(count));
        if count == 0 {
            assert_eq!(result.unwrap_err().errno, 22);
        } else if count > offline.len() {
            assert_eq!(result.unwrap_err().errno, 12);
        } else {
            assert_eq!(result.unwrap(), blocks(SPAN_BLOCKS - offline.len() + count));
            let states = self.frames.spans().unwrap().tables.blocks();
            for block in offline {
                if states[block].state() != BlockState::Offline {
                    self.bring_online(block, self.hot_zone);
                }
            }
        }
    }

    fn shrink(&mut self, count: usize, stubborn: u32) {
        let online = self.zones.iter().flatten().count();
        let names = self.owners.places.keys().copied();
        self.owners.stubborn = names.filter(|name| stubborn > 0 && name % stubborn == 0).collect();
        let fits = self.owners.places.len() <= count * FRAMES_PER_BLOCK;
        let all_can_go = self.fixed.is_empty() && self.owners.stubborn.is_empty() && fits;
        let Shrunk { online: left, held_back_by } = self.owners.shrink(blocks(count));
        let block = |frame: usize| frame / FRAMES_PER_BLOCK;
        let fixed: Vec<_> = self.fixed.iter().map(|fixed| block(fixed.head.0 as usize)).collect();
        for (from, to, moved) in std::mem::take(&mut self.owners.asked) {
            let (from, to) = (from.0 as usize, to.0 as usize);
            assert!(!fixed.contains(&block(from)), "moved out of a block that stays anyway");
            assert_eq!((self.states[from], self.states[to]), (State::Used, State::Free));
            assert!(block(from) != block(to));
            self.held[to] = true;
            if moved {
                (self.states[from], self.states[to]) = (State::Free, State::Used);
            }
        }
        let states = self.frames.spans().unwrap().tables.blocks();
        for (block, entry) in states.iter().enumerate() {
            if entry.state() == BlockState::Offline && self.zones[block].take().is_some() {
                for frame in block * FRAMES_PER_BLOCK..(block + 1) * FRAMES_PER_BLOCK {
                    assert_eq!(self.states[frame], State::Free, "frame {frame} went in use");
                    (self.states[frame], self.held[frame]) = (State::Offline, false);
                }
            }
        }
        assert_eq!(left, blocks(self.zones.iter().flatten().count()));
        assert!(left >= blocks(count.min(online)), "more went than was asked for");
        assert_eq!(held_back_by.is_some(), left > blocks(count));
        assert!(!all_can_go || left <= blocks(count), "{left:?} of {count}: {held_back_by:?}");
        if let Some(back) = held_back_by {
            assert!(back.core + back.slab + back.movable > PageCount(0));
        }
    }

    fn check(&self) {
        self.frames.check();
        let used = self.states.iter().filter(|state| **state == State::Used).count();
        assert_eq!(self.frames.frames_used(), PageCount(used));
        assert_eq!(self.frames.frames_idle(), PageCount(self.idle()));
        let spans = self.frames.spans().unwrap();
        let mut held = 1;
        for (block, entry) in spans.tables.blocks().iter().enumerate() {
            let fresh =
                self.zones[block].is_none_or(|zone| entry.state() == BlockState::Fresh(zone));
            held += usize::from(!fresh);
        }
        for frame in 0..SPAN_FRAMES {
            let own = spans.tables.held(frame as u32..frame as u32 + 1) > 0;
            assert_eq!(own, self.held[frame], "frame {frame}");
            held += usize::from(own);
        }
        assert_eq!(self.frames.frames_held(), PageCount(held));
        for mobility in Mobility::ALL {
            let stats = self.frames.stats();
            let zone = stats.zone(mobility);
            assert_eq!(zone.online, PageCount(self.frames_of(mobility).count()));
            let sum: usize = zone.chunks.iter().enumerate().map(|(order, n)| n << order).sum();
            assert_eq!((zone.free, zone.free + zone.used), (PageCount(sum), zone.online));
            for order in 0..=ORDER_MAX {
                let any = zone.chunks[order.into()..].iter().any(|chunks| *chunks > 0);
                assert_eq!(any, self.has(mobility, order));
            }
        }
    }

    /// Frees everything, and expects whole blocks afterwards.
    fn finish(mut self) {
        self.owners.verify();
        while self.fixed.len() + self.owners.places.len() > 0 {
            self.free(0);
        }
        self.check();
        let online = self.zones.iter().flatten().count();
        assert_eq!(self.frames.stats().huge_blocks_available(), online);
        self.trim(0);
        self.check();
        assert_eq!(self.frames.frames_used(), PageCount(0));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(Mobility, u8, usize),
    AllocOwned(usize),
    AllocRun(Mobility, (u8, u8), u8),
    Free(usize, usize),
    FreeMost(usize),
    Trim(usize),
    Grow(usize),
    Shrink(usize, u32),
}

fn mobility() -> impl Strategy<Value = Mobility> {
    prop_oneof![Just(Mobility::Core), Just(Mobility::EasyReclaim)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (mobility(), 1_usize..200).prop_map(|(zone, count)| Step::Alloc(zone, 0, count)),
        4 => (1_usize..500).prop_map(Step::AllocOwned),
        2 => (mobility(), 1..=ORDER_MAX, 1_usize..20)
            .prop_map(|(zone, order, count)| Step::Alloc(zone, order, count)),
        2 => (mobility(), 0_u8..4, 0..=ORDER_MAX, 0_u8..7).prop_map(|(zone, order, more, step)| {
            Step::AllocRun(zone, (order, ORDER_MAX.min(order + more)), step)
        }),
        4 => (any::<usize>(), 1_usize..400).prop_map(|(seed, count)| Step::Free(seed, count)),
        1 => any::<usize>().prop_map(Step::FreeMost),
        2 => (0_usize..800).prop_map(Step::Trim),
        1 => (0..=SPAN_BLOCKS).prop_map(Step::Grow),
        2 => (0..=SPAN_BLOCKS, prop_oneof![Just(0_u32), 2_u32..90])
            .prop_map(|(count, stubborn)| Step::Shrink(count, stubborn)),
    ]
}

/// Does a step, as often as it says or until frames run out.
fn run(world: &mut World, step: Step) {
    match step {
        Step::Alloc(mobility, order, count) => {
            let _ = (0..count).all(|_| world.alloc(mobility, order));
        }
        Step::AllocOwned(count) => {
            let _ = (0..count).all(|_| world.alloc_owned());
        }
        Step::AllocRun(mobility, orders, step) => {
            world.alloc_run(mobility, orders, step);
        }
        Step::Free(seed, count) => {
            (0..count).for_each(|turn| world.free(seed.wrapping_add(turn * 7)));
        }
        Step::FreeMost(seed) => {
            while world.fixed.len() + world.owners.places.len() > 9 {
                world.free(seed);
            }
        }
        Step::Trim(keep) => world.trim(keep),
        Step::Grow(count) => world.grow(count),
        Step::Shrink(count, stubborn) => world.shrink(count, stubborn),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 64 }))]

    #[test]
    fn agrees_with_an_array_of_frames(
        core in prop::option::of(1..=SPAN_BLOCKS),
        online in 1..=SPAN_BLOCKS,
        easy_reclaim_hot_add: bool,
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 5 } else { 40 }),
    ) {
        let frames = FrameAllocator::new();
        let config = Config {
            span: blocks(SPAN_BLOCKS),
            core: core.map(blocks),
            online: blocks(online),
            easy_reclaim_hot_add,
            on_demand: false,
        };
        let mut world = World::new(&frames, config);
        for step in steps {
            run(&mut world, step);
            world.check();
        }
        world.finish();
    }
}
