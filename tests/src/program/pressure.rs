//! Memory that is walked so that other memory goes cold, and a thread that does so all the time.
#![allow(clippy::undocumented_unsafe_blocks, reason = "raw access to a mapping of its own")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::pattern::{Kind, PageImage, Tag};
use super::{PAGE, raw};

/// Seed of the walk's patterns.
const SEED: u64 = 0x7072_6573_7375_7265;

/// Memory that is walked to push other memory out.
#[derive(Clone)]
pub struct Pressure {
    addr: usize,
    pages: usize,
    /// The last pass that was written; held while walking.
    pass: Arc<Mutex<u32>>,
}

impl Pressure {
    pub fn new(bytes: usize) -> Self {
        let pages = (bytes / PAGE).max(1);
        let addr = raw::map(pages * PAGE).expect("cannot map");
        Self { addr, pages, pass: Arc::new(Mutex::new(0)) }
    }

    /// Calls `madvise` on all of it; the advice must change no byte.
    pub fn advise(&self, advice: i32) -> std::io::Result<()> {
        unsafe { raw::advise(self.addr, self.pages * PAGE, advice) }
    }

    /// Writes every page, then reads all of them back.
    pub fn walk(&self) {
        let stop = AtomicBool::new(false);
        self.walk_until(&stop);
    }

    fn walk_until(&self, stop: &AtomicBool) {
        let mut pass = self.pass.lock().expect("no thread panics");
        *pass += 1;
        let mut image = PageImage::zero();
        let mut written = 0;
        // Relaxed: nothing but the flag itself is handed over.
        while written < self.pages && !stop.load(Ordering::Relaxed) {
            self.expected(written, *pass, &mut image);
            let to = unsafe { raw::bytes_mut(self.addr + written * PAGE, PAGE) };
            to.copy_from_slice(image.bytes());
            written += 1;
        }
        for page in 0..written {
            self.expected(page, *pass, &mut image);
            let got = unsafe { raw::bytes(self.addr + page * PAGE, PAGE) };
            assert!(got == image.bytes(), "walked page {page} of pass {} is wrong", *pass);
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }

    fn expected(&self, page: usize, pass: u32, image: &mut PageImage) {
        let kind = [Kind::Text, Kind::Sparse, Kind::Same, Kind::Noise][page % 8 / 2];
        let tag = Tag { owner: u32::MAX, index: page as u32, version: pass, kind, patches: 0 };
        tag.expected(SEED, image);
    }
}

/// A thread that walks until it is dropped.
pub struct Busy {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    pub fn start(pressure: &Pressure) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, pressure) = (Arc::clone(&stop), pressure.clone());
        let thread = std::thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                pressure.walk_until(&flag);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(!matches!(ended, Some(Err(_))), "the walking thread found wrong bytes");
    }
}
