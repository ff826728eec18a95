//! Faults that were read and whose threads wait, by what each of them waits for.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::pages::PageNumber;

/// A fault that waits to be served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) page: PageNumber,
    pub(crate) thread: u32,
    pub(crate) read_at_ticks: u64,
    /// How long the fault waited before, for the process's turn or for room.
    pub(crate) waited_ticks: u64,
    /// Whether its page is being read back from disk.
    pub(crate) is_coming: bool,
    /// Whether it is a write to a page that is there, and protected.
    pub(crate) is_protected: bool,
}

impl Fault {
    /// Records that the fault has waited until now, and returns for how long.
    pub(crate) fn wait_until(&mut self, ticks: u64) -> u64 {
        let waited = ticks.wrapping_sub(self.read_at_ticks);
        self.waited_ticks += waited;
        self.read_at_ticks = ticks;
        waited
    }
}

/// The faults that wait.
#[derive(Debug)]
pub(crate) struct Faults {
    /// Faults that nothing keeps from being served.
    pub(crate) pending: VecDeque<Fault>,
    /// Faults whose pages are being read back.
    pub(crate) reading: Vec<Fault>,
    /// Faults that wait for this process's turn.
    pub(crate) for_turn: Vec<Fault>,
    /// Writes to protected pages that wait for room for the copy, and first touches with them.
    pub(crate) for_room: Vec<Fault>,
    /// The fault that is being served.
    pub(crate) serving: Option<Fault>,
}

impl Faults {
    /// Creates the state in which no thread waits.
    pub(crate) fn new() -> Self {
        Self {
            pending: VecDeque::with_capacity(64),
            reading: Vec::with_capacity(64),
            for_turn: Vec::new(),
            for_room: Vec::new(),
            serving: None,
        }
    }

    /// Returns whether threads wait for pages that they have asked for.
    pub(crate) fn any(&self) -> bool {
        let wait = !self.for_turn.is_empty() || !self.for_room.is_empty();
        wait || !self.pending.is_empty() || !self.reading.is_empty()
    }

    /// Returns every fault that was read and whose thread may wait.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Fault> {
        let turns = self.serving.iter().chain(&self.for_turn);
        turns.chain(&self.pending).chain(&self.reading).chain(&self.for_room)
    }
}
