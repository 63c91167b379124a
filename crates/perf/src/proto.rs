//! The messages of client and server: JSON in MPA private data (RFC 5044 §7.1).
//!
//! A connection of a test carries [`ClientMessage::Test`] and is accepted with
//! [`ServerMessage::Ready`]. A question is a connection too, but it is answered in its rejection,
//! so it needs no queue pair.

use crate::error::PerfError;
use crate::plan::TestPlan;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Bytes of private data that MPA revision 2 leaves to programs (RFC 6581 §4.1).
pub const PRIVATE_MAX: usize = 508;

/// Characters of a refusal's reason: even escaped they fit.
const WHY_MAX: usize = 200;

/// A client's message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ClientMessage {
    /// One of the connections of a test.
    Test {
        /// What the test is; the same on all of its connections.
        plan: TestPlan,
        /// The client's number for the test, the same on all of its connections.
        session: u64,
        /// STag of the client's memory, for tests in which the server writes.
        stag: u32,
    },
    /// How much CPU time have you used so far?
    Cpu,
    /// Open a port for this test.
    Port {
        /// What the test is.
        plan: TestPlan,
    },
}

/// A server's message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ServerMessage {
    /// The connection of the test is there.
    Ready {
        /// STag of the server's memory: the plan's size, from tagged offset 0.
        stag: u32,
    },
    /// User and system time of the server's process.
    Cpu {
        /// In nanoseconds.
        nanos: u64,
    },
    /// The test's port.
    Port {
        /// On the address that the question came to.
        port: u16,
    },
    /// A refusal.
    Refused {
        /// The reason, for users.
        why: String,
    },
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    v: u32,
    body: T,
}

impl ServerMessage {
    /// A refusal, its reason short enough for private data.
    pub fn refused(error: &PerfError) -> Self {
        let why = error.to_string().chars().take(WHY_MAX).collect();
        Self::Refused { why }
    }
}

/// Private data for a message.
pub fn encode<T: Serialize>(body: &T) -> Vec<u8> {
    let envelope = Envelope { v: VERSION, body };
    // Plain structs and numbers always serialise; an empty answer is refused by the other side.
    serde_json::to_vec(&envelope).unwrap_or_default()
}

/// The message in private data.
///
/// # Errors
/// [`PerfError::Version`] and [`PerfError::NotUnderstood`], both the peer's fault.
pub fn decode<T: DeserializeOwned>(private_data: &[u8]) -> Result<T, PerfError> {
    let Version { v } = serde_json::from_slice(private_data)?;
    if v != VERSION {
        return Err(PerfError::Version { found: v, needed: VERSION });
    }
    let envelope: Envelope<T> = serde_json::from_slice(private_data)?;
    Ok(envelope.body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{DEPTH_MAX, QPS_MAX, SIZE_MAX, Test};

    fn largest() -> ClientMessage {
        let mut plan = TestPlan::new(Test::WriteImmRate);
        (plan.size, plan.qps, plan.depth) = (SIZE_MAX, QPS_MAX, DEPTH_MAX);
        let (session, stag) = (u64::MAX, u32::MAX);
        ClientMessage::Test { plan, session, stag }
    }

    #[test]
    fn the_largest_question_fits() {
        let bytes = encode(&largest());
        assert!(bytes.len() < PRIVATE_MAX, "{} bytes", bytes.len());
        assert_eq!(decode::<ClientMessage>(&bytes).unwrap(), largest());
    }

    #[test]
    fn other_versions_and_nonsense_are_refused() {
        let version = decode::<ClientMessage>(br#"{"v":2,"body":"cpu","new":1}"#);
        assert!(matches!(version, Err(PerfError::Version { found: 2, .. })));
        for bytes in [&b""[..], b"\0\xff", br#"{"v":1}"#, br#"{"v":1,"body":"x"}"#] {
            let nonsense = decode::<ClientMessage>(bytes);
            assert!(matches!(nonsense, Err(PerfError::NotUnderstood(_))));
        }
    }
}
