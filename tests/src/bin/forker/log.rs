//! A stdio stream that parent and child both write: its buffer is a heap object which libc itself
//! touches while it forks.

use std::ffi::CString;

/// Most bytes read back at once.
const READ_MAX: usize = 1 << 16;

/// A temporary file with a full buffer between it and the program.
pub struct Log {
    stream: *mut libc::FILE,
    /// The line that the parent wrote and has not flushed.
    pending: String,
}

impl Log {
    /// Opens a temporary file.
    pub fn new() -> Self {
        let stream = unsafe { libc::tmpfile() };
        assert!(!stream.is_null(), "no temporary file");
        Self { stream, pending: String::new() }
    }

    /// Empties the file and writes a line that stays in the buffer.
    pub fn parent_line(&mut self, round: usize) -> Result<(), String> {
        unsafe {
            libc::fflush(self.stream);
            libc::rewind(self.stream);
            if libc::ftruncate(libc::fileno(self.stream), 0) != 0 {
                return Err("ftruncate failed".to_owned());
            }
        }
        self.pending = format!("parent, round {round}\n");
        self.print(&self.pending)
    }

    /// Adds a line in the child and flushes, which writes the parent's line too.
    pub fn child_line(&mut self, round: usize) -> Result<(), String> {
        self.print(&format!("child, round {round}\n"))?;
        if unsafe { libc::fflush(self.stream) } != 0 {
            return Err("fflush failed".to_owned());
        }
        Ok(())
    }

    /// Flushes in the parent, and compares the whole file with what must be there.
    pub fn check(&mut self, child_round: Option<usize>) -> Result<(), String> {
        let mut wanted = String::new();
        if let Some(round) = child_round {
            // The child's copy of the buffer, then the parent's.
            wanted = format!("{}child, round {round}\n", self.pending);
        }
        wanted.push_str(&self.pending);
        let mut got = vec![0u8; READ_MAX];
        let count = unsafe {
            libc::fflush(self.stream);
            libc::rewind(self.stream);
            libc::fread(got.as_mut_ptr().cast(), 1, READ_MAX, self.stream)
        };
        got.truncate(count);
        if got == wanted.as_bytes() {
            return Ok(());
        }
        Err(format!("the stream holds {:?}, not {wanted:?}", String::from_utf8_lossy(&got)))
    }

    fn print(&self, line: &str) -> Result<(), String> {
        let text = CString::new(line).map_err(|error| error.to_string())?;
        let count = unsafe { libc::fprintf(self.stream, c"%s".as_ptr(), text.as_ptr()) };
        if count == line.len() as i32 { Ok(()) } else { Err(format!("fprintf gave {count}")) }
    }
}
