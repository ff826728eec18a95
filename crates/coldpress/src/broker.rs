//! The broker: the launcher's side of a run. It opens what the program may not, keeps the ledger,
//! gives out seats, prints what processes report, answers `coldpress ctl`, and watches the tree for
//! unmanaged memory.
//!
//! One thread does all of this, except helping processes compress (`helper`). The thread waits for
//! a socket, for the processes that joined, and for a clock, which hardly ticks while nothing in
//! the tree runs. The connection of a process lasts as long as the process: when it closes, the
//! broker adds the process's counts to the retired ones, and frees its seat.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use coldpress_cli::cgroup;
use coldpress_cli::failure::{Failure, Result};
use coldpress_runtime::ledger::{Keeper, SEATS, Told};
use coldpress_runtime::wire::{
    AFFINITY, BUDGET_VARIABLE, CALL, Hello, LEAVE, LEND, Loudness, PACKET_MAX, RECORD,
    SOCKET_VARIABLE, TAKE_BACK, Welcome,
};
use coldpress_sys::net::{self, DESCRIPTORS_MAX, Peer};
use coldpress_sys::uffd::Userfaultfd;
use coldpress_sys::{AsFd, Bytes, OwnedFd, PageCount, cpu};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::account::{Account, InPlace};
use crate::along::Along;
use crate::budget::Budget;
use crate::claims::Claims;
use crate::config::RunConfig;
use crate::control::{self, Changeable};
use crate::disk;
use crate::door::{Door, Newcomer};
use crate::helper::Helper;
use crate::member::{Member, Served};
use crate::outliving::Outliving;
use crate::preload::Preload;
use crate::proc;
use crate::psi::Pressure;
use crate::record::Records;
use crate::required::Required;
use crate::say;
use crate::seating;
use crate::shared::Shared;
use crate::sizing::Sizing;
use crate::stats::{self, Summary, Totals};
use crate::supervise::{self, ExitReport};
use crate::text::printable;
use crate::tree;
use crate::unmanaged::{self, Found};
use crate::unseated::Unseated;
use crate::view::View;

/// The interval between two looks at the limit that the budget is a part of.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
/// The number by which the broker's nice value is below the program's.
const PREFERRED_BY: i32 = 10;
/// The longest time that the launcher waits for services to end after their programs.
const SERVICES_MAX: Duration = Duration::from_secs(5);
/// The number of services that ended last and may not have been reaped yet.
const SERVICES_KEPT: usize = 64;
/// The most users and processes that warnings name: more would fill a log.
const TOLD_OF_MAX: usize = 64;
/// The most lines printed for one process: more would fill a log.
const NOTES_MAX: u32 = 1000;

/// The launcher's side of a run.
pub(crate) struct Broker {
    thread: JoinHandle<(Retired, Serving)>,
    /// The pipe for the number of the program's process. Closing the pipe ends the thread.
    commands: PipeWriter,
    environment: Vec<(OsString, OsString)>,
    at_start: Changeable,
    ledger: Arc<Keeper>,
}

/// The rest of a run that is over.
struct Retired {
    totals: Totals,
    peak: PageCount,
    at_peak: Account,
    at_end: Changeable,
    /// Processes that have not ended.
    left: usize,
    unmanaged: Found,
    /// Services that ended recently.
    services: Vec<u32>,
    /// The reason why the run was ended, if it was.
    ended_for: Option<String>,
    /// Advice that would have helped this run.
    hint: Option<String>,
}

