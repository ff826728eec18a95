//! What is asked: the runs there are, each with its processes, and rates from two answers.
//!
//! An answer is the keeper's own document, so its figures are those of `coldpress ctl PID get`.
//! What is added here is pure arithmetic on two of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use coldpress_common::failure::{Failure, Result};
use serde_json::{Value, json};

use crate::broker::totals::rounded;
use crate::control::{PROCESSES, TIMELINE};
use crate::proc;
use crate::runs::{self, Keeper};

/// The time to wait for an answer. Keepers answer within milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time in which a look begins to ask: any number of silent keepers holds it up no longer.
const LOOK_MAX: Duration = Duration::from_secs(3);
/// The time for which a keeper that gave no answer is not asked again.
const PAUSE: Duration = Duration::from_secs(10);
/// The version of the document's keys.
const SCHEMA: u32 = 1;

/// The runs to look at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The run of this process.
    One(u32),
    /// All that there are.
    All,
}

/// A run that has answered.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) keeper: u32,
    /// The answer, with rates.
    pub(super) document: Value,
    /// How the run stood before the first look, if that was asked for.
    pub(super) timeline: Option<Value>,
}

/// A run that has not answered.
#[derive(Clone, Debug)]
pub(super) struct Silent {
    pub(super) keeper: u32,
    pub(super) user: Option<u32>,
    pub(super) failure: Failure,
}

/// The runs at one look.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) runs: Vec<Run>,
    pub(super) silent: Vec<Silent>,
}

/// The one run to look at, and when its keeper began: its number may be used again.
type Followed = (Keeper, Option<u64>);

/// What looks at the runs, again and again.
pub(super) struct Sampler {
    followed: Option<Followed>,
    wants_timelines: bool,
    /// The first keeper for which the last look had no time left.
    next: u32,
    before: BTreeMap<u32, Value>,
    paused: BTreeMap<u32, (Instant, Failure)>,
}

impl Sampler {
    /// Fails when the one run that is wanted is not there.
    pub(super) fn new(target: Target, wants_timelines: bool) -> Result<Self> {
        let followed = match target {
            Target::One(process) => {
                let keeper = Keeper::of(process)?;
                let began = proc::began(keeper.process());
                Some((keeper, began))
            }
            Target::All => None,
        };
        let (before, paused) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { followed, wants_timelines, next: 0, before, paused })
    }

    /// Looks once. Fails when the one run that is wanted has ended.
    pub(super) fn look(&mut self) -> Result<Sample> {
        let mut wanted = match &self.followed {
            Some((keeper, began)) if proc::began(keeper.process()) == *began => {
                vec![keeper.clone()]
            }
            Some((keeper, _)) => {
                let cause = format!("the run of keeper {} has ended", keeper.process());
                return Err(Failure::ours(cause, "`coldpress top` lists those that there are"));
            }
            None => Keeper::all(),
        };
        let is_there = |keeper: &u32| wanted.iter().any(|it| it.process() == *keeper);
        self.before.retain(|keeper, _| is_there(keeper));
        self.paused.retain(|keeper, (until, _)| is_there(keeper) && Instant::now() < *until);
        // Those that answer come first, and the others in turn.
        wanted.sort_by_key(|it| {
            (!self.before.contains_key(&it.process()), it.process() < self.next, it.process())
        });
        let until = Instant::now() + LOOK_MAX;
        let mut sample = Sample::default();
        self.next = 0;
        for keeper in &wanted {
            match self.ask(keeper, until) {
                Ok(run) => sample.runs.push(run),
                Err(failure) => {
                    let (keeper, user) = (keeper.process(), keeper.user());
                    sample.silent.push(Silent { keeper, user, failure });
                }
            }
        }
        sample.runs.sort_by_key(|run| run.keeper);
        sample.silent.sort_by_key(|silent| silent.keeper);
        Ok(sample)
    }

    fn ask(&mut self, keeper: &Keeper, until: Instant) -> Result<Run> {
        let number = keeper.process();
        // Any user can listen as a run does, and tell anything.
        if self.followed.is_none() && !runs::may_ask(keeper.user()) {
            return Err(Failure::ours("only that user and root see it", "run this as root"));
        }
        if let Some((_, failure)) = self.paused.get(&number) {
            return Err(failure.clone());
        }
        if Instant::now() >= until {
            self.next = if self.next == 0 { number } else { self.next };
            return Err(Failure::ours("not asked: others took too long to answer", "wait"));
        }
        let ask = |what: &str| keeper.ask(&[what.to_owned()], PATIENCE);
        let begun = Instant::now();
        let answer = ask(PROCESSES).inspect_err(|failure| {
            if begun.elapsed() >= PATIENCE {
                self.paused.insert(number, (Instant::now() + PAUSE, failure.clone()));
            }
        })?;
        let is_new = !self.before.contains_key(&number);
        let timeline = (is_new && self.wants_timelines).then(|| ask(TIMELINE).ok()).flatten();
        let document = with_rates(answer.clone(), self.before.get(&number));
        self.before.insert(number, answer);
        Ok(Run { keeper: number, document, timeline })
    }
}

