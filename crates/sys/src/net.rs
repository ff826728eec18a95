//! Packets with descriptors over a unix socket, by which a launcher hands a process the resources
//! it may use.

use core::mem::MaybeUninit;

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::errno;
use crate::error::{SysError, SysResult};

/// Maximum descriptors in one packet.
pub const DESCRIPTORS_MAX: usize = 5;

/// Connects to the packet socket at `path`. Waits while as many connections as the listener allows
/// wait to be accepted.
pub fn connect(path: &core::ffi::CStr) -> SysResult<OwnedFd> {
    connect_with(path, SocketFlags::empty())
}

/// Connects to the packet socket at `path` as [`connect`] does, but fails with `EAGAIN` in place of
/// waiting. Neither does the connection wait.
pub fn connect_now(path: &core::ffi::CStr) -> SysResult<OwnedFd> {
    connect_with(path, SocketFlags::NONBLOCK)
}

fn connect_with(path: &core::ffi::CStr, flags: SocketFlags) -> SysResult<OwnedFd> {
    let socket = packet_socket(flags)?;
    let address = SocketAddrUnix::new(path).map_err(SysError::of("sockaddr_un"))?;
    rustix::net::connect(&socket, &address).map_err(SysError::of("connect"))?;
    Ok(socket)
}

/// Connections that may wait to be accepted. The kernel lowers the number to `net.core.somaxconn`,
/// which is the same unless the administrator has set it. Clients above that number wait, in no
/// order.
const BACKLOG: i32 = 4096;

/// Listens for packet connections at `path`, which must not exist yet.
pub fn listen(path: &core::ffi::CStr) -> SysResult<OwnedFd> {
    let socket = packet_socket(SocketFlags::NONBLOCK)?;
    let address = SocketAddrUnix::new(path).map_err(SysError::of("sockaddr_un"))?;
    rustix::net::bind(&socket, &address).map_err(SysError::of("bind"))?;
    rustix::net::listen(&socket, BACKLOG).map_err(SysError::of("listen"))?;
    Ok(socket)
}

/// Takes the next connection. Fails with `EAGAIN` when there is none.
pub fn accept(listener: BorrowedFd<'_>) -> SysResult<OwnedFd> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC).map_err(SysError::of("accept4"))
}

/// The process at the other end of a connection: the one that connected, or the one that listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process, as this process's PID name space numbers it.
    pub process: u32,
    /// Its effective user id at that time.
    pub user: u32,
}

/// Returns the process at the other end of `socket`.
pub fn peer(socket: BorrowedFd<'_>) -> SysResult<Peer> {
    rustix::net::sockopt::socket_peercred(socket)
        .map(|credentials| Peer {
            process: credentials.pid.as_raw_nonzero().get() as u32,
            user: credentials.uid.as_raw(),
        })
        .map_err(SysError::of("getsockopt(SO_PEERCRED)"))
}

fn packet_socket(more: SocketFlags) -> SysResult<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | more;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(SysError::of("socket"))
}

/// Sends one packet with descriptors. Never raises SIGPIPE and never waits: fails with `EAGAIN`
/// when the other end has too many unread packets.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> SysResult<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(fds));
        assert!(fits, "at most {DESCRIPTORS_MAX} descriptors");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags)
        .map(|_| ())
        .map_err(SysError::of("sendmsg"))
}

/// Receives one packet into `bytes`, and its descriptors into `fds` in order. Returns 0 bytes when
/// the other end has closed. Fails with `EMSGSIZE` for a longer packet, which is dropped.
pub fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    fds: &mut [Option<OwnedFd>; DESCRIPTORS_MAX],
) -> SysResult<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let result = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)
        .map_err(SysError::of("recvmsg"))?;
    if result.flags.contains(ReturnFlags::TRUNC) {
        return Err(SysError { call: "recvmsg", errno: errno::EMSGSIZE });
    }
    let mut places = fds.iter_mut();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            for (place, fd) in places.by_ref().zip(received) {
                *place = Some(fd);
            }
        }
    }
    Ok(result.bytes)
}

/// Makes a connected pair of packet sockets.
pub fn pair() -> SysResult<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(SysError::of("socketpair"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;

    #[test]
    fn a_packet_that_does_not_fit_is_an_error() {
        let (left, right) = pair().unwrap();
        send(left.as_fd(), b"four", &[]).unwrap();
        send(left.as_fd(), b"four", &[]).unwrap();
        let mut fds = [const { None }; DESCRIPTORS_MAX];
        let error = receive(right.as_fd(), &mut [0; 3], &mut fds).unwrap_err();
        assert_eq!(error.to_string(), "recvmsg: EMSGSIZE");
        assert_eq!(receive(right.as_fd(), &mut [0; 4], &mut fds), Ok(4));
    }

    #[test]
    fn descriptors_travel_with_their_packet() {
        let (left, right) = pair().unwrap();
        let file = crate::file::SpillFile::unnamed_in(c"/var/tmp").unwrap().into_fd();
        send(left.as_fd(), b"here", &[file.as_fd(), left.as_fd()]).unwrap();
        let (mut bytes, mut fds) = ([0; 64], [const { None }; DESCRIPTORS_MAX]);
        assert_eq!(receive(right.as_fd(), &mut bytes, &mut fds).unwrap(), 4);
        assert_eq!(fds.iter().filter(|fd| fd.is_some()).count(), 2);
        let ours = std::process::id();
        assert_eq!(peer(left.as_fd()).map(|peer| peer.process), Ok(ours));
        drop((left, fds));
        let mut fds = [const { None }; DESCRIPTORS_MAX];
        assert_eq!(receive(right.as_fd(), &mut bytes, &mut fds).unwrap(), 0);
    }
}
