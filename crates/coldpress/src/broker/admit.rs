//! How a process joins a run: what a new connection wants, and the seat and the descriptors that a
//! process gets.

use std::time::Instant;

use coldpress_runtime::ledger::SEATS;
use coldpress_runtime::wire::{Loudness, is_hello};
use coldpress_sys::OwnedFd;
use coldpress_sys::net::Peer;

use super::claims::Claims;
use super::door::Newcomer;
use super::member::{Member, Served};
use super::seating;
use super::state::Serving;
use super::timeline::Event;
use crate::control;
use crate::proc;
use crate::text::printable;
use crate::tree;

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
            if tree::is_of_run(process) {
                self.hear_unmanaged(process, &packet[1..]);
            }
        } else if is_ours
            && is_hello(&packet)
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
                && self.voice.is_news(peer.user, "seats")
            {
                self.voice.warn(Some(format!("{refusal}; start fewer at a time")));
            }
            self.supplies.send_welcome(&socket, None);
            return;
        };
        let own = self.supplies.open_own(seat, peer.process, peer.user == ours);
        // From now on the process counts for itself. Its service may have been counted for it.
        self.unseated.sit(program.process());
        self.unseated.sit(peer.process);
        self.unmanaged.sit(program.process());
        self.ledger.set_unseated(self.unseated.pages());
        self.ledger.assign(seat, program.process(), self.memory);
        // What an attached program leaves behind when it ends descends from it no more.
        if !tree::is_below(program.process(), std::process::id()) {
            tree::adopt(program.process());
        }
        if self.supplies.send_welcome(&socket, Some((seat, own))) {
            let name = proc::text(program.process(), "comm").unwrap_or_default();
            let name = printable(name.trim_end());
            self.note(Event::Joined(program.process(), name.clone()));
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
                name,
                since: Instant::now(),
            });
        } else {
            self.free_seat(seat);
        }
    }
}
