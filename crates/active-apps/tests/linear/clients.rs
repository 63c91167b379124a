//! A client of the crate under test, whose outcomes may be lost.

use crate::node::Node;
use outboard_active::{ActiveClient, RemoteRegion};
use outboard_active_apps::{AppError, FailureKind};
use outboard_secure::Credentials;
use outboard_testkit::PATIENCE;
use std::sync::Arc;

/// Why an operation has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It has not taken effect, and never will.
    NotDone,
    /// It may have, or may still.
    Unknown,
}

/// See this file's first lines.
pub(crate) struct RandomClient {
    pub(crate) client: ActiveClient,
    pub(crate) region: RemoteRegion,
    random: u64,
}

impl RandomClient {
    pub(crate) fn new(node: &Node, own: &Arc<Credentials>, seed: u64) -> Self {
        let mut client = node.client(own);
        client.options_mut().limit = PATIENCE;
        let region = client.attach("kv").expect("attached");
        Self { client, region, random: seed | 1 }
    }

    /// A number below `bound`.
    pub(crate) fn random(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % bound
    }
}

/// Of a service that was killed, or peers that were faster; all else is a defect.
pub(crate) fn missing(error: AppError) -> Missing {
    match error {
        error if error.may_have_happened() => Missing::Unknown,
        AppError::Crowded { .. } | AppError::Failed { kind: FailureKind::Changing, .. } => {
            Missing::NotDone
        }
        other => panic!("{other}"),
    }
}
