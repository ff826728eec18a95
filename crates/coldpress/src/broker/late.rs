//! Programs of a run that turn out to hold much without the library in them: static ones, those of
//! another libc, and those that were started with an environment of their own. They get the library
//! while they run.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use coldpress_sys::{Bytes, PageCount};

use crate::inject::Injector;
use crate::proc;

/// The memory from which on a process gets the library. Smaller ones are not worth a service.
pub(super) const WORTH_IT: PageCount = Bytes::mib(4).pages_down();

/// The image of a process: when the process began, and its program.
type Image = (u64, Option<PathBuf>);

/// What puts the library into processes, and those that were given it, or could not be.
#[derive(Debug)]
pub(super) struct Late {
    injector: Arc<Injector>,
    tried: HashMap<u32, Image>,
}

impl Late {
    pub(super) fn new(injector: Arc<Injector>) -> Self {
        Self { injector, tried: HashMap::new() }
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
        for process in large.into_iter().filter(|process| may(*process)) {
            let Some(began) = proc::began(process) else { continue };
            let image = (began, fs::read_link(format!("/proc/{process}/exe")).ok());
            if self.tried.insert(process, image.clone()) == Some(image) {
                continue;
            }
            let injector = Arc::clone(&self.injector);
            // Without a thread the process stays unmanaged, which is told in time.
            let _ = thread::Builder::new()
                .name("injector".to_owned())
                .spawn(move || injector.put_in_running(process));
        }
    }
}
