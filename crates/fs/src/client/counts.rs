//! Requests that a client has sent, by entry, and one-sided verbs: what a file operation costs in
//! round trips.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct RoundTrips(Mutex<BTreeMap<&'static str, u64>>);

impl RoundTrips {
    pub(super) fn add(&self, entry: &'static str) {
        self.add_many(entry, 1);
    }

    pub(super) fn add_many(&self, entry: &'static str, count: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry(entry).or_default() += count;
    }

    pub(super) fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
