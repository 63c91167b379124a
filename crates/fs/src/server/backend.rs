//! All of it: requests as they come, executions as they end, and what waits for what.
//!
//! A request costs the same however many files, clients or other requests there are. Bytes that
//! requests have in memory are bounded in all: who comes when there are too many waits.

use super::accounts::{ServerAccounts, UserRules};
use super::call::{FsCall, FsWork, OwnWork};
use super::durable::DurableCommits;
use super::entries::EntryKind;
use super::grants::GrantKey;
use super::io::IoThreads;
use super::leases::LeaseTable;
use super::lingering::LingeringInodes;
use super::locking::LockService;
use super::mapping::MappingRights;
use super::opening::wanted;
use super::opens::OpenInodes;
use super::pool::BlockPool;
use super::report::FsCounters;
use super::scan::ScanThreads;
use crate::protocol::{FsNote, ROOT, TouchedInodes, failure_of_errno};
use crate::replica::fence;
use crate::replica::shipping::ShippingState;
use crate::store::{FsStore, SyncMode};
use outboard_active::service::{
    BACKEND_TENANT, BACKEND_TOKEN, BackendCaller, BackendStep, RegionBackend,
};
use outboard_active::{ModuleHash, Outcome};
use outboard_cluster::hub::PeerId;
use outboard_cluster::service::ServiceError;
use outboard_cluster::waker::Waker;
use outboard_offcode::engine::KillSwitch;
use outboard_offcode::executor::{Moment, Request, TimeLimit};
use outboard_offcode::journal::Earlier;
use outboard_offcode::{ActiveRegion, ModuleStore, Wasmtime};
use outboard_secure::NodeId;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Bytes of files that requests have in memory, at most.
const UNDER_WAY_MAX: usize = 64 << 20;
/// Bytes of one read, or of one change, at most.
pub(super) const PIECE_MAX: usize = 4 << 20;
/// Why nothing more is opened.
const TOO_MANY_OPEN: &str = "this client has more files open than it may";
/// Why an identity changes nothing.
pub(super) const READS_ONLY: &str = "this identity may only look";
/// Where a file system begins in its region.
pub(super) const FS_ROOT: usize = 64;
const _: () = assert!(FS_ROOT as u64 == ROOT, "one place");
/// How long one of the service's own executions may take.
const OWN_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of a result of its own, at most.
const OWN_RESULT_MAX: u32 = 256 << 10;

/// What the service is made of.
pub struct FsBackendOptions {
    /// The file system's region.
    pub region: Arc<ActiveRegion>,
    /// The module `fs`.
    pub module: ModuleHash,
    /// Modules of the service, and those of its clients.
    pub modules: Arc<ModuleStore<Wasmtime>>,
    /// What keeps commits, and has the bytes.
    pub store: FsStore,
    /// When commits go to the disk.
    pub sync: SyncMode,
    /// Flags of a file system that is made because the region has none.
    pub flags: u64,
    /// Wakes the service's loop.
    pub waker: Waker,
    /// The file that is there while somebody has a lock, so that the next start waits for them.
    pub lock_marker: Option<PathBuf>,
    /// Who clients are.
    pub users: UserRules,
    /// How the store's replica is doing, if it has one.
    pub(crate) shipping: Option<Arc<ShippingState>>,
    /// Says when the modules are loaded, or why they are not. Requests wait until then.
    pub loaded: mpsc::Receiver<Result<(), String>>,
}

impl fmt::Debug for FsBackendOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FsBackendOptions").field("store", &self.store).finish_non_exhaustive()
    }
}