impl Broker {
    /// Opens access, creates the ledger and listens as `name` in the directory of `preload`.
    pub(crate) fn start(
        config: &RunConfig,
        preload: &Preload,
        records: Option<Records>,
        name: &str,
    ) -> Result<Self> {
        let path = preload.directory().join(name);
        let takes_others = config.manages_others();
        let door = Door::open(&path, takes_others)?;
        let terms = config.terms();
        let (ledger_fds, ledger) = Keeper::create(terms, &config.knobs).map_err(|error| {
            let cause = format!("cannot make the ledger: {error}");
            Failure::ours(cause, "run `coldpress doctor`")
        })?;
        let ledger = Arc::new(ledger);
        let device = OpenOptions::new().read(true).write(true).open("/dev/userfaultfd").ok();
        let (receiver, commands) = io::pipe().map_err(|error| {
            Failure::ours(format!("cannot make a pipe: {error}"), "raise ulimit -n")
        })?;
        let at_start = config.changeable();
        let broker_ledger = Arc::clone(&ledger);
        let serving = Serving {
            door,
            takes_others,
            ledger_fds,
            helper: Helper::start(&ledger),
            ledger,
            device: device.map(OwnedFd::from),
            // The keeper leaves its directory when the program has ended.
            disk: config
                .disk
                .as_deref()
                .filter(|_| terms.spill_max > Bytes(0))
                .map(|disk| std::path::absolute(disk).unwrap_or_else(|_| disk.to_owned())),
            records,
            members: Vec::new(),
            unseated: Unseated::new(),
            shared: Shared::default(),
            in_place: InPlace::default(),
            sizing: Sizing::default(),
            at_peak: Account::default(),
            unmanaged: Found::default(),
            told_of_unmanaged: false,
            memory: cgroup::most_of_machine(),
            totals: Totals::default(),
            now: at_start.clone(),
            pressure: Pressure::default(),
            view: View::create(config.show_memory, config.budget.bytes, preload.directory())?,
            quiet: config.quiet,
            verbose: config.verbose,
            has_started: false,
            is_trial: config.is_trial,
            began: Instant::now(),
            outliving: Outliving::default(),
            along: Along::default(),
            services: Vec::new(),
            told_of: HashSet::new(),
            has_told_of_none: false,
            required: config.require_managed.then(Required::default),
        };
        let thread = start_thread(serving, receiver).map_err(|error| {
            Failure::ours(format!("cannot start a thread: {error}"), "raise ulimit -u")
        })?;
        let environment = vec![
            (SOCKET_VARIABLE.into(), path.into_os_string()),
            (BUDGET_VARIABLE.into(), config.budget_and_view().into()),
        ];
        Ok(Self { thread, commands, environment, at_start, ledger: broker_ledger })
    }

    /// Returns the variables for the program.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        self.environment.clone()
    }

    /// Returns the ledger of the run.
    pub(crate) fn ledger(&self) -> &Keeper {
        &self.ledger
    }

    /// Starts watching the tree of the program, which runs as `pid`.
    pub(crate) fn child_started(&self, pid: u32) {
        // The thread reads until `finish`.
        let _ = (&self.commands).write_all(&pid.to_le_bytes());
    }

    /// Ends a run of our own. Returns why a process of the run was not managed, if one said so.
    pub(crate) fn into_unmanaged(self) -> Option<String> {
        drop(self.commands);
        let (retired, _) = self.thread.join().ok()?;
        supervise::reap(&retired.services);
        retired.unmanaged.told()
    }

    /// Ends the run of a program that has ended. Returns the sum of what its processes counted, and
    /// what serves the processes that are left.
    pub(crate) fn finish(self, program: &str, exit: ExitReport) -> (Summary, Option<Serving>) {
        drop(self.commands);
        let none = Retired {
            totals: Totals::default(),
            peak: PageCount(0),
            at_peak: Account::default(),
            at_end: self.at_start,
            left: 0,
            unmanaged: Found::default(),
            services: Vec::new(),
            ended_for: None,
            hint: None,
        };
        let (retired, serving) = match self.thread.join() {
            Ok((retired, serving)) => (retired, Some(serving)),
            Err(_) => (none, None),
        };
        supervise::reap(&retired.services);
        if supervise::has_rest() {
            supervise::reap_unknown();
        }
        let summary = Summary {
            program: program.to_owned(),
            at_end: retired.at_end,
            peak: retired.peak.bytes(),
            at_peak: retired.at_peak,
            totals: retired.totals,
            left: retired.left,
            unmanaged: retired.unmanaged,
            ended_for: retired.ended_for,
            hint: retired.hint,
            exit,
        };
        (summary, serving)
    }
}

/// Serves the rest of a run while `wait` waits for it.
pub(crate) fn go_on(serving: Serving, wait: impl FnOnce()) {
    let Ok((receiver, commands)) = io::pipe() else { return wait() };
    let Ok(thread) = start_thread(serving, receiver) else { return wait() };
    wait();
    drop(commands);
    // The thread's panic has already been printed.
    let _ = thread.join();
}

fn start_thread(
    serving: Serving,
    commands: PipeReader,
) -> io::Result<JoinHandle<(Retired, Serving)>> {
    thread::Builder::new().name("broker".to_owned()).spawn(move || serving.run(commands))
}

