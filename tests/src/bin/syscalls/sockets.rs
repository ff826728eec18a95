//! Sockets: a message taken from the queue must arrive whole, with its names and rights.

use crate::arena::{
    A, B, Fd, N, Slot, across, bytes_of, exactly, failed, fails, incoming, put, same, split, wrong,
};
use crate::files;
use crate::{Case, Outcome, Stop, plain};

pub const CASES: &[Case] = &[
    Case { name: "send-stream", prepare: plain, run: send_stream },
    Case { name: "recv-stream", prepare: plain, run: recv_stream },
    Case { name: "send-datagram", prepare: plain, run: send_datagram },
    Case { name: "recv-datagram", prepare: plain, run: recv_datagram },
    Case { name: "sendmsg", prepare: message_out, run: sendmsg },
    Case { name: "recvmsg", prepare: message_in, run: recvmsg },
    Case { name: "bind-getsockname", prepare: address, run: names },
];

/// Bytes of a datagram: three fit the default buffer of a socket.
const DATAGRAM: usize = 20_001;
/// Offsets of a message's header, vector, control data and name.
const HEADER: usize = across(17, 56);
const VECTOR: usize = across(19, 32);
const CONTROL: usize = across(21, 64);
const NAME: usize = split(23, 110);
/// Room for control data that passes one descriptor (`CMSG_SPACE`).
const CONTROL_ROOM: usize = 24;
/// The two parts of the vector.
const PARTS: [(usize, usize); 2] = [(A, 9000), (A + 20_000, 11_001)];

fn pair(kind: i32) -> Result<(Fd, Fd), Stop> {
    let mut ends = [0; 2];
    let kind = kind | libc::SOCK_CLOEXEC;
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(failed("socketpair"));
    }
    Ok((Fd(ends[0]), Fd(ends[1])))
}

fn send_hot(fd: &Fd, bytes: &[u8]) -> Outcome {
    let count = unsafe { libc::send(fd.0, bytes.as_ptr().cast(), bytes.len(), 0) };
    exactly("sending", count, bytes.len())
}

fn recv_hot(fd: &Fd, length: usize) -> Result<Vec<u8>, Stop> {
    let mut bytes = vec![0u8; length + 1];
    let count = unsafe { libc::recv(fd.0, bytes.as_mut_ptr().cast(), length + 1, 0) };
    exactly("receiving", count, length)?;
    bytes.truncate(length);
    Ok(bytes)
}

