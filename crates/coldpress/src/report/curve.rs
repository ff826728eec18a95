//! What another budget would have cost: the expected time of the same run against its budget.
//!
//! A page that comes back has a *refault distance*: the number of pages stored since it was (Linux,
//! mm/workingset.c). With room for that number of pages it would not have left, and no thread would
//! have waited for it. The statistics have the waits by distance, as a part of what the process may
//! hold, so that those of all processes add up. How much room a budget makes follows from how the
//! pages compress: a page that stays also needs no compressed copy.
//!
//! ```text
//! R + min(p A, (T - R) / c) = A     R in place, T asked for, A the budget less what is not
//!                                   managed, c the ratio of the pool, p the most it may take of A
//! ```
//!
//! The time is that of this run, less the waits that end, and less the switches between program and
//! service that go with each. It is an estimate: docs/guide.md says how far off it was. Waits of
//! threads that waited at one time are added up, so where several did, the time is the least that
//! is possible. Nothing is known of a smaller budget: pages that were never taken tell nothing.

use coldpress_sys::Bytes;

use super::figures::{self, Figures, Points, Waits};

/// The points of a curve.
const STEPS: usize = 48;
/// The least ratio that the model takes: below, compression gains nothing.
const RATIO_MIN: f64 = 1.05;
/// Limbo: its part of what a process may hold, its least size where there is room, and its most.
/// They are those of `runtime/policy/ring.rs`.
const LIMBO_PART: f64 = 1.0 / 16.0;
const LIMBO_MIN: f64 = Bytes::mib(2).0 as f64;
const LIMBO_MAX: f64 = Bytes::mib(128).0 as f64;
/// How many times what may be held may be asked for: longer distances wrap around, from 10.7 on.
const ASKED_MAX: f64 = 10.0;
/// What a fault on a stored page costs beside its stall: switches, and a cache that others have
/// filled. Six programs took 0 to 9 us a fault longer in half of their memory than their stalls
/// tell, 2.5 us at the median. They were of the kind that docs/guide.md tries the estimate on.
const SWITCH_NS: f64 = 2_500.0;
/// The thousandths of a whole.
const PERMILLE: f64 = 1000.0;

/// What is known of other budgets.
#[derive(Clone, Debug)]
pub(super) enum Outlook {
    /// No page had to leave: more memory changes nothing.
    Fits,
    /// Nothing is known, because of this.
    Unknown(&'static str),
    /// The expected time by budget, from this run's own budget on.
    Known(Curve),
}

/// The expected time by budget. The first forecast is of the run itself, and in the last one
/// everything fits.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) forecasts: Vec<Forecast>,
}

/// What a budget would have cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Forecast {
    pub(super) budget: Bytes,
    pub(super) stall_ns: f64,
    pub(super) time_ns: f64,
}

impl Outlook {
    /// Returns what the figures tell.
    pub(super) fn of(figures: &Figures) -> Self {
        if figures.is_fit() {
            return Self::Fits;
        }
        let shape = match Shape::of(figures) {
            Ok(shape) => shape,
            Err(why) => return Self::Unknown(why),
        };
        let all = shape.waiting.left(0.0, shape.room.limbo());
        let wall = figures.run.wall_ns as f64;
        if all.stall_ns >= wall {
            return Self::Unknown("several threads waited at one time");
        }
        // No switch takes longer than all that was no wait.
        let switch_ns = SWITCH_NS.min((wall - all.stall_ns) / all.refaults.max(1.0));
        let (least, most) = (figures.budget().0, shape.fits_at().0);
        let at = |step: usize| Bytes(least + (most - least) / STEPS * step);
        let budgets = (0..STEPS).map(at).chain([shape.fits_at()]);
        let forecast = |budget: Bytes| {
            let left = shape.left(budget);
            let ended = all.stall_ns - left.stall_ns + (all.refaults - left.refaults) * switch_ns;
            let time_ns = (wall - ended).max(0.0);
            Forecast { budget, stall_ns: left.stall_ns, time_ns }
        };
        Self::Known(Curve { forecasts: budgets.map(forecast).collect() })
    }
}

