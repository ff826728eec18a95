//! Recording the frames of the pool and the tables into a file of the launcher's.
//!
//! The frame allocator keeps events in memory. Here they are written out every few milliseconds, so
//! what a program does in the last few before it ends may be missing. If events cannot be written,
//! the user is warned once, the recording ends and the program goes on.

use core::fmt::Display;

use coldpress_mem::frames::trace::{EVENT_BYTES, HEAD};
use coldpress_mem::frames::{FrameAllocator, SPAN_MAX};
use coldpress_sys::file::SpillFile;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

use super::Store;
use crate::link::Link;

/// Events that may wait at a time: every frame of the largest span can be freed at once. This is
/// address space; only events that do wait use memory.
const EVENTS_MAX: PageCount = SPAN_MAX.pages_down();
/// Bytes written at a time.
const WRITE_BYTES: usize = PAGE_BYTES;

/// A recording under way.
pub(crate) struct Recording {
    file: SpillFile,
    /// Where the next event goes.
    end: Bytes,
}

impl Recording {
    /// Begins a recording in a file that holds the head already. The frame allocator must have its
    /// span and no frame in use. Returns `None` when there is no file or no room, of which the user
    /// has been informed.
    pub(crate) fn begin(link: &Link, frames: &FrameAllocator) -> Option<Self> {
        let file = link.ask_for_record().and_then(|file| match file {
            Some(file) => frames.record(EVENTS_MAX.0).map(|()| Some(file)),
            None => Ok(None),
        });
        file.inspect_err(|error| tell_end(link, error))
            .ok()
            .flatten()
            .map(|file| Self { file: SpillFile::from_fd(file), end: Bytes(HEAD.len()) })
    }
}

impl Store {
    /// Writes out what happened to frames since the last call, if a recording is under way.
    pub(crate) fn write_events(&mut self) {
        let Some(recording) = &mut self.recording else { return };
        let mut bytes = [0; WRITE_BYTES];
        loop {
            let count = self.frames.take_events(&mut bytes);
            if count == 0 {
                break;
            }
            if let Err(error) = recording.file.write_all_at(&bytes[..count], recording.end) {
                tell_end(&self.ties.link, &error);
                return self.end_recording();
            }
            recording.end += Bytes(count);
        }
        if !self.frames.is_recording() {
            tell_end(&self.ties.link, &format_args!("more than {} events waited", EVENTS_MAX.0));
            self.end_recording();
        }
    }

    fn end_recording(&mut self) {
        self.frames.stop_recording();
        self.recording = None;
    }
}

fn tell_end(link: &Link, why: &dyn Display) {
    let process = link.process();
    link.warn(format_args!("the frames of process {process} are not recorded any further: {why}"));
}

const _: () = assert!(WRITE_BYTES.is_multiple_of(EVENT_BYTES));
