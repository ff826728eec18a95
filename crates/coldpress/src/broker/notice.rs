//! What systemd is told of a run: datagrams to the socket that it names (sd_notify(3)).
//!
//! A program may itself tell when it is ready, by the same socket. So this does only where the user
//! asks for it. A manager that takes no datagram keeps no run from going on.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use coldpress_common::size::show;
use coldpress_runtime::tally::Counter;
use coldpress_sys::Bytes;

use super::standing::Standing;

/// The variable that names the socket.
const VARIABLE: &str = "NOTIFY_SOCKET";
/// The interval between two datagrams.
const INTERVAL: Duration = Duration::from_secs(5);

/// The way to the service manager.
pub(super) struct Notice {
    socket: UnixDatagram,
    is_ready_due: bool,
    due: Instant,
    /// When the manager was last told, and the waits until then.
    told: Option<(Instant, u64)>,
}

impl Notice {
    /// Finds the socket that the environment names, if it does and one is there.
    pub(super) fn find(tells_ready: bool) -> Option<Self> {
        let name = env::var_os(VARIABLE)?;
        let socket = connect(&name).ok()?;
        Some(Self { socket, is_ready_due: tells_ready, due: Instant::now(), told: None })
    }

    /// Returns whether it is time to tell something.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Tells how the run stands.
    pub(super) fn tell(&mut self, standing: &Standing) {
        let stall_ns = standing.totals.get(Counter::StallNs);
        self.tell_figures(standing.used, standing.settings.budget.bytes, stall_ns);
    }

    fn tell_figures(&mut self, used: Bytes, budget: Bytes, stall_ns: u64) {
        let now = Instant::now();
        let share = self.told.map(|(at, before)| {
            let passed = now.saturating_duration_since(at).as_nanos().max(1) as f64;
            stall_ns.saturating_sub(before) as f64 / passed
        });
        let ready = if std::mem::take(&mut self.is_ready_due) { "READY=1\n" } else { "" };
        let text = format!("{ready}STATUS={}\n", status(used, budget, share));
        let _ = self.socket.send(text.as_bytes());
        (self.due, self.told) = (now + INTERVAL, Some((now, stall_ns)));
    }
}

/// Returns how a run stands, in words.
fn status(used: Bytes, budget: Bytes, stall_share: Option<f64>) -> String {
    let waits = stall_share.map(|share| format!(", waits for pages {:.1} %", share * 100.0));
    format!("{} of {}{}", show(used), show(budget), waits.unwrap_or_default())
}

/// Connects to a socket by its path, or by its abstract name behind an `@`.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that is busy hears the next one.
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    //! The risk: the manager hears nothing, or not what a line of its protocol is.

    use super::*;

    #[test]
    fn a_manager_is_told_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("coldpress-notice-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        for (manager, named) in [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}").into()),
        ] {
            let socket = connect(&named).unwrap();
            let mut notice = Notice { socket, is_ready_due: true, due: Instant::now(), told: None };
            assert!(notice.is_due());
            notice.tell_figures(Bytes::mib(3), Bytes::mib(16), 7);
            assert!(!notice.is_due());
            notice.tell_figures(Bytes::mib(4), Bytes::mib(16), 7);
            let mut heard = [0; 200];
            let mut hear = || {
                let count = manager.recv(&mut heard).unwrap();
                String::from_utf8_lossy(&heard[..count]).into_owned()
            };
            assert_eq!(hear(), "READY=1\nSTATUS=3 MiB of 16 MiB\n");
            assert_eq!(hear(), "STATUS=4 MiB of 16 MiB, waits for pages 0.0 %\n");
        }
        assert!(connect("/no/such/socket".as_ref()).is_err());
    }

    #[test]
    fn a_status_says_how_much_is_held_and_waited() {
        assert_eq!(
            status(Bytes::mib(1), Bytes::mib(2), Some(0.034)),
            "1 MiB of 2 MiB, waits for pages 3.4 %"
        );
    }
}
