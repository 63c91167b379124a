//! Asks a node for its report; this takes the key of the service `status`.
//!
//! It sends nothing after the handshake, and accepts any JSON of a bounded length as the answer.

use crate::dial::{DialError, Dialer};
use crate::hosts::Host;
use outboard_secure::ServiceName;
use outboard_verbs::StreamError;
use serde_json::Value;
use std::time::Instant;

/// The service that every node with a cluster's key offers.
pub const STATUS: &str = "status";

/// Bytes of an answer, at most.
const ANSWER_MAX: usize = 4 << 20;

/// Why a node did not report.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// It was not reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// It stopped before the end.
    #[error("{host}: {source}")]
    Broken {
        /// As the host list has it.
        host: String,
        /// How.
        source: StreamError,
    },
    /// The answer is no report.
    #[error("{host} does not answer as a node does: install the same Outboard on both")]
    Foreign {
        /// As the host list has it.
        host: String,
    },
}

/// The name of the service.
#[must_use]
pub fn service() -> ServiceName {
    STATUS.parse().expect("it has lower-case letters only")
}

/// Asks a node. The dialer needs the key of [`STATUS`].
///
/// # Errors
/// See [`StatusError`]; no later than `deadline`.
pub fn ask(dialer: &Dialer, host: &Host, deadline: Instant) -> Result<Value, StatusError> {
    let mut stream = dialer.dial(host, &service(), deadline)?;
    let mut answer = Vec::new();
    let foreign = || StatusError::Foreign { host: host.to_string() };
    loop {
        match stream.receive(&mut answer, deadline) {
            Ok(()) if answer.len() <= ANSWER_MAX => {}
            Ok(()) => return Err(foreign()),
            Err(StreamError::Ended) => break,
            Err(source) => return Err(StatusError::Broken { host: host.to_string(), source }),
        }
    }
    serde_json::from_slice(&answer).map_err(|_| foreign())
}
