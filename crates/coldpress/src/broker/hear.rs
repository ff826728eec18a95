//! What the broker hears of a process that has joined: its packets, and its end.

use coldpress_runtime::wire::{
    AFFINITY, CALL, LEAVE, LEND, Loudness, PACKET_MAX, RECORD, TAKE_BACK,
};
use coldpress_sys::AsFd;
use coldpress_sys::net::{self, DESCRIPTORS_MAX};
use coldpress_sys::uffd::Userfaultfd;

use super::member::Member;
use super::state::Serving;
use super::timeline::Event;
use crate::text::printable;

impl Serving {
    /// Reads one note of a member, or notices its end.
    pub(super) fn hear(&mut self, index: usize) {
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
        self.note(Event::Left(member.program.process(), member.name.clone()));
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
        let has_pages = self.ledger.is_managing(member.seat) && !member.leaves;
        if has_pages && member.program.end() {
            let process = member.program.process();
            self.voice.fatal(format!(
                "process {process} is ended, as the process that kept its cold pages \
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
        self.voice.pass_on(note);
        if left == 0 {
            self.voice
                .warn(Some(format!("process {process} says too much; no more of it is printed")));
        }
    }

    /// Takes the message of `process` that it is not managed, and why. Only the first one counts.
    pub(super) fn hear_unmanaged(&mut self, process: u32, why: &[u8]) {
        if self.voice.is_news(process, "unmanaged") {
            let why = printable(&String::from_utf8_lossy(why));
            self.voice.tell_of_one(process, &why);
            self.unmanaged.tell(process, format!("cannot be managed: {why}"));
        }
    }

    /// Answers a member that asks for a file to record in.
    fn hand_record(&mut self, index: usize) {
        let is_first = !std::mem::replace(&mut self.members[index].has_record, true);
        if !is_first {
            return;
        }
        let Some(file) = self.supplies.next_record() else { return };
        self.voice.warn(file.as_ref().err());
        let fds: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        // A member that has ended needs no answer.
        let _ = net::send(self.members[index].socket.as_fd(), &[RECORD], &fds);
    }
}