/// The waits of a run against its budget, from its own budget on.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    waiting: Waiting,
    room: Room,
}

impl Shape {
    /// Returns what the figures of a run tell, or why they tell nothing.
    pub(crate) fn of(figures: &Figures) -> Result<Self, &'static str> {
        if figures.is_budget_changed() {
            return Err("the budget was changed during the run");
        }
        if figures.pages.idle > 0 {
            return Err("idle pages were taken too, whatever the budget");
        }
        let waiting = Waiting::of(figures);
        if waiting.classes.is_empty() && figures.faults.major > 0 {
            return Err("these statistics have no refault distances");
        }
        let Some(room) = Room::of(figures) else {
            return Err("the timeline has no moment at which pages were away");
        };
        if room.fits_at() <= figures.budget() {
            return Err("pages left although the budget had room for them");
        }
        if room.asked > ASKED_MAX * room.share {
            return Err("the run asked for more than 10 times what it might hold");
        }
        Ok(Self { waiting, room })
    }

    /// Returns the budget in which everything stays in place.
    pub(crate) fn fits_at(&self) -> Bytes {
        self.room.fits_at()
    }

    /// Returns the waits that are left within a budget no smaller than that of the run.
    pub(crate) fn stall_ns(&self, budget: Bytes) -> f64 {
        self.left(budget).stall_ns
    }

    fn left(&self, budget: Bytes) -> Left {
        self.waiting.left(self.room.gained(budget), self.room.limbo())
    }
}

impl Curve {
    /// Returns the least budget that ends this part of the waiting, if one does.
    pub(super) fn ends(&self, part: f64) -> Option<Forecast> {
        let (now, others) = self.forecasts.split_first()?;
        let left = now.stall_ns * (1.0 - part);
        others.iter().find(|it| now.stall_ns > 0.0 && it.stall_ns <= left).copied()
    }
}

/// The waits of a run, by how much more room would have ended them.
#[derive(Clone, Debug)]
struct Waiting {
    classes: Vec<Waits>,
    limbo_ns: f64,
    /// Waits that room does not end: for pages touched for the first time, and for copies.
    others_ns: f64,
}

impl Waiting {
    fn of(figures: &Figures) -> Self {
        let classes = figures.run.histograms.refault_permille.clone();
        let limbo_ns = figures.faults.limbo_stall_ns.unwrap_or(0) as f64;
        let refaults_ns: f64 = classes.iter().map(|class| class.stall_ns as f64).sum();
        let others_ns = (figures.faults.stall_ns as f64 - refaults_ns - limbo_ns).max(0.0);
        Self { classes, limbo_ns, others_ns }
    }

    /// Returns the waits that are left when each process may hold this part more, and limbo is
    /// this part.
    fn left(&self, gained: f64, limbo: f64) -> Left {
        let in_limbo = self.limbo_ns * (1.0 - gained / limbo).max(0.0);
        let mut left = Left { stall_ns: self.others_ns + in_limbo, refaults: 0.0 };
        for class in &self.classes {
            let (begin, end) = (class.from as f64 / PERMILLE, class.below as f64 / PERMILLE);
            let kept = ((end - gained) / (end - begin).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
            left.stall_ns += kept * class.stall_ns as f64;
            left.refaults += kept * class.count as f64;
        }
        left
    }
}

/// Waits that are left, and the faults on stored pages among them.
struct Left {
    stall_ns: f64,
    refaults: f64,
}

/// What a budget has room for.
#[derive(Clone, Debug)]
struct Room {
    budget: f64,
    /// What managed processes may hold together: the unit of refault distances. Our own memory in
    /// them is a part of it.
    share: f64,
    /// What is held beside managed pages and the pool.
    fixed: f64,
    asked: f64,
    ratio: f64,
    pool_part: f64,
}

impl Room {
    /// Returns the room at the moment when most was asked for, with pages away.
    fn of(figures: &Figures) -> Option<Self> {
        let points = &figures.run.timeline.points;
        let has_away = |at: &usize| managed(points, *at) > points.resident_bytes[*at];
        let at = (0..points.count()).filter(has_away).max_by_key(|at| managed(points, *at))?;
        let held = points.pool_held_bytes[at];
        let pool = points.pool_original_bytes[at] as f64 / held.max(1) as f64;
        let ratio = if held > 0 { pool } else { figures.run.ratio };
        let beside = points.unmanaged_bytes[at].saturating_add(points.shared_bytes[at]);
        let fixed = points.other(at).saturating_add(beside);
        let budget = figures.budget().0 as f64;
        let percent = figures.run.knobs.get("max_pool_percent").and_then(|it| it.as_f64());
        Some(Self {
            budget,
            share: (budget - beside as f64).max(1.0),
            fixed: fixed as f64,
            asked: managed(points, at) as f64,
            ratio: ratio.max(RATIO_MIN),
            pool_part: percent.unwrap_or(50.0).clamp(0.0, 90.0) / 100.0,
        })
    }

