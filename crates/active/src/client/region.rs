//! A node's region as a client has it, and plain verbs on it: reads, writes and atomics that the
//! node's network card answers, without any code.

use super::error::check_name;
use super::state::AttachedRegion;
use super::window::Settled;
use super::{ActiveClient, ActiveError, RegionRun};
use crate::protocol::ATTACHED_MAX;
use outboard_cluster::hub::Exposed;
use outboard_verbs::{OwnedBuf, Remote, SendOp, SgList, SharedSlice};
use std::sync::Arc;
use std::time::Instant;

/// A region of a node. Made by [`ActiveClient::attach`], used with that client. Clones are the same
/// region.
#[derive(Clone, Debug)]
pub struct RemoteRegion {
    pub(super) handle: u32,
    name: Arc<str>,
    len: u64,
    may_write: bool,
}

/// A one-sided operation that is to be posted.
pub(super) type Verb = (SendOp, SgList);

impl RemoteRegion {
    /// Its name at the node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[cfg(test)]
    pub(super) fn named(name: &str, handle: u32) -> Self {
        Self { handle, name: name.into(), len: 4096, may_write: true }
    }

    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this identity may write into it.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.may_write
    }

    /// Reads bytes: one RDMA Read.
    ///
    /// # Errors
    /// [`ActiveError::Outside`]; as all calls. A connection that is lost is made again.
    pub fn read(
        &self,
        client: &mut ActiveClient,
        at: u64,
        len: usize,
    ) -> Result<Vec<u8>, ActiveError> {
        let mut read = self.read_each(client, &[(at, len)])?;
        Ok(read.pop().unwrap_or_default())
    }

    /// Reads bytes of several places at once: one RDMA Read each, none of which waits for another.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_each(
        &self,
        client: &mut ActiveClient,
        places: &[(u64, usize)],
    ) -> Result<Vec<Vec<u8>>, ActiveError> {
        let deadline = client.deadline();
        loop {
            let make = |at: usize, from: Remote| -> Verb {
                (SendOp::Read { from }, OwnedBuf::zeroed(places[at].1).into())
            };
            let sizes = places.iter().map(|(at, len)| (*at, *len as u64));
            match client.verbs_on(self, sizes, make, deadline) {
                // Reading twice changes nothing.
                Err(ActiveError::Interrupted { .. }) => {}
                done => return Ok(done?.into_iter().map(into_bytes).collect()),
            }
        }
    }

    /// Reads bytes of several places, all of one state of the region as far as executions change
    /// it; `None` if something was committed meanwhile: read again. One round trip: the region's
    /// version is read before the first and behind the last place, and RFC 5040 §5.3 has a node
    /// answer a connection's Reads in order.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_together(
        &self,
        client: &mut ActiveClient,
        places: &[(u64, usize)],
    ) -> Result<Option<Vec<Vec<u8>>>, ActiveError> {
        let deadline = client.deadline();
        loop {
            let attached = client.attached(self, deadline)?;
            let head = (attached.head, 0, 8);
            let inner = places.iter().map(|(at, len)| (attached.memory, *at, *len as u64));
            let all = std::iter::once(head).chain(inner).chain([head]);
            let make = |at: usize, from: Remote| -> Verb {
                let len =
                    at.checked_sub(1).and_then(|at| places.get(at)).map_or(8, |(_, len)| *len);
                (SendOp::Read { from }, OwnedBuf::zeroed(len).into())
            };
            match client.verbs_in(self, all, make, deadline) {
                Err(ActiveError::Interrupted { .. }) => {}
                done => {
                    let mut read: Vec<_> = done?.into_iter().map(into_bytes).collect();
                    let after = read.pop().map(|bytes| version_of(&bytes));
                    let before = version_of(&read.remove(0));
                    let is_one = after == Some(before) && before.is_multiple_of(2);
                    return Ok(is_one.then_some(read));
                }
            }
        }
    }

    /// Reads into memory of the caller's, as many bytes as it has, without a copy.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_to(
        &self,
        client: &mut ActiveClient,
        at: u64,
        into: &SharedSlice,
    ) -> Result<(), ActiveError> {
        let deadline = client.deadline();
        loop {
            let make = |_, from| (SendOp::Read { from }, into.clone().into());
            match client.verbs_on(self, [(at, into.len() as u64)].into_iter(), make, deadline) {
                Err(ActiveError::Interrupted { .. }) => {}
                done => return done.map(drop),
            }
        }
    }

    /// Writes bytes: one RDMA Write. What this client asks later on the same connection finds them:
    /// a connection that is lost may lose them, also after this has returned.
    ///
    /// # Errors
    /// [`ActiveError::Interrupted`]: they may be there or not; as all calls.
    pub fn write(
        &self,
        client: &mut ActiveClient,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), ActiveError> {
        self.check_write()?;
        let make = |_, to| (SendOp::Write { to }, SgList::copied(bytes));
        let sizes = [(at, bytes.len() as u64)].into_iter();
        client.verbs_on(self, sizes, make, client.deadline()).map(drop)
    }

    /// Replaces the 8 aligned bytes at `at` by `swap` if they are `compare` (the node's byte
    /// order), and returns what was there.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn compare_swap(
        &self,
        client: &mut ActiveClient,
        at: u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64, ActiveError> {
        self.atomic(client, at, |to| SendOp::compare_swap(to, compare, swap))
    }

    /// Writes bytes, then replaces 8 aligned bytes elsewhere as
    /// [`compare_swap`](Self::compare_swap) does, one behind the other on one connection: whoever
    /// finds the new word finds the bytes. Returns the word that was there.
    ///
    /// # Errors
    /// [`ActiveError::Interrupted`]: both, the first or none was done; as all calls.
    pub fn write_then_swap(
        &self,
        client: &mut ActiveClient,
        (at, bytes): (u64, &[u8]),
        (word, compare, swap): (u64, u64, u64),
    ) -> Result<u64, ActiveError> {
        self.check_write()?;
        if !word.is_multiple_of(8) {
            return Err(ActiveError::Unaligned { at: word });
        }
        let make = |index, to| -> Verb {
            match index {
                0 => (SendOp::Write { to }, SgList::copied(bytes)),
                _ => (SendOp::compare_swap(to, compare, swap), OwnedBuf::zeroed(8).into()),
            }
        };
        let sizes = [(at, bytes.len() as u64), (word, 8)].into_iter();
        let done = client.verbs_on(self, sizes, make, client.deadline())?;
        let bytes = done.into_iter().last().map(into_bytes).unwrap_or_default();
        Ok(bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes))
    }

    /// Adds to the 8 aligned bytes at `at`, and returns what was there.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn fetch_add(
        &self,
        client: &mut ActiveClient,
        at: u64,
        add: u64,
    ) -> Result<u64, ActiveError> {
        self.atomic(client, at, |to| SendOp::fetch_add(to, add))
    }

    fn atomic(
        &self,
        client: &mut ActiveClient,
        at: u64,
        op: impl Fn(Remote) -> SendOp,
    ) -> Result<u64, ActiveError> {
        self.check_write()?;
        // The node would end the connection.
        if !at.is_multiple_of(8) {
            return Err(ActiveError::Unaligned { at });
        }
        let make = |_, to| (op(to), OwnedBuf::zeroed(8).into());
        let done = client.verbs_on(self, [(at, 8)].into_iter(), make, client.deadline())?;
        let bytes = done.into_iter().next().map(into_bytes).unwrap_or_default();
        Ok(bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes))
    }

    pub(super) fn check_write(&self) -> Result<(), ActiveError> {
        match self.may_write {
            true => Ok(()),
            false => Err(ActiveError::Refused {
                why: format!("this identity may only read region {}", self.name),
            }),
        }
    }
}