/// See this file's first lines.
pub struct FsBackend {
    pub(super) region: Arc<ActiveRegion>,
    pub(super) module: ModuleHash,
    pub(super) store: DurableCommits,
    pub(super) accounts: ServerAccounts,
    /// Who is counted, and has no limit any more.
    pub(super) unlimited: HashSet<NodeId>,
    /// Requests that came before there was a file system.
    pub(super) early: Vec<(BackendCaller, Request)>,
    /// Limits that are being set.
    pub(super) quotas_asked: usize,
    pub(super) io: IoThreads,
    /// `None`: this machine gave no memory for it.
    pub(super) scans: Option<ScanThreads>,
    /// Scans that run or wait, of which clients.
    pub(super) scanning: HashMap<u64, (PeerId, Arc<KillSwitch>)>,
    pub(super) pool: BlockPool,
    pub(super) opens: OpenInodes,
    pub(super) mapping: MappingRights,
    pub(super) grants: GrantKey,
    pub(super) locks: LockService,
    pub(super) leases: LeaseTable,
    pub(super) lingering: LingeringInodes,
    /// Inodes without names that a client has open, or that linger.
    pub(super) nameless: HashSet<(u64, u64)>,
    pub(super) calls: HashMap<u64, FsCall>,
    own: HashMap<u64, OwnWork>,
    next_own: u64,
    steps: VecDeque<BackendStep>,
    /// Writes that wait for blocks.
    pub(super) waiting: VecDeque<u64>,
    /// Requests that wait until a commit is durable.
    pub(super) durable: BTreeMap<u64, Vec<u64>>,
    pub(super) held: VecDeque<(BackendCaller, Request)>,
    /// Bytes of files that requests have in memory.
    pub(super) under_way: usize,
    pub(super) is_reaping: bool,
    /// When inodes that were open before the service started, and are not open now, are given up.
    pub(super) orphans_at: Option<Instant>,
    /// No block is reserved but for this process: none is asked for before.
    pub(super) is_swept: bool,
    loaded: mpsc::Receiver<Result<(), String>>,
    /// Why there is no file system.
    pub(super) broken: Option<String>,
    /// Flags of a file system that is made.
    flags: u64,
    /// The modules are loaded, and there is a file system in the region.
    pub(super) is_ready: bool,
    pub(super) counters: FsCounters,
    pub(super) shipping: Option<Arc<ShippingState>>,
    /// The store's directory.
    dir: Option<PathBuf>,
}

