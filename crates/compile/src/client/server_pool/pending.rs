//! A job from its submission to its verdict.

use crate::args::Job;
use crate::manager::Preprocessed;
use crate::protocol::JobSpec;
use outboard_export::Position;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// See the [module](self).
pub(super) struct PendingJob {
    pub(super) job: Arc<Job>,
    pub(super) stage: PendingStage,
    pub(super) given: Option<Instant>,
    /// Its preprocessed source, if it has one.
    pub(super) source: Option<Preprocessed>,
    /// Why a server did not run it, in that server's words.
    pub(super) why: String,
    /// A server's limits are too low for it.
    pub(super) is_limited: bool,
}

/// The state of a job.
pub(super) enum PendingStage {
    /// Its files are being looked at, since a moment of the running time.
    Preparing { since: Duration },
    /// The scheduler has the job. Its server must read the metadata log up to `position` first.
    Ready { spec: Box<JobSpec>, position: Position },
}
