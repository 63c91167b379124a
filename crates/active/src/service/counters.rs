//! What the service has done, and what it reports: plain numbers of its loop.

use outboard_offcode::executor::ExecutorCounters;
use serde::Serialize;
use serde_json::Value;

/// Counters of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ActiveCounters {
    /// Requests to execute.
    pub requests: u64,
    /// Of these, requests that were asked again after a connection was lost.
    pub retries: u64,
    /// Requests whose execution went on elsewhere.
    pub deferred: u64,
    /// Requests that were answered by "no such module".
    pub no_code: u64,
    /// Requests that were not executed because their identity, or their connection, had too much
    /// under way.
    pub busy: u64,
    /// Retries of which it is not known any more whether they were executed.
    pub unknown: u64,
    /// Modules that were loaded.
    pub loads: u64,
    /// Modules that were refused.
    pub loads_refused: u64,
    /// Flushes of regions to their files.
    pub flushes: u64,
    /// Flushes that failed.
    pub flushes_failed: u64,
}

/// What `outboard status` shows of the service.
#[derive(Clone, Debug, Serialize)]
pub struct ActiveReport {
    /// The names of its regions.
    pub regions: Vec<String>,
    /// Executions that go on elsewhere.
    pub executions_now: usize,
    /// Connections whose requests wait for their turn.
    pub waiting_now: usize,
    /// What it has done.
    #[serde(flatten)]
    pub counters: ActiveCounters,
    /// What its executor has done.
    pub executor: ExecutorCounters,
    /// What the backend of a region has to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<Value>,
}
