//! How a process joins a run: what a new connection wants, and the seat and the descriptors that a
//! process gets.

use std::time::Instant;

use coldpress_runtime::ledger::SEATS;
use coldpress_runtime::wire::{Hello, Loudness, Welcome};
use coldpress_sys::net::{self, Peer};
use coldpress_sys::{AsFd, OwnedFd};

use super::claims::Claims;
use super::door::Newcomer;
use super::member::{Member, Served};
use super::seating;
use super::state::Serving;
use crate::control;
use crate::disk;
use crate::proc;
use crate::text::printable;

/// The most lines printed for one process: more would fill a log.
const NOTES_MAX: u32 = 1000;

impl Serving {
    /// Reads what a new connection wants: to join the run, or to see and turn knobs.
    pub(super) fn admit(&mut self, newcomer: Newcomer) {
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
}