impl fmt::Debug for FsBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FsBackend").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl FsBackend {
    /// A service on a file system that is there.
    #[must_use]
    pub fn new(options: FsBackendOptions) -> Self {
        let FsBackendOptions { region, module, modules, store, sync, flags, .. } = options;
        let FsBackendOptions { waker, lock_marker, users, shipping, loaded, .. } = options;
        let dir = lock_marker.as_ref().and_then(|path| Some(path.parent()?.to_owned()));
        let wakes = waker.clone();
        if !store.wake_by(Box::new(move || wakes.wake())) {
            tracing::error!("the store wakes somebody else");
        }
        // The region's own number begins anew where the service has lost its memory.
        let was_served = store.status().last > 0;
        let grants = GrantKey::new(&store.superblock().uuid);
        let store = DurableCommits::new(store, sync);
        let (data, blocks) = (Arc::clone(store.data()), store.data().block_count());
        let scans = ScanThreads::new(Arc::clone(&region), modules, data, waker.clone()).ok();
        Self {
            region,
            module,
            unlimited: HashSet::new(),
            quotas_asked: 0,
            early: Vec::new(),
            accounts: ServerAccounts::new(users, waker.clone()),
            io: IoThreads::new(Arc::clone(store.data()), waker),
            scans,
            scanning: HashMap::new(),
            pool: BlockPool::new(blocks),
            store,
            opens: OpenInodes::default(),
            mapping: MappingRights::default(),
            grants,
            locks: LockService::new(lock_marker),
            leases: LeaseTable::new(Instant::now(), was_served),
            lingering: LingeringInodes::new(blocks),
            nameless: HashSet::new(),
            calls: HashMap::new(),
            own: HashMap::new(),
            next_own: BACKEND_TOKEN,
            steps: VecDeque::new(),
            waiting: VecDeque::new(),
            durable: BTreeMap::new(),
            held: VecDeque::new(),
            under_way: 0,
            is_reaping: false,
            orphans_at: None,
            is_swept: false,
            loaded,
            broken: None,
            flags,
            is_ready: false,
            counters: FsCounters::default(),
            shipping,
            dir,
        }
    }

    /// Has one of the service's own requests executed.
    pub(super) fn execute_own(&mut self, entry: &str, args: Vec<u8>, work: OwnWork) {
        let token = self.next_own;
        self.next_own += 1;
        self.own.insert(token, work);
        let request = Request {
            token,
            tenant: BACKEND_TENANT,
            id: None,
            retried_since: None,
            region: Arc::clone(&self.region),
            module: self.module,
            entry: entry.to_owned(),
            args,
            out_cap: OWN_RESULT_MAX,
            may_write: true,
            is_at_client: false,
            limit: TimeLimit::Executor(OWN_LIMIT),
            moment: Moment::now(),
        };
        self.steps.push_back(BackendStep::Execute(Box::new(request)));
    }

    /// Has a part of a client's request executed.
    pub(super) fn execute_of(&mut self, of: u64, mut request: Request) {
        request.token = self.next_own;
        self.next_own += 1;
        self.own.insert(request.token, OwnWork::of_batch(of, &request));
        self.execute(request);
    }

    pub(super) fn execute(&mut self, request: Request) {
        self.steps.push_back(BackendStep::Execute(Box::new(request)));
    }

    /// Tells a client something that it has not asked for.
    pub(super) fn notify(&mut self, notice: BackendStep) {
        self.steps.push_back(notice);
    }

    pub(super) fn fetch(&mut self, token: u64, from: outboard_cluster::hub::Exposed) {
        self.steps.push_back(BackendStep::Fetch { token, from });
    }

    /// Ends a client's request at once.
    pub(super) fn answer(&mut self, token: u64, outcome: Outcome) {
        self.calls.remove(&token);
        let is_done = matches!(outcome, Outcome::Done { .. });
        if let Some(opening) = self.opens.asked_by(token).filter(|_| !is_done) {
            self.mapping.close(opening);
        }
        if let Some(inode) = self.opens.answered(token, is_done) {
            self.closed(inode);
        }
        self.steps.push_back(BackendStep::Answer { token, outcome });
    }

    /// Ends a client's request by an error number.
    pub(super) fn fail(&mut self, token: u64, errno: i32, text: &str) {
        let code = failure_of_errno(errno);
        self.answer(token, Outcome::Failed { code, text: text.to_owned() });
    }

    /// Ends a request that has changed something: when that is durable, if it must be.
    pub(super) fn conclude(&mut self, token: u64, outcome: Outcome, is_synced: bool) {
        let Some(outcome) = self.waits_for_leases(token, outcome, is_synced) else { return };
        let waits = is_synced || self.store.is_always_synced();
        match outcome {
            Outcome::Done { seq, .. } if waits => self.wait_durable(token, seq, outcome),
            outcome => self.answer(token, outcome),
        }
    }

    /// A request that is made again and was executed: its answer.
    fn earlier(&self, request: &Request) -> Option<Outcome> {
        let found = self.region.find(request.id?, request.retried_since?);
        match found {
            Ok(Earlier::NotExecuted) => None,
            Ok(Earlier::Answered(result)) => Some(Outcome::Done { result, seq: self.region.seq() }),
            Ok(Earlier::Unknown) => Some(Outcome::Unknown),
            Err(error) => Some(Outcome::Machine(error.to_string())),
        }
    }

    pub(super) fn must_wait(&self) -> bool {
        !self.is_ready || self.under_way >= UNDER_WAY_MAX || self.store.is_behind()
    }

    /// A request of the module's that is not held back; what of it is to be executed now.
    pub(super) fn begin(
        &mut self,
        caller: BackendCaller,
        kind: EntryKind,
        mut request: Request,
    ) -> Option<Request> {
        let token = request.token;
        if kind.writes() && !self.admit_write(caller, kind, &mut request) {
            return None;
        }
        match kind {
            EntryKind::Look => {
                self.counters.looks += 1;
                self.begin_look(caller, &mut request);
                Some(request)
            }
            EntryKind::Stats => {
                let work = FsWork::Stats(self.accounts.tenant(caller.node));
                let call = FsCall { peer: caller.peer, kind, request: None, work };
                self.calls.insert(token, call);
                Some(request)
            }
            EntryKind::Create | EntryKind::Change | EntryKind::Remove => {
                Some(self.begin_change(caller, kind, request))
            }
            EntryKind::Read => self.begin_read(caller, request),
            EntryKind::Write => {
                self.begin_write(caller, request);
                None
            }
            EntryKind::Sync => {
                self.sync(caller, token);
                None
            }
            EntryKind::Runs => {
                let (result, seq) = (self.store.ended_runs(), self.region.seq());
                self.answer(token, Outcome::Done { result, seq });
                None
            }
            EntryKind::Batch => {
                self.counters.batches += 1;
                self.begin_batch(caller, request);
                None
            }
            EntryKind::Scan => {
                self.begin_scan(caller, request);
                None
            }
            EntryKind::Lock => {
                self.lock_asked(caller, request);
                None
            }
        }
    }

    /// Whether a request that changes something is to be executed; if not it is answered.
    fn admit_write(
        &mut self,
        caller: BackendCaller,
        kind: EntryKind,
        request: &mut Request,
    ) -> bool {
        let (peer, token) = (caller.peer, request.token);
        if !caller.may_write {
            self.fail(token, libc::EROFS, READS_ONLY);
            return false;
        }
        request.may_write = true;
        if let Some(why) = self.store.failure() {
            self.fail(token, libc::EIO, &why);
            return false;
        }
        let earlier = self.earlier(request);
        let is_new = earlier.is_none();
        if let Some(outcome) = earlier {
            let touched = TouchedInodes::of(&request.entry, &request.args);
            self.calls.insert(token, FsCall { peer, kind, request: None, work: FsWork::None });
            self.recall_touched((peer, token), &touched, &outcome);
            let outcome = match kind {
                EntryKind::Create => self.created(token, (caller.node, wanted(request)), outcome),
                _ => outcome,
            };
            self.conclude(token, outcome, true);
        }
        is_new
    }

    fn take_held(&mut self) {
        while !self.must_wait()
            && let Some((caller, request)) = self.held.pop_front()
        {
            let Some(kind) = EntryKind::of(&request.entry) else { continue };
            if let Some(request) = self.begin(caller, kind, request) {
                self.execute(request);
            }
        }
    }
}