pub(super) fn into_bytes(local: SgList) -> Vec<u8> {
    local.into_owned().map(OwnedBuf::into_vec).unwrap_or_default()
}

fn version_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes)
}

impl ActiveClient {
    /// Has the node expose a region to this client. Later connections get it again.
    ///
    /// # Errors
    /// [`ActiveError::Refused`]: there is none, or this identity may not see it; as all calls.
    pub fn attach(&mut self, region: &str) -> Result<RemoteRegion, ActiveError> {
        check_name("a region's name", region)?;
        let used = self.state.regions.len();
        if used >= ATTACHED_MAX as usize && self.state.is_full_of_regions() {
            let why = format!("{ATTACHED_MAX} regions are attached: detach one");
            return Err(ActiveError::Refused { why });
        }
        let name: Arc<str> = region.into();
        let deadline = self.deadline();
        let (handle, number) = self.state.attach(Arc::clone(&name), deadline);
        match self.settled(number) {
            Ok(Settled::Attached) => {}
            Ok(other) => return Err(super::ask::unexpected(&other)),
            Err(error) => {
                self.state.detach(handle);
                return Err(error);
            }
        }
        let found = self.attached_now(handle).ok_or(ActiveError::NotOwn { what: "region" })?;
        Ok(RemoteRegion { handle, name, len: found.memory.len(), may_write: found.may_write })
    }

    /// The latest run of a region's service that was seen: one of an earlier epoch is left.
    #[must_use]
    pub fn run(&self, region: &RemoteRegion) -> Option<RegionRun> {
        self.state.run(region.handle)
    }

