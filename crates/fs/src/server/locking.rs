//! Locks of clients: requests for them, and sessions that come, go and come back.
//!
//! A session is a client, whatever connection it has. What it holds, it holds for a while after its
//! connection has ended, or after it was heard for the last time ([`GRACE`], as what it has open):
//! a connection may be silent for long before it ends. What it waits for ends with the connection:
//! it asks again when it is back. A client that has lost a lock may have sent a write before, which
//! comes late: what is written under a lock says so, and is refused.
//!
//! The table is in memory only. After a restart of the service clients say what they hold
//! ([`RECLAIM`]); as long as they may still come (the same time), nobody else gets a lock:
//! requests wait. Nobody is waited for where nobody had a lock: while somebody has one, there is a
//! file in the store's directory, which outlives the service's process; who ends without order
//! (the machine's power went) may have lost it, and is treated as if it were there. Whoever comes
//! later than that has lost its locks, and is told: others may have had them meanwhile.

use super::backend::FsBackend;
use super::locks::{LockOwner, LockResult, LockTable, LockWanted};
use crate::protocol::{
    FsInode, FsLayout, FsLockAnswer, FsLockArgs, FsNotice, GRANTED, HERE, LockKind, QUEUED,
    RECLAIM, TAKEN,
};
use outboard_active::Outcome;
use outboard_active::service::{BackendCaller, BackendStep};
use outboard_cluster::hub::PeerId;
use outboard_offcode::executor::Request;
use outboard_secure::NodeId;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a client may be gone.
const GRACE: Duration = Duration::from_secs(10);
/// How often it is looked at who is gone.
const LOOK: Duration = Duration::from_secs(1);
/// Looking later than that is no wonder on a busy machine.
const LATE: Duration = Duration::from_secs(2);
const _: () = assert!(HERE.as_secs() * 3 < GRACE.as_secs(), "one word may come late");

type SessionKey = (NodeId, [u64; 2]);

#[derive(Clone, Copy, Debug)]
struct LockSession {
    key: SessionKey,
    peer: Option<PeerId>,
    /// When it was heard, or its connection has ended.
    heard: Instant,
    /// As requests name it.
    client: ClientId,
}

type ClientId = Option<[u8; 16]>;

/// Whether a client may write under a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteFence {
    /// It has one.
    Open,
    /// It may come to say that it has.
    Soon,
    /// It has none any more.
    Shut,
}

/// The file that says that somebody may have a lock.
#[derive(Debug)]
struct LockMarker {
    path: Option<PathBuf>,
    is_there: bool,
    /// When it goes, if nobody has one until then.
    until: Option<Instant>,
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct LockService {
    table: LockTable,
    sessions: HashMap<u64, LockSession>,
    by_key: HashMap<SessionKey, u64>,
    by_peer: HashMap<PeerId, u64>,
    by_client: HashMap<[u8; 16], u64>,
    next: u64,
    /// When sessions are looked at.
    look: Option<Instant>,
    marker: LockMarker,
    /// Until when those come back that had locks before the service started.
    grace: Option<Instant>,
    /// Requests that wait for that.
    later: Vec<(BackendCaller, Request)>,
}

impl LockMarker {
    fn new(path: Option<PathBuf>) -> Self {
        let is_there = path.as_ref().is_some_and(|path| path.exists());
        Self { path, is_there, until: None }
    }

    fn set(&mut self) {
        self.until = None;
        if let Some(path) = self.path.as_ref().filter(|_| !self.is_there) {
            if let Err(error) = File::create(path) {
                tracing::error!(%error, path = %path.display(), "locks do not outlive the service");
            }
            self.is_there = true;
        }
    }

    /// Nobody has a lock.
    fn clear(&mut self, now: Instant) {
        if !self.is_there {
            return;
        }
        let until = *self.until.get_or_insert(now + GRACE);
        if until <= now {
            (self.is_there, self.until) = (false, None);
            // Where it stays, the next start waits for nobody.
            let _removed = self.path.as_ref().map(fs::remove_file);
        }
    }
}

impl LockService {
    /// None; `marker` is there if somebody may have had one before.
    pub(super) fn new(marker: Option<PathBuf>) -> Self {
        let marker = LockMarker::new(marker);
        let grace = marker.is_there.then(|| Instant::now() + GRACE);
        Self {
            table: LockTable::default(),
            sessions: HashMap::new(),
            by_key: HashMap::new(),
            by_peer: HashMap::new(),
            by_client: HashMap::new(),
            next: 0,
            look: None,
            marker,
            grace,
            later: Vec::new(),
        }
    }

    /// Files with locks, waits, and sessions.
    pub(super) fn len(&self) -> (usize, usize, usize) {
        let (files, waits) = self.table.len();
        (files, waits, self.sessions.len())
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.look, self.grace, self.marker.until].into_iter().flatten().min()
    }

