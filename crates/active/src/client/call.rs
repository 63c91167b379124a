//! What a client asks for and gets: calls, tickets, outcomes.

use super::region::RemoteRegion;
use outboard_offcode::{ModuleHash, Outcome};
use std::ops::Range;
use std::time::Duration;

/// An entry of a module, to be executed on a region.
#[derive(Clone, Debug)]
pub struct ActiveCall<'a> {
    /// The region.
    pub region: &'a RemoteRegion,
    /// The module. If the node does not have it and the client [knows](super::ActiveClient::know)
    /// it, it is loaded.
    pub module: ModuleHash,
    /// The entry's name.
    pub entry: &'a str,
    /// Its arguments, at most [`INLINE_MAX`](crate::protocol::INLINE_MAX) bytes.
    pub args: &'a [u8],
    /// Where the result goes; `None`: into the outcome.
    pub result: Option<(ResultMemory, Range<usize>)>,
    /// How long the execution may take at the node, if that is less than the node allows.
    pub limit: Option<Duration>,
}

impl<'a> ActiveCall<'a> {
    /// A call whose result comes with its outcome, and which may take as long as the node allows.
    #[must_use]
    pub fn new(
        region: &'a RemoteRegion,
        module: ModuleHash,
        entry: &'a str,
        args: &'a [u8],
    ) -> Self {
        Self { region, module, entry, args, result: None, limit: None }
    }
}

/// Memory of a client's that the service writes results into. Made by
/// [`ActiveClient::expose`](super::ActiveClient::expose).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultMemory(pub(super) usize);

/// Which call, among those of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallTicket(pub(super) u64);

impl CallTicket {
    /// The request's number, by which it can be killed.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A run of the service that has a region: what one run has committed the next one may lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegionRun {
    /// Which of the services that had the region one after the other.
    pub epoch: u64,
    /// The number of the region's journal.
    pub incarnation: u64,
}

/// A call that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Which.
    pub ticket: CallTicket,
    /// What became of it. [`Outcome::Unknown`], too, if the client's own limit is over.
    pub outcome: Outcome,
    /// Bytes of the result that are in the caller's memory, if they went there.
    pub written: Option<u64>,
    /// The run that has answered; the latest one that is known where none has. An outcome's commit
    /// is one of this run's.
    pub run: RegionRun,
}
