//! One wrapper's connection: its request as received so far, and what it waits for.

use super::source::{self, Preprocessing, SourceMode};
use crate::args::{Cause, CompilerCall, Reason};
use outboard_cc::real::DEFAULT_PATH;
use outboard_cc::wire::{CompileRequest, FALLBACK, HEAD_BYTES, Malformed, Reply, VERBOSE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send, sockopt};
use rustix::process::{PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// A wrapper's connection.
#[derive(Debug)]
pub(super) struct Wrapper {
    pub(super) stream: OwnedFd,
    /// Its process, once it has a local slot, if it can be seen from here.
    process: Option<OwnedFd>,
    pub(super) state: WrapperState,
    pub(super) began: Instant,
    /// The job's name for users: that of the source, or else of the program.
    pub(super) name: String,
    pub(super) wishes: Wishes,
}

/// What a wrapper's environment asks of the manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    /// `OUTBOARD_CC_FALLBACK=0`: a job that could run remotely must not run locally.
    pub(super) only_remote: bool,
    /// `OUTBOARD_CC_VERBOSE`: the wrapper shows where its job ran, and why there.
    pub(super) verbose: bool,
}

impl Wishes {
    pub(super) fn of(call: &CompilerCall) -> Self {
        let value =
            |wanted| call.env.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
        Self {
            only_remote: value(FALLBACK).is_some_and(|value| value == "0"),
            verbose: value(VERBOSE).is_some(),
        }
    }

    /// A line for the wrapper to show, if it is verbose.
    pub(super) fn line(self, text: impl FnOnce() -> String) -> Vec<u8> {
        if self.verbose { format!("outboard-cc: {}\n", text()).into_bytes() } else { Vec::new() }
    }
}

/// What a wrapper waits for.
#[derive(Debug)]
pub(super) enum WrapperState {
    /// The rest of its request; these bytes have come.
    Asking(Vec<u8>),
    /// The decision whether it may run remotely.
    Deciding(SourceMode),
    /// The executor's verdict.
    Remote,
    /// A local slot, for this reason.
    Queued(Reason),
    /// A local slot, to preprocess its source.
    QueuedToPreprocess(Box<Preprocessing>),
    /// Its preprocessor, which runs in this slot, or its compiler if preprocessing has failed.
    Preprocessing { slot: usize, granted: Instant, what: Box<Preprocessing> },
    /// Its compiler, which runs locally, in this slot.
    Local { slot: usize, granted: Instant, reason: Reason },
    /// Room in its socket for the rest of the reply.
    Answering(UnsentReply),
}

impl WrapperState {
    /// Whether the job was compiled remotely, or would have been if it had not come alone. Calls
    /// that only ask the compiler something tell nothing about a build.
    pub(super) fn is_of_a_remote_job(&self) -> bool {
        match self {
            Self::Answering(_) => true,
            Self::Local { reason, .. } => reason.cause == Cause::OneByOne,
            _ => false,
        }
    }
}

/// Bytes of which the first have been sent.
#[derive(Debug, Default)]
pub(super) struct UnsentReply {
    bytes: Vec<u8>,
    sent: usize,
}

impl UnsentReply {
    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }
}

/// The result of reading from a wrapper.
#[derive(Debug)]
pub(super) enum WrapperEvent {
    /// A complete request.
    Call(CompilerCall),
    /// Its preprocessed source.
    Source(OwnedFd),
    /// Only a part of the request so far.
    Part,
    /// The wrapper has disconnected, or its bytes are no request.
    Gone,
    /// The connection was shut down without a request: it asks whether the manager is alive.
    Probe,
}

impl Wrapper {
    pub(super) fn new(stream: OwnedFd, now: Instant) -> Self {
        let state = WrapperState::Asking(Vec::new());
        let (name, wishes) = (String::new(), Wishes::default());
        Self { stream, process: None, state, began: now, name, wishes }
    }

