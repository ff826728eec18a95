//! Where the metrics of a run go: the words of `--metrics`.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The text before the path of a socket.
const UNIX: &[u8] = b"unix:";
/// The host of an address without one: no other machine reaches it.
const LOCAL: &str = "127.0.0.1";

/// A place for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A file that is written each second.
    File(PathBuf),
    /// A unix socket that answers HTTP.
    Unix(PathBuf),
    /// A host and a port that answer HTTP.
    Tcp(String),
}

impl Target {
    /// Reads `unix:PATH`, `HOST:PORT`, `:PORT` or `PORT`; all else is a file.
    pub(crate) fn parse(text: OsString) -> Self {
        if let Some(path) = text.as_bytes().strip_prefix(UNIX) {
            return Self::Unix(OsString::from_vec(path.to_vec()).into());
        }
        let address = text.to_str().filter(|text| !text.contains('/'));
        let (host, port) = match address {
            Some(address) => address.rsplit_once(':').unwrap_or(("", address)),
            None => return Self::File(text.into()),
        };
        match port.parse::<u16>() {
            Ok(_) if host.is_empty() => Self::Tcp(format!("{LOCAL}:{port}")),
            Ok(_) => Self::Tcp(format!("{host}:{port}")),
            // A number alone was meant as a port, and is refused as one.
            Err(_) if host.is_empty() && is_number(port) => Self::Tcp(format!("{LOCAL}:{port}")),
            Err(_) => Self::File(text.into()),
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => f.write_str(address),
        }
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a port that other machines reach without the user's wish.

    use super::*;

    #[test]
    fn a_port_alone_is_for_this_machine_and_what_is_no_address_is_a_file() {
        let tcp = |address: &str| Target::Tcp(address.to_owned());
        for (text, wanted) in [
            ("9100", tcp("127.0.0.1:9100")),
            (":9100", tcp("127.0.0.1:9100")),
            ("0.0.0.0:9100", tcp("0.0.0.0:9100")),
            ("[::1]:0", tcp("[::1]:0")),
            ("localhost:80", tcp("localhost:80")),
            ("unix:/run/a", Target::Unix("/run/a".into())),
            ("70000", tcp("127.0.0.1:70000")),
            ("unix:80", Target::Unix("80".into())),
            ("./80", Target::File("./80".into())),
            ("a.prom", Target::File("a.prom".into())),
            ("a:70000", Target::File("a:70000".into())),
            ("/run/a:80", Target::File("/run/a:80".into())),
        ] {
            assert_eq!(Target::parse(text.into()), wanted, "{text}");
        }
    }
}
