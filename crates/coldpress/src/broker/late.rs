//! Programs of a run that turn out to hold much without the library in them: static ones, those of
//! another libc, and those that were started with an environment of their own. They get the library
//! while they run.

use std::collections::HashMap;
use std::fs;
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use coldpress_sys::{Bytes, PageCount};

use crate::inject::Injector;
use crate::pause::pause;
use crate::proc;

/// The memory from which on a process gets the library. Smaller ones are not worth a service.
pub(crate) const WORTH_IT: PageCount = Bytes::mib(4).pages_down();

/// The time after which a process is tried again that is in a state that may pass.
const AGAIN: Duration = Duration::from_millis(500);

/// The image of a process: when the process began, and its program.
type Image = (u64, Option<PathBuf>);

/// What puts the library into processes, and those that were given it, or could not be.
#[derive(Debug)]
pub(super) struct Late {
    injector: Arc<Injector>,
    tried: HashMap<u32, Image>,
    /// The processes that are worked on, and those that are to be tried again.
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    working: Vec<u32>,
    again: Vec<u32>,
}

impl Late {
    pub(super) fn new(injector: Arc<Injector>) -> Self {
        Self { injector, tried: HashMap::new(), open: Arc::default() }
    }

    /// Returns the programs that did not take the library since the last call, and why.
    pub(super) fn take_refusals(&self) -> Vec<(u32, String)> {
        self.injector.take_refusals()
    }

    /// Has the library put into those processes that hold enough, once for each image of a process.
    /// `holds` are the processes without it, and what each holds; `may` says of a process whether
    /// it may be managed.
    pub(super) fn look(
        &mut self,
        holds: impl Iterator<Item = (u32, PageCount)>,
        may: impl Fn(u32) -> bool,
    ) {
        let large = holds.filter(|(_, holds)| *holds >= WORTH_IT);
        let large: Vec<_> = large.map(|(process, _)| process).collect();
        self.tried.retain(|process, _| large.contains(process));
        let (working, again) = self.open.lock().map_or_else(
            |_| (large.clone(), Vec::new()),
            |mut open| (open.working.clone(), mem::take(&mut open.again)),
        );
        again.iter().for_each(|process| drop(self.tried.remove(process)));
        let is_free = |process: &u32| !working.contains(process);
        for process in large.into_iter().filter(is_free).filter(|process| may(*process)) {
            let Some(began) = proc::began(process) else { continue };
            let image = (began, fs::read_link(format!("/proc/{process}/exe")).ok());
            if self.tried.insert(process, image.clone()) == Some(image) {
                continue;
            }
            let (injector, open) = (Arc::clone(&self.injector), Arc::clone(&self.open));
            open.lock().iter_mut().for_each(|open| open.working.push(process));
            let work = move || {
                let is_again = injector.put_in_running(process).is_some();
                if is_again {
                    pause(AGAIN);
                }
                open.lock().iter_mut().for_each(|open| {
                    open.working.retain(|other| *other != process);
                    open.again.extend(is_again.then_some(process));
                });
            };
            // Without a thread the process stays unmanaged, which is told in time.
            let _ = thread::Builder::new().name("injector".to_owned()).spawn(work);
        }
    }
}