    /// The wrapper's process, which becomes the compiler. Its end frees the slot although another
    /// process has the connection: one that the compiler has left behind.
    pub(super) fn watch_process(&mut self) -> Option<&OwnedFd> {
        let peer = sockopt::socket_peercred(&self.stream).ok()?;
        // A process of another pid namespace is 0 here. The wrapper waits for its reply, so that
        // its number is not another process's yet.
        self.process = pidfd_open(peer.pid, PidfdFlags::empty()).ok();
        self.process.as_ref()
    }

    fn has_ended(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ended = |process| poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&at_once));
        self.process.as_ref().is_some_and(|process| ended(process) == Ok(1))
    }

    /// Takes the state out; the caller puts the next one in.
    pub(super) fn take_state(&mut self) -> WrapperState {
        std::mem::replace(&mut self.state, WrapperState::Asking(Vec::new()))
    }

    /// Reads what has come. After its request a wrapper sends at most its preprocessed source, so
    /// that anything else means that it has disconnected.
    pub(super) fn receive(&mut self, scratch: &mut [u8]) -> WrapperEvent {
        if self.has_ended() {
            return WrapperEvent::Gone;
        }
        if let WrapperState::Preprocessing { .. } = self.state {
            return match source::receive(&self.stream) {
                Ok(Some(file)) => WrapperEvent::Source(file),
                Err(Errno::AGAIN | Errno::INTR) => WrapperEvent::Part,
                _ => WrapperEvent::Gone,
            };
        }
        let read = match rustix::io::read(&self.stream, &mut *scratch) {
            Err(Errno::AGAIN | Errno::INTR) => return WrapperEvent::Part,
            Ok(read) if read > 0 => read,
            Ok(_) if matches!(&self.state, WrapperState::Asking(received) if received.is_empty()) =>
            {
                return WrapperEvent::Probe;
            }
            _ => return WrapperEvent::Gone,
        };
        let WrapperState::Asking(received) = &mut self.state else { return WrapperEvent::Gone };
        received.extend_from_slice(&scratch[..read]);
        match whole(received) {
            Ok(Some(request)) => WrapperEvent::Call(call(request)),
            Ok(None) => WrapperEvent::Part,
            Err(Malformed) => WrapperEvent::Gone,
        }
    }

    /// Sends a reply as far as the socket takes it, and returns the rest. An error means that the
    /// wrapper has disconnected.
    pub(super) fn answer(&self, reply: &Reply) -> Result<UnsentReply, Errno> {
        let mut bytes = Vec::new();
        reply.emit(&mut bytes);
        self.send(UnsentReply { bytes, sent: 0 })
    }

    /// Sends bytes as far as the socket takes them, and returns the rest.
    pub(super) fn send(&self, mut rest: UnsentReply) -> Result<UnsentReply, Errno> {
        while !rest.is_empty() {
            match send(&self.stream, &rest.bytes[rest.sent..], SendFlags::NOSIGNAL) {
                Ok(more) => rest.sent += more,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(rest)
    }

    /// Tells a prober that the manager is alive.
    pub(super) fn send_sign_of_life(&self) -> Result<UnsentReply, Errno> {
        self.send(UnsentReply { bytes: vec![0], sent: 0 })
    }
}

fn whole(received: &[u8]) -> Result<Option<CompileRequest>, Malformed> {
    let Some((head, rest)) = received.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let bytes = CompileRequest::body_bytes(head)?;
    if rest.len() < bytes { Ok(None) } else { CompileRequest::parse(rest).map(Some) }
}

fn call(request: CompileRequest) -> CompilerCall {
    let CompileRequest { compiler, argv, cwd, mut env, umask, terminal } = request;
    let path = env.iter().position(|(name, _)| name == "PATH").map(|at| env.swap_remove(at).1);
    let (compiler, path) = (compiler.into(), path.unwrap_or_else(|| DEFAULT_PATH.into()));
    CompilerCall { compiler, argv, cwd: cwd.into(), env, path, umask, terminal }
}
