//! Requests whose instance is being made, besides the one that it is made for. Each tenant may have
//! so many in all, whatever the instances, and they can be listed and killed as those on threads.

use super::background::ExecutionUnderWay;
use super::request::Request;
use super::warm::InstanceKey;
use crate::store::TenantId;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct Preparing {
    /// What waits for each instance that is being made: by token, which is the order they came in.
    waiting: HashMap<InstanceKey, BTreeMap<u64, (Request, Instant)>>,
    /// Which instance each of them waits for.
    keys: HashMap<TenantId, BTreeMap<u64, InstanceKey>>,
    max: usize,
}

/// A tenant has as many waiting as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyWaiting;

impl Preparing {
    /// Nobody waits; each tenant may have `max` waiting.
    pub(super) fn new(max: usize) -> Self {
        Self { waiting: HashMap::new(), keys: HashMap::new(), max }
    }

    /// The instance is being made from now on.
    pub(super) fn begin(&mut self, key: InstanceKey) {
        self.waiting.entry(key).or_default();
    }

    /// Whether the instance is being made.
    pub(super) fn has(&self, key: &InstanceKey) -> bool {
        self.waiting.contains_key(key)
    }

    /// Has a request wait for its instance.
    pub(super) fn wait(
        &mut self,
        key: InstanceKey,
        request: Request,
    ) -> Result<(), TooManyWaiting> {
        let keys = self.keys.entry(request.tenant).or_default();
        if keys.len() >= self.max {
            return Err(TooManyWaiting);
        }
        keys.insert(request.token, key);
        self.waiting.entry(key).or_default().insert(request.token, (request, Instant::now()));
        Ok(())
    }

    /// The instance is made, or cannot be: who has waited for it, in the order they came in.
    pub(super) fn end(&mut self, key: &InstanceKey) -> Vec<Request> {
        let waiting = self.waiting.remove(key).unwrap_or_default();
        for (request, _) in waiting.values() {
            self.forget(request.tenant, request.token);
        }
        waiting.into_values().map(|(request, _)| request).collect()
    }

    /// Takes a tenant's request out; `None` if it does not wait here.
    pub(super) fn take(&mut self, tenant: TenantId, token: u64) -> Option<Request> {
        let key = *self.keys.get(&tenant)?.get(&token)?;
        self.forget(tenant, token);
        Some(self.waiting.get_mut(&key)?.remove(&token)?.0)
    }

    /// A tenant's, the oldest ones, at most so many.
    pub(super) fn under_way(&self, tenant: TenantId, most: usize) -> Vec<ExecutionUnderWay> {
        let its = self.keys.get(&tenant).into_iter().flatten().take(most);
        let waiting = its.filter_map(|(token, key)| self.waiting.get(key)?.get(token));
        waiting.map(|(request, since)| ExecutionUnderWay::of(request, *since)).collect()
    }

    fn forget(&mut self, tenant: TenantId, token: u64) {
        let Some(keys) = self.keys.get_mut(&tenant) else { return };
        keys.remove(&token);
        if keys.is_empty() {
            self.keys.remove(&tenant);
        }
    }
}
