//! Instances that were made and wait for their next execution.

use super::request::Request;
use crate::engine::WasmEngine;
use crate::hash::ModuleHash;
use crate::instance::WarmInstance;
use crate::store::{ModuleStore, TenantId};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// What an instance is for: it never serves another tenant, module or region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InstanceKey {
    pub(super) tenant: TenantId,
    pub(super) module: ModuleHash,
    pub(super) region: u64,
}

impl InstanceKey {
    pub(super) fn of(request: &Request) -> Self {
        let Request { tenant, module, .. } = *request;
        Self { tenant, module, region: request.region.number() }
    }
}

impl Hash for InstanceKey {
    /// Parts of hashes are as good as the whole: they are random, and instances are few.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let part =
            |bytes: &[u8; 32]| bytes.first_chunk().map_or(0, |part| u64::from_le_bytes(*part));
        state.write_u64(part(&self.module.0) ^ part(&self.tenant.0).rotate_left(21));
        state.write_u64(self.region);
    }
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct WarmInstances<I> {
    instances: HashMap<InstanceKey, (u64, WarmInstance<I>)>,
    max: usize,
    uses: u64,
    drops: u64,
}

impl<I> WarmInstances<I> {
    pub(super) fn new(max: usize) -> Self {
        Self { instances: HashMap::new(), max, uses: 0, drops: 0 }
    }

    pub(super) fn get(&mut self, key: &InstanceKey) -> Option<&mut WarmInstance<I>> {
        self.uses += 1;
        let (used, instance) = self.instances.get_mut(key)?;
        *used = self.uses;
        Some(instance)
    }

    /// Keeps an instance; the one that was used the longest ago makes room.
    pub(super) fn put(&mut self, key: InstanceKey, instance: WarmInstance<I>) {
        self.uses += 1;
        if self.instances.len() >= self.max && !self.instances.contains_key(&key) {
            let oldest = self.instances.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.instances.remove(&oldest);
            }
        }
        self.instances.insert(key, (self.uses, instance));
    }

    pub(super) fn forget(&mut self, is_gone: impl Fn(&InstanceKey) -> bool) {
        self.instances.retain(|key, _| !is_gone(key));
    }

    /// Drops the instances of modules that their tenant no longer has.
    pub(super) fn forget_dropped<E: WasmEngine>(&mut self, store: &ModuleStore<E>) {
        let drops = store.drops();
        if drops == self.drops {
            return;
        }
        self.drops = drops;
        self.forget(|key| store.find(key.tenant, &key.module).is_none());
    }
}
