//! Everything that is asked more rarely: regions, lists, kills, reports, flushes.

use super::active::{ActiveHub, ActiveService};
use super::answer::cut;
use super::loads::{ActiveWorkDone, entries_of};
use super::persist::PersistError;
use super::session::{SessionRegion, tenant_of};
use crate::protocol::{ATTACHED_MAX, ActiveAnswer, ActiveRequest, KillTarget, ModuleSummary};
use outboard_cluster::hub::PeerId;
use outboard_cluster::service::ServiceError;
use outboard_offcode::ModuleHash;
use outboard_offcode::executor::ExecutionUnderWay;
use outboard_offcode::journal::RequestId;
use outboard_offcode::store::OwnedModule;
use outboard_secure::NodeId;
use outboard_verbs::Access;
use serde_json::{Value, json};
use std::sync::Arc;

/// Bytes of names that a list of modules has, at most: the rest is asked for again.
const LIST_MAX: usize = 24 * 1024;
/// Bytes of a report, at most.
const TEXT_MAX: usize = 48 * 1024;
/// Executions under way that are listed of an identity.
const RUNNING_LISTED: usize = 64;

/// Flushes of a region: who waits for the one under way, and who for the next.
#[derive(Debug, Default)]
pub(super) struct RegionFlushes {
    now: Vec<(PeerId, u64)>,
    next: Vec<(PeerId, u64)>,
}

/// Done, or why not.
type Done = Result<(), String>;

impl ActiveService {
    pub(super) fn serve(
        &mut self,
        hub: &mut ActiveHub,
        peer: PeerId,
        request: ActiveRequest<'_>,
    ) -> Result<(), ServiceError> {
        let Some(session) = self.sessions.get(&peer) else { return Ok(()) };
        session.client.ok_or("it has not said who it is")?;
        let node = session.node;
        match request {
            ActiveRequest::Execute(_)
            | ActiveRequest::Hello { .. }
            | ActiveRequest::Note { .. } => Ok(()),
            ActiveRequest::Attach { number, handle, region, epoch } => {
                self.attach(hub, (peer, number), handle, (region, epoch))
            }
            ActiveRequest::Detach { handle } => {
                self.detach(hub, peer, handle);
                Ok(())
            }
            ActiveRequest::Load { number, name, code } => {
                self.load(hub, (peer, number), name, code)
            }
            ActiveRequest::List { number, from } => {
                let answer = self.list(node, number, from);
                self.answer(hub, peer, &answer)
            }
            ActiveRequest::Drop { number, module } => {
                let done = self.drop_module(node, &ModuleHash(module));
                self.answer_done(hub, peer, number, done)
            }
            ActiveRequest::Kill { number, target } => {
                let done = self.kill(peer, target);
                self.answer_done(hub, peer, number, done)
            }
            ActiveRequest::Running { number } => {
                self.answer_text(hub, peer, number, self.running_of(node))
            }
            ActiveRequest::Slowlog { number } => {
                self.answer_text(hub, peer, number, self.slow_of(node))
            }
            ActiveRequest::Stats { number } => {
                self.answer_text(hub, peer, number, vec![self.stats_for(node)])
            }
            ActiveRequest::Flush { number, handle } => self.flush(hub, (peer, number), handle),
        }
    }

    fn attach(
        &mut self,
        hub: &mut ActiveHub,
        (peer, number): (PeerId, u64),
        handle: u32,
        (name, epoch): (&str, u64),
    ) -> Result<(), ServiceError> {
        let Some(session) = self.sessions.get_mut(&peer) else { return Ok(()) };
        let found = self.region_names.get(name).copied();
        let found = found.and_then(|at| Some((at, self.regions[at].setup.access(session.node)?)));
        let Some((index, access)) = found.filter(|_| handle < ATTACHED_MAX) else {
            // Of regions that it may not see a client does not learn that they are there.
            let why = format!("no region {:?} for this identity", cut(name));
            return self.answer(hub, peer, &ActiveAnswer::Refused { number, why: &why });
        };
        let served = &self.regions[index];
        let own_epoch = served.setup.epoch;
        if epoch > own_epoch {
            let may_write = access.contains(Access::REMOTE_WRITE);
            return self.superseded(index, epoch, may_write);
        }
        let memory = served.region.memory();
        let (memory, access) = match served.setup.shown {
            Some(len) => (memory.slice(0..len.min(memory.len()))?, Access::REMOTE_READ),
            None => (memory.clone().into(), access),
        };
        let exposed = hub.expose(peer, memory, access)?;
        let head = served.region.head().clone().into();
        let head = hub.expose(peer, head, Access::REMOTE_READ)?;
        let may_write = access.contains(Access::REMOTE_WRITE);
        let attached = SessionRegion { index, exposed, head, may_write };
        if let Ok(Some(before)) = session.attach(handle, attached) {
            hub.withdraw(peer, before.exposed);
            hub.withdraw(peer, before.head);
        }
        let (seq, incarnation) = (served.region.seq(), served.incarnation);
        let answer = ActiveAnswer::Attached {
            number,
            memory: exposed,
            head,
            seq,
            incarnation,
            epoch: own_epoch,
            may_write,
        };
        self.answer(hub, peer, &answer)
    }

