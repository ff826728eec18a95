//! The helper: a thread that compresses pages for the processes of a run ahead of time, on a
//! processor that would be idle otherwise.
//!
//! The helper reads pages out of the processes, because it shares no memory with them except their
//! desks ([`coldpress_zswap::desk`]). The broker hands the desks to the helper, and takes them
//! back. No process waits for the helper. It answers jobs that it cannot read with nothing, and the
//! process compresses those pages itself.

use std::hint;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use coldpress_runtime::helper::{HELPER_THREAD, make_desk};
use coldpress_runtime::knobs::{Knob, Knobs};
use coldpress_runtime::ledger::Keeper;
use coldpress_sys::cpu::{self, Allowed};
use coldpress_sys::remote::{self, BATCH_MAX};
use coldpress_sys::shared::Shared;
use coldpress_sys::{OwnedFd, PAGE_BYTES, Page, PageCount};
use coldpress_zswap::HelperCodec;
use coldpress_zswap::desk::Desk;
use rustix::io::Errno;
use rustix::time::ClockId;

use crate::pause::pause;

/// The number of processors below which there is no helper: it would take time from the processes
/// that it is for.
const PROCESSORS_MIN: u32 = 2;
/// The time that the helper looks for work before it sleeps. Starting again takes 40 to 60 us (two
/// virtual processors). With 20 and 400 us instead, touches a second were 0.99 and 0.96 of the rate
/// with 100 us.
const PATIENCE: Duration = Duration::from_micros(100);
/// The interval at which the helper checks whether it had a processor when it wanted one. If it was
/// without one for more than one in `LOST_MAX` of the time, it rests for `REST`, and for twice as
/// long each time in a row, up to `REST_MAX`, because others have more use for the processor. A
/// helper that is held up may hold up others, because it has locks of theirs while it reads. In 2
/// ms one turn of another thread is too much: then the helper rested for half of the time beside a
/// program alone on the machine.
const LOOK: Duration = Duration::from_millis(20);
const LOST_MAX: u32 = 4;
const REST: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_millis(1600);

/// The errors by which the kernel says that a process may not be read, and that none may.
const REFUSALS: [Errno; 2] = [Errno::PERM, Errno::NOSYS];

/// The broker's side of the helper.
pub(crate) struct Helper {
    changes: Sender<Change>,
    ledger: Arc<Keeper>,
}

/// A change in the set of processes that have a desk.
enum Change {
    Came(Client),
    Left(usize),
}

/// A process with a desk, and the jobs it has posted.
struct Client {
    seat: usize,
    process: u32,
    desk: Shared<Desk>,
    /// The number of jobs of the desk that were looked at.
    seen: u64,
}

/// The error when the memory of a process may not be read: the process has another user by now, or
/// such reads are forbidden here.
struct MayNotRead;

impl Client {
    /// Answers a few jobs of the process, and returns how many.
    fn serve(
        &mut self,
        maker: &mut HelperCodec,
        pages: &mut [Page; BATCH_MAX],
        allowed: Allowed,
    ) -> Result<usize, MayNotRead> {
        if !self.desk.has_more(self.seen) {
            return Ok(0);
        }
        if !leave(self.desk.processor(), allowed) {
            self.desk.pass_over(&mut self.seen);
            return Ok(0);
        }
        let process = self.process;
        self.desk.serve(&mut self.seen, maker, pages, |addresses, pages| {
            match remote::read_pages(process, addresses, pages) {
                Err(error) if REFUSALS.contains(&Errno::from_raw_os_error(error.errno)) => {
                    Err(MayNotRead)
                }
                read => Ok(read.unwrap_or(PageCount(0))),
            }
        })
    }
}

impl Helper {
    /// Starts the helper where that is useful and possible.
    pub(crate) fn start(ledger: &Arc<Keeper>) -> Option<Self> {
        if ledger.processors() < PROCESSORS_MIN {
            return None;
        }
        let (changes, receiver) = mpsc::channel();
        let working = Working::new(Arc::clone(ledger), receiver)?;
        thread::Builder::new().name(HELPER_THREAD.to_owned()).spawn(move || working.run()).ok()?;
        Some(Self { changes, ledger: Arc::clone(ledger) })
    }

    /// Makes a desk for the `process` in `seat`. Returns the desk's descriptor, if a desk can be
    /// had.
    pub(crate) fn open_desk(&self, seat: usize, process: u32) -> Option<OwnedFd> {
        let (fd, desk) = make_desk().ok()?;
        self.tell(Change::Came(Client { seat, process, desk, seen: 0 }));
        Some(fd)
    }

    /// Takes the desk of the process in `seat` back, because the process has gone.
    pub(crate) fn close_desk(&self, seat: usize) {
        self.tell(Change::Left(seat));
    }

