//! The service's ties to the rest of the run: the launcher, and the program that it serves.

use alloc::rc::Rc;
use core::fmt;

use coldpress_sys::program::Program;
use coldpress_sys::raw;

use crate::link::Link;

/// The link to the launcher and the program. Every part of the service may have to warn the user or
/// to end the program, so all of them share the ties, which end with the last of them.
pub(crate) struct Ties {
    pub(crate) link: Link,
    pub(crate) program: Program,
}

impl Ties {
    /// Makes ties to be shared.
    pub(crate) fn shared(link: Link, program: Program) -> Rc<Self> {
        Rc::new(Self { link, program })
    }

    /// Ends the program, loudly, because it could not go on with the right bytes. The launcher does
    /// so when this process ends; where the launcher has gone, this process does.
    pub(crate) fn die(&self, why: fmt::Arguments<'_>) -> ! {
        self.link.fatal(why);
        self.program.kill();
        raw::abort_process()
    }

    /// Warns the user.
    pub(crate) fn warn(&self, text: fmt::Arguments<'_>) {
        self.link.warn(text);
    }

    /// Informs the user of what costs time or is good to know.
    pub(crate) fn tell(&self, text: fmt::Arguments<'_>) {
        self.link.tell(text);
    }

    /// Returns the program's process, as messages name it to the user.
    pub(crate) fn process(&self) -> u32 {
        self.link.process()
    }
}
