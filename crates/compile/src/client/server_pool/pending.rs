//! A job from its submission to its verdict.

use crate::args::Job;
use crate::manager::Preprocessed;
use crate::protocol::JobSpec;
use outboard_export::Position;
use std::sync::Arc;
use std::time::Instant;

/// See the [module](self).
pub(super) struct Pending {
    pub(super) job: Arc<Job>,
    pub(super) stage: Stage,
    pub(super) given: Option<Instant>,
    /// Its source, if that is preprocessed.
    pub(super) source: Option<Preprocessed>,
    /// Why a server did not run it, in that server's words.
    pub(super) why: String,
    /// A server's limits are too low for it.
    pub(super) is_limited: bool,
}

/// How far a job is.
pub(super) enum Stage {
    /// Its files are being looked at.
    Preparing { since: Instant },
    /// The scheduler has it. A server must have read the metadata log up to the position.
    Ready { spec: Box<JobSpec>, position: Position },
}
