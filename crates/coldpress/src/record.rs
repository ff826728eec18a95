//! The files of `coldpress run --record FILE`: one for each managed process.
//!
//! The launcher makes the files, with their heads, and hands them to the processes, which add what
//! happens to their frames. So every file is a trace from the start, and a name that cannot be
//! written is known before the program starts.
//!
//! The first file is the one that the user named, whatever that name leads to. The launcher makes
//! up the names of others from it while the program runs. The program may have put something there,
//! so nothing that exists is opened, not even a link to a file of ours.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use coldpress_common::failure::{Failure, Result};
use coldpress_mem::frames::trace::HEAD;

/// The place where a run is recorded.
pub(crate) struct Records {
    path: PathBuf,
    /// The file for the first process, until the process has it.
    first: Option<File>,
    /// The number of files handed out.
    count: usize,
}

impl Records {
    /// Makes the first file. Fails with its name when it cannot be written, or is no regular file.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        match create(path, |path| File::create(path)) {
            Ok(file) => {
                // The keeper leaves its directory when the program has ended.
                let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
                Ok(Self { path, first: Some(file), count: 0 })
            }
            Err(error) => Err(Failure::ours(
                format!("cannot write --record {}: {error}", path.display()),
                "name a file in a directory you may write to",
            )),
        }
    }

    /// Returns the file for the next process. Fails with the name of the file.
    pub(crate) fn next(&mut self) -> Result<File> {
        self.count += 1;
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        let mut path = OsString::from(&self.path);
        path.push(format!(".{}", self.count));
        let new = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
        create(Path::new(&path), new).map_err(|error| {
            let cause = format!("cannot write {}: {error}", path.display());
            let way_out = "its process is not recorded; remove it, or name another --record";
            Failure::ours(cause, way_out)
        })
    }
}

/// Makes the file at `path` by `open`.
fn create(path: &Path, open: impl Fn(&Path) -> io::Result<File>) -> io::Result<File> {
    // The path is examined first, because opening a pipe would wait for a reader.
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut file = open(path)?;
    file.write_all(&HEAD)?;
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
            assert_eq!(std::fs::read(directory.path().join(name)).unwrap(), HEAD, "{name}");
        }
        drop(directory);
        assert!(records.next().unwrap_err().cause.contains("trace.4"));
    }

    #[test]
    fn only_the_file_that_was_named_may_be_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("precious"), "precious").unwrap();
        std::fs::write(path("trace"), "of the last run").unwrap();
        std::fs::write(path("trace.3"), "of the last run").unwrap();
        std::os::unix::fs::symlink(path("precious"), path("trace.2")).unwrap();
        let mut records = Records::create(&path("trace")).unwrap();
        records.next().unwrap();
        for name in ["trace.2", "trace.3"] {
            let failure = records.next().unwrap_err();
            assert!(
                failure.cause.contains(name) && failure.way_out.contains("remove"),
                "{failure}"
            );
        }
        records.next().unwrap();
        assert_eq!(std::fs::read_to_string(path("precious")).unwrap(), "precious");
    }

    #[test]
    fn what_cannot_hold_a_trace_is_refused_by_name() {
        for path in ["/absent/trace", "/proc", "/dev/null"] {
            let failure = Records::create(Path::new(path)).map(|_| ()).unwrap_err();
            assert!(failure.cause.contains(path), "{failure}");
        }
    }
}