impl Sample {
    /// Returns one document of all runs.
    pub(super) fn document(&self) -> Value {
        let run = |run: &Run| {
            let mut document = run.document.clone();
            document["keeper"] = run.keeper.into();
            document
        };
        let silent = |silent: &Silent| {
            let Silent { keeper, user, failure } = silent;
            json!({ "keeper": keeper, "user": user, "why": failure.cause })
        };
        json!({
            "schema": SCHEMA,
            "runs": self.runs.iter().map(run).collect::<Value>(),
            "not_shown": self.silent.iter().map(silent).collect::<Value>(),
        })
    }
}

/// Returns a whole number of a document; 0 where there is none.
pub(super) fn number(document: &Value, name: &str) -> u64 {
    document.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// Returns the ratio of what is in the pool, if anything is.
pub(super) fn pool_ratio(original: u64, compressed: u64) -> Option<f64> {
    (compressed > 0).then(|| original as f64 / compressed as f64)
}

/// Adds what has to be computed: the ratio of what is in the pool, and what happened a second since
/// the answer `before`.
fn with_rates(mut now: Value, before: Option<&Value>) -> Value {
    if !now.is_object() {
        return now;
    }
    let ns = before.map(|before| number(&now, "time_ns").saturating_sub(number(before, "time_ns")));
    let ns = ns.filter(|ns| *ns > 0);
    add_rates(&mut now, before, ns);
    let processes = |document: &Value| document["tree"].as_array().cloned().unwrap_or_default();
    let earlier = before.map(processes).unwrap_or_default();
    let number_of = |process: &Value| number(process, "process");
    let earlier: BTreeMap<u64, &Value> = earlier.iter().map(|it| (number_of(it), it)).collect();
    for process in now["tree"].as_array_mut().into_iter().flatten() {
        let before = earlier.get(&number_of(process)).copied();
        add_rates(process, before, ns);
    }
    now
}

fn add_rates(now: &mut Value, before: Option<&Value>, ns: Option<u64>) {
    let (original, compressed) =
        (number(now, "pool_original_bytes"), number(now, "pool_compressed_bytes"));
    let ratio = pool_ratio(original, compressed).map(rounded);
    let rate = |name: &str| {
        // A new process may have the number of one that has ended. Its counters are lower.
        let counted = number(now, name).checked_sub(number(before?, name))?;
        Some(counted as f64 / ns? as f64)
    };
    let faults = rate("faults").map(|rate| rounded(rate * 1e9));
    let stall = rate("stall_ns").map(|rate| rounded(rate * 100.0));
    if let Value::Object(members) = now {
        members.insert("pool_ratio".to_owned(), ratio.into());
        members.insert("faults_per_second".to_owned(), faults.into());
        members.insert("stall_percent".to_owned(), stall.into());
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a rate is of another time, or of another process with the same number.

    use super::*;

    fn answer(time_ns: u64, faults: u64) -> Value {
        let process = |process, faults| {
            json!({
                "process": process, "faults": faults, "stall_ns": 0,
                "pool_original_bytes": 8192, "pool_compressed_bytes": 2048,
            })
        };
        json!({
            "time_ns": time_ns, "faults": faults, "stall_ns": time_ns / 4,
            "tree": [process(7, faults), process(8, 100 - faults)],
        })
    }

    #[test]
    fn rates_are_of_the_time_of_the_run() {
        let first = with_rates(answer(0, 10), None);
        assert_eq!(first["faults_per_second"], Value::Null);
        assert_eq!(first["tree"][0]["pool_ratio"], 4.0);
        assert_eq!(first["pool_ratio"], Value::Null);
        let second = with_rates(answer(2_000_000_000, 60), Some(&answer(0, 10)));
        assert_eq!(second["faults_per_second"], 25.0);
        assert_eq!(second["stall_percent"], 25.0);
        assert_eq!(second["tree"][0]["faults_per_second"], 25.0);
        // Process 8 has counted less than before: it is another one.
        assert_eq!(second["tree"][1]["faults_per_second"], Value::Null);
    }

    #[test]
    fn two_answers_of_one_moment_make_no_rate() {
        let same = with_rates(answer(5, 10), Some(&answer(5, 10)));
        assert_eq!(same["faults_per_second"], Value::Null);
        assert_eq!(with_rates(json!("x"), None), json!("x"));
    }

    #[test]
    fn the_document_names_runs_and_those_that_are_not_shown() {
        let run = Run { keeper: 5, document: answer(1, 2), timeline: None };
        let failure = Failure::ours("no", "yes");
        let silent = Silent { keeper: 6, user: Some(9), failure };
        let document = Sample { runs: vec![run], silent: vec![silent] }.document();
        assert_eq!(
            (&document["runs"][0]["keeper"], &document["runs"][0]["faults"]),
            (&json!(5), &json!(2))
        );
        assert_eq!(document["not_shown"], json!([{ "keeper": 6, "user": 9, "why": "no" }]));
    }
}