impl RegionBackend for FsBackend {
    fn before(&mut self, caller: BackendCaller, request: Request) -> Option<Request> {
        // Whoever loads a module of its own may look at everything: it is for nobody.
        let is_known = request.module == self.module || request.module == super::modules::walks();
        if request.module == self.module && self.asks_to_open(caller, &request).is_err() {
            self.fail(request.token, libc::ENFILE, TOO_MANY_OPEN);
            return None;
        }
        let request = match is_known {
            // Who pays is known then.
            true if !self.is_ready && self.broken.is_none() => {
                self.early.push((caller, request));
                return None;
            }
            true => self.accounts.admit(caller, request, (&self.grants, Instant::now()))?,
            false => request,
        };
        self.admitted(caller, request)
    }

    fn after(&mut self, token: u64, outcome: Outcome) -> Option<Outcome> {
        if let Some(work) = self.own.remove(&token) {
            self.own_done(work, outcome);
            return None;
        }
        let Some(call) = self.calls.get_mut(&token) else { return Some(outcome) };
        let peer = call.peer;
        if let FsWork::Change(touched) | FsWork::Create { touched, .. } = &mut call.work {
            let touched = std::mem::take(touched);
            self.recall_touched((peer, token), &touched, &outcome);
        }
        let Some(call) = self.calls.get(&token) else { return Some(outcome) };
        match (call.kind, &call.work) {
            (EntryKind::Look, FsWork::Look(look)) => self.looked_at(token, peer, *look, outcome),
            (EntryKind::Read, FsWork::Read(_)) => self.read_looked(token, outcome),
            (EntryKind::Write, FsWork::Write(_)) => self.mapped(token, outcome),
            (EntryKind::Stats, FsWork::Stats(tenant)) => {
                let outcome = self.with_quota(*tenant, outcome);
                self.answer(token, outcome);
            }
            (EntryKind::Create, FsWork::Create { node, want, .. }) => {
                let outcome = self.created(token, (*node, *want), outcome);
                self.conclude(token, outcome, false);
            }
            (EntryKind::Remove, _) => {
                self.removed(&outcome);
                self.conclude(token, outcome, false);
            }
            _ => self.conclude(token, outcome, false),
        }
        None
    }

