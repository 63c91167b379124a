//! Messages of any length over a local stream socket, with file descriptors beside them.
//!
//! It never blocks, and never interprets a message. A frame is its length and the number of its
//! descriptors, then its bytes; descriptors travel beside the frame's first bytes.

use outboard_unix::rights::{self, RIGHTS_MAX};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Bytes of a frame, at most: a module or a state, and what is around it.
pub const FRAME_MAX: usize = 320 << 20;
/// Bytes that are read at a time.
const READ: usize = 64 << 10;
/// Bytes of the length and of the number of descriptors.
const HEAD: usize = 5;
/// Descriptors that wait for the rest of their frame, at most: those of one that is not whole, and
/// those that came beside the bytes after it.
const FDS_MAX: usize = 2 * RIGHTS_MAX;
/// Bytes of space that are kept for what comes.
const SPARE_MAX: usize = 1 << 20;

/// A message with the descriptors that came beside it.
pub type ReceivedFrame = (Vec<u8>, Vec<OwnedFd>);

/// One message to be sent.
#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    fds: Vec<OwnedFd>,
}

/// Why a stream of frames is over.
#[derive(Debug, thiserror::Error)]
pub enum FrameFault {
    /// The other side closed it.
    #[error("the other side has closed its end")]
    Closed,
    /// The other side broke the rules of frames.
    #[error("the other side sent a frame of {0} bytes, where {FRAME_MAX} are the most")]
    TooLong(usize),
    /// The other side sent other descriptors than it said.
    #[error("the other side sent a frame without the descriptors that belong to it")]
    Descriptors,
    /// The other side takes nothing.
    #[error("the other side takes nothing: {0} bytes wait for it; it is stopped, or hangs")]
    Stuck(usize),
    /// This machine's fault.
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
}

/// See this file's first lines.
#[derive(Debug)]
pub struct FrameStream {
    socket: UnixStream,
    out: VecDeque<Outgoing>,
    /// Bytes in `out`, of messages that are not sent as a whole.
    out_bytes: usize,
    /// What was received; `read` bytes at its beginning have been handed out.
    incoming: Vec<u8>,
    read: usize,
    fds: VecDeque<OwnedFd>,
    is_closed: bool,
}

