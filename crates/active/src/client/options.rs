//! How a client waits, and for how long.

use std::time::Duration;

/// What a client does while it waits for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitMode {
    /// Sleeps at once: costs no processor time.
    Block,
    /// Spins for some 50 µs while answers come soon, then sleeps.
    #[default]
    Adaptive,
    /// Spins: the lowest latency, for a whole processor.
    Spin,
}

/// A client's own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveClientOptions {
    /// What it does while it waits.
    pub wait: WaitMode,
    /// How long any call may take, dialling again and retries included.
    pub limit: Duration,
    /// Requests that are submitted and whose outcome is not taken, at most. A node refuses those
    /// that wait beyond its `queued` as busy; 1,024 by default, too.
    pub in_flight: usize,
    /// How often the first connection is tried: once for each host that the dialing function takes
    /// in turn.
    pub attempts: usize,
}

impl Default for ActiveClientOptions {
    fn default() -> Self {
        Self {
            wait: WaitMode::default(),
            limit: Duration::from_secs(10),
            in_flight: 1024,
            attempts: 1,
        }
    }
}
