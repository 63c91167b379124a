//! A session between a socket and a connection (a sans-I/O byte transform): bytes are sealed once
//! and wait here until TCP takes them; what comes in is opened into staging.
//!
//! To the connection, sealed bytes count as sent: at most one batch waits, and the bytes of
//! completed requests were copied. It knows no opcode, and never seals a byte twice.

use crate::engine::sockio::{Received, Sent};
use crate::engine::staging::{STAGING_LEN, Staging};
use crate::tap::StreamTap;
use outboard_iwarp::{Connection, Env};
use outboard_secure::{RECORD_PLAIN_MAX, SecureSession, SessionError};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::mem;
use std::net::TcpStream;
use std::thread::LocalKey;
use std::time::Instant;

/// Bytes of one read, at most: two records, so that one is opened where it lies.
const READ_LEN: usize = 2 * PARTIAL_MAX;
/// Bytes that a session may hold of an incomplete record.
const PARTIAL_MAX: usize = RECORD_PLAIN_MAX + 64;

type Scratch = LocalKey<Cell<Vec<u8>>>;

thread_local! {
    /// Empty between calls; so an idle connection has no buffer.
    static PLAIN: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static SEALED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// Full-sized between calls; its contents then mean nothing.
    static READ: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The thread's buffer; new when the thread is ending, as in functions of atexit(3).
fn borrow(scratch: &'static Scratch) -> Vec<u8> {
    scratch.try_with(Cell::take).unwrap_or_default()
}

fn give_back(scratch: &'static Scratch, bytes: Vec<u8>) {
    let _kept = scratch.try_with(|kept| kept.set(bytes));
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Sealed {
    session: SecureSession,
    /// Sealed bytes that TCP has not taken, from `sent` on.
    pending: Vec<u8>,
    sent: usize,
    finished: bool,
    fault: Option<SessionError>,
}

impl Sealed {
    pub(crate) fn new(session: SecureSession) -> Self {
        Self { session, pending: Vec::new(), sent: 0, finished: false, fault: None }
    }

    /// Sealed bytes wait for room in TCP.
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Why the session has failed; returned once.
    pub(crate) fn take_fault(&mut self) -> Option<SessionError> {
        self.fault.take()
    }

    /// Tells the peer that nothing follows; true when TCP has that and all before it.
    pub(crate) fn finish(&mut self, socket: &TcpStream) -> io::Result<bool> {
        if !mem::replace(&mut self.finished, true) {
            let Self { session, pending, .. } = self;
            let result = session.finish(pending);
            self.check(result)?;
        }
        self.flush(socket)
    }

    fn seal(&mut self, plain: &[u8]) -> io::Result<()> {
        self.pending = borrow(&SEALED);
        let Self { session, pending, .. } = self;
        pending.reserve(session.sealed_len(plain.len()));
        let result = session.seal(plain, pending);
        self.check(result)
    }

    /// Hands what is sealed to TCP; true when TCP took all of it.
    fn flush(&mut self, mut socket: &TcpStream) -> io::Result<bool> {
        while self.sent < self.pending.len() {
            match socket.write(&self.pending[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        if self.is_pending() {
            self.sent = 0;
            let mut sent = mem::take(&mut self.pending);
            sent.clear();
            give_back(&SEALED, sent);
        }
        Ok(true)
    }

    fn open(&mut self, bytes: &[u8], staging: &mut Staging, tap: Tapped<'_>) -> io::Result<()> {
        let mut plain = borrow(&PLAIN);
        let result = if bytes.is_empty() {
            self.session.handle_end()
        } else {
            self.session.open(bytes, &mut plain)
        };
        if let Some(tap) = tap {
            tap.received(&plain);
        }
        staging.room(plain.len()).copy_from_slice(&plain);
        staging.added(plain.len());
        plain.clear();
        give_back(&PLAIN, plain);
        self.check(result)
    }

    fn check(&mut self, result: Result<(), SessionError>) -> io::Result<()> {
        result.map_err(|error| {
            self.fault = Some(error.clone());
            io::Error::other(error)
        })
    }
}

type Tapped<'a> = Option<&'a StreamTap>;

/// As [`crate::engine::sockio::transmit`]; a tap sees plain bytes.
pub(crate) fn transmit(
    socket: &TcpStream,
    conn: &mut Connection,
    sealed: &mut Sealed,
    budget: usize,
    tap: Tapped<'_>,
    env: &mut Env<'_>,
) -> io::Result<Sent> {
    if !sealed.flush(socket)? {
        // The time limit of a side that leaves starts now, whether or not the peer reads.
        conn.settle(Instant::now(), env);
        return Ok(Sent::Blocked(0));
    }
    let mut plain = borrow(&PLAIN);
    let offered = conn.poll_transmit_copy(Instant::now(), budget, env, &mut plain);
    let sealing = if offered == 0 { Ok(()) } else { sealed.seal(&plain) };
    if let Some(tap) = tap {
        tap.sent(&plain);
    }
    plain.clear();
    give_back(&PLAIN, plain);
    sealing?;
    if offered == 0 {
        return Ok(Sent::Everything);
    }
    conn.handle_transmitted(offered, env.completions);
    let len = sealed.pending.len();
    Ok(if sealed.flush(socket)? { Sent::Some(len) } else { Sent::Blocked(len) })
}

/// As [`crate::engine::sockio::receive`], with everything into staging.
pub(crate) fn receive(
    mut socket: &TcpStream,
    sealed: &mut Sealed,
    staging: &mut Staging,
    tap: Tapped<'_>,
) -> io::Result<Received> {
    let room = staging.room(STAGING_LEN).len();
    // An FPDU that is not whole takes half of staging at most.
    let want = room.saturating_sub(PARTIAL_MAX).min(READ_LEN);
    if want == 0 {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let mut bytes = borrow(&READ);
    if bytes.len() != READ_LEN {
        bytes = vec![0; READ_LEN];
    }
    let result = socket.read(&mut bytes[..want]).and_then(|total| {
        sealed.open(&bytes[..total], staging, tap)?;
        Ok(Received { total, short: total < want })
    });
    give_back(&READ, bytes);
    result
}