    /// The session that a client names, and whether it has anything; `None`: its connection has
    /// another one.
    fn session(
        &mut self,
        (caller, client): (BackendCaller, ClientId),
        named: [u64; 2],
    ) -> Option<(u64, bool)> {
        let key = (caller.node, named);
        let known = self.by_key.get(&key).copied();
        if let Some(other) = self.by_peer.get(&caller.peer).filter(|id| Some(**id) != known) {
            let is_used = self.table.has_any(*other);
            if is_used {
                return None;
            }
            self.end(*other);
        }
        let id = known.unwrap_or(self.next);
        self.next += u64::from(known.is_none());
        let heard = Instant::now();
        let session = LockSession { key, peer: Some(caller.peer), heard, client };
        let before = self.sessions.insert(id, session).and_then(|before| before.peer);
        if let Some(before) = before.filter(|before| *before != caller.peer) {
            // Its waits were those of a connection that it has left.
            self.by_peer.remove(&before);
            self.table.forget_waits(id);
        }
        self.by_key.insert(key, id);
        self.by_peer.insert(caller.peer, id);
        client.map(|client| self.by_client.insert(client, id));
        self.look.get_or_insert(heard + LOOK);
        Some((id, self.table.has_any(id)))
    }

    fn end(&mut self, id: u64) {
        self.table.forget(id);
        if let Some(session) = self.sessions.remove(&id) {
            self.by_key.remove(&session.key);
            session.peer.map(|peer| self.by_peer.remove(&peer));
            session.client.map(|client| self.by_client.remove(&client));
        }
    }

    /// A client says something.
    pub(super) fn heard(&mut self, peer: PeerId) {
        let session = self.by_peer.get(&peer).and_then(|id| self.sessions.get_mut(id));
        if let Some(session) = session {
            session.heard = Instant::now();
        }
    }

    /// Whether a client may write to a file under a lock.
    pub(super) fn fence(&self, client: ClientId, inode: FsInode) -> WriteFence {
        let session = client.and_then(|client| self.by_client.get(&client));
        match session.is_some_and(|session| self.table.has(*session, inode)) {
            true => WriteFence::Open,
            false if self.grace.is_some() => WriteFence::Soon,
            false => WriteFence::Shut,
        }
    }

    /// Whether clients may still say which locks they had before the service started.
    pub(super) fn is_in_grace(&self) -> bool {
        self.grace.is_some()
    }

    /// A connection has ended.
    fn gone(&mut self, peer: PeerId, now: Instant) {
        let Some(id) = self.by_peer.remove(&peer) else { return };
        self.table.forget_waits(id);
        if !self.table.has_any(id) {
            return self.end(id);
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            (session.peer, session.heard) = (None, now);
        }
    }

    /// Ends sessions that were not heard for too long; the connections of those that have one.
    fn expire(&mut self, now: Instant) -> Vec<PeerId> {
        let mut told = Vec::new();
        if let Some(at) = self.look.filter(|at| *at <= now) {
            if now - at > LATE {
                // It is this process that was away: what clients said meanwhile is not read yet.
                self.sessions.values_mut().for_each(|one| one.heard = now);
            }
            let late = self.sessions.iter().filter(|(_, one)| one.heard + GRACE <= now);
            for (id, peer) in late.map(|(id, one)| (*id, one.peer)).collect::<Vec<_>>() {
                if self.table.has_any(id) {
                    tracing::info!("a client that was not heard for too long has lost its locks");
                    told.extend(peer);
                }
                self.end(id);
            }
            self.look = (!self.sessions.is_empty()).then_some(now + LOOK);
        }
        if self.grace.is_some_and(|until| until <= now) {
            self.grace = None;
        }
        told
    }

    /// What an entry does; the error is the number and the words of a failure.
    fn ask(
        &mut self,
        (caller, client): (BackendCaller, ClientId),
        entry: &str,
        args: &FsLockArgs,
    ) -> Result<FsLockAnswer, (i32, &'static str)> {
        let kind = LockKind::of(args.kind).filter(|_| args.is_sound());
        let kind = kind.ok_or((libc::EINVAL, "these are no arguments of a lock"))?;
        let session = self.session((caller, client), args.session);
        let (session, is_known) =
            session.ok_or((libc::EINVAL, "the connection has locks of another client"))?;
        let owner = LockOwner { session, owner: args.owner };
        let wanted = LockWanted { owner, range: (args.start, args.end), kind, pid: args.pid };
        match entry {
            "lock" if kind == LockKind::Exclusive && !caller.may_write => {
                Err((libc::EROFS, "this identity may only look"))
            }
            "lock" if args.flags & RECLAIM != 0 && !is_known && self.grace.is_none() => {
                Err((libc::ESTALE, "the client was gone for too long: others may have had it"))
            }
            "lock" => {
                let wait = Some(args.wait).filter(|wait| *wait != 0);
                self.lock(args.inode, &wanted, wait)
            }
            "unlock" => {
                self.table.unlock(args.inode, owner, wanted.range);
                Ok(FsLockAnswer::plain(GRANTED))
            }
            "cancel_lock" => Ok(match self.table.cancel(session, args.inode, args.wait) {
                true => FsLockAnswer::plain(GRANTED),
                false => FsLockAnswer::plain(TAKEN),
            }),
            _ => Ok(self.test(args.inode, &wanted)),
        }
    }

