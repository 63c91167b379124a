//! Locks of clients: requests for them, and sessions that come, go and come back.
//!
//! A session is a client, whatever connection it has. What it holds, it holds for a while after its
//! connection has ended ([`GRACE`], as what it has open); what it waits for ends at once: it asks
//! again when it is back.
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
    FsInode, FsLayout, FsLockAnswer, FsLockArgs, FsNotice, GRANTED, LockKind, QUEUED, RECLAIM,
    TAKEN,
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

type SessionKey = (NodeId, [u64; 2]);

#[derive(Clone, Copy, Debug)]
struct LockSession {
    key: SessionKey,
    peer: Option<PeerId>,
    /// When it has lost what it holds, once its connection has ended.
    until: Option<Instant>,
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
    next: u64,
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
            next: 0,
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
        let sessions = self.sessions.values().filter_map(|session| session.until);
        sessions.chain(self.grace).chain(self.marker.until).min()
    }

    /// The session that a client names, and whether it has anything; `None`: its connection has
    /// another one.
    fn session(&mut self, caller: BackendCaller, named: [u64; 2]) -> Option<(u64, bool)> {
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
        let session = LockSession { key, peer: Some(caller.peer), until: None };
        let before = self.sessions.insert(id, session).and_then(|before| before.peer);
        if let Some(before) = before.filter(|before| *before != caller.peer) {
            // Its waits were those of a connection that it has left.
            self.by_peer.remove(&before);
            self.table.forget_waits(id);
        }
        self.by_key.insert(key, id);
        self.by_peer.insert(caller.peer, id);
        Some((id, self.table.has_any(id)))
    }

    fn end(&mut self, id: u64) {
        self.table.forget(id);
        if let Some(session) = self.sessions.remove(&id) {
            self.by_key.remove(&session.key);
            session.peer.map(|peer| self.by_peer.remove(&peer));
        }
    }

    /// A connection has ended.
    fn gone(&mut self, peer: PeerId, now: Instant) {
        let Some(id) = self.by_peer.remove(&peer) else { return };
        self.table.forget_waits(id);
        if !self.table.has_any(id) {
            return self.end(id);
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            (session.peer, session.until) = (None, Some(now + GRACE));
        }
    }

    fn expire(&mut self, now: Instant) {
        let late = self.sessions.iter().filter(|(_, one)| one.until.is_some_and(|at| at <= now));
        for id in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            tracing::info!("a client that has not come back has lost its locks");
            self.end(id);
        }
        if self.grace.is_some_and(|until| until <= now) {
            self.grace = None;
        }
    }

    /// What an entry does; the error is the number and the words of a failure.
    fn ask(
        &mut self,
        caller: BackendCaller,
        entry: &str,
        args: &FsLockArgs,
    ) -> Result<FsLockAnswer, (i32, &'static str)> {
        let kind = LockKind::of(args.kind).filter(|_| args.is_sound());
        let kind = kind.ok_or((libc::EINVAL, "these are no arguments of a lock"))?;
        let session = self.session(caller, args.session);
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
        let answer = self.locks.ask(caller, &request.entry, &args);
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
        self.locks.expire(now);
        if self.locks.grace.is_none() {
            for (caller, request) in std::mem::take(&mut self.locks.later) {
                self.lock_asked(caller, request);
            }
        }
        self.locks.mark(now);
        self.tell_granted();
    }
}
