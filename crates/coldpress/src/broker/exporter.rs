//! The exporter: the keeper's thread that hands metrics to monitoring systems.
//!
//! It writes them into a file each second, or answers HTTP on a socket. What it tells is how the
//! run last stood, as the broker left it here: no request reaches the broker, and however slow or
//! silent clients are, neither the broker nor the program waits for them. The thread takes few
//! clients at a time, and each has its time; one more pushes out the oldest. A client can read
//! metrics and do nothing else.

use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, path};

use coldpress_common::failure::{Failure, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::metrics::{self, Format, Subject};
use super::standing::Standing;
use crate::export::Target;
use crate::say;

/// The interval between two writes of the file.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// The time that a client has for its request and for the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most clients at a time. Monitoring systems come one at a time, every few seconds.
const CLIENTS_MAX: usize = 16;
/// The longest request, and the most lines of its head.
const REQUEST_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// The access to the file, less the user's mask: whoever collects it has a user of its own.
const FILE_MODE: u32 = 0o644;

/// How the run last stood.
type Latest = Arc<Mutex<Arc<Standing>>>;

/// The thread that exports the metrics of a run, which ends with this.
pub(crate) struct Exporter {
    latest: Latest,
    /// When that was told.
    updated: Instant,
    /// Closing the pipe ends the thread.
    end: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Starts to export the metrics of `subject`, which stands as `now`.
    pub(crate) fn start(target: &Target, subject: Subject, now: Standing) -> Result<Self> {
        let latest: Latest = Arc::new(Mutex::new(Arc::new(now)));
        let source = Source { latest: Arc::clone(&latest), subject };
        let outlet = Outlet::open(target, &source).map_err(|error| {
            let cause = format!("cannot export metrics to {target}: {error}");
            Failure::ours(cause, "name a file, unix:PATH or HOST:PORT that is free, with --metrics")
        })?;
        let started = io::pipe().and_then(|(receiver, end)| {
            let run = move || outlet.serve(&source, &receiver);
            let thread = thread::Builder::new().name("metrics".to_owned()).spawn(run)?;
            Ok((end, thread))
        });
        let (end, thread) = started.map_err(|error| {
            Failure::ours(format!("cannot start a thread: {error}"), "raise ulimit -u")
        })?;
        Ok(Self { latest, updated: Instant::now(), end: Some(end), thread: Some(thread) })
    }

    /// Whether it is time to tell how the run stands.
    pub(super) fn is_due(&self) -> bool {
        self.updated.elapsed() >= WRITE_INTERVAL
    }

    /// Has the run stand as `now` from now on.
    pub(super) fn update(&mut self, now: Standing) {
        self.updated = Instant::now();
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(now);
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.end.take());
        // The thread's panic has already been printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Where metrics come from.
struct Source {
    latest: Latest,
    subject: Subject,
}

impl Source {
    fn text(&self, format: Format) -> String {
        let latest = Arc::clone(&self.latest.lock().unwrap_or_else(PoisonError::into_inner));
        metrics::text(&self.subject, &latest, format)
    }
}

/// Where metrics go.
enum Outlet {
    File(PathBuf),
    Tcp(TcpListener),
    /// A socket, its path, which is removed at the end, and what lay there then.
    Unix(UnixListener, PathBuf, Option<Identity>),
}

impl Outlet {
    /// Opens the outlet: a file is written for the first time, and a socket is bound.
    fn open(target: &Target, source: &Source) -> io::Result<Self> {
        match target {
            Target::File(path) => {
                // The keeper changes its directory.
                let mut path = path::absolute(path)?;
                // A file is replaced, which would make one of a device or of a link.
                if let Ok(metadata) = fs::metadata(&path) {
                    if !metadata.is_file() {
                        let what = "it is there and no regular file";
                        return Err(io::Error::new(ErrorKind::AlreadyExists, what));
                    }
                    path = fs::canonicalize(path)?;
                }
                write(&path, source)?;
                Ok(Self::File(path))
            }
            Target::Unix(path) => {
                let path = path::absolute(path)?;
                // A socket that nobody listens at was left by a run that was killed.
                let is_left = || fs::symlink_metadata(&path).is_ok_and(|it| is_socket(&it));
                let refuses = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
                if is_left() && UnixStream::connect(&path).is_err_and(refuses) {
                    fs::remove_file(&path)?;
                }
                let listener = UnixListener::bind(&path)?;
                listener.set_nonblocking(true)?;
                let identity = identity(&path);
                Ok(Self::Unix(listener, path, identity))
            }
            Target::Tcp(address) => {
                let addresses: Vec<_> = address.to_socket_addrs()?.collect();
                let listener = TcpListener::bind(&addresses[..])?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(listener))
            }
        }
    }

    /// Exports until the other end of `end` is closed. A file then shows the end of the run.
    fn serve(self, source: &Source, end: &PipeReader) {
        match &self {
            Self::File(path) => {
                let mut has_failed = false;
                loop {
                    let is_over = wait(&mut [PollFd::new(end, PollFlags::IN)], WRITE_INTERVAL);
                    if let Err(error) = write(path, source)
                        && !std::mem::replace(&mut has_failed, true)
                    {
                        say(format!("warning: cannot write {}: {error}", path.display()));
                    }
                    if is_over {
                        break;
                    }
                }
            }
            Self::Tcp(listener) => {
                let accept = || listener.accept().map(|(it, _)| Box::new(it) as Box<dyn Stream>);
                serve(source, end, listener.as_fd(), accept);
            }
            Self::Unix(listener, path, bound) => {
                let accept = || listener.accept().map(|(it, _)| Box::new(it) as Box<dyn Stream>);
                serve(source, end, listener.as_fd(), accept);
                // Another run may have its socket there by now.
                if identity(path) == *bound {
                    let _ = fs::remove_file(path);
                }
            }
        }
    }
}

/// The device and the number of a file.
type Identity = (u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

fn is_socket(metadata: &fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_socket(&metadata.file_type())
}

/// Returns whether the first of `fds` is ready, after a wait for any of them.
fn wait(fds: &mut [PollFd<'_>], patience: Duration) -> bool {
    let timeout = Timespec::try_from(patience).expect("a patience is short");
    // An interrupted wait is as good as one that timed out.
    let _ = poll(fds, Some(&timeout));
    !fds[0].revents().is_empty()
}

/// Writes the file anew, in one step: a reader finds all of the old or all of the new one.
fn write(path: &Path, source: &Source) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::Builder::new()
        .prefix(".coldpress-")
        .permissions(fs::Permissions::from_mode(FILE_MODE))
        .tempfile_in(directory)?;
    file.write_all(source.text(Format::Prometheus).as_bytes())?;
    file.persist(path).map(|_| ()).map_err(|error| error.error)
}

/// A connection.
trait Stream: Read + Write + AsFd + Send {
    fn set_nonblocking(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_nonblocking(&self) -> io::Result<()> {
        Self::set_nonblocking(self, true)
    }
}

impl Stream for UnixStream {
    fn set_nonblocking(&self) -> io::Result<()> {
        Self::set_nonblocking(self, true)
    }
}

/// Answers clients until the other end of `end` is closed.
fn serve(
    source: &Source,
    end: &PipeReader,
    listener: BorrowedFd<'_>,
    accept: impl Fn() -> io::Result<Box<dyn Stream>>,
) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let now = Instant::now();
        clients.retain(|client| now < client.until);
        let patience = clients.iter().map(|client| client.until - now).min();
        let mut fds = vec![
            PollFd::new(end, PollFlags::IN),
            PollFd::from_borrowed_fd(listener, PollFlags::IN),
        ];
        fds.extend(clients.iter().map(Client::polled));
        let is_over = wait(&mut fds, patience.unwrap_or(Duration::from_secs(3600)));
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if is_over {
            return;
        }
        let mut found = ready[2..].iter();
        clients.retain_mut(|client| found.next() != Some(&true) || client.go_on(source));
        if ready[1] {
            match accept().and_then(Client::new) {
                Ok(client) => clients.push(client),
                // Without a descriptor for it, the kernel would report it again and again.
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_millis(100));
                }
                Err(_) => {}
            }
            if clients.len() > CLIENTS_MAX {
                clients.remove(0);
            }
        }
    }
}

