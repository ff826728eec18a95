//! What the broker opens for processes that join, because they may not: the ledger, userfaultfd, a
//! desk of the helper, a file for pages and one for records.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coldpress_common::failure::Result;
use coldpress_runtime::ledger::Keeper;
use coldpress_runtime::wire::Welcome;
use coldpress_sys::{AsFd, OwnedFd, net};

use super::late::Late;
use crate::disk;
use crate::helper::Helper;
use crate::record::Records;

/// The descriptors that all processes of a run share, and the sources of those that each has alone.
pub(super) struct Supplies {
    /// The descriptors of the ledger's orders and of its seats.
    ledger_fds: [OwnedFd; 2],
    helper: Option<Helper>,
    device: Option<OwnedFd>,
    /// The directory for the files of pages.
    disk: Option<PathBuf>,
    records: Option<Records>,
    /// The library, for processes that run without it.
    pub(super) late: Late,
}

/// The descriptors that one process has alone.
pub(super) struct MemberSupplies {
    desk: Option<OwnedFd>,
    spill: Option<OwnedFd>,
}

impl Supplies {
    /// Opens what is there from the start.
    pub(super) fn open(
        ledger: &Arc<Keeper>,
        ledger_fds: [OwnedFd; 2],
        disk: Option<&Path>,
        records: Option<Records>,
        late: Late,
    ) -> Self {
        let device = OpenOptions::new().read(true).write(true).open("/dev/userfaultfd").ok();
        Self {
            ledger_fds,
            helper: Helper::start(ledger),
            device: device.map(OwnedFd::from),
            // The keeper leaves its directory when the program has ended.
            disk: disk.map(|disk| std::path::absolute(disk).unwrap_or_else(|_| disk.to_owned())),
            records,
            late,
        }
    }

    /// Opens what `process` gets for itself at `seat`. Only a process of our own user gets a desk:
    /// the helper reads, with our rights, whatever the process that has the desk asks for.
    pub(super) fn open_own(&self, seat: usize, process: u32, is_ours: bool) -> MemberSupplies {
        let helper = self.helper.as_ref().filter(|_| is_ours);
        MemberSupplies {
            desk: helper.and_then(|helper| helper.open_desk(seat, process)),
            spill: self.disk.as_ref().and_then(|directory| disk::make_spill(directory)),
        }
    }

    /// Takes back what the process at `seat` got.
    pub(super) fn close_own(&self, seat: usize) {
        if let Some(helper) = &self.helper {
            helper.close_desk(seat);
        }
    }

    /// Returns whether a process that wants to join was there for the answer, which this sends: its
    /// seat with what it gets, or that it gets none.
    pub(super) fn send_welcome(
        &self,
        socket: &OwnedFd,
        place: Option<(usize, MemberSupplies)>,
    ) -> bool {
        let (seat, own) = place.unzip();
        let device = self.device.as_ref().filter(|_| seat.is_some());
        let [desk, spill] =
            own.as_ref().map_or([None; 2], |own| [own.desk.as_ref(), own.spill.as_ref()]);
        let welcome = Welcome {
            seat: seat.map(|seat| seat as u32),
            has_desk: desk.is_some(),
            has_spill: spill.is_some(),
            has_device: device.is_some(),
            is_recorded: self.records.is_some(),
        };
        let ledger = self.ledger_fds.iter().filter(|_| seat.is_some());
        let rest = [desk, spill, device].into_iter().flatten();
        let fds: Vec<_> = ledger.chain(rest).map(AsFd::as_fd).collect();
        net::send(socket.as_fd(), &welcome.encode(), &fds).is_ok()
    }

    /// Opens the next file to record in, if the run is recorded.
    pub(super) fn next_record(&mut self) -> Option<Result<File>> {
        self.records.as_mut().map(Records::next)
    }
}
