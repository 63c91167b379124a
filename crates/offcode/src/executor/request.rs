//! A request to execute an entry, and what comes of it.

use crate::abi::CallBlock;
use crate::hash::ModuleHash;
use crate::instance::CallInput;
use crate::journal::{Earlier, RequestId};
use crate::region::ActiveRegion;
use crate::store::TenantId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A request. It carries what identifies it, so that one that is made again is not executed again.
#[derive(Clone, Debug)]
pub struct Request {
    /// The caller's number for it, in this process.
    pub token: u64,
    /// Whose it is.
    pub tenant: TenantId,
    /// Which request it is, if its answer is to be found again.
    pub id: Option<RequestId>,
    /// If it is made again: the newest commit that its client knew of when it made it first.
    pub retried_since: Option<u64>,
    /// The region.
    pub region: Arc<ActiveRegion>,
    /// The module.
    pub module: ModuleHash,
    /// The entry's name.
    pub entry: String,
    /// Its arguments.
    pub args: Vec<u8>,
    /// Bytes of a result, at most.
    pub out_cap: u32,
    /// Whether its caller may write into the region.
    pub may_write: bool,
    /// How long it may take on a thread.
    pub limit: Duration,
    /// When it came, by the monotonic and the wall clock, in nanoseconds; and random bits. The same
    /// whenever it is run again.
    pub moment: Moment,
}

/// The one time that an execution knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds of the monotonic clock.
    pub monotonic_ns: u64,
    /// Nanoseconds since 1970.
    pub wall_ns: u64,
    /// Random bits.
    pub seed: u64,
}

impl Moment {
    /// A moment of the wall clock, since 1970, for tests: the monotonic clock says the same.
    #[must_use]
    pub fn at(since_1970: Duration) -> Self {
        let wall_ns = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        Self { monotonic_ns: wall_ns, wall_ns, seed: 0 }
    }

    /// Now.
    #[must_use]
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let monotonic = u64::try_from(now.tv_sec).unwrap_or_default() * 1_000_000_000
            + u64::try_from(now.tv_nsec).unwrap_or_default();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        let mixed = (monotonic ^ wall_ns.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { monotonic_ns: monotonic, wall_ns, seed: mixed ^ (mixed >> 29) }
    }
}

impl Moment {
    /// The same time, with other random bits.
    #[must_use]
    pub fn with_seed_of(self, number: u64) -> Self {
        let mixed = (self.seed ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { seed: mixed ^ (mixed >> 32), ..self }
    }
}

impl Request {
    /// The answer of the same request that was made before, if it must not be executed again.
    pub(super) fn outcome_of_earlier(&self) -> Option<Outcome> {
        let (id, seen) = (self.id?, self.retried_since?);
        match self.region.find(id, seen) {
            Ok(Earlier::NotExecuted) => None,
            Ok(Earlier::Answered(result)) => Some(Outcome::Done { result, seq: self.region.seq() }),
            Ok(Earlier::Unknown) => Some(Outcome::Unknown),
            Err(error) => Some(Outcome::Machine(error.to_string())),
        }
    }

    pub(super) fn input(&self) -> CallInput<'_> {
        let Moment { monotonic_ns, wall_ns, seed } = self.moment;
        CallInput {
            entry: &self.entry,
            args: &self.args,
            out_cap: self.out_cap,
            block: CallBlock {
                monotonic_ns,
                wall_ns,
                seed,
                caller: self.tenant.0,
                ..CallBlock::default()
            },
            may_write: self.may_write,
        }
    }
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was executed; what it wrote is there.
    Done {
        /// Its result.
        #[serde(with = "serde_bytes")]
        result: Vec<u8>,
        /// The newest commit of the region.
        seq: u64,
    },
    /// The module says that it failed. Nothing has changed, as in all below but
    /// [`Self::Unknown`].
    Failed {
        /// The module's number.
        code: i32,
        /// The module's words.
        text: String,
    },
    /// The tenant has no such module: load it.
    NoCode(ModuleHash),
    /// The module has no such entry.
    NoEntry(String),
    /// The module did something wrong.
    Trap(String),
    /// It took too long.
    Timeout,
    /// It was killed.
    Killed,
    /// Others changed the same words each time, even while it ran alone for as long as it may.
    Conflict,
    /// The tenant has as much under way as it may have.
    Busy(String),
    /// The caller may not do that.
    Refused(String),
    /// The request was made again, and whether it was executed before is not known any more.
    Unknown,
    /// The machine's fault.
    Machine(String),
}

impl Outcome {
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self, Self::Trap(_) | Self::Timeout | Self::Killed)
    }

    /// One word for what came of it, as lists show it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Done { .. } => "done",
            Self::Failed { .. } => "failed",
            Self::NoCode(_) => "no code",
            Self::NoEntry(_) => "no entry",
            Self::Trap(_) => "trap",
            Self::Timeout => "timeout",
            Self::Killed => "killed",
            Self::Conflict => "conflict",
            Self::Busy(_) => "busy",
            Self::Refused(_) => "refused",
            Self::Unknown => "unknown",
            Self::Machine(_) => "machine",
        }
    }
}