    fn lock(
        &mut self,
        inode: FsInode,
        wanted: &LockWanted,
        wait: Option<u64>,
    ) -> Result<FsLockAnswer, (i32, &'static str)> {
        match self.table.lock(inode, wanted, wait) {
            LockResult::Granted => Ok(FsLockAnswer::plain(GRANTED)),
            LockResult::Queued => Ok(FsLockAnswer::plain(QUEUED)),
            LockResult::Taken => Err((libc::EAGAIN, "others have locked it")),
            LockResult::Deadlock => Err((libc::EDEADLK, "those who have it wait for this one")),
            LockResult::TooMany => Err((libc::ENOLCK, "the client has too many locks")),
        }
    }

    fn test(&self, inode: FsInode, wanted: &LockWanted) -> FsLockAnswer {
        let Some((owner, (start, end), kind, pid)) = self.table.test(inode, wanted) else {
            return FsLockAnswer::plain(GRANTED);
        };
        // The number of another machine's process would be that of somebody else here.
        let pid = if owner.session == wanted.owner.session { pid } else { 0 };
        FsLockAnswer { status: TAKEN, kind: kind.number(), start, end, pid, zero: 0 }
    }

    /// Whether a request waits until those are back who had locks.
    fn is_later(&self, entry: &str, args: &FsLockArgs) -> bool {
        self.grace.is_some() && entry == "lock" && args.flags & RECLAIM == 0
    }

    /// The next client that is told: where, and what.
    fn next_granted(&mut self) -> Option<(PeerId, FsNotice)> {
        while let Some((session, wait)) = self.table.next_granted() {
            let peer = self.sessions.get(&session).and_then(|session| session.peer);
            if let Some(peer) = peer {
                return Some((peer, FsNotice::Granted { wait }));
            }
        }
        None
    }

    fn mark(&mut self, now: Instant) {
        match self.table.is_empty() && self.grace.is_none() {
            true => self.marker.clear(now),
            false => self.marker.set(),
        }
    }
}

/// The client of a request, whatever connection it has.
pub(super) fn client_of(request: &Request) -> ClientId {
    request.id.map(|id| id.client)
}

impl FsBackend {
    /// A request for a lock.
    pub(super) fn lock_asked(&mut self, caller: BackendCaller, request: Request) {
        let token = request.token;
        let Some((args, [])) = FsLockArgs::split(&request.args) else {
            return self.fail(token, libc::EINVAL, "these are no arguments of a lock");
        };
        if self.locks.is_later(&request.entry, &args) {
            return self.locks.later.push((caller, request));
        }
        self.counters.locks += 1;
        let answer = self.locks.ask((caller, client_of(&request)), &request.entry, &args);
        self.locks.mark(Instant::now());
        match answer {
            Ok(answer) => {
                let (result, seq) = (answer.bytes(), self.region.seq());
                self.answer(token, Outcome::Done { result, seq });
            }
            Err((errno, text)) => self.fail(token, errno, text),
        }
        self.tell_granted();
    }

    fn tell_granted(&mut self) {
        while let Some((peer, notice)) = self.locks.next_granted() {
            self.notify(BackendStep::Notice { peer, bytes: notice.encode() });
        }
    }

    pub(super) fn locks_gone(&mut self, peer: PeerId) {
        self.locks.gone(peer, Instant::now());
        let later = std::mem::take(&mut self.locks.later);
        let (its, others) = later.into_iter().partition(|(caller, _)| caller.peer == peer);
        self.locks.later = others;
        let its: Vec<(BackendCaller, Request)> = its;
        // A client that comes back gets them begun anew.
        its.into_iter().for_each(|(_, request)| self.answer(request.token, Outcome::Killed));
        self.tell_granted();
    }

    pub(super) fn locks_turn(&mut self, now: Instant) {
        if self.locks.deadline().is_none_or(|at| at > now) {
            return;
        }
        for peer in self.locks.expire(now) {
            self.notify(BackendStep::Notice { peer, bytes: FsNotice::LocksLost.encode() });
        }
        if self.locks.grace.is_none() {
            for (caller, request) in std::mem::take(&mut self.locks.later) {
                self.lock_asked(caller, request);
            }
        }
        self.locks.mark(now);
        self.tell_granted();
    }
}