/// A client of the socket.
struct Client {
    stream: Box<dyn Stream>,
    until: Instant,
    request: Vec<u8>,
    /// What is still to be sent, once the request is there.
    answer: Option<Vec<u8>>,
}

impl Client {
    fn new(stream: Box<dyn Stream>) -> io::Result<Self> {
        stream.set_nonblocking()?;
        let until = Instant::now() + PATIENCE;
        Ok(Self { stream, until, request: Vec::new(), answer: None })
    }

    fn polled(&self) -> PollFd<'_> {
        let flags = if self.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
        PollFd::from_borrowed_fd(self.stream.as_fd(), flags)
    }

    /// Returns whether the connection stays open, after reading of the request, or sending of the
    /// answer, what can be without a wait.
    fn go_on(&mut self, source: &Source) -> bool {
        if self.answer.is_none() {
            let mut bytes = [0; 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => self.request.extend(&bytes[..count]),
                Err(error) => return is_for_later(&error),
            }
            self.answer = answer(&self.request, source);
        }
        let Some(answer) = &mut self.answer else { return true };
        match self.stream.write(answer) {
            Ok(count) => drop(answer.drain(..count)),
            Err(error) => return is_for_later(&error),
        }
        !answer.is_empty()
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Returns the answer to a request, or `None` while its head is not complete.
fn answer(request: &[u8], source: &Source) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let plain = "text/plain; charset=utf-8";
    let (status, content_type, body) = match head.parse(request) {
        Ok(httparse::Status::Partial) if request.len() < REQUEST_MAX => return None,
        Ok(httparse::Status::Complete(_)) => {
            let path = head.path.unwrap_or_default().split('?').next().unwrap_or_default();
            match (head.method, path) {
                (Some("GET" | "HEAD"), "/" | "/metrics") => {
                    let format = wanted(head.headers);
                    ("200 OK", format.content_type(), source.text(format))
                }
                (Some("GET" | "HEAD"), _) => ("404 Not Found", plain, "see /metrics\n".to_owned()),
                _ => ("405 Method Not Allowed", plain, "metrics can only be read\n".to_owned()),
            }
        }
        _ => ("400 Bad Request", plain, "no request of HTTP/1\n".to_owned()),
    };
    let length = body.len();
    let body = if head.method == Some("HEAD") { "" } else { &body };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         Allow: GET, HEAD\r\nConnection: close\r\n\r\n{body}"
    );
    Some(answer.into_bytes())
}

/// Returns the format that a client asks for. A client that asks for none reads the older one.
fn wanted(headers: &[httparse::Header<'_>]) -> Format {
    let accept = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let mut words = accept.map(|header| String::from_utf8_lossy(header.value));
    let is_open = words.any(|it| it.contains("application/openmetrics-text"));
    if is_open { Format::OpenMetrics } else { Format::Prometheus }
}
