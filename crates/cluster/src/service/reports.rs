//! A service's reports, between its loop and the thread that reads the supervisor's requests.
//!
//! Neither waits long for the other: a loop that is busy has its previous report shown.

use crate::waker::Waker;
use serde_json::Value;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long a report is waited for: after that the previous report is used.
const REPORT_MAX: Duration = Duration::from_millis(300);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Reports {
    state: Mutex<ReportState>,
    made: Condvar,
}

#[derive(Debug, Default)]
struct ReportState {
    wanted: bool,
    latest: Value,
}

impl Reports {
    /// Has the loop make a report, and waits for it.
    pub(super) fn ask(&self, waker: &Waker) -> Value {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.wanted = true;
        waker.wake();
        let waited = self.made.wait_timeout_while(state, REPORT_MAX, |state| state.wanted);
        waited.unwrap_or_else(PoisonError::into_inner).0.latest.clone()
    }

    /// Makes a report if one is wanted.
    pub(super) fn make(&self, report: impl FnOnce() -> Value) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.wanted {
            state.latest = report();
            state.wanted = false;
            self.made.notify_all();
        }
    }
}
