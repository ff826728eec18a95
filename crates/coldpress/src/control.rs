//! The protocol between `coldpress ctl` and the launcher: one packet there, one back.
//!
//! The request is [`GREETING`], then a line `NAME=VALUE` for the budget (`memory`) and each knob to
//! be turned; or the line [`TIMELINE`], [`METRICS`] or [`PROCESSES`] alone. The answer is a JSON
//! document: the figures of the run after the change, its timeline, its metrics, its processes, or
//! a [`refusal`], and then nothing has changed. A long answer is in a file that comes with an empty
//! object. All are texts rather than layouts, so that two versions of coldpress understand each
//! other.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use coldpress_common::failure::Failure;
use coldpress_runtime::knobs::Knobs;
use coldpress_sys::net::{self, DESCRIPTORS_MAX, Peer};
use coldpress_sys::{AsFd, OwnedFd, SysResult};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, fcntl_get_seals, memfd_create};
use serde_json::{Value, json};

use crate::budget::{Ask, Budget};
use crate::knobs;
use crate::text::printable_document;
use crate::view;

/// The first bytes of a request: "cpc" and the version of these packets.
const GREETING: &[u8] = b"cpc\x01";
/// The text before a budget in a request.
const MEMORY: &str = "memory=";
/// The request for the timeline.
pub(crate) const TIMELINE: &str = "timeline";
/// The request for the metrics.
pub(crate) const METRICS: &str = "metrics";
/// The request for the processes.
pub(crate) const PROCESSES: &str = "processes";
/// The longest request: every knob, turned many times.
pub(crate) const REQUEST_MAX: usize = 4096;
/// The longest answer. An ordinary one has some 10 KiB.
const ANSWER_MAX: usize = 128 << 10;
/// The longest answer in a packet. The kernel takes some 200 KiB (net.core.wmem_default).
const PACKET_ANSWER_MAX: usize = 64 << 10;
/// The longest answer in a file.
const FILE_ANSWER_MAX: u64 = 16 << 20;
/// The time to wait for an answer. Launchers answer within milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the request to turn knobs as `settings` say, if there are any.
pub(crate) fn request(settings: &[String]) -> Vec<u8> {
    let lines: String = settings.iter().map(|setting| format!("{setting}\n")).collect();
    [GREETING, lines.as_bytes()].concat()
}

/// Receives the first packet of a new connection, which is there to be read, and the descriptor
/// that comes with it, if any. Returns `None` when the packet is too long.
pub(crate) fn first_packet(socket: &OwnedFd) -> Option<(Vec<u8>, Option<OwnedFd>)> {
    let mut bytes = vec![0; REQUEST_MAX];
    let mut received = [const { None }; DESCRIPTORS_MAX];
    let length = net::receive(socket.as_fd(), &mut bytes, &mut received).ok()?;
    bytes.truncate(length);
    Some((bytes, received[0].take()))
}

/// Returns the text of a request, or `None` when `packet` is no request.
pub(crate) fn of_request(packet: &[u8]) -> Option<&str> {
    packet.strip_prefix(GREETING).and_then(|text| std::str::from_utf8(text).ok())
}

/// The settings that may be changed while a run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changeable {
    /// The budget.
    pub(crate) budget: Budget,
    /// All other settings.
    pub(crate) knobs: Knobs,
    /// The memory that programs are shown, which stays as it is.
    pub(crate) show_memory: view::Ask,
}

impl Changeable {
    /// Returns the settings after the request `text`. Fails at the first setting that is wrong.
    pub(crate) fn turned(mut self, text: &str) -> Result<Self, Failure> {
        let wrong = |cause| Failure::ours(cause, "nothing was changed; see `coldpress help ctl`");
        for line in text.lines() {
            if let Some(size) = line.strip_prefix(MEMORY) {
                self.budget = Budget::find(Ask::parse(size).map_err(wrong)?)?;
            } else {
                let (knob, word) = knobs::parse(line).map_err(wrong)?;
                self.knobs.set(knob, word);
            }
        }
        Ok(self)
    }
}