impl FrameStream {
    /// Frames over `socket`.
    ///
    /// # Errors
    /// It cannot be made non-blocking.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            out: VecDeque::new(),
            out_bytes: 0,
            incoming: Vec::new(),
            read: 0,
            fds: VecDeque::new(),
            is_closed: false,
        })
    }

    /// Queues a message, and sends what the socket takes.
    ///
    /// # Errors
    /// [`FrameFault`].
    ///
    /// # Panics
    /// For more than [`RIGHTS_MAX`] descriptors.
    pub fn send(&mut self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), FrameFault> {
        assert!(fds.len() <= RIGHTS_MAX, "a request has few descriptors");
        let length = u32::try_from(message.len()).ok().filter(|len| *len as usize <= FRAME_MAX);
        let length = length.ok_or(FrameFault::TooLong(message.len()))?;
        let fds = fds.iter().map(BorrowedFd::try_clone_to_owned).collect::<io::Result<Vec<_>>>()?;
        let mut bytes = Vec::with_capacity(HEAD + message.len());
        bytes.extend(length.to_le_bytes());
        bytes.push(u8::try_from(fds.len()).unwrap_or(u8::MAX));
        bytes.extend(message);
        self.out_bytes += bytes.len();
        self.out.push_back(Outgoing { bytes, sent: 0, fds });
        self.flush()
    }

    /// Sends what the socket takes of what is queued.
    ///
    /// # Errors
    /// [`FrameFault`].
    pub fn flush(&mut self) -> Result<(), FrameFault> {
        while let Some(next) = self.out.front_mut() {
            let fds: Vec<BorrowedFd<'_>> = next.fds.iter().map(AsFd::as_fd).collect();
            let rest = &next.bytes[next.sent..];
            match rights::send(&self.socket, rest, &fds, SendFlags::DONTWAIT) {
                Ok(sent) => next.sent += sent,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(FrameFault::Closed),
                Err(error) => return Err(FrameFault::Socket(error.into())),
            }
            next.fds.clear();
            if next.sent == next.bytes.len() {
                self.out_bytes -= next.bytes.len();
                self.out.pop_front();
            }
        }
        Ok(())
    }

    /// Whether something is queued that the socket has not taken.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        !self.out.is_empty()
    }

    /// Messages that the socket has not taken.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.out.len()
    }

    /// Bytes of those messages.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.out_bytes
    }

    /// The next message that is here as a whole, with its descriptors.
    ///
    /// # Errors
    /// [`FrameFault`]; what came before the end is handed out first.
    pub fn receive(&mut self) -> Result<Option<ReceivedFrame>, FrameFault> {
        loop {
            if let Some(frame) = self.whole_frame()? {
                return Ok(Some(frame));
            }
            if self.is_closed {
                return Err(FrameFault::Closed);
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Receives what is there. False: nothing.
    fn fill(&mut self) -> Result<bool, FrameFault> {
        self.incoming.drain(..self.read);
        self.read = 0;
        if self.incoming.is_empty() && self.incoming.capacity() > SPARE_MAX {
            self.incoming = Vec::new();
        }
        let before = self.incoming.len();
        self.incoming.resize(before + READ, 0);
        let received =
            rights::receive(&self.socket, &mut self.incoming[before..], RecvFlags::DONTWAIT);
        let len = received.as_ref().map_or(0, |received| received.len);
        self.incoming.truncate(before + len);
        match received {
            Ok(received) if received.is_cut => Err(FrameFault::Descriptors),
            Ok(received) => {
                self.is_closed = received.len == 0;
                self.fds.extend(received.fds);
                match self.fds.len() <= FDS_MAX {
                    true => Ok(true),
                    false => Err(FrameFault::Descriptors),
                }
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::CONNRESET) => {
                self.is_closed = true;
                Ok(true)
            }
            Err(error) => Err(FrameFault::Socket(error.into())),
        }
    }

    fn whole_frame(&mut self) -> Result<Option<ReceivedFrame>, FrameFault> {
        let rest = &self.incoming[self.read..];
        let Some((head, body)) = rest.split_first_chunk::<HEAD>() else { return Ok(None) };
        let [a, b, c, d, count] = *head;
        let (length, count) = (u32::from_le_bytes([a, b, c, d]) as usize, usize::from(count));
        if length > FRAME_MAX {
            return Err(FrameFault::TooLong(length));
        }
        let Some(message) = body.get(..length) else { return Ok(None) };
        if count > self.fds.len() {
            return Err(FrameFault::Descriptors);
        }
        let message = message.to_vec();
        self.read += HEAD + length;
        Ok(Some((message, self.fds.drain(..count).collect())))
    }
}

impl AsFd for FrameStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};

    fn pair() -> (FrameStream, FrameStream) {
        let (left, right) = UnixStream::pair().expect("sockets");
        (FrameStream::new(left).expect("left"), FrameStream::new(right).expect("right"))
    }

    #[test]
    fn messages_come_whole_and_in_order() {
        let (mut left, mut right) = pair();
        let messages: Vec<Vec<u8>> = (0..40_u8).map(|n| vec![n; usize::from(n) * 9000]).collect();
        let mut found = Vec::new();
        for message in &messages {
            left.send(message, &[]).expect("sent");
            while let Some((message, fds)) = right.receive().expect("received") {
                assert!(fds.is_empty());
                found.push(message);
            }
        }
        while found.len() < messages.len() {
            left.flush().expect("flushed");
            found.extend(right.receive().expect("received").map(|(message, _)| message));
        }
        assert_eq!(found, messages);
    }

    #[test]
    fn descriptors_stay_with_their_message() {
        let (mut left, mut right) = pair();
        let (reader, mut writer) = std::io::pipe().expect("pipe");
        left.send(b"none", &[]).expect("sent");
        left.send(b"one", &[reader.as_fd()]).expect("sent");
        left.send(b"none again", &[]).expect("sent");
        drop(reader);
        let counts: Vec<usize> = (0..3)
            .map(|_| {
                let (_, mut fds) = right.receive().expect("received").expect("there");
                if let Some(fd) = fds.pop() {
                    writer.write_all(b"x").expect("written");
                    let mut byte = [0];
                    File::from(fd).read_exact(&mut byte).expect("read");
                    return 1;
                }
                0
            })
            .collect();
        assert_eq!(counts, [0, 1, 0]);
    }

    #[test]
    fn what_came_before_the_end_is_received() {
        let (mut left, mut right) = pair();
        left.send(b"last", &[]).expect("sent");
        drop(left);
        assert_eq!(right.receive().expect("received").expect("there").0, b"last");
        assert!(matches!(right.receive(), Err(FrameFault::Closed)));
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused() {
        let (left, right) = UnixStream::pair().expect("sockets");
        let mut right = FrameStream::new(right).expect("right");
        (&left).write_all(&[0xff, 0xff, 0xff, 0xff, 0]).expect("written");
        assert!(matches!(right.receive(), Err(FrameFault::TooLong(_))));
    }

    #[test]
    fn descriptors_without_frames_end_the_stream() {
        let (left, right) = UnixStream::pair().expect("sockets");
        let mut right = FrameStream::new(right).expect("right");
        let (pipe, _) = std::io::pipe().expect("pipe");
        let all = [pipe.as_fd(); RIGHTS_MAX];
        // The head of a long frame, whose bytes never come, and descriptors beside each byte.
        let mut found = Ok(None);
        for byte in [0, 0, 1, 0, 3, 9, 9, 9, 9] {
            rights::send(&left, &[byte], &all, SendFlags::empty()).expect("sent");
            found = right.receive();
            if found.is_err() {
                break;
            }
            assert!(right.fds.len() <= FDS_MAX);
        }
        assert!(matches!(found, Err(FrameFault::Descriptors)), "{found:?}");
    }

    #[test]
    fn what_is_queued_is_counted_in_bytes() {
        let (mut left, mut right) = pair();
        let message = vec![0; 1 << 20];
        for _ in 0..4 {
            left.send(&message, &[]).expect("sent");
        }
        assert!(left.queued_bytes() > 3 << 20);
        let mut found = 0;
        while found < 4 {
            left.flush().expect("flushed");
            found += usize::from(right.receive().expect("received").is_some());
        }
        assert_eq!((left.queued(), left.queued_bytes()), (0, 0));
        left.send(b"small", &[]).expect("sent");
        right.receive().expect("received").expect("there");
        assert!(right.incoming.capacity() <= SPARE_MAX + READ);
    }
}
