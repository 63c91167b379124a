//! What people ask of a replica: how it is, and that it be the server.

use super::fence;
use super::messages::{ReplicaAnswer, ReplicaMessage, ReplicaState};
use super::ship::unexpected;
use super::stream::{ReplicaError, ReplicaStream};
use outboard_active::DialActive;
use std::time::Duration;

/// How long a session may take to be there, and an answer that needs no disk.
const LIMIT: Duration = Duration::from_secs(10);
/// How long it may take to be promoted: it brings what it has to its disk.
const PROMOTE_LIMIT: Duration = Duration::from_secs(120);

/// What came of a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromotedReplica {
    /// The epoch that it has from now on.
    pub epoch: u64,
    /// The last commit that it has.
    pub commit: u64,
    /// How many seconds ago it had all that its server had then.
    pub behind_s: Option<u64>,
}

/// How a replica is.
///
/// # Errors
/// [`ReplicaError`]; a server that serves is no replica.
pub fn replica_state(mut dial: DialActive) -> Result<ReplicaState, ReplicaError> {
    match ask(&mut dial, &ReplicaMessage::Status, LIMIT)? {
        ReplicaAnswer::State(state) => Ok(state),
        answer => Err(unexpected(answer)),
    }
}

/// Has a replica be the server.
///
/// # Errors
/// [`ReplicaError`]: it cannot, or it is none.
pub fn promote(mut dial: DialActive) -> Result<PromotedReplica, ReplicaError> {
    match ask(&mut dial, &ReplicaMessage::Promote, PROMOTE_LIMIT) {
        Ok(ReplicaAnswer::Promoted { epoch, commit, behind_s }) => {
            Ok(PromotedReplica { epoch, commit, behind_s })
        }
        Ok(answer) => Err(unexpected(answer)),
        Err(error @ ReplicaError::Stream(_)) => match fence::epoch_of(dial) {
            Some(epoch) => {
                let why =
                    format!("it is no replica: it serves the file system, with epoch {epoch}");
                Err(ReplicaError::Refused(why))
            }
            None => Err(error),
        },
        Err(error) => Err(error),
    }
}

fn ask(
    dial: &mut DialActive,
    message: &ReplicaMessage<'_>,
    limit: Duration,
) -> Result<ReplicaAnswer, ReplicaError> {
    let mut stream = ReplicaStream::new(dial(LIMIT).map_err(ReplicaError::Unreachable)?);
    stream.send(message, LIMIT)?;
    let answer = stream.receive(limit);
    stream.end();
    answer
}
