//! A pipe of a running program, read to its end by a thread.

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 16;

/// The output that came through so far.
#[derive(Debug, Default)]
struct Captured {
    bytes: Vec<u8>,
    ended: bool,
}

/// One pipe of a running program.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    shared: Arc<(Mutex<Captured>, Condvar)>,
}

impl Stream {
    /// Reads `pipe` until its last writer is gone.
    pub(super) fn collect(mut pipe: impl Read + Send + 'static) -> Self {
        let stream = Self::default();
        let writer = stream.clone();
        thread::spawn(move || {
            let mut chunk = vec![0; CHUNK_BYTES];
            // An error ends the reading as the end does: the comparison then shows which bytes are
            // missing.
            while let Ok(count @ 1..) = pipe.read(&mut chunk) {
                writer.lock().bytes.extend_from_slice(&chunk[..count]);
                writer.shared.1.notify_all();
            }
            writer.lock().ended = true;
            writer.shared.1.notify_all();
        });
        stream
    }

    /// Locks the bytes. A reader that panicked leaves them whole, so poisoning says nothing.
    fn lock(&self) -> MutexGuard<'_, Captured> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done` holds. Returns whether it held before `limit` passed.
    fn wait(&self, limit: Duration, done: impl Fn(&Captured) -> bool) -> bool {
        let pending = |captured: &mut Captured| !done(captured);
        let waited = self.shared.1.wait_timeout_while(self.lock(), limit, pending);
        let (_captured, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        !timeout.timed_out()
    }

    /// Waits for `word`. Returns whether it came before the end and before `limit` passed.
    pub(super) fn wait_for(&self, word: &[u8], limit: Duration) -> bool {
        let holds = |captured: &Captured| captured.bytes.windows(word.len()).any(|w| w == word);
        self.wait(limit, |captured| captured.ended || holds(captured)) && holds(&self.lock())
    }

    /// Waits for the end. Returns whether it came before `limit` passed.
    pub(super) fn wait_end(&self, limit: Duration) -> bool {
        self.wait(limit, |captured| captured.ended)
    }

    /// Takes the bytes so far out of the stream.
    pub(super) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.lock().bytes)
    }

    /// Returns the bytes so far as text.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock().bytes).into_owned()
    }
}