/// Returns whether `peer` may see and turn the knobs: the user that started the run may, and root.
pub(crate) fn may(peer: Peer) -> bool {
    peer.user == 0 || peer.user == rustix::process::geteuid().as_raw()
}

/// Makes the failure for a peer that may not control this run.
pub(crate) fn not_permitted(peer: Peer) -> Failure {
    refused(peer.user, rustix::process::geteuid().as_raw())
}

/// Makes the failure for a `user` that may not control a run of another one.
pub(crate) fn refused(user: u32, of: u32) -> Failure {
    let cause = format!("user {user} may not control this run, which is of user {of}");
    Failure::ours(cause, format!("do it as user {of} or as root"))
}

/// Answers a request. The process that asked may have gone.
pub(crate) fn answer(socket: &OwnedFd, document: &Value) {
    let text = document.to_string();
    let file = (text.len() > PACKET_ANSWER_MAX).then(|| file_of(&text)).and_then(Result::ok);
    let _ = match &file {
        Some(file) => net::send(socket.as_fd(), b"{}", &[file.as_fd()]),
        None => net::send(socket.as_fd(), text.as_bytes(), &[]),
    };
}

/// Returns a file without a name that holds `text`.
fn file_of(text: &str) -> io::Result<File> {
    let file = File::from(memfd_create("coldpress-answer", MemfdFlags::CLOEXEC)?);
    file.write_all_at(text.as_bytes(), 0)?;
    Ok(file)
}

/// Returns what a file that came with an answer holds. Fails for all but files in memory: another
/// file system (FUSE) may never say how long its file is, or what is in it.
fn text_of(file: OwnedFd) -> io::Result<Vec<u8>> {
    fcntl_get_seals(&file)?;
    let file = File::from(file);
    let length = file.metadata()?.len().min(FILE_ANSWER_MAX) as usize;
    let mut text = vec![0; length];
    file.read_exact_at(&mut text, 0)?;
    Ok(text)
}

/// Returns the answer that says what is wrong.
pub(crate) fn refusal(failure: &Failure) -> Value {
    json!({ "error": { "cause": failure.cause, "way_out": failure.way_out } })
}

/// Reads an answer: the document, or what is wrong. Returns `None` when `packet` is no answer. Any
/// process may have made the socket and written the answer, so the text is made fit to be printed.
fn of_answer(packet: &[u8]) -> Option<Result<Value, Failure>> {
    let document: Value = serde_json::from_slice(packet).ok().filter(Value::is_object)?;
    let document = printable_document(document);
    let Some(error) = document.get("error") else { return Some(Ok(document)) };
    let part = |name: &str| error.get(name).and_then(Value::as_str);
    Some(Err(Failure::ours(part("cause")?, part("way_out")?)))
}

