//! The helper: a thread that compresses pages for the processes of a run before their time has
//! come, on a processor that would be idle otherwise.
//!
//! It reads pages out of the processes, as it has no memory in common with them but their desks
//! ([`coldpress_zswap::desk`]), which are handed to it and taken back by the broker. Nobody waits
//! for it. What it cannot read, it answers with nothing, and the process helps itself.

use std::hint;
use std::iter;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use coldpress_runtime::knobs::{Knob, Knobs};
use coldpress_runtime::ledger::Keeper;
use coldpress_sys::cpu::{self, Allowed};
use coldpress_sys::remote::{self, BATCH_MAX};
use coldpress_sys::shared::Shared;
use coldpress_sys::{OwnedFd, PAGE_BYTES, Page, PageCount};
use coldpress_zswap::Maker;
use coldpress_zswap::desk::{Claim, Desk};
use rustix::io::Errno;
use rustix::time::ClockId;

use crate::trial::pause;

/// The name of the thread.
pub(crate) const NAME: &str = "helper";
/// Processors below which there is none: it would take the time of those it is for.
const PROCESSORS_MIN: u32 = 2;
/// How long it looks for something to do before it sleeps: to begin again takes it 40 to 60 us (two
/// virtual processors). With 20 and 400 us there were 0.99 and 0.96 of the touches a second.
const PATIENCE: Duration = Duration::from_micros(100);
/// It looks this often whether it had a processor when it wanted one, and if it was without for
/// more than one in `LOST_MAX` of the time, rests for a while: others have more use for it. A
/// thread that is held up may hold up others, as it has locks of theirs while it reads.
const LOOK: Duration = Duration::from_millis(2);
const LOST_MAX: u32 = 4;
const REST: Duration = Duration::from_millis(100);

/// How the kernel says that a process may not be read, and that none may.
const REFUSALS: [Errno; 2] = [Errno::PERM, Errno::NOSYS];

/// What the broker has of it.
pub(crate) struct Helper {
    changes: Sender<Change>,
    ledger: Arc<Keeper>,
}

/// Who has a desk.
enum Change {
    Came(Client),
    Left(usize),
}

/// A process, and what it has posted.
struct Client {
    seat: usize,
    process: u32,
    desk: Shared<Desk>,
    /// Jobs of the desk that were looked at.
    seen: u64,
}

/// Its memory may not be read: it has another user by now, or such reads are forbidden here.
struct MayNotRead;

impl Client {
    /// Answers a few of its jobs; how many.
    fn serve(
        &mut self,
        maker: &mut Maker,
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
        let claims = iter::from_fn(|| self.desk.claim(&mut self.seen));
        let claims: Vec<Claim> = claims.take(BATCH_MAX).collect();
        if claims.is_empty() {
            return Ok(0);
        }
        let addresses: Vec<usize> = claims.iter().map(|claim| claim.address).collect();
        let read = match remote::read_pages(self.process, &addresses, pages) {
            Ok(PageCount(count)) => count,
            Err(error) if REFUSALS.contains(&Errno::from_raw_os_error(error.errno)) => {
                return Err(MayNotRead);
            }
            Err(_) => 0,
        };
        for (index, claim) in claims.iter().enumerate() {
            let page = pages.get(index).filter(|_| index < read);
            self.desk.answer(*claim, page.and_then(|page| maker.make(page)));
        }
        Ok(claims.len())
    }
}

impl Helper {
    /// Starts it, where that is of use and possible.
    pub(crate) fn start(ledger: &Arc<Keeper>) -> Option<Self> {
        if ledger.processors() < PROCESSORS_MIN {
            return None;
        }
        let (changes, receiver) = mpsc::channel();
        let working = Working::new(Arc::clone(ledger), receiver)?;
        thread::Builder::new().name(NAME.to_owned()).spawn(move || working.run()).ok()?;
        Some(Self { changes, ledger: Arc::clone(ledger) })
    }

    /// A desk for the `process` in `seat`: its descriptor, if there is one to be had.
    pub(crate) fn open_desk(&self, seat: usize, process: u32) -> Option<OwnedFd> {
        let (fd, desk) = coldpress_runtime::ahead::make_desk().ok()?;
        self.tell(Change::Came(Client { seat, process, desk, seen: 0 }));
        Some(fd)
    }

    /// The process in `seat` has gone.
    pub(crate) fn close_desk(&self, seat: usize) {
        self.tell(Change::Left(seat));
    }

    fn tell(&self, change: Change) {
        // It ends after us.
        let _ = self.changes.send(change);
        self.ledger.bell.ring_again();
    }
}

/// All that the thread works with.
struct Working {
    ledger: Arc<Keeper>,
    changes: Receiver<Change>,
    clients: Vec<Client>,
    maker: Maker,
    /// That of the knobs which the maker has.
    generation: u64,
    pages: Box<[Page; BATCH_MAX]>,
    /// What the launcher is allowed.
    allowed: Allowed,
}

/// Leaves `processor`, on which a process does its own part, for others of those `allowed`. Whether
/// this is another.
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
                // Now rather than in the middle of a read, with locks of others.
                cpu::yield_now();
                busy_at = Instant::now();
                if looked_at.elapsed() >= LOOK {
                    if looked_at.has_lost_much() {
                        pause(REST);
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

    /// Compresses as the processes do now. Where that is not possible, they refuse what it makes.
    fn follow_knobs(&mut self) {
        let generation = self.ledger.generation();
        if generation != self.generation {
            self.generation = generation;
            if let Some(maker) = maker(&self.ledger.knobs()) {
                self.maker = maker;
            }
        }
    }

    /// A few pages of each process; how many there were.
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

    /// Sleeps until somebody posts, comes or goes.
    fn sleep(&mut self) {
        let ledger = Arc::clone(&self.ledger);
        let mut change = None;
        ledger.bell.sleep_unless(|| {
            change = self.changes.try_recv().ok();
            change.is_some() || self.clients.iter().any(|it| it.desk.has_more(it.seen))
        });
        if let Some(change) = change {
            self.take(change);
        }
    }
}

/// Compresses as a process with these knobs.
fn maker(knobs: &Knobs) -> Option<Maker> {
    let ratio = u8::try_from(knobs.get(Knob::MaxCompressionRatio)).unwrap_or(u8::MAX);
    Maker::new(knobs.codec(), ratio).ok()
}

/// How long this thread has gone on, and how long it had a processor.
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

    /// Whether it was without a processor for a large part of the time.
    fn has_lost_much(&self) -> bool {
        let (all, had) = (self.elapsed(), Self::ran().saturating_sub(self.had));
        all.saturating_sub(had) > all / LOST_MAX
    }
}
