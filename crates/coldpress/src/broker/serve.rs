//! The broker's thread: it waits, has the other parts deal with what comes, and ends with the run.

use std::io::{self, PipeReader, Read};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use coldpress_sys::{PageCount, cpu};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::account::Account;
use super::member::Member;
use super::required::Required;
use super::standing::Standing;
use super::state::Serving;
use super::timeline::Timeline;
use super::unmanaged::UnmanagedOfRun;
use super::unseated::Unseated;
use crate::proc;
use crate::tree;

/// The interval between two looks at the limit that the budget is a part of.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
/// The number by which the broker's nice value is below the program's.
const PREFERRED_BY: i32 = 10;
/// The longest time that the launcher waits for services to end after their programs.
const SERVICES_MAX: Duration = Duration::from_secs(5);
/// The number of services that ended last and may not have been reaped yet.
const SERVICES_KEPT: usize = 64;

/// The rest of a run that is over.
pub(super) struct Retired {
    pub(super) standing: Standing,
    pub(super) at_peak: Account,
    pub(super) timeline: Timeline,
    /// Processes that have not ended.
    pub(super) left: usize,
    pub(super) unmanaged: UnmanagedOfRun,
    /// Services that ended recently.
    pub(super) services: Vec<u32>,
    /// The reason why the run was ended, if it was.
    pub(super) ended_for: Option<String>,
    /// Advice that would have helped this run.
    pub(super) hint: Option<String>,
}

/// The events that ended a wait, besides connections.
struct Woken {
    /// Whether the launcher has a command, or is done.
    commanded: bool,
    /// Whether a member spoke or left.
    heard: bool,
}

/// Starts the thread, which serves until the other end of `commands` is closed.
pub(super) fn start_thread(
    serving: Serving,
    commands: PipeReader,
) -> io::Result<JoinHandle<(Retired, Serving)>> {
    thread::Builder::new().name("broker".to_owned()).spawn(move || serving.run(commands))
}

impl Serving {
    /// Serves until the other end of `commands` is closed.
    fn run(mut self, mut commands: PipeReader) -> (Retired, Self) {
        // A process that grows waits for the broker's welcome.
        cpu::set_nice(cpu::nice() - PREFERRED_BY);
        let (mut look_at, mut follow_at) = (Instant::now(), Instant::now());
        loop {
            // The launcher reaps services that end before the program.
            let past = self.services.len().saturating_sub(SERVICES_KEPT);
            self.services.drain(..past);
            let now = Instant::now();
            let wake_at = self.outliving.wake_at(self.door.wake_at(look_at));
            let patience = wake_at.saturating_duration_since(now);
            let woken = self.wait(Some(&commands), patience);
            if woken.commanded || woken.heard {
                // A process is awake, so the next look must be soon.
                look_at = look_at.min(Instant::now() + Unseated::soon());
            }
            if woken.commanded {
                let mut process = [0; 4];
                match commands.read_exact(&mut process) {
                    Ok(()) => {
                        let root = u32::from_le_bytes(process);
                        self.has_started = true;
                        self.required.iter_mut().for_each(|required| required.begin(root));
                        // The program has its own limits by now, so it does not inherit this one.
                        if !self.is_trial {
                            tree::allow_many_descriptors();
                        }
                    }
                    Err(_) => break,
                }
            }
            if Instant::now() >= look_at {
                self.look_at_tree();
                self.sample();
                look_at = Instant::now() + self.unseated.interval();
            }
            if let Some(required) = &mut self.required
                && required.is_ending()
            {
                required.end_on();
                look_at = look_at.min(Instant::now() + Unseated::soon());
            }
            if Instant::now() >= follow_at {
                self.follow_limit();
                // Once a process has ended, its number may be given to another. The connection of a
                // service ends with the service, unless it was handed to another process.
                let are_there = |member: &&Member| {
                    !member.program.has_ended() && !proc::is_over(&member.service)
                };
                let pairs = self.members.iter().filter(are_there);
                let pair = |member: &Member| (member.program.process(), member.peer.process);
                self.along.look(&pairs.map(pair).collect::<Vec<_>>());
                follow_at = Instant::now() + FOLLOW_INTERVAL;
            }
        }
        self.see_services_off();
        // What processes sent before the end can still be read.
        while self.wait(None, Duration::ZERO).heard {}
        self.required.iter_mut().for_each(Required::finish);
        self.unmanaged.look(|_| PageCount(0), [].into_iter(), Instant::now(), |_| None);
        self.note_peak();
        self.complain_of_shared(true);
        (self.retire(), self)
    }

    /// Returns what is left of the run.
    fn retire(&mut self) -> Retired {
        self.members.iter().for_each(|member| self.sizing.note(&self.ledger, member));
        Retired {
            standing: self.sample_end(),
            at_peak: self.at_peak,
            timeline: self.reports.timeline.clone(),
            left: self.members.len(),
            unmanaged: std::mem::take(&mut self.unmanaged),
            services: std::mem::take(&mut self.services),
            ended_for: self.required.take().and_then(Required::into_reason),
            hint: self.sizing.hint(&self.now),
        }
    }

    /// Waits for services whose programs have ended, unless others still share the memory; those
    /// serve on. A service that does not end was changed by a process that shared its memory.
    fn see_services_off(&mut self) {
        let until = Instant::now() + SERVICES_MAX;
        let is_over = |member: &Member| {
            member.program.has_ended() && !proc::is_memory_shared(member.peer.process)
        };
        while Instant::now() < until && self.members.iter().any(is_over) {
            self.wait(None, Unseated::soon());
        }
        let (stuck, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.members).into_iter().partition(is_over);
        self.members = others;
        for mut member in stuck {
            self.services.push(member.peer.process);
            if let Some(uffd) = member.lent.take() {
                self.outliving.keep(uffd, member.peer.user);
            }
        }
    }

    /// Waits for a packet, a connection or a command, and deals with the first two.
    fn wait(&mut self, commands: Option<&PipeReader>, patience: Duration) -> Woken {
        let mut fds: Vec<_> = self.door.polled().collect();
        let members_at = fds.len();
        fds.extend(self.members.iter().map(|member| PollFd::new(&member.socket, PollFlags::IN)));
        let outliving_at = fds.len();
        fds.extend(self.outliving.polled());
        let commands_at = fds.len();
        fds.extend(commands.map(|commands| PollFd::new(commands, PollFlags::IN)));
        let timeout = Timespec::try_from(patience).expect("a patience is short");
        // An interrupted wait is as good as one that timed out.
        let _ = poll(&mut fds, Some(&timeout));
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let members = &ready[members_at..outliving_at];
        // This comes before a member leaves, because its userfaultfd is then added to these.
        self.outliving.look(&ready[outliving_at..commands_at]);
        // From the back, because members may leave.
        for index in (0..members.len()).rev().filter(|index| members[*index]) {
            self.hear(index);
        }
        for newcomer in self.door.look(&ready[..members_at]) {
            self.admit(newcomer);
        }
        let heard = members.contains(&true);
        Woken { commanded: ready[commands_at..].contains(&true), heard }
    }
}
