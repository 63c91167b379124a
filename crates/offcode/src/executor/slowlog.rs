//! Which executions took long of late, for people.

use super::request::{Outcome, Request};
use crate::hash::ModuleHash;
use crate::store::TenantId;
use std::collections::VecDeque;
use std::time::Duration;

/// Entries that are kept.
const KEPT: usize = 128;
/// What takes less is not worth an entry.
const SLOW: Duration = Duration::from_millis(1);

/// An execution that took long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowExecution {
    /// When it came, in nanoseconds since 1970.
    pub wall_ns: u64,
    /// Whose it was.
    pub tenant: TenantId,
    /// The module.
    pub module: ModuleHash,
    /// The entry.
    pub entry: String,
    /// The region's name.
    pub region: String,
    /// From the request to its outcome.
    pub took: Duration,
    /// What came of it, in a word.
    pub outcome: &'static str,
    /// What it said by the host call `log`.
    pub log: String,
}

/// See this file's first lines.
#[derive(Debug, Default)]
pub struct SlowLog(VecDeque<SlowExecution>);

impl SlowLog {
    /// Adds an execution, if it took long.
    pub(super) fn add(
        &mut self,
        request: &Request,
        outcome: &Outcome,
        (took, log): (Duration, &[u8]),
    ) {
        if took < SLOW {
            return;
        }
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back(SlowExecution {
            wall_ns: request.moment.wall_ns,
            tenant: request.tenant,
            module: request.module,
            entry: request.entry.clone(),
            region: request.region.name().to_owned(),
            took,
            outcome: outcome.word(),
            log: String::from_utf8_lossy(log).into_owned(),
        });
    }

    /// The entries, the latest last.
    pub fn iter(&self) -> impl Iterator<Item = &SlowExecution> {
        self.0.iter()
    }
}