    /// Gives a region up. Calls on it that are under way have no outcome that is known.
    pub fn detach(&mut self, region: RemoteRegion) {
        self.state.detach(region.handle);
    }

    fn attached_now(&self, handle: u32) -> Option<AttachedRegion> {
        self.state.regions.get(handle as usize)?.attached
    }

    /// Waits until a region is attached on this connection.
    pub(super) fn attached(
        &mut self,
        region: &RemoteRegion,
        deadline: Instant,
    ) -> Result<AttachedRegion, ActiveError> {
        loop {
            if let Some(attached) = self.attached_now(region.handle) {
                return Ok(attached);
            }
            if self.state.is_dropped(region.handle) {
                let why = format!("region {} is not attached any more", region.name);
                return Err(ActiveError::Refused { why });
            }
            if Instant::now() >= deadline {
                return Err(ActiveError::TimedOut { limit: self.options.limit });
            }
            self.step(deadline)?;
        }
    }

    /// Posts one-sided operations together and waits for all of them; their local memories.
    fn verbs_on(
        &mut self,
        region: &RemoteRegion,
        places: impl Iterator<Item = (u64, u64)>,
        make: impl Fn(usize, Remote) -> Verb,
        deadline: Instant,
    ) -> Result<Vec<SgList>, ActiveError> {
        let attached = self.attached(region, deadline)?;
        let places = places.map(|(at, len)| (attached.memory, at, len));
        self.verbs_in(region, places, make, deadline)
    }

    /// The region's version: odd while a commit is applied.
    pub(super) fn read_version(&mut self, region: &RemoteRegion) -> Result<u64, ActiveError> {
        let deadline = self.deadline();
        loop {
            let head = self.attached(region, deadline)?.head;
            let make = |_, from| (SendOp::Read { from }, OwnedBuf::zeroed(8).into());
            match self.verbs_in(region, [(head, 0, 8)].into_iter(), make, deadline) {
                Err(ActiveError::Interrupted { .. }) => {}
                read => {
                    let bytes = read?.into_iter().next().map(into_bytes).unwrap_or_default();
                    return Ok(version_of(&bytes));
                }
            }
        }
    }

    pub(super) fn verbs_in(
        &mut self,
        region: &RemoteRegion,
        places: impl Iterator<Item = (Exposed, u64, u64)>,
        make: impl Fn(usize, Remote) -> Verb,
        deadline: Instant,
    ) -> Result<Vec<SgList>, ActiveError> {
        // What was submitted before goes before.
        self.flush_if_due()?;
        let mut names = Vec::new();
        for (index, (memory, at, len)) in places.enumerate() {
            let Some(remote) = memory.range(at, len) else {
                let what = format!("region {}", region.name);
                return Err(ActiveError::Outside { what, at, len, size: memory.len() });
            };
            let (op, local) = make(index, remote);
            names.push(self.post_verb(op, local, deadline)?);
        }
        let connection = self.connections;
        names.into_iter().map(|name| self.verb_done(name, connection, deadline)).collect()
    }

    fn post_verb(
        &mut self,
        op: SendOp,
        local: SgList,
        deadline: Instant,
    ) -> Result<u64, ActiveError> {
        let connection = self.connections;
        while self.link.as_ref().is_some_and(|link| !link.has_room()) {
            self.step(deadline)?;
            if Instant::now() >= deadline {
                return Err(ActiveError::TimedOut { limit: self.options.limit });
            }
        }
        let posted = match &mut self.link {
            Some(link) if self.connections == connection => link.post_verb(op, local),
            _ => return Err(self.interrupted()),
        };
        match posted {
            Ok(name) => {
                self.verbs.insert(name, None);
                Ok(name)
            }
            Err(lost) => {
                self.lose(lost.0);
                Err(self.interrupted())
            }
        }
    }

    fn verb_done(
        &mut self,
        name: u64,
        connection: u64,
        deadline: Instant,
    ) -> Result<SgList, ActiveError> {
        loop {
            match self.verbs.get_mut(&name) {
                Some(None) if self.connections == connection => {}
                Some(done) => {
                    let done = done.take();
                    self.verbs.remove(&name);
                    return done.ok_or_else(|| self.interrupted());
                }
                None => return Err(self.interrupted()),
            }
            if Instant::now() >= deadline {
                self.verbs.remove(&name);
                return Err(ActiveError::TimedOut { limit: self.options.limit });
            }
            self.step(deadline)?;
        }
    }

    fn interrupted(&self) -> ActiveError {
        ActiveError::Interrupted { why: self.why.clone() }
    }
}