    fn detach(&mut self, hub: &mut ActiveHub, peer: PeerId, handle: u32) {
        let session = self.sessions.get_mut(&peer);
        if let Some(attached) = session.and_then(|session| session.detach(handle)) {
            hub.withdraw(peer, attached.exposed);
            hub.withdraw(peer, attached.head);
        }
    }

    fn list(&self, node: NodeId, number: u64, from: u32) -> ActiveAnswer<'static> {
        let all = self.store.list(tenant_of(node));
        let total = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let mut len = 0;
        let modules = all.iter().skip(from as usize).map(|module| self.summary(module));
        let fits = |module: &ModuleSummary| {
            let names = module.entries.iter().map(|entry| entry.name.len() + 4);
            len += 64 + module.name.len() + names.sum::<usize>();
            len <= LIST_MAX
        };
        let modules = modules.take_while(fits).collect();
        ActiveAnswer::Modules { number, modules, total }
    }

    fn summary(&self, module: &OwnedModule) -> ModuleSummary {
        ModuleSummary {
            module: module.info.hash.0,
            name: module.name.clone(),
            len: module.info.len as u64,
            is_operators: self.operators.contains(&module.info.hash),
            entries: entries_of(&module.info),
        }
    }

    fn drop_module(&mut self, node: NodeId, module: &ModuleHash) -> Done {
        let is_dropped = self.store.drop_module(tenant_of(node), module);
        self.count_modules(node);
        match is_dropped {
            true => Ok(()),
            false => Err(format!("this identity has loaded no module {module}")),
        }
    }

    fn kill(&mut self, peer: PeerId, target: KillTarget) -> Done {
        let session = self.sessions.get(&peer).ok_or("it is gone")?;
        let token = match (target, session.client) {
            (KillTarget::Execution(token), _) => Some(token),
            (KillTarget::Request(number), Some(client)) => {
                self.by_request.get(&RequestId { client, number }).copied()
            }
            (KillTarget::Request(_), None) => None,
        };
        let tenant = tenant_of(session.node);
        match token.is_some_and(|token| self.executor.kill(tenant, token)) {
            true => Ok(()),
            false => Err("no such execution of this identity is under way".into()),
        }
    }

    fn running_of(&self, node: NodeId) -> Vec<Value> {
        let its = self.executor.under_way(tenant_of(node), RUNNING_LISTED);
        let describe = |ExecutionUnderWay { token, module, entry, since }| {
            let running_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            json!({
                "number": token, "module": module.to_string(), "entry": entry,
                "running_ms": running_ms,
            })
        };
        its.into_iter().map(describe).collect()
    }

    fn slow_of(&self, node: NodeId) -> Vec<Value> {
        let tenant = tenant_of(node);
        let its = self.executor.slow().iter().filter(|slow| slow.tenant == tenant);
        let describe = |slow: &outboard_offcode::executor::SlowExecution| {
            let took_us = u64::try_from(slow.took.as_micros()).unwrap_or(u64::MAX);
            json!({
                "at_ms": slow.wall_ns / 1_000_000, "module": slow.module.to_string(),
                "entry": slow.entry, "region": slow.region, "took_us": took_us,
                "outcome": slow.outcome, "log": slow.log,
            })
        };
        let mut latest: Vec<Value> = its.map(describe).collect();
        latest.reverse();
        latest
    }

    fn stats_for(&self, node: NodeId) -> Value {
        let seen = self.regions.iter().filter(|region| region.setup.access(node).is_some());
        let describe = |served: &super::regions::ServedRegion| {
            let file = served.setup.persist.as_ref();
            json!({
                "name": served.setup.name, "bytes": served.region.memory().len(),
                "commits": served.region.seq(),
                "may_write": served.setup.access(node).is_some_and(|access| {
                    access.contains(Access::REMOTE_WRITE)
                }),
                "has_file": file.is_some(),
            })
        };
        json!({
            "counters": self.counters,
            "executor": self.executor.counters(),
            "executions_now": self.running.len(),
            "clients_now": self.sessions.len(),
            "regions": seen.map(describe).collect::<Vec<_>>(),
        })
    }

    /// As many of the values as fit into an answer, one a line.
    fn answer_text(
        &mut self,
        hub: &mut ActiveHub,
        peer: PeerId,
        number: u64,
        mut values: Vec<Value>,
    ) -> Result<(), ServiceError> {
        let text = |values: &Vec<Value>| serde_json::to_string(values).unwrap_or_default();
        let mut json = text(&values);
        while json.len() > TEXT_MAX {
            values.truncate(values.len() / 2);
            json = text(&values);
        }
        self.answer(hub, peer, &ActiveAnswer::Text { number, json: &json })
    }

    fn answer_done(
        &mut self,
        hub: &mut ActiveHub,
        peer: PeerId,
        number: u64,
        done: Done,
    ) -> Result<(), ServiceError> {
        match done {
            Ok(()) => self.answer(hub, peer, &ActiveAnswer::Ok { number }),
            Err(why) => {
                let why = cut(&why);
                self.answer(hub, peer, &ActiveAnswer::Refused { number, why })
            }
        }
    }

    fn flush(
        &mut self,
        hub: &mut ActiveHub,
        (peer, number): (PeerId, u64),
        handle: u32,
    ) -> Result<(), ServiceError> {
        let attached = self.sessions.get(&peer).and_then(|session| session.region(handle));
        let index = match attached {
            None => Err("no region is attached under this handle"),
            Some(attached) if !attached.may_write => Err("this identity may only read the region"),
            Some(attached) if self.regions[attached.index].file.is_none() => {
                Err("the region has no file: the node's operator gives it one (persist)")
            }
            Some(attached) => Ok(attached.index),
        };
        match index {
            Err(why) => self.answer_done(hub, peer, number, Err(why.into())),
            Ok(index) => {
                let is_under_way = self.flushes.contains_key(&index);
                let flushes = self.flushes.entry(index).or_default();
                flushes.next.push((peer, number));
                if !is_under_way {
                    self.begin_flush(hub, index);
                }
                Ok(())
            }
        }
    }

    /// Has a thread write a region, for all that wait.
    fn begin_flush(&mut self, hub: &mut ActiveHub, index: usize) {
        let Some(flushes) = self.flushes.get_mut(&index) else { return };
        flushes.now = std::mem::take(&mut flushes.next);
        let served = &self.regions[index];
        let (Some(file), region) = (served.file.clone(), Arc::clone(&served.region)) else {
            return;
        };
        let (sender, waker) = (self.sender.clone(), self.waker.clone());
        let begun = self.writers.run(move || {
            // The service may have ended.
            let _sent = sender.send(ActiveWorkDone::Flushed(index, file.write(&region)));
            waker.wake();
        });
        if !begun {
            let source = std::io::Error::other("this machine starts no thread");
            self.flushed(hub, index, &Err(PersistError::descriptor(source)));
        }
    }

    pub(super) fn flushed(
        &mut self,
        hub: &mut ActiveHub,
        index: usize,
        result: &Result<(), PersistError>,
    ) {
        let Some(flushes) = self.flushes.get_mut(&index) else { return };
        let (told, goes_on) = (std::mem::take(&mut flushes.now), !flushes.next.is_empty());
        self.counters.flushes += 1;
        if let Err(error) = result {
            self.counters.flushes_failed += 1;
            tracing::warn!(region = self.regions[index].setup.name, %error, "not flushed");
        }
        for (peer, number) in told {
            let done = match result {
                Ok(()) => Ok(()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = self.answer_done(hub, peer, number, done) {
                self.ends.push((peer, why));
            }
        }
        match goes_on {
            true => self.begin_flush(hub, index),
            false => drop(self.flushes.remove(&index)),
        }
    }

    /// Writes every region that has a file. The node ends.
    pub(super) fn flush_all(&mut self) -> Result<(), ServiceError> {
        let mut failed = Ok(());
        for served in &self.regions {
            let Some(file) = &served.file else { continue };
            match file.write(&served.region) {
                Ok(()) => tracing::info!(path = %file.path().display(), "flushed"),
                Err(error) => {
                    eprintln!("outboard: region {}: {error}", served.setup.name);
                    failed = Err("a region is not in its file: see above".into());
                }
            }
        }
        failed
    }
}
