//! Placement: the service thread stays on the processor of the thread it serves.
//!
//! On the same processor a fault costs a switch of threads (7 to 10 us in all); woken on an idle
//! one, the wake-up alone costs 40 to 60 us. So after each fault the service thread goes where the
//! fault came from. The main thread's processor is read from its rseq area; that of others from
//! /proc, which is slow (10 us), so no more often than once in `LOOK_INTERVAL_NS`.

use coldpress_sys::cpu::{self, RseqArea};
use coldpress_sys::proc;

/// Between two looks at /proc: 3 % of the time, where a fault across processors costs five times
/// one on the same.
const LOOK_INTERVAL_NS: u64 = 300_000;

/// Follows the faulting thread.
pub struct Placement {
    main_thread: u32,
    main_area: Option<RseqArea>,
    current: Option<usize>,
    looked_at_ns: u64,
    migrations: u64,
}

impl Placement {
    /// Follows from now on. `main_area` is that of the thread whose id is `main_thread`.
    pub fn new(main_thread: u32, main_area: Option<RseqArea>) -> Self {
        Self { main_thread, main_area, current: None, looked_at_ns: 0, migrations: 0 }
    }

    /// Goes to the processor of `thread`, which has just faulted. `now_ns` is the monotonic clock.
    pub fn follow(&mut self, thread: u32, now_ns: u64) {
        let area = self.main_area.filter(|_| thread == self.main_thread);
        let cpu = match area.and_then(RseqArea::cpu) {
            Some(cpu) => cpu,
            None if now_ns < self.looked_at_ns + LOOK_INTERVAL_NS => return,
            None => {
                self.looked_at_ns = now_ns;
                match proc::cpu_of_thread(thread) {
                    Ok(cpu) => cpu,
                    Err(_) => return,
                }
            }
        };
        if self.current != Some(cpu) && cpu::run_on(cpu).is_ok() {
            self.current = Some(cpu);
            self.migrations += 1;
        }
    }

    /// How often the processor changed.
    pub fn migrations(&self) -> u64 {
        self.migrations
    }
}