/// Checks that nothing is left in the queue.
fn empty(fd: &Fd) -> Outcome {
    let mut byte = 0u8;
    let count = unsafe { libc::recv(fd.0, (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) };
    fails("one more receive", count, libc::EAGAIN)
}

fn send_stream(slot: &mut Slot) -> Outcome {
    let (one, other) = pair(libc::SOCK_STREAM)?;
    exactly("send", unsafe { libc::send(one.0, slot.at(A), N, 0) }, N)?;
    same("the stream", &recv_hot(&other, N)?, slot.wanted(A, N))?;
    empty(&other)
}

fn recv_stream(slot: &mut Slot) -> Outcome {
    let (one, other) = pair(libc::SOCK_STREAM)?;
    let bytes = incoming(N, 11);
    send_hot(&one, &bytes)?;
    exactly("recv", unsafe { libc::recv(other.0, slot.at(A), N, 0) }, N)?;
    slot.expect(A, &bytes);
    empty(&other)
}

fn send_datagram(slot: &mut Slot) -> Outcome {
    let (one, other) = pair(libc::SOCK_DGRAM)?;
    for at in [A, B, A + DATAGRAM] {
        exactly("send", unsafe { libc::send(one.0, slot.at(at), DATAGRAM, 0) }, DATAGRAM)?;
    }
    for at in [A, B, A + DATAGRAM] {
        same("a datagram", &recv_hot(&other, DATAGRAM)?, slot.wanted(at, DATAGRAM))?;
    }
    empty(&other)
}

fn recv_datagram(slot: &mut Slot) -> Outcome {
    let (one, other) = pair(libc::SOCK_DGRAM)?;
    for salt in 12..15 {
        send_hot(&one, &incoming(DATAGRAM, salt))?;
    }
    for (at, salt) in [A, B, A + DATAGRAM].into_iter().zip(12..) {
        let count = unsafe { libc::recv(other.0, slot.at(at), DATAGRAM + 50, 0) };
        exactly("recv", count, DATAGRAM)?;
        slot.expect(at, &incoming(DATAGRAM, salt));
    }
    empty(&other)
}

/// Returns a `struct msghdr` of a 64-bit Linux: name, its length, vector, its length, control, its
/// length, flags.
fn header(base: usize, name_length: usize) -> [usize; 7] {
    let name = if name_length == 0 { 0 } else { base + NAME };
    [name, name_length, base + VECTOR, PARTS.len(), base + CONTROL, CONTROL_ROOM, 0]
}

fn message_in(base: usize, image: &mut [u8]) {
    put(image, HEADER, &header(base, 110));
    for (index, (offset, length)) in PARTS.iter().enumerate() {
        put(image, VECTOR + index * 16, &[base + offset, *length]);
    }
}

fn message_out(base: usize, image: &mut [u8]) {
    message_in(base, image);
    put(image, HEADER, &header(base, 0));
    // One descriptor goes along: standard error, number 2.
    put(image, CONTROL, &20usize);
    put(image, CONTROL + 8, &[libc::SOL_SOCKET, libc::SCM_RIGHTS, 2, 0]);
}

fn sendmsg(slot: &mut Slot) -> Outcome {
    let (one, other) = pair(libc::SOCK_DGRAM)?;
    let length = PARTS[0].1 + PARTS[1].1;
    exactly("sendmsg", unsafe { libc::sendmsg(one.0, slot.at(HEADER), 0) }, length)?;
    let wanted = [slot.wanted(PARTS[0].0, PARTS[0].1), slot.wanted(PARTS[1].0, PARTS[1].1)];
    same("the datagram", &recv_hot(&other, length)?, &wanted.concat())?;
    empty(&other)
}

fn recvmsg(slot: &mut Slot) -> Outcome {
    let (one, other) = pair(libc::SOCK_DGRAM)?;
    bind_to_any(&one)?;
    let length = PARTS[0].1 + PARTS[1].1;
    let bytes = incoming(length, 15);
    let passed = files::file(b"passed along")?;
    send_with_descriptor(&one, &bytes, passed.0)?;
    exactly("recvmsg", unsafe { libc::recvmsg(other.0, slot.at(HEADER), 0) }, length)?;
    slot.expect(PARTS[0].0, &bytes[..PARTS[0].1]);
    slot.expect(PARTS[1].0, &bytes[PARTS[0].1..]);
    slot.learn(HEADER, 56);
    slot.learn(CONTROL, CONTROL_ROOM);
    slot.learn(NAME, 110);
    let header: [usize; 7] = unsafe { slot.at::<[usize; 7]>(HEADER).read() };
    // The kernel chose this address: the family, a zero byte and five more (unix(7)).
    let name_length = header[1] as u32;
    let family: u16 = unsafe { slot.at::<u16>(NAME).read_unaligned() };
    if name_length != 8 || i32::from(family) != libc::AF_UNIX {
        return wrong(format!("the sender's name has {name_length} bytes, family {family}"));
    }
    let control: [i32; 5] = unsafe { slot.at::<[i32; 5]>(CONTROL).read() };
    if header[5] != CONTROL_ROOM || control[..4] != [20, 0, libc::SOL_SOCKET, libc::SCM_RIGHTS] {
        return wrong(format!("control data: {} bytes, {control:?}", header[5]));
    }
    same("the passed file", &files::contents(&Fd(control[4]), 0, 12)?, b"passed along")?;
    empty(&other)
}

/// Gives the socket a name that the kernel chooses.
fn bind_to_any(fd: &Fd) -> Outcome {
    let family = libc::AF_UNIX as u16;
    exactly("bind", unsafe { libc::bind(fd.0, (&raw const family).cast(), 2) }, 0)
}

fn send_with_descriptor(fd: &Fd, bytes: &[u8], passed: i32) -> Outcome {
    let control = [20, 0, libc::SOL_SOCKET, libc::SCM_RIGHTS, passed, 0];
    let control = control.map(i32::to_ne_bytes).concat();
    let vector = [bytes.as_ptr().expose_provenance(), bytes.len()];
    let vector_at = vector.as_ptr().expose_provenance();
    // The control data must be aligned: a copy in words.
    let words: Vec<u64> = control
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let header = [0, 0, vector_at, 1, words.as_ptr().expose_provenance(), CONTROL_ROOM, 0];
    let count = unsafe { libc::sendmsg(fd.0, header.as_ptr().cast(), 0) };
    exactly("sending", count, bytes.len())
}

/// Offsets of the address, of the kernel's answer and of the length.
const ADDRESS: usize = split(4, 16);
const ANSWER: usize = split(6, 16);
const LENGTH: usize = split(12, 4);

fn address(_: usize, image: &mut [u8]) {
    put(image, ADDRESS, &loopback());
    put(image, LENGTH, &16u32);
}

/// Returns 127.0.0.1 with a port that the kernel chooses, as bytes of `sockaddr_in`.
fn loopback() -> [u8; 16] {
    let family = (libc::AF_INET as u16).to_ne_bytes();
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&family);
    bytes[4..8].copy_from_slice(&[127, 0, 0, 1]);
    bytes
}

fn names(slot: &mut Slot) -> Outcome {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    let fd = Fd::new("socket", unsafe { libc::socket(libc::AF_INET, kind, 0) })?;
    exactly("bind", unsafe { libc::bind(fd.0, slot.at(ADDRESS), 16) }, 0)?;
    let (name, length) = (slot.at(ANSWER), slot.at(LENGTH));
    exactly("getsockname", unsafe { libc::getsockname(fd.0, name, length) }, 0)?;
    slot.expect(LENGTH, &bytes_of(&16u32));
    let got: [u8; 16] = unsafe { slot.at::<[u8; 16]>(ANSWER).read() };
    let mut wanted = loopback();
    wanted[2..4].copy_from_slice(&got[2..4]);
    slot.expect(ANSWER, &wanted);
    if got[2..4] == [0, 0] { wrong("no port") } else { Ok(()) }
}