    /// Returns the budget in which everything stays in place.
    fn fits_at(&self) -> Bytes {
        figures::bytes((self.asked + self.fixed) as u64)
    }

    /// Returns how much stays in place within a budget.
    fn in_place(&self, budget: f64) -> f64 {
        let all = (budget - self.fixed).max(0.0);
        let with_small_pool = (all - self.asked / self.ratio) / (1.0 - 1.0 / self.ratio);
        let with_full_pool = (1.0 - self.pool_part) * all;
        with_small_pool.max(with_full_pool).min(self.asked)
    }

    /// Returns how much more stays in place than in this run, as a part of what this run may hold:
    /// without a limit where all of it does.
    fn gained(&self, budget: Bytes) -> f64 {
        if budget >= self.fits_at() {
            return f64::INFINITY;
        }
        let gained = self.in_place(budget.0 as f64) - self.in_place(self.budget);
        gained.max(0.0) / self.share
    }

    /// Returns the part of what it may hold that limbo is in a single process.
    fn limbo(&self) -> f64 {
        let least = LIMBO_MIN.min(self.share / 8.0);
        (self.share * LIMBO_PART).max(least).min(LIMBO_MAX) / self.share
    }
}

/// Returns what managed processes have asked for at a moment.
fn managed(points: &Points, at: usize) -> u64 {
    let in_place = points.resident_bytes[at].saturating_add(points.limbo_bytes[at]);
    points.away(at).into_iter().fold(in_place, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    //! The risk: a budget is advised that ends no waits, or time is promised that nothing gains.

    use super::super::example;
    use super::*;
    use serde_json::json;

    /// A loop over 300 MiB in 100, of which all pages come back after 200 others were stored.
    fn looping(ratio: u64) -> Figures {
        let mut document = example::document();
        let mib = |mib: u64| json!([mib << 20]);
        document["budget_bytes"] = json!(100 << 20);
        document["wall_ns"] = json!(100_000_000_000_u64);
        document["stall_ns"] = json!(60_000_000_000_u64);
        (document["limbo_faults"], document["limbo_stall_ns"]) = (json!(0), json!(0));
        document["first_touch_faults"] = json!(0);
        let points = &mut document["timeline"]["points"];
        let pool = 50;
        points["time_ns"] = json!([1]);
        for column in points.as_object_mut().unwrap().values_mut() {
            *column = json!([0]);
        }
        (points["used_bytes"], points["budget_bytes"]) = (mib(100), mib(100));
        points["resident_bytes"] = mib(50);
        points["pool_held_bytes"] = mib(pool);
        points["pool_original_bytes"] = mib(pool * ratio);
        points["disk_original_bytes"] = mib(250 - pool * ratio);
        points["saved_bytes"] = mib(250 - pool);
        document["histograms"]["refault_permille"] = json!([
            { "from": 2334, "below": 2667, "count": 1, "stall_ns": 60_000_000_000_u64 },
        ]);
        Figures::read(&document.to_string()).unwrap()
    }

    #[test]
    fn a_loop_waits_until_all_of_it_fits() {
        let Outlook::Known(curve) = Outlook::of(&looping(2)) else { panic!("it is known") };
        let (first, last) = (curve.forecasts[0], curve.forecasts[STEPS]);
        assert_eq!((first.budget, last.budget), (Bytes::mib(100), Bytes::mib(300)));
        assert!((first.time_ns - 100e9).abs() < 1e6, "{first:?}");
        assert!((last.time_ns - 40e9).abs() < 1e7, "{last:?}");
        let ends = curve.ends(0.9).unwrap();
        assert!(ends.budget > Bytes::mib(280), "{ends:?}");
        let falls = curve.forecasts.windows(2).all(|two| two[1].time_ns <= two[0].time_ns);
        assert!(falls, "more memory never costs time: {curve:?}");
        // No part of a loop saves anything: all that comes back was away for as long.
        let parts = curve.forecasts.iter().filter(|it| it.budget < Bytes::mib(270));
        parts.for_each(|it| assert!((it.time_ns - 100e9).abs() < 1e6, "{it:?}"));
    }

    #[test]
    fn what_is_not_known_is_said_to_be_unknown() {
        let why = |change: &dyn Fn(&mut Figures)| {
            let mut figures = looping(2);
            change(&mut figures);
            match Outlook::of(&figures) {
                Outlook::Unknown(why) => why,
                outlook => panic!("{outlook:?}"),
            }
        };
        assert!(why(&|it| it.run.wall_ns = 59_000_000_000).contains("threads waited"));
        assert!(why(&|it| it.pages.idle = 1).contains("idle"));
        let budget = Bytes::mib(99).0 as u64;
        assert!(why(&|it| it.run.timeline.points.budget_bytes[0] = budget).contains("changed"));
        let far = Bytes::mib(800).0 as u64;
        let asks = |it: &mut Figures| {
            it.run.timeline.points.disk_original_bytes[0] += far;
            it.run.timeline.points.saved_bytes[0] += far;
        };
        assert!(why(&asks).contains("10 times"));
    }

    #[test]
    fn a_budget_ends_waits_only_where_something_is_gained() {
        let forecast = |mib, stall_ns| Forecast { budget: Bytes::mib(mib), stall_ns, time_ns: 1e9 };
        let ends = |stalls: [f64; 3]| {
            let forecasts = stalls.iter().zip(1..).map(|(stall, mib)| forecast(mib, *stall));
            Curve { forecasts: forecasts.collect() }.ends(0.9).map(|it| it.budget)
        };
        assert_eq!(ends([100.0, 9.0, 0.0]), Some(Bytes::mib(2)));
        assert_eq!(ends([100.0, 80.0, 20.0]), None);
        assert_eq!(ends([0.0; 3]), None);
    }

    #[test]
    fn limbo_is_a_part_within_limits() {
        let part = |share: usize| {
            let share = Bytes::mib(share).0 as f64;
            let room =
                Room { budget: share, share, fixed: 0.0, asked: 0.0, ratio: 2.0, pool_part: 0.5 };
            room.limbo() * share / Bytes::mib(1).0 as f64
        };
        assert_eq!([8, 16, 160, 2048, 8192].map(part), [1.0, 2.0, 10.0, 128.0, 128.0]);
    }

    #[test]
    fn pages_that_compress_well_make_room_sooner() {
        let room = |ratio| Room {
            budget: 100.0,
            share: 100.0,
            fixed: 0.0,
            asked: 300.0,
            ratio,
            pool_part: 0.5,
        };
        assert!((room(4.0).in_place(100.0) - 50.0).abs() < 1e-9, "the pool may not grow");
        assert!((room(4.0).in_place(150.0) - 100.0).abs() < 1e-9, "75 + 225 / 4 is above");
        assert!(room(8.0).in_place(150.0) > room(4.0).in_place(150.0));
        assert!((room(4.0).in_place(300.0) - 300.0).abs() < 1e-9);
    }

    #[test]
    fn without_distances_nothing_is_promised() {
        let mut document = example::document();
        document["histograms"].as_object_mut().unwrap().remove("refault_permille");
        let figures = Figures::read(&document.to_string()).unwrap();
        assert!(matches!(Outlook::of(&figures), Outlook::Unknown(_)));
        document["swap_out_pages"] = 0.into();
        document["limbo_faults"] = 0.into();
        let figures = Figures::read(&document.to_string()).unwrap();
        assert!(matches!(Outlook::of(&figures), Outlook::Fits));
    }
}
