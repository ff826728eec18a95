//! QEMU's machine protocol (QMP): lines of JSON over a socket.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use coldpress_sys::Bytes;
use serde_json::{Value, json};

/// Time limit of an answer: QEMU gives it at once, but its thread may wait for memory.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How often a connection is tried, a tenth of a second apart.
const TRIES: usize = 100;

/// A connection to a running QEMU.
pub(crate) struct Control {
    reader: BufReader<UnixStream>,
}

impl Control {
    /// Connects to the QEMU that listens at `socket`, or soon will.
    pub(crate) fn connect(socket: &Path) -> Self {
        let pause = || thread::sleep(Duration::from_millis(100));
        let tried = (0..TRIES).find_map(|_| UnixStream::connect(socket).map_err(|_| pause()).ok());
        let stream = tried.expect("QEMU listens soon after its start");
        stream.set_read_timeout(Some(ANSWER_MAX)).expect("it is not zero");
        let mut control = Self { reader: BufReader::new(stream) };
        assert!(control.line().get("QMP").is_some(), "no greeting");
        control.ask("qmp_capabilities", &json!({}));
        control
    }

    /// Sets what the balloon leaves to the guest.
    pub(crate) fn balloon(&mut self, left: Bytes) {
        self.ask("balloon", &json!({ "value": left.0 }));
    }

    /// Returns what the balloon leaves to the guest at present.
    pub(crate) fn left(&mut self) -> Bytes {
        let answer = self.ask("query-balloon", &json!({}));
        let actual = answer["actual"].as_u64();
        Bytes(actual.expect("the guest has a balloon") as usize)
    }

    /// Has QEMU do `command`, and returns its answer. What it says of its own accord meanwhile is
    /// left out.
    fn ask(&mut self, command: &str, arguments: &Value) -> Value {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.reader.get_mut(), "{request}").expect("QEMU reads");
        loop {
            let mut line = self.line();
            assert!(line.get("error").is_none(), "{command}: {line}");
            if line.get("return").is_some() {
                return line["return"].take();
            }
        }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("QEMU answers in time");
        serde_json::from_str(&line).expect("QEMU speaks JSON")
    }
}