    fn tell(&self, change: Change) {
        // The thread ends after the broker, so it still receives this.
        let _ = self.changes.send(change);
        self.ledger.wake_helper();
    }
}

/// The state of the thread.
struct Working {
    ledger: Arc<Keeper>,
    changes: Receiver<Change>,
    clients: Vec<Client>,
    maker: HelperCodec,
    /// The generation of the knobs that the maker has.
    generation: u64,
    pages: Box<[Page; BATCH_MAX]>,
    /// The processors that the launcher is allowed.
    allowed: Allowed,
}

/// Returns whether this thread runs on another processor than `processor`, on which a process does
/// its own part. Moves the thread to others of those `allowed` if needed.
fn leave(processor: Option<usize>, allowed: Allowed) -> bool {
    let is_here = |processor| cpu::current() == processor;
    processor.is_none_or(|processor| {
        !is_here(processor) || allowed.without(processor).give_to(0).is_ok() && !is_here(processor)
    })
}

impl Working {
    fn new(ledger: Arc<Keeper>, changes: Receiver<Change>) -> Option<Self> {
        let generation = ledger.generation();
        let maker = maker(&ledger.knobs())?;
        let pages = Box::new([[0; PAGE_BYTES]; BATCH_MAX]);
        let allowed = Allowed::of(0).ok()?;
        Some(Self { ledger, changes, clients: Vec::new(), maker, generation, pages, allowed })
    }

    /// Works until the broker has ended.
    fn run(mut self) {
        let mut busy_at = Instant::now();
        let mut looked_at = Stopwatch::start();
        let mut rest = REST;
        loop {
            loop {
                match self.changes.try_recv() {
                    Ok(change) => self.take(change),
                    Err(TryRecvError::Disconnected) => return,
                    Err(TryRecvError::Empty) => break,
                }
            }
            self.follow_knobs();
            if self.work() > 0 {
                // The thread yields now rather than in the middle of a read, when it has locks of
                // others.
                cpu::yield_now();
                busy_at = Instant::now();
                if looked_at.elapsed() >= LOOK {
                    if looked_at.has_lost_much() {
                        pause(rest);
                        rest = (2 * rest).min(REST_MAX);
                    } else {
                        rest = REST;
                    }
                    looked_at = Stopwatch::start();
                }
            } else if busy_at.elapsed() < PATIENCE {
                hint::spin_loop();
            } else {
                self.sleep();
                busy_at = Instant::now();
                looked_at = Stopwatch::start();
            }
        }
    }

    fn take(&mut self, change: Change) {
        match change {
            Change::Came(client) => self.clients.push(client),
            Change::Left(seat) => self.clients.retain(|client| client.seat != seat),
        }
    }

    /// Takes over the knobs of the processes. Where that fails, the processes refuse what the
    /// helper makes.
    fn follow_knobs(&mut self) {
        let generation = self.ledger.generation();
        if generation != self.generation {
            self.generation = generation;
            if let Some(maker) = maker(&self.ledger.knobs()) {
                self.maker = maker;
            }
        }
    }

    /// Answers a few pages of each process, and returns how many pages there were.
    fn work(&mut self) -> usize {
        let Self { clients, maker, pages, allowed, .. } = self;
        let mut count = 0;
        clients.retain_mut(|client| match client.serve(maker, pages, *allowed) {
            Ok(served) => {
                count += served;
                true
            }
            Err(MayNotRead) => false,
        });
        count
    }

    /// Sleeps until a process posts, comes or goes.
    fn sleep(&mut self) {
        let ledger = Arc::clone(&self.ledger);
        let mut change = None;
        ledger.sleep_as_helper(|| {
            change = self.changes.try_recv().ok();
            change.is_some() || self.clients.iter().any(|it| it.desk.has_more(it.seen))
        });
        if let Some(change) = change {
            self.take(change);
        }
    }
}

/// Returns a maker that compresses as a process with these knobs does.
fn maker(knobs: &Knobs) -> Option<HelperCodec> {
    let ratio = u8::try_from(knobs.get(Knob::MaxCompressionRatio)).unwrap_or(u8::MAX);
    HelperCodec::new(knobs.codec(), ratio).ok()
}

/// The time since a start, and the part of it in which this thread had a processor.
struct Stopwatch {
    began: Instant,
    had: Duration,
}

impl Stopwatch {
    fn start() -> Self {
        Self { began: Instant::now(), had: Self::ran() }
    }

    fn ran() -> Duration {
        let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap_or_default()
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns whether the thread was without a processor for a large part of the time.
    fn has_lost_much(&self) -> bool {
        let (all, had) = (self.elapsed(), Self::ran().saturating_sub(self.had));
        all.saturating_sub(had) > all / LOST_MAX
    }
}
