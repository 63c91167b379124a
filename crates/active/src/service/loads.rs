//! Modules that clients load: their bytes come with the request or are read from the client's
//! memory, and threads compile them.

use super::active::{ActiveHub, ActiveService, ActiveTag};
use super::answer::cut;
use super::persist::PersistError;
use super::session::{ActiveSession, tenant_of};
use crate::protocol::{ActiveAnswer, ENTRIES_LISTED, EntrySummary, ModuleBytes, NAME_MAX};
use outboard_cluster::hub::{Exposed, PeerId};
use outboard_cluster::service::ServiceError;
use outboard_offcode::LoadError;
use outboard_offcode::inspect::ModuleInfo;
use outboard_secure::NodeId;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Loads of an identity that wait for others of it, at most.
const QUEUED_MAX: usize = 64;

/// A load that waits for others of its identity.
#[derive(Debug)]
pub(super) struct QueuedLoad {
    peer: PeerId,
    number: u64,
    name: String,
    code: QueuedBytes,
}

/// A module's bytes, or where they are.
#[derive(Debug)]
enum QueuedBytes {
    Inline(Vec<u8>),
    Memory(Exposed),
}

impl QueuedLoad {
    fn new((peer, number): (PeerId, u64), name: &str, code: ModuleBytes<'_>) -> Self {
        let code = match code {
            ModuleBytes::Inline(bytes) => QueuedBytes::Inline(bytes.to_vec()),
            ModuleBytes::Memory(exposed) => QueuedBytes::Memory(exposed),
        };
        Self { peer, number, name: name.to_owned(), code }
    }
}

/// What a thread has done.
#[derive(Debug)]
pub(super) enum ActiveWorkDone {
    /// A module was loaded, or not: for this request of this identity's.
    Loaded(PeerId, u64, NodeId, Result<Arc<ModuleInfo>, LoadError>),
    /// A region was written to its file, or not.
    Flushed(usize, Result<(), PersistError>),
}

impl ActiveService {
    pub(super) fn load(
        &mut self,
        hub: &mut ActiveHub,
        (peer, number): (PeerId, u64),
        name: &str,
        code: ModuleBytes<'_>,
    ) -> Result<(), ServiceError> {
        let Some(session) = self.sessions.get(&peer) else { return Ok(()) };
        let found = match code {
            ModuleBytes::Inline(bytes) => bytes.len() as u64,
            ModuleBytes::Memory(exposed) => exposed.len(),
        };
        let limit = self.limits.store.module.bytes as u64;
        if name.len() > NAME_MAX || found > limit {
            let why = format!(
                "a module has {limit} bytes and a name of {NAME_MAX} bytes at most; this one has \
                 {found} and {}",
                name.len()
            );
            return self.refuse_load(hub, peer, number, &why);
        }
        let node = session.node;
        if self.loads_under_way(node) >= self.limits.loads {
            return self.queue_load(hub, node, QueuedLoad::new((peer, number), name, code));
        }
        if !self.make_room(usize::try_from(found).unwrap_or(usize::MAX)) {
            let limit = self.limits.all_bytes;
            let why = format!("the modules of all identities have {limit} bytes, the limit here");
            return self.refuse_load(hub, peer, number, &why);
        }
        *self.loading.entry(node).or_default() += 1;
        match code {
            ModuleBytes::Inline(bytes) => {
                self.compile_load(hub, (peer, number), name.to_owned(), bytes.to_vec())
            }
            ModuleBytes::Memory(exposed) => {
                if let Some(session) = self.sessions.get_mut(&peer) {
                    session.reading += 1;
                }
                let from = exposed.range(0, found).ok_or("it exposes what cannot be")?;
                let len = usize::try_from(found).unwrap_or(usize::MAX);
                let tag = ActiveTag::Module { number, name: name.to_owned() };
                Ok(hub.read(peer, from, len, tag)?)
            }
        }
    }

    /// An identity's loads that were begun: read from its memory, or compiled.
    fn loads_under_way(&self, node: NodeId) -> usize {
        self.loading.get(&node).copied().unwrap_or_default()
    }

    /// So many of them are over.
    fn end_loads(&mut self, hub: &mut ActiveHub, node: NodeId, count: usize) {
        let left = self.loads_under_way(node).saturating_sub(count);
        match left {
            0 => drop(self.loading.remove(&node)),
            left => drop(self.loading.insert(node, left)),
        }
        self.begin_queued(hub, node);
    }

    /// A peer has gone whose modules were being read.
    pub(super) fn stop_reading(&mut self, hub: &mut ActiveHub, session: &ActiveSession) {
        self.end_loads(hub, session.node, session.reading);
    }

    /// Keeps a load for later: as when a service has been killed, and all clients of an identity
    /// ask again at once.
    fn queue_load(
        &mut self,
        hub: &mut ActiveHub,
        node: NodeId,
        load: QueuedLoad,
    ) -> Result<(), ServiceError> {
        let queue = self.queued_loads.entry(node).or_default();
        if queue.len() < QUEUED_MAX {
            queue.push_back(load);
            return Ok(());
        }
        let why = format!("{QUEUED_MAX} modules of this identity wait to be loaded: try later");
        self.refuse_load(hub, load.peer, load.number, &why)
    }