    fn fetched(&mut self, token: u64, bytes: Vec<u8>) {
        self.bytes_came(token, bytes);
    }

    fn note(&mut self, caller: BackendCaller, bytes: &[u8]) -> Result<(), ServiceError> {
        match FsNote::decode(bytes)? {
            FsNote::Opened { opening, inode, maps } => {
                let opened = self.opens.open((caller.peer, opening), Some(inode));
                let ended = opened.map_err(|_| TOO_MANY_OPEN)?;
                if maps {
                    self.mapping.claim((caller.peer, opening), inode);
                }
                if let Some(ended) = ended {
                    self.closed(ended);
                }
            }
            FsNote::Closed { opening } => {
                self.mapping.close((caller.peer, opening));
                if let Some(inode) = self.opens.close((caller.peer, opening)) {
                    self.closed(inode);
                }
            }
            FsNote::Here => self.locks.heard(caller.peer),
            FsNote::Keeps => self.leases.keeps(caller.peer),
            FsNote::KeepsNothing => {
                let released = self.leases.keeps_nothing(caller.peer);
                self.recalled(released);
            }
            FsNote::InvalidatedAck { number } => {
                let released = self.leases.acknowledged(caller.peer, number);
                self.recalled(released);
            }
        }
        Ok(())
    }

    fn gone(&mut self, peer: PeerId) {
        self.opens.gone(peer, Instant::now());
        self.mapping.gone(peer, Instant::now());
        self.locks_gone(peer);
        self.leases.gone(peer);
        self.scans_gone(peer);
        let fetching = |call: &FsCall| call.peer == peer && call.is_fetching();
        let its = self.calls.iter().filter(|(_, call)| fetching(call));
        for token in its.map(|(token, _)| *token).collect::<Vec<_>>() {
            self.drop_bytes(token);
            // A client that comes back gets it begun anew.
            self.answer(token, Outcome::Killed);
        }
    }

    fn turn(&mut self, now: Instant) {
        match self.loaded.try_recv() {
            Ok(Ok(())) => self.begin_serving(),
            Ok(Err(why)) => self.give_up(&why),
            Err(_) => {}
        }
        while let Some(done) = self.io.next() {
            self.io_done(done);
        }
        self.take_scans();
        self.take_durable();
        for inode in self.opens.expire(now) {
            self.closed(inode);
        }
        let ended = self.lingering.expire(now);
        self.linger_no_longer(ended);
        self.take_known(now);
        self.locks_turn(now);
        let released = self.leases.turn(now);
        self.recalled(released);
        self.keep_house(now);
        self.take_held();
    }

    fn step(&mut self) -> Option<BackendStep> {
        self.steps.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let lingers = self.lingering.deadline();
        let deadlines = self.opens.deadline().into_iter().chain(self.orphans_at).chain(lingers);
        let others = [self.locks.deadline(), self.leases.deadline(), self.accounts.deadline()];
        deadlines.chain(others.into_iter().flatten()).min()
    }

    fn superseded(&mut self, epoch: u64) {
        if let Some(dir) = &self.dir {
            fence::end(dir, epoch, "another server, as a client says");
        }
    }

    fn ended(&mut self) -> Result<(), ServiceError> {
        Ok(self.store.close()?)
    }

    fn report(&self) -> Value {
        // Plain numbers always have a form.
        serde_json::to_value(self.reported()).unwrap_or_default()
    }
}

impl FsBackend {
    /// The modules are there: a file system is made if there is none.
    fn begin_serving(&mut self) {
        let is_made = self.region.memory().load_u64(FS_ROOT).is_ok_and(|magic| magic != 0);
        match is_made {
            true => self.learn_tenants(1),
            false => self.make(self.store.data().block_count(), self.flags),
        }
    }
}
