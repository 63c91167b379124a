//! A request to execute an entry, and what comes of it.

use crate::abi::CallBlock;
use crate::hash::ModuleHash;
use crate::instance::CallInput;
use crate::journal::{Earlier, RequestId};
use crate::region::ActiveRegion;
use crate::store::TenantId;
use outboard_mem::MemError;
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
    /// Whether its caller executes it itself, which modules are told.
    pub is_at_client: bool,
    /// How long it may take on a thread.
    pub limit: TimeLimit,
    /// When it came, by the monotonic and the wall clock, in nanoseconds; and random bits. The same
    /// whenever it is run again.
    pub moment: Moment,
}

/// How much processor time an execution may take on a thread, however often it runs, and whose
/// limit that is. By the clock it may take ten times that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// Its caller's.
    Caller(Duration),
    /// That of who executes it.
    Executor(Duration),
}

impl TimeLimit {
    /// The time.
    #[must_use]
    pub fn duration(self) -> Duration {
        let (Self::Caller(limit) | Self::Executor(limit)) = self;
        limit
    }

    /// What became of an execution that it has ended.
    pub(super) fn outcome(self) -> Outcome {
        let whose = match self {
            Self::Caller(_) => "its caller's limit",
            Self::Executor(_) => "the executor's limit (a node's time_ms)",
        };
        Outcome::Timeout(format!("it took longer than {whose} of {:?}", self.duration()))
    }
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
        self.outcome_of(self.region.find(id, seen))
    }

    /// As [`Self::outcome_of_earlier`]; the error says that looking for it would have to wait.
    pub(super) fn try_outcome_of_earlier(&self) -> Result<Option<Outcome>, Locked> {
        let (Some(id), Some(seen)) = (self.id, self.retried_since) else { return Ok(None) };
        let found = self.region.try_find(id, seen).ok_or(Locked)?;
        Ok(self.outcome_of(found))
    }

    fn outcome_of(&self, found: Result<Earlier, MemError>) -> Option<Outcome> {
        match found {
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
                flags: if self.is_at_client { CallBlock::AT_CLIENT } else { 0 },
                ..CallBlock::default()
            },
            may_write: self.may_write,
        }
    }
}

/// Another thread has the region's journal.
#[derive(Debug)]
pub(super) struct Locked;

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
    /// It took too long: longer than whose limit.
    Timeout(String),
    /// It was killed.
    Killed,
    /// The region changed each time that it ran; then others were kept out for as long as they may
    /// be, which was not enough.
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

/// A module's or a node's text without what a terminal would obey; a trap has lines.
fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        c if is_printable(c) => c.to_string(),
        c => c.escape_default().to_string(),
    };
    text.chars().map(shown).collect()
}

/// Whether a terminal shows a character, and does nothing else.
#[must_use]
pub fn is_printable(c: char) -> bool {
    matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1
}

const CONFLICT: &str = "others changed the region each time that it ran, and the time for which \
    they are then kept out was too short (10 ms for executions, 1 ms for peers' writes); nothing \
    has changed: try again when less is written, or let it do less at a time";
const UNKNOWN: &str = "it is not known whether it was executed: the node did not answer in time, \
    or has lost what it knew of it; look at the region before trying again";

impl Outcome {
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self, Self::Trap(_) | Self::Timeout(_) | Self::Killed)
    }

    /// Why there is no result, in a sentence; `None` if there is one.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let text = match self {
            Self::Done { .. } => return None,
            Self::Failed { code, text } if text.is_empty() => {
                format!("the module failed with code {code}")
            }
            Self::Failed { code, text } => {
                format!(
                    "the module failed with code {code}: {}",
                    printable(text).replace('\n', "\\n")
                )
            }
            Self::NoCode(hash) => format!("no module {hash} is loaded: load it first"),
            Self::NoEntry(entry) => format!("the module has no entry {entry:?}"),
            Self::Killed => "it was killed; nothing has changed".to_owned(),
            Self::Conflict => CONFLICT.to_owned(),
            Self::Timeout(why) => format!("{}; nothing has changed", printable(why)),
            Self::Trap(text) | Self::Busy(text) | Self::Refused(text) | Self::Machine(text) => {
                printable(text)
            }
            Self::Unknown => UNKNOWN.to_owned(),
        };
        Some(text)
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
            Self::Timeout(_) => "timeout",
            Self::Killed => "killed",
            Self::Conflict => "conflict",
            Self::Busy(_) => "busy",
            Self::Refused(_) => "refused",
            Self::Unknown => "unknown",
            Self::Machine(_) => "machine",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_s_words_do_nothing_to_a_terminal() {
        let text = "\u{1b}[31m\nred".to_owned();
        let failed = Outcome::Failed { code: 5, text: text.clone() }.failure();
        assert_eq!(failed.as_deref(), Some("the module failed with code 5: \\u{1b}[31m\\nred"));
        for outcome in [Outcome::Trap, Outcome::Busy, Outcome::Refused, Outcome::Machine] {
            let said = outcome(text.clone()).failure();
            assert_eq!(said.as_deref(), Some("\\u{1b}[31m\nred"));
        }
    }
}