    /// Begins loads that have waited, now that another one is over.
    fn begin_queued(&mut self, hub: &mut ActiveHub, node: NodeId) {
        while self.loads_under_way(node) < self.limits.loads
            && let Some(load) = self.queued_loads.get_mut(&node).and_then(VecDeque::pop_front)
        {
            let QueuedLoad { peer, number, name, code } = load;
            let code = match &code {
                QueuedBytes::Inline(bytes) => ModuleBytes::Inline(bytes),
                QueuedBytes::Memory(exposed) => ModuleBytes::Memory(*exposed),
            };
            // A peer that has gone needs none.
            if let Err(why) = self.load(hub, (peer, number), &name, code) {
                self.ends.push((peer, why));
            }
        }
        if self.queued_loads.get(&node).is_some_and(VecDeque::is_empty) {
            self.queued_loads.remove(&node);
        }
    }

    /// Drops modules of identities that are not connected, until there is room for this many bytes
    /// more.
    fn make_room(&mut self, bytes: usize) -> bool {
        while !self.holders.has_room(bytes, self.limits.all_bytes) {
            let Some(absent) = self.holders.oldest_absent() else { return false };
            for module in self.store.list(tenant_of(absent)) {
                // The operator's are not its.
                self.store.drop_module(tenant_of(absent), &module.info.hash);
            }
            self.holders.set(absent, 0);
        }
        true
    }

    /// Counts an identity's modules, after a change.
    pub(super) fn count_modules(&mut self, node: NodeId) {
        let all = self.store.list(tenant_of(node));
        let own = all.iter().filter(|module| !self.operators.contains(&module.info.hash));
        self.holders.set(node, own.map(|module| module.info.len).sum());
    }

    /// The bytes have been read.
    pub(super) fn read_module(
        &mut self,
        hub: &mut ActiveHub,
        (peer, number): (PeerId, u64),
        name: String,
        bytes: Vec<u8>,
    ) -> Result<(), ServiceError> {
        let Some(session) = self.sessions.get_mut(&peer) else { return Ok(()) };
        session.reading = session.reading.saturating_sub(1);
        self.compile_load(hub, (peer, number), name, bytes)
    }

    /// The bytes are there: a thread compiles them.
    fn compile_load(
        &mut self,
        hub: &mut ActiveHub,
        (peer, number): (PeerId, u64),
        name: String,
        bytes: Vec<u8>,
    ) -> Result<(), ServiceError> {
        let Some(session) = self.sessions.get(&peer) else { return Ok(()) };
        let node = session.node;
        let (store, sender, waker) =
            (Arc::clone(&self.store), self.sender.clone(), self.waker.clone());
        let begun = self.loaders.run(move || {
            let load = || store.load(Some(tenant_of(node)), &name, &bytes);
            let defect = |_| Err(LoadError::Engine("a defect of Outboard: it panicked".into()));
            let loaded = catch_unwind(AssertUnwindSafe(load)).unwrap_or_else(defect);
            // The service may have ended.
            let _sent = sender.send(ActiveWorkDone::Loaded(peer, number, node, loaded));
            waker.wake();
        });
        if begun {
            return Ok(());
        }
        self.refuse_load(hub, peer, number, "too many modules are being loaded here")?;
        self.end_loads(hub, node, 1);
        Ok(())
    }

    /// Answers what threads have done.
    pub(super) fn finish(&mut self, hub: &mut ActiveHub, finished: ActiveWorkDone) {
        match finished {
            ActiveWorkDone::Loaded(peer, number, node, loaded) => {
                self.count_modules(node);
                self.answer_load(hub, peer, number, loaded);
                self.end_loads(hub, node, 1);
            }
            ActiveWorkDone::Flushed(region, result) => self.flushed(hub, region, &result),
        }
    }

    fn answer_load(
        &mut self,
        hub: &mut ActiveHub,
        peer: PeerId,
        number: u64,
        loaded: Result<Arc<ModuleInfo>, LoadError>,
    ) {
        let (loads, refused) = (&mut self.counters.loads, &mut self.counters.loads_refused);
        *(if loaded.is_ok() { loads } else { refused }) += 1;
        match loaded {
            Ok(info) => {
                let (module, entries) = (info.hash.0, entries_of(&info));
                self.answer_later(hub, peer, &ActiveAnswer::Loaded { number, module, entries });
            }
            Err(LoadError::Missing { hash, .. }) => {
                let missing = hash.0;
                self.answer_later(hub, peer, &ActiveAnswer::NotLoaded { number, missing });
            }
            Err(error) => {
                let text = error.to_string();
                let why = cut(&text);
                self.answer_later(hub, peer, &ActiveAnswer::Refused { number, why });
            }
        }
    }

    fn refuse_load(
        &mut self,
        hub: &mut ActiveHub,
        peer: PeerId,
        number: u64,
        why: &str,
    ) -> Result<(), ServiceError> {
        self.counters.loads_refused += 1;
        self.answer(hub, peer, &ActiveAnswer::Refused { number, why })
    }
}

/// A module's entries, or the first of them.
pub(super) fn entries_of(info: &ModuleInfo) -> Vec<EntrySummary> {
    let entries = info.entries().filter(|(name, _)| name.len() <= NAME_MAX);
    let summary = |(name, writes): (&str, bool)| EntrySummary {
        name: name.to_owned(),
        is_read_only: !writes,
    };
    entries.take(ENTRIES_LISTED).map(summary).collect()
}
