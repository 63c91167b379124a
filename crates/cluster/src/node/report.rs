//! Answers to `status`: a peer that has proven its key gets the node's report; nothing that it
//! sends is read.

use super::process::ServiceProcess;
use outboard_secure::SecureSession;
use outboard_verbs::Secured;
use serde_json::Value;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Status requests under way, at most.
const ASKERS_MAX: usize = 64;
/// How long a service may take to report.
const REPORT_LIMIT: Duration = Duration::from_millis(500);
/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Status requests under way.
#[derive(Debug, Default)]
pub(super) struct Askers(Vec<Asker>);

#[derive(Debug)]
struct Asker {
    socket: TcpStream,
    /// Until the answer is made.
    session: Option<SecureSession>,
    /// What of it is to be sent.
    answer: Vec<u8>,
    since: Instant,
}

impl Askers {
    /// Adds a request; false when there are too many.
    pub(super) fn push(&mut self, stream: Secured, now: Instant) -> bool {
        if self.0.len() >= ASKERS_MAX {
            return false;
        }
        let (socket, session, _) = stream.into_parts();
        self.0.push(Asker { socket, session: Some(session), answer: Vec::new(), since: now });
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Answers the requests for which all reports are here or the time limit has passed.
    pub(super) fn serve(
        &mut self,
        services: &[ServiceProcess],
        now: Instant,
        describe: impl Fn() -> Value,
    ) {
        let complete = !services.iter().any(ServiceProcess::is_asked);
        for asker in &mut self.0 {
            if complete || now.saturating_duration_since(asker.since) >= REPORT_LIMIT {
                asker.seal(&describe);
            }
        }
        let late = |asker: &Asker| now.saturating_duration_since(asker.since) >= ANSWER_LIMIT;
        self.0.retain_mut(|asker| !late(asker) && !asker.send());
    }
}

impl Asker {
    fn seal(&mut self, describe: impl Fn() -> Value) {
        let Some(mut session) = self.session.take() else { return };
        let json = serde_json::to_vec(&describe()).unwrap_or_default();
        // A fresh session seals anything.
        let _sealed = session.seal(&json, &mut self.answer);
        let _finished = session.finish(&mut self.answer);
    }

    /// True when there is nothing left to do.
    fn send(&mut self) -> bool {
        while !self.answer.is_empty() {
            match self.socket.write(&self.answer) {
                Ok(count) => {
                    self.answer.drain(..count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
        if self.session.is_none() {
            // Whether the peer reads the answer is its own matter.
            let _ended = self.socket.shutdown(Shutdown::Write);
        }
        self.session.is_none()
    }
}
