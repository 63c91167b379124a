//! One wrapper: what it has said so far, and what it waits for.

use super::source::{self, Preprocessing};
use crate::args::{Call, Reason};
use outboard_cc::wire::{HEAD_OCTETS, Malformed, Reply, Request};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// A wrapper's connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: OwnedFd,
    pub(super) state: State,
    pub(super) began: Instant,
    /// What people see: the source's name, or else the program's.
    pub(super) name: String,
}

/// What a wrapper waits for.
#[derive(Debug)]
pub(super) enum State {
    /// It is still talking; what it has said.
    Asking(Vec<u8>),
    /// A verdict.
    Remote,
    /// A local slot, because of this.
    Queued(Reason),
    /// A local slot, to preprocess its source.
    QueuedToPreprocess(Box<Preprocessing>),
    /// Its preprocessor, which runs in this slot; its compiler when that has failed.
    Preprocessing { slot: usize, granted: Instant, what: Box<Preprocessing> },
    /// Its compiler, which runs at home, in this slot.
    AtHome { slot: usize, granted: Instant, reason: Reason },
    /// The rest of its answer.
    Answering { rest: Vec<u8> },
}

/// What reading from a wrapper gave.
#[derive(Debug)]
pub(super) enum Heard {
    /// Its whole request.
    Call(Call),
    /// Its preprocessed source.
    Source(OwnedFd),
    /// Not enough yet.
    Part,
    /// It has gone, or talks nonsense.
    Gone,
}

impl Client {
    pub(super) fn new(stream: OwnedFd, now: Instant) -> Self {
        let state = State::Asking(Vec::new());
        Self { stream, state, began: now, name: String::new() }
    }

    /// Takes the state out, to put the next one in.
    pub(super) fn take_state(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Asking(Vec::new()))
    }

    /// Reads what there is. A wrapper that has asked says nothing more but that its source
    /// is preprocessed, so that anything else is its end.
    pub(super) fn hear(&mut self, scratch: &mut [u8]) -> Heard {
        if let State::Preprocessing { .. } = self.state {
            return match source::receive(&self.stream) {
                Ok(Some(file)) => Heard::Source(file),
                Err(Errno::AGAIN | Errno::INTR) => Heard::Part,
                _ => Heard::Gone,
            };
        }
        let read = match rustix::io::read(&self.stream, &mut *scratch) {
            Err(Errno::AGAIN | Errno::INTR) => return Heard::Part,
            Ok(read) if read > 0 => read,
            _ => return Heard::Gone,
        };
        let State::Asking(said) = &mut self.state else { return Heard::Gone };
        said.extend_from_slice(&scratch[..read]);
        match whole(said) {
            Ok(Some(request)) => Heard::Call(call(request)),
            Ok(None) => Heard::Part,
            Err(Malformed) => Heard::Gone,
        }
    }

    /// Sends a reply, or as much as goes; `Ok` with what is left. Errors mean that it has gone.
    pub(super) fn answer(&self, reply: &Reply) -> Result<Vec<u8>, Errno> {
        let mut octets = Vec::new();
        reply.emit(&mut octets);
        self.send(octets)
    }

    /// Sends more of an answer.
    pub(super) fn send(&self, mut octets: Vec<u8>) -> Result<Vec<u8>, Errno> {
        let mut sent = 0;
        while sent < octets.len() {
            match send(&self.stream, &octets[sent..], SendFlags::NOSIGNAL) {
                Ok(more) => sent += more,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(octets.split_off(sent))
    }
}

fn whole(said: &[u8]) -> Result<Option<Request>, Malformed> {
    let Some((head, rest)) = said.split_first_chunk::<HEAD_OCTETS>() else { return Ok(None) };
    let octets = Request::body_octets(head)?;
    if rest.len() < octets { Ok(None) } else { Request::parse(rest).map(Some) }
}

fn call(request: Request) -> Call {
    let Request { compiler, argv, cwd, mut env, umask, terminal } = request;
    let path = env.iter().position(|(name, _)| name == "PATH").map(|at| env.swap_remove(at).1);
    let (compiler, path) = (compiler.into(), path.unwrap_or_default());
    Call { compiler, argv, cwd: cwd.into(), env, path, umask, terminal }
}