/// The events that ended a wait, besides connections.
struct Woken {
    /// Whether the launcher has a command, or is done.
    commanded: bool,
    /// Whether a member spoke or left.
    heard: bool,
}

/// Everything the broker's thread works with.
pub(crate) struct Serving {
    door: Door,
    /// Whether processes of other users are managed.
    takes_others: bool,
    /// The descriptors of the ledger's orders and of its seats.
    ledger_fds: [OwnedFd; 2],
    ledger: Arc<Keeper>,
    helper: Option<Helper>,
    device: Option<OwnedFd>,
    disk: Option<PathBuf>,
    records: Option<Records>,
    members: Vec<Member>,
    unseated: Unseated,
    shared: Shared,
    in_place: InPlace,
    sizing: Sizing,
    /// The account at the time when the run held most.
    at_peak: Account,
    unmanaged: Found,
    /// Whether the user has heard that unmanaged processes pass the budget.
    told_of_unmanaged: bool,
    /// The machine's memory: no process can hold more.
    memory: PageCount,
    totals: Totals,
    /// The settings that hold now, as the ledger has them.
    now: Changeable,
    /// The need of other programs for a part of the budget, under `auto`.
    pressure: Pressure,
    /// The view of the machine's memory that programs are shown.
    view: Option<View>,
    quiet: bool,
    verbose: bool,
    /// Whether the program runs or has run.
    has_started: bool,
    is_trial: bool,
    began: Instant,
    outliving: Outliving,
    along: Along,
    /// Services that ended recently.
    services: Vec<u32>,
    /// Warnings printed: of users with enough seats, of processes not believed or not managed.
    told_of: HashSet<(u32, &'static str)>,
    /// Whether the user has heard that nothing is managed.
    has_told_of_none: bool,
    /// The demand that every process that holds much is managed, if the user makes it.
    required: Option<Required>,
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
            totals: self.totals_now(),
            peak: self.ledger.peak(self.memory),
            at_peak: self.at_peak,
            at_end: self.now.clone(),
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

    /// Returns the counts of all processes, including those that have ended.
    fn totals_now(&self) -> Totals {
        let mut totals = self.totals.after(self.began.elapsed());
        for member in &self.members {
            totals.add(&self.ledger, member.seat);
        }
        totals
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

    /// Reads one note of a member, or notices its end.
    fn hear(&mut self, index: usize) {
        let mut bytes = [0; PACKET_MAX];
        let mut fds = [const { None }; DESCRIPTORS_MAX];
        match net::receive(self.members[index].socket.as_fd(), &mut bytes, &mut fds) {
            Ok(length) if length > 0 && bytes[0] == LEND => {
                // A userfaultfd that could not come along, for want of descriptors, has no effect.
                let lent = fds[0].take().and_then(Userfaultfd::from_lent);
                self.members[index].lent = lent.or(self.members[index].lent.take());
            }
            Ok(length) if length > 0 && bytes[0] == TAKE_BACK => self.members[index].lent = None,
            Ok(length) if length > 0 && bytes[0] == RECORD => self.hand_record(index),
            Ok(length) if length > 0 && bytes[0] == CALL => {
                self.members[index].tell_call(&bytes[1..length])
            }
            Ok(length) if length > 0 && bytes[0] == AFFINITY => {
                self.members[index].give_processors(&bytes[..length]);
            }
            Ok(length) if length > 0 && bytes[0] == LEAVE => self.members[index].leaves = true,
            Ok(length) if length > 0 && bytes[0] == Loudness::Unmanaged.encode() => {
                let process = self.members[index].program.process();
                self.hear_unmanaged(process, &bytes[1..length]);
            }
            Ok(length) if length > 0 => self.hear_note(index, &bytes[..length]),
            _ => self.drop_member(index),
        }
    }

    /// Removes a member whose service has ended.
    fn drop_member(&mut self, index: usize) {
        let saved = self.totals_now().saved();
        let mut member = self.members.swap_remove(index);
        self.look_after(&member);
        self.sizing.note(&self.ledger, &member);
        // The member's memory has gone, and what it shared belongs to others by now.
        self.note_peak();
        if let Some(uffd) = member.lent.take() {
            self.outliving.keep(uffd, member.peer.user);
        }
        self.totals.add_ended(&self.ledger, member.seat, saved);
        self.free_seat(member.seat);
    }

    /// Ends the program of a member whose service has ended unasked: pages of the program are lost,
    /// so the program has to end before it reads other bytes in their place.
    fn look_after(&mut self, member: &Member) {
        self.services.push(member.peer.process);
        let has_pages = self.ledger.seats[member.seat].is_managing() && !member.leaves;
        if has_pages && member.program.end() {
            let process = member.program.process();
            say(format!(
                "fatal: process {process} is ended, as the process that kept its cold pages \
                 ({}) has ended; do not end processes named coldpress, nor let a program write \
                 over memory that is not its own, as Redis does to test memory when it crashes: \
                 crash-memcheck-enabled no",
                member.peer.process
            ));
        }
    }

    /// Prints a note of a member, unless the member has sent too many.
    fn hear_note(&mut self, index: usize, note: &[u8]) {
        let member = &mut self.members[index];
        let process = member.program.process();
        let Some(left) = member.notes_left.checked_sub(1) else { return };
        member.notes_left = left;
        self.print_note(note);
        if left == 0 {
            self.warn(Some(format!("process {process} says too much; no more of it is printed")));
        }
    }

    /// Takes the message of `process` that it is not managed, and why. Only the first one counts.
    fn hear_unmanaged(&mut self, process: u32, why: &[u8]) {
        if self.told_of.len() < TOLD_OF_MAX && self.told_of.insert((process, "unmanaged")) {
            let why = printable(&String::from_utf8_lossy(why));
            self.warn(Some(format!("process {process} is not managed: {why}")));
            self.unmanaged.tell(process, format!("cannot be managed: {why}"));
            self.has_told_of_none = true;
        }
    }

    /// Answers a member that asks for a file to record in.
    fn hand_record(&mut self, index: usize) {
        let is_first = !std::mem::replace(&mut self.members[index].has_record, true);
        let Some(records) = self.records.as_mut().filter(|_| is_first) else { return };
        let file = records.next();
        self.warn(file.as_ref().err());
        let fds: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        // A member that has ended needs no answer.
        let _ = net::send(self.members[index].socket.as_fd(), &[RECORD], &fds);
    }

    fn warn(&self, warning: Option<impl Display>) {
        if let Some(warning) = warning
            && !self.quiet
        {
            say(format!("warning: {warning}"));
        }
    }

    fn print_note(&self, note: &[u8]) {
        let text = printable(&String::from_utf8_lossy(&note[1..]));
        match Loudness::decode(note[0]) {
            Some(Loudness::Verbose) if self.verbose => say(text),
            Some(Loudness::Warning) => self.warn(Some(text)),
            Some(Loudness::Fatal) => say(format!("fatal: {text}")),
            _ => {}
        }
    }

    /// Reads what a new connection wants: to join the run, or to see and turn knobs.
    fn admit(&mut self, newcomer: Newcomer) {
        let Newcomer { socket, peer, is_ours, .. } = newcomer;
        let Some((packet, pidfd)) = control::first_packet(&socket) else { return };
        if let Some(text) = control::of_request(&packet) {
            self.answer_request(&socket, peer, text);
        } else if is_ours && packet.first() == Some(&Loudness::Unmanaged.encode()) {
            let program = pidfd.and_then(|pidfd| Served::find(pidfd, peer.process));
            let process = program.map_or(peer.process, |program| program.process());
            self.hear_unmanaged(process, &packet[1..]);
        } else if is_ours
            && Hello::decode(&packet).is_some()
            // Opened before the process is examined, so that both are of one process.
            && let Some(service) = proc::pidfd_of(peer.process)
            && let Some(program) = pidfd.and_then(|pidfd| Served::find(pidfd, peer.process))
        {
            self.welcome(socket, (peer, service), program);
        }
    }

    /// Turns knobs as `text` asks, and answers with the resulting settings and figures.
    fn answer_request(&mut self, socket: &OwnedFd, peer: Peer, text: &str) {
        let turned = if control::may(peer) {
            self.now.clone().turned(text)
        } else {
            Err(control::not_permitted(peer))
        };
        let document = match turned {
            Ok(wanted) => {
                if wanted.knobs != self.now.knobs {
                    self.now.knobs = wanted.knobs;
                    self.ledger.set_knobs(&wanted.knobs);
                }
                if wanted.budget != self.now.budget {
                    self.warn(wanted.budget.complaint());
                    self.set_budget(wanted.budget);
                }
                stats::live(&self.totals_now(), &self.ledger, self.memory, &self.now)
            }
            Err(failure) => control::refusal(&failure),
        };
        control::answer(socket, &document);
    }

    /// Follows the limit that the budget is a part of, and the part that other programs need.
    fn follow_limit(&mut self) {
        let given_percent = self.pressure.look(&self.now.budget.origin);
        if let Some(budget) = self.now.budget.changed(given_percent) {
            self.set_budget(budget);
        }
    }

    /// Sets another budget from now on.
    fn set_budget(&mut self, budget: Budget) {
        self.ledger.set_budget(budget.bytes.pages_down());
        if self.verbose {
            say(format!("the budget is now {budget}"));
        }
        self.now.budget = budget;
    }

    /// Lets a process join, if there is a seat for it.
    fn welcome(&mut self, socket: OwnedFd, (peer, service): (Peer, OwnedFd), program: Served) {
        let ours = rustix::process::geteuid().as_raw();
        let have = self
            .members
            .iter()
            .map(|member| Peer { process: member.program.process(), user: member.peer.user });
        let asking = Peer { process: program.process(), ..peer };
        let may = seating::check(asking, ours, have);
        let seat = (0..SEATS).find(|seat| self.ledger.process_in(*seat) == 0);
        let Some(seat) = seat.filter(|_| may.is_ok()) else {
            if let Err(refusal) = may
                && self.is_news(peer.user, "seats")
            {
                self.warn(Some(format!("{refusal}; start fewer at a time")));
            }
            self.send_welcome(&socket, None, [None, None]);
            return;
        };
        let spill = self.disk.as_ref().and_then(|directory| disk::make_spill(directory));
        // The helper reads, with our rights, whatever the process that has the desk asks for.
        let helper = self.helper.as_ref().filter(|_| peer.user == ours);
        let desk = helper.and_then(|helper| helper.open_desk(seat, peer.process));
        // From now on the process counts for itself. Its service may have been counted for it.
        self.unseated.sit(program.process());
        self.unseated.sit(peer.process);
        self.unmanaged.sit(program.process());
        self.ledger.set_unseated(self.unseated.pages());
        self.ledger.assign(seat, program.process(), self.memory);
        if self.send_welcome(&socket, Some(seat), [desk, spill]) {
            let name = proc::text(program.process(), "comm").unwrap_or_default();
            self.members.push(Member {
                socket,
                peer,
                service,
                seat,
                program,
                leaves: false,
                lent: None,
                has_record: false,
                notes_left: NOTES_MAX,
                claims: Claims::new(),
                name: printable(name.trim_end()),
                since: Instant::now(),
            });
        } else {
            self.free_seat(seat);
        }
    }

    /// Returns whether a process that wants to join was there for the answer, which this sends.
    fn send_welcome(
        &self,
        socket: &OwnedFd,
        seat: Option<usize>,
        own: [Option<OwnedFd>; 2],
    ) -> bool {
        let [desk, spill] = own;
        let device = self.device.as_ref().filter(|_| seat.is_some());
        let welcome = Welcome {
            seat: seat.map(|seat| seat as u32),
            has_desk: desk.is_some(),
            has_spill: spill.is_some(),
            has_device: device.is_some(),
            is_recorded: self.records.is_some(),
        };
        let ledger = self.ledger_fds.iter().filter(|_| seat.is_some());
        let rest = [desk.as_ref(), spill.as_ref(), device].into_iter().flatten();
        let fds: Vec<_> = ledger.chain(rest).map(AsFd::as_fd).collect();
        net::send(socket.as_fd(), &welcome.encode(), &fds).is_ok()
    }

    fn free_seat(&self, seat: usize) {
        if let Some(helper) = &self.helper {
            helper.close_desk(seat);
        }
        self.ledger.assign(seat, 0, PageCount(0));
    }

    /// Counts what processes without a seat hold.
    fn look_at_tree(&mut self) {
        if !self.has_started {
            return;
        }
        // A service has no memory but its program's.
        let seated = self.members.iter().map(|member| member.program.process()).collect();
        // Services have no children either; a process that claims to serve itself may have some.
        let serves = |member: &&Member| member.peer.process != member.program.process();
        let services = self.members.iter().filter(serves).map(|it| it.peer.process).collect();
        self.unseated.look(&seated, &services);
        self.ledger.set_unseated(self.unseated.pages());
        self.shared.look(self.unseated.processes(), Instant::now());
        self.ledger.set_shared(self.shared.pages());
        let holds = |it: &Member| (it.program.process(), self.ledger.claimed(it.seat).used);
        let members = self.members.iter().map(holds);
        self.in_place.look(self.ledger.used(), members, Instant::now());
        self.note_peak();
        let saved = self.view.as_ref().map(|_| self.totals_now().saved());
        let used = self.ledger.used();
        self.view.iter_mut().zip(saved).for_each(|(view, saved)| view.show(used, saved));
        self.look_at_unmanaged();
        self.complain_of_shared(false);
    }

    /// Raises the peak to what is used now, and limits what is believed of members that claim more
    /// than they hold.
    fn note_peak(&mut self) {
        let (mut liars, now) = (Vec::new(), Instant::now());
        let (unmanaged, shared) = (self.unseated.pages(), self.shared.pages());
        let mut managed = PageCount(0);
        for Member { program, seat, claims, .. } in &mut self.members {
            // Read once, because the claim may change at any moment.
            let claimed = self.ledger.claimed(*seat);
            let all = PageCount(claimed.used.0.saturating_add(claimed.doubt.0)).min(self.memory);
            let verdict = claims.judge(all, || proc::anonymous(program.process()), now);
            managed += claims.counted(claimed.used.min(self.memory));
            match verdict {
                Some(Some(most)) => {
                    self.ledger.limit(*seat, most);
                    liars.push(program.process());
                }
                Some(None) => self.ledger.limit(*seat, self.memory),
                None => {}
            }
        }
        let account = Account::of(managed, unmanaged, shared);
        if account.sum() > self.at_peak.sum() {
            let seats = self.members.iter().map(|member| member.seat);
            self.at_peak = account.with_parts(&self.ledger, seats, &self.in_place);
        }
        self.ledger.note_peak(account.sum().min(self.memory));
        for process in liars {
            if self.is_news(process, "claims") {
                self.warn(Some(format!(
                    "process {process} says that it holds more memory than /proc shows, and is not \
                     believed; some process of the run has written to the memory they share"
                )));
            }
        }
    }

    /// Warns the user, once, when shared memory takes up the budget.
    fn complain_of_shared(&mut self, is_last: bool) {
        let (used, budget) = (self.ledger.used().bytes(), self.now.budget.bytes);
        let is_stuck = self.ledger.is_told(Told::OverByShared);
        let complaint = self.shared.complaint(used, budget, is_stuck, is_last, Instant::now());
        // A service may already have said that the budget cannot be kept.
        self.warn(complaint.filter(|_| self.ledger.is_first_to_tell(Told::OverBudget)));
    }

    /// Returns whether `what` may be said of `whom`, and was not yet: such warnings are limited.
    fn is_news(&mut self, whom: u32, what: &'static str) -> bool {
        self.told_of.len() < TOLD_OF_MAX && self.told_of.insert((whom, what))
    }

    /// Finds processes that cannot be managed. Warns the user when they pass the budget.
    fn look_at_unmanaged(&mut self) {
        let held = |process| self.unseated.held_by(process);
        let processes = self.unseated.processes();
        let takes_others = self.takes_others;
        let reason = |process| unmanaged::reason(process, takes_others);
        let found = self.unmanaged.look(held, processes, Instant::now(), reason);
        if self.verbose {
            found.iter().for_each(|one| say(format!("not managed: {one}")));
        } else if !found.is_empty() && self.totals_now().managed() == 0 && !self.has_told_of_none {
            self.has_told_of_none = true;
            self.warn(Some(format!("nothing is managed so far; {}", found[0])));
        }
        if let (Some(required), [first, ..]) = (&mut self.required, &found[..]) {
            required.end_for(first.to_string());
        }
        let (used, budget) = (self.ledger.used().bytes(), self.now.budget.bytes);
        // Another line reports shared memory.
        let is_theirs = self.unseated.pages() > self.shared.pages();
        let complaint = self.unmanaged.complaint(held, used, budget).filter(|_| is_theirs);
        if complaint.is_some() && !std::mem::replace(&mut self.told_of_unmanaged, true) {
            self.warn(complaint);
        }
    }
}