/// Sends `request` over the connection `socket`, and waits for the answer as long as its `patience`
/// lasts; see [`of_answer`]. Returns `None` when no answer comes that can be understood.
pub(crate) fn exchange(
    socket: &OwnedFd,
    request: &[u8],
    patience: Duration,
) -> SysResult<Option<Result<Value, Failure>>> {
    // A launcher that refuses the caller has already said so, and closed the connection unread.
    let sent = net::send(socket.as_fd(), request, &[]);
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    let timeout = Timespec::try_from(patience).expect("a patience is short");
    if !poll(&mut fds, Some(&timeout)).is_ok_and(|count| count > 0) {
        return Ok(None);
    }
    let mut answer = vec![0; ANSWER_MAX];
    let mut fds_received = [const { None }; DESCRIPTORS_MAX];
    let mut receive = || net::receive(socket.as_fd(), &mut answer, &mut fds_received);
    // On a closed connection the kernel first reports once that it was closed, then delivers the
    // answer.
    let length = receive().or_else(|_| receive()).and_then(|length| match length {
        0 => sent.map(|()| 0),
        _ => Ok(length),
    })?;
    match fds_received[0].take() {
        Some(file) => Ok(text_of(file).ok().and_then(|text| of_answer(&text))),
        None => Ok(of_answer(&answer[..length])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_survive_the_wire_and_strangers_do_not() {
        let settings = ["writeback=off".to_owned(), "codec=lzo".to_owned()];
        let packet = request(&settings);
        assert_eq!(of_request(&packet), Some("writeback=off\ncodec=lzo\n"));
        assert_eq!(of_request(&request(&[])), Some(""));
        assert_eq!(of_request(b"GET / HT"), None);
        assert_eq!(of_answer(b"hello"), None);
        for no_object in ["[]", "7", "null", "\"x\"", "[{ \"error\": 1 }]"] {
            assert_eq!(of_answer(no_object.as_bytes()), None, "{no_object}");
        }
        assert_eq!(of_answer(br#"{ "error": 7 }"#), None);
        let answer = json!({ "knobs": { "writeback": "off" } });
        assert_eq!(of_answer(answer.to_string().as_bytes()), Some(Ok(answer)));
        let shown = of_answer(br#"{ "knobs": { "codec": "wk\u001b[2J" } }"#).unwrap().unwrap();
        assert_eq!(shown["knobs"]["codec"], "wk\\u{1b}[2J");
        let failure = Failure::ours("no", "yes");
        let packet = refusal(&failure).to_string();
        assert_eq!(of_answer(packet.as_bytes()), Some(Err(failure)));
    }

    #[test]
    fn an_answer_of_any_length_arrives() {
        for length in [1, PACKET_ANSWER_MAX, 4 * ANSWER_MAX] {
            let (ours, theirs) = net::pair().unwrap();
            let document = json!({ "a": "x".repeat(length) });
            answer(&theirs, &document);
            let told = exchange(&ours, &request(&[TIMELINE.to_owned()]), PATIENCE).unwrap();
            assert_eq!(told, Some(Ok(document)));
        }
    }

    /// The risk: whoever made the socket has `ctl` wait for ever, or read what does not end.
    #[test]
    fn what_is_no_file_in_memory_is_no_answer() {
        let (pipe, _writer) = io::pipe().unwrap();
        let files = ["/dev/zero", "/proc/self/maps", "/"].map(|path| File::open(path).unwrap());
        for wrong in files.map(OwnedFd::from).into_iter().chain([OwnedFd::from(pipe)]) {
            let (ours, theirs) = net::pair().unwrap();
            net::send(theirs.as_fd(), b"{}", &[wrong.as_fd()]).unwrap();
            assert_eq!(exchange(&ours, &request(&[]), PATIENCE).unwrap(), None);
        }
    }

    #[test]
    fn one_wrong_setting_turns_nothing() {
        let ask = Ask::parse("64M").unwrap();
        let now = Changeable {
            budget: Budget::find(ask).unwrap(),
            knobs: Knobs::default(),
            show_memory: view::Ask::Auto,
        };
        for (wrong, part) in
            [("max_pool_percent=91", "1 to 90"), ("memory=1K", "16 MiB"), ("memory=x", "512M")]
        {
            let text = format!("writeback=off\n{wrong}");
            let failure = now.clone().turned(&text).unwrap_err();
            assert!(failure.cause.contains(part), "{failure}");
        }
        let text = "max_pool_percent=9\nmemory=32M\nmax_pool_percent=7";
        let turned = now.clone().turned(text).unwrap();
        let mut expected = now.clone();
        assert!(expected.knobs.set(coldpress_runtime::knobs::Knob::MaxPoolPercent, 7));
        expected.budget = Budget::find(Ask::parse("32M").unwrap()).unwrap();
        assert_eq!(turned, expected);
        assert_eq!(now.clone().turned("").unwrap(), now);
    }
}
