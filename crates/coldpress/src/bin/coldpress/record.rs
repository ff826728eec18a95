//! The files of `coldpress run --record FILE`: one for each process that is managed.
//!
//! The launcher makes them, with their heads, and hands them to the processes, which add what
//! happens to their frames. So every file is a trace from the start, and a name that cannot be
//! written is known before the program starts.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use coldpress_bench::frames::trace::Trace;

use crate::failure::{Failure, Result};

/// Where a run is recorded.
pub(crate) struct Records {
    path: PathBuf,
    /// The file for the first process, until it has it.
    first: Option<File>,
    /// Files handed out.
    count: usize,
}

impl Records {
    /// Makes the first file. Fails with the name when that cannot be written, or is no regular
    /// file.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        match create(path) {
            Ok(file) => Ok(Self { path: path.to_owned(), first: Some(file), count: 0 }),
            Err(error) => Err(Failure::ours(
                format!("cannot write --record {}: {error}", path.display()),
                "name a file in a directory you may write to",
            )),
        }
    }

    /// The file for the next process. Fails with its name.
    pub(crate) fn next(&mut self) -> Result<File> {
        self.count += 1;
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        let mut path = OsString::from(&self.path);
        path.push(format!(".{}", self.count));
        create(Path::new(&path)).map_err(|error| {
            let cause = format!("cannot write {}: {error}", path.display());
            Failure::ours(cause, "its process is not recorded")
        })
    }
}

fn create(path: &Path) -> io::Result<File> {
    // Looked at first: opening a pipe would wait for a reader.
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut file = File::create(path)?;
    Trace::default().write(&mut file)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_has_a_file_that_is_a_trace() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let mut records = Records::create(&path).unwrap();
        for name in ["trace", "trace.2", "trace.3"] {
            records.next().unwrap();
            let trace = Trace::read(&mut File::open(directory.path().join(name)).unwrap());
            assert_eq!(trace.unwrap(), Trace::default(), "{name}");
        }
        drop(directory);
        assert!(records.next().unwrap_err().cause.contains("trace.4"));
    }

    #[test]
    fn what_cannot_hold_a_trace_is_refused_by_name() {
        for path in ["/absent/trace", "/proc", "/dev/null"] {
            let failure = Records::create(Path::new(path)).map(|_| ()).unwrap_err();
            assert!(failure.cause.contains(path), "{failure}");
        }
    }
}
