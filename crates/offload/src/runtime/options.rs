//! How patient the runtime is.

use std::time::Duration;

/// Times that the runtime keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeOptions {
    /// How often each device is asked whether it lives.
    pub heartbeat: Duration,
    /// A device that says nothing for so long after it was asked is lost, unless it has been given
    /// work that may take long.
    pub silence: Duration,
    /// A device that has not replied to a request for so long is lost.
    pub reply_limit: Duration,
}

impl Default for RuntimeOptions {
    /// A lost device is noticed within a second.
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(250),
            silence: Duration::from_millis(750),
            reply_limit: Duration::from_secs(10),
        }
    }
}
