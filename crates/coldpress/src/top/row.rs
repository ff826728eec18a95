//! A row of the table: whose it is, and what it counts.

use serde_json::Value;

use super::sample::{number, pool_ratio};

/// The name of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Id {
    /// A run, by its keeper.
    Run(u32),
    /// A process of the run of a keeper.
    Process(u32, u32),
}

impl Id {
    /// Returns the keeper of the run.
    pub(super) const fn keeper(self) -> u32 {
        match self {
            Self::Run(keeper) | Self::Process(keeper, _) => keeper,
        }
    }

    /// Returns the process itself: the keeper, of a run.
    pub(super) const fn number(self) -> u32 {
        match self {
            Self::Run(number) | Self::Process(_, number) => number,
        }
    }
}

/// What a row counts. What a second counts is not known at the first look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) used: u64,
    pub(super) original: u64,
    pub(super) compressed: u64,
    pub(super) disk: u64,
    pub(super) faults: Option<f64>,
    pub(super) stall: Option<f64>,
}

impl Figures {
    pub(super) fn of(document: &Value) -> Self {
        Self {
            used: number(document, "used_bytes"),
            original: number(document, "pool_original_bytes"),
            compressed: number(document, "pool_compressed_bytes"),
            disk: number(document, "disk_held_bytes"),
            faults: document["faults_per_second"].as_f64(),
            stall: document["stall_percent"].as_f64(),
        }
    }

    /// Returns the ratio of what is in the pool.
    pub(super) fn ratio(&self) -> Option<f64> {
        pool_ratio(self.original, self.compressed)
    }

    /// Adds the figures of another row.
    pub(super) fn add(&mut self, other: &Self) {
        let sum = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (None, None) => None,
            _ => Some(one.unwrap_or(0.0) + other.unwrap_or(0.0)),
        };
        self.used = self.used.saturating_add(other.used);
        self.original = self.original.saturating_add(other.original);
        self.compressed = self.compressed.saturating_add(other.compressed);
        self.disk = self.disk.saturating_add(other.disk);
        self.faults = sum(self.faults, other.faults);
        self.stall = sum(self.stall, other.stall);
    }
}

/// Whether what is below a row is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    /// There is nothing below it.
    Leaf,
    Open,
    Closed,
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) id: Id,
    pub(super) depth: usize,
    pub(super) name: String,
    pub(super) fold: Fold,
    /// The figures of the row itself, and of all rows below it when it is closed.
    pub(super) figures: Figures,
    pub(super) budget: Option<u64>,
    /// What is said in place of figures.
    pub(super) note: Option<String>,
}
