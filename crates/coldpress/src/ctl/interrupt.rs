//! The signals by which a user gives up what takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// The signal that has come, if any.
#[derive(Debug)]
pub(crate) struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Notes signals from now on, which do nothing else any more. A signal that cannot be noted
    /// ends the command.
    pub(crate) fn heed() -> Self {
        let came = Arc::new(AtomicUsize::new(0));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let _ = flag::register_usize(signal, Arc::clone(&came), signal as usize);
        }
        Self(came)
    }

    /// Returns whether a signal has come.
    pub(crate) fn has_come(&self) -> bool {
        self.signal() != 0
    }

    /// Ends the command by the signal that has come, if any: whoever started the command is to
    /// know.
    pub(crate) fn pass_on(&self) {
        if self.has_come() {
            let _ = low_level::emulate_default_handler(self.signal() as i32);
        }
    }

    fn signal(&self) -> usize {
        // SeqCst pairs with the handlers' store.
        self.0.load(Ordering::SeqCst)
    }
}
