//! A client of a file system: every operation is one request over one connection, which many
//! threads share.
//!
//! Whoever waits drives the connection for all. A request waits for a service that is restarted,
//! for ever or up to a limit; it is executed once at most. Memory for large reads and writes is
//! bounded. Knows nothing of the kernel: that is [`mount`](crate::mount)'s.
//!
//! Modules in reading order: `driver` (one connection for many threads), `buffers` (memory for
//! large transfers), `calls` (operations on names and attributes), `batch` (many of them),
//! `transfer` (bytes), `open` (files that are open), `walk` (whole trees), `scan` (files looked
//! through), `locks`, `variant`, `reader` (one-sided Reads), `rdma` (everything one-sided),
//! `counts` (round trips), `unsynced` (what may be lost), `writeback` (what has failed
//! later), `sync`, `error`.

mod batch;
mod buffers;
mod calls;
mod counts;
mod driver;
mod error;
mod locks;
mod open;
mod rdma;
mod reader;
mod scan;
mod sync;
mod transfer;
mod unsynced;
mod variant;
mod walk;
mod writeback;

pub use batch::{ManyChange, ManyResult};
pub use calls::{ChangedName, ListedName, NewInode, NewTime, NewTimes, RenamedInode};
pub use error::FsError;
pub use locks::{FsLock, LockHow, LockState};
pub use open::{FsOpening, OpenedFile, wanted_by};
pub use scan::PendingScan;
pub(crate) use scan::words_of;
pub use transfer::{ChangeWhat, FileRead, PendingChange, PendingRead, SyncWhen};
pub use variant::FsVariant;
pub use walk::{RemovedName, TreeWalk};
pub use writeback::ErrorCursor;

use crate::protocol::{
    FsAnswer, FsInode, FsLayout, FsNote, FsNotice, FsWho, MAGIC, REGION, ROOT, ROOT_NUMBER,
};
use buffers::BufferPool;
use counts::RoundTrips;
use driver::{CallDriver, CallEntry, EndedCall};
use error::failure_of;
use locks::FencedFiles;
use outboard_active::{
    ActiveCall, ActiveClient, ActiveClientOptions, DialActive, ModuleHash, Outcome, RemoteRegion,
};
use outboard_verbs::Context;
use rdma::RdmaVariant;
use reader::OneSidedReader;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use unsynced::{RunCommit, UnsyncedChanges};
use writeback::WritebackErrors;

/// Bytes of one read or write, at most.
pub const TRANSFER_MAX: usize = 1 << 20;
/// The module as it was built.
const MODULE: &[u8] = include_bytes!("../../../../modules/built/fs.wasm");
/// What the root directory's number is used for the first time.
const ROOT_GENERATION: u64 = 1;
/// A limit that nobody sees the end of.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// Requests under way, at most.
const IN_FLIGHT: usize = 1024;
/// A request that the service is too busy for is asked again after so long, and twice as long.
const BUSY_PAUSE: Duration = Duration::from_millis(2);
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(200);

/// The entry whose buffers are the client's bytes, and not for a result.
const CHANGE: &str = "change";

/// How long requests wait for a service that does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsPatience {
    /// Until it is there again.
    #[default]
    Hard,
    /// So long; then they fail.
    Soft(Duration),
}

/// How a client is set up.
#[derive(Clone, Copy, Debug)]
pub struct FsClientOptions {
    /// How long the first connection may take.
    pub connect: Duration,
    /// How long requests wait.
    pub patience: FsPatience,
    /// Buffers for large reads and writes, of a little more than [`TRANSFER_MAX`] each.
    pub buffers: usize,
    /// The module; by default the one that comes with this release.
    pub module: Option<ModuleHash>,
    /// Whether the service is told what is open here. A region that only active code works on has
    /// nobody who listens, and its service ends the connection of who says anything.
    pub tells_opens: bool,
    /// How often the first connection is tried: as often as the dialing function has hosts to try.
    pub attempts: usize,
    /// How it works on the file system.
    pub variant: FsVariant,
}

impl Default for FsClientOptions {
    fn default() -> Self {
        let (connect, buffers) = (Duration::from_secs(10), 32);
        let patience = FsPatience::default();
        let (module, tells_opens, variant) = (None, true, FsVariant::default());
        Self { connect, patience, buffers, module, tells_opens, attempts: 1, variant }
    }
}

/// For whom a request is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsCaller {
    /// User and group.
    pub who: FsWho,
    /// The thread, 0 for none: once it is killed nobody waits for the request any more.
    pub thread: u32,
}

/// The thread of a caller who does not wait for room: what cannot be begun at once is not begun.
pub(crate) const IMPATIENT: u32 = u32::MAX;

/// What takes the service's notices.
pub type TakeNotice = Box<dyn Fn(&FsNotice) + Send + Sync>;

/// See this module's first lines.
pub struct FsClient {
    driver: CallDriver,
    buffers: BufferPool,
    trips: RoundTrips,
    /// Reads names and attributes, where it is one-sided.
    reader: Option<OneSidedReader>,
    /// Does everything one-sided, where the file system is volatile.
    rdma: Option<RdmaVariant>,
    patience: FsPatience,
    tells_opens: bool,
    unsynced: UnsyncedChanges,
    errors: WritebackErrors,
    /// Changes that were made one-sided, and syncs of them.
    own_commits: AtomicU64,
    /// The next opening's number.
    openings: AtomicU64,
    fenced: FencedFiles,
    scanner: Mutex<Vec<u8>>,
    root: FsInode,
    /// Who this is to the service, whatever the connection.
    session: [u64; 2],
    is_ended: AtomicBool,
    idle: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for FsClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FsClient").field("root", &self.root).finish_non_exhaustive()
    }
}

impl FsClient {
    /// Connects to the service that has the file system.
    ///
    /// # Errors
    /// [`FsError::Active`]: the service is not reached, or refuses; [`FsError::Answer`]: its region
    /// has no file system; [`FsError::NotShown`].
    pub fn connect(
        context: &Context,
        dial: DialActive,
        options: &FsClientOptions,
    ) -> Result<Arc<Self>, FsError> {
        let limits = ActiveClientOptions {
            limit: options.connect,
            in_flight: IN_FLIGHT,
            attempts: options.attempts,
            ..ActiveClientOptions::default()
        };
        let dial = Arc::new(Mutex::new(dial));
        let mut client = ActiveClient::connect(context, shared(&dial), limits)?;
        let region = client.attach(REGION)?;
        let module = options.module.unwrap_or_else(|| ModuleHash::of(MODULE));
        let (rdma, root) = match options.variant {
            FsVariant::Rdma => {
                let (rdma, root) = RdmaVariant::connect(context, shared(&dial), options)?;
                (Some(rdma), root)
            }
            FsVariant::Active | FsVariant::OneSided => {
                (None, find_root(&mut client, &region, module)?)
            }
        };
        let reader = (options.variant != FsVariant::Active)
            .then(|| OneSidedReader::connect(context, shared(&dial), options))
            .transpose()?;
        client.options_mut().limit = match options.patience {
            FsPatience::Hard => FOR_EVER,
            FsPatience::Soft(limit) => limit,
        };
        let client = Arc::new(Self {
            driver: CallDriver::new(client, region, module)?,
            buffers: BufferPool::new(options.buffers),
            trips: RoundTrips::default(),
            reader,
            rdma,
            patience: options.patience,
            tells_opens: options.tells_opens && options.variant != FsVariant::Rdma,
            unsynced: UnsyncedChanges::default(),
            errors: WritebackErrors::default(),
            own_commits: AtomicU64::new(1),
            openings: AtomicU64::new(1),
            fenced: FencedFiles::default(),
            scanner: Mutex::default(),
            root,
            session: random_session()?,
            is_ended: AtomicBool::new(false),
            idle: Mutex::default(),
        });
        client.start_idle()?;
        Ok(client)
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> FsInode {
        self.root
    }

    /// Requests that were sent, by entry.
    #[must_use]
    pub fn round_trips(&self) -> BTreeMap<&'static str, u64> {
        self.trips.all()
    }

    /// Connections that were made: one, and one more for each that was lost and made again.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.driver.lock().client.connections()
    }

    /// Ends all requests that wait, and those to come: with [`FsError::Interrupted`].
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(idle) = idle
            && idle.thread().id() != thread::current().id()
        {
            // It cannot fail.
            let _ended = idle.join();
        }
    }

    /// Says what takes the service's notices. It must neither wait nor call this client. A notice
    /// of another release is not known here, and left alone.
    pub fn on_notice(&self, take: TakeNotice) {
        self.driver.on_notice(Box::new(move |bytes| match FsNotice::decode(bytes) {
            Ok(notice) => take(&notice),
            Err(error) => tracing::warn!(%error, "a notice of the service"),
        }));
    }

    /// Says what is told of each later connection, when it is there. It must neither wait nor call
    /// this client.
    pub fn on_connection(&self, tell: Box<dyn Fn() + Send>) {
        self.driver.on_connection(tell);
    }

    /// Whether the service listens to what this client tells it.
    #[must_use]
    pub fn tells_opens(&self) -> bool {
        self.tells_opens
    }

    /// Tells the service something.
    pub fn note(&self, note: &FsNote) {
        if self.tells_opens {
            self.driver.note(note);
        }
    }

    /// Looks after the connection while nobody calls.
    fn start_idle(self: &Arc<Self>) -> Result<(), FsError> {
        let weak = Arc::downgrade(self);
        let run = move || {
            let mut begun = 0;
            while let Some(client) = weak.upgrade()
                && !client.is_ended.load(Ordering::Acquire)
            {
                begun = client.driver.idle(begun);
            }
        };
        let started = thread::Builder::new().name("fs-client".into()).spawn(run);
        let started = started.map_err(|error| FsError::Machine(error.to_string()))?;
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        Ok(())
    }

    /// Asks for an execution and waits for its result; notes what it has changed.
    fn ask(
        &self,
        caller: &FsCaller,
        entry: impl Into<CallEntry>,
        args: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        let entry = entry.into();
        let (result, commit) = self.ask_done(caller, entry, args)?;
        if entry.module.is_none() {
            self.changed(caller, commit, unsynced::inodes_of(entry.entry, args, &result));
        }
        Ok(result)
    }

    /// Asks for an execution and waits for its result and commit.
    fn ask_done(
        &self,
        caller: &FsCaller,
        entry: impl Into<CallEntry>,
        args: &[u8],
    ) -> Result<(Vec<u8>, RunCommit), FsError> {
        let (begun, entry) = (Instant::now(), entry.into());
        if let Some(rdma) = &self.rdma {
            let own = entry.module.is_none().then_some(entry.entry);
            let entry = own.ok_or_else(|| FsError::of(libc::EOPNOTSUPP))?;
            let goes_on = || self.goes_on(caller) && !self.is_late(begun);
            return match rdma.ask((&self.trips, &goes_on), entry, args) {
                Err(FsError::Interrupted) if self.is_late(begun) => Err(FsError::TimedOut),
                done => done.map(|result| (result, self.own_commit())),
            };
        }
        let mut pause = BUSY_PAUSE;
        loop {
            self.trips.add(entry.entry);
            let goes_on = || self.goes_on(caller);
            let ticket = self.driver.begin(entry, args, None, &goes_on)?;
            let EndedCall { outcome, run, .. } = self.driver.end(ticket, &goes_on)?;
            match outcome {
                Outcome::Done { result, seq } => return Ok((result, RunCommit { run, seq })),
                // Nothing was executed.
                Outcome::Busy(_) | Outcome::Conflict if !self.is_late(begun) => {
                    thread::sleep(pause);
                    pause = (pause * 2).min(BUSY_PAUSE_MAX);
                }
                Outcome::Busy(_) | Outcome::Conflict | Outcome::Unknown if self.is_late(begun) => {
                    return Err(FsError::TimedOut);
                }
                Outcome::Unknown if entry.is_harmless() => {}
                outcome => return Err(failure_of(outcome)),
            }
            if !goes_on() {
                return Err(FsError::Interrupted);
            }
        }
    }

    /// As [`Self::ask`], for entries that answer with an inode.
    fn ask_answer(
        &self,
        caller: &FsCaller,
        entry: &'static str,
        args: &[u8],
    ) -> Result<FsAnswer, FsError> {
        let result = self.ask(caller, entry, args)?;
        whole(&result, entry)
    }

    /// Whether a request that began then has waited as long as it may.
    fn is_late(&self, begun: Instant) -> bool {
        match self.patience {
            FsPatience::Hard => false,
            FsPatience::Soft(limit) => begun.elapsed() >= limit,
        }
    }

    /// Whether somebody still waits for what this caller has asked.
    fn goes_on(&self, caller: &FsCaller) -> bool {
        let is_over = self.is_ended.load(Ordering::Acquire) || caller.thread == IMPATIENT;
        !is_over && !is_killed(caller.thread)
    }
}

impl Drop for FsClient {
    fn drop(&mut self) {
        self.end();
    }
}

/// A dialer that several connections have.
fn shared(dial: &Arc<Mutex<DialActive>>) -> DialActive {
    let dial = Arc::clone(dial);
    Box::new(move |limit| (dial.lock().unwrap_or_else(PoisonError::into_inner))(limit))
}

/// The root directory of a service's file system.
fn find_root(
    client: &mut ActiveClient,
    region: &RemoteRegion,
    module: ModuleHash,
) -> Result<FsInode, FsError> {
    // A service that has just started makes the file system before it answers.
    let outcome = client.execute(&ActiveCall::new(region, module, "stats", &[]))?;
    if let Outcome::Refused(why) = outcome {
        return Err(FsError::Refused { why });
    }
    let header = region.read(client, ROOT, 64)?;
    root_of(&header).ok_or(FsError::Answer { entry: "the region's header" })
}

/// A result of a fixed layout, and nothing else.
fn whole<T: FsLayout>(result: &[u8], entry: &'static str) -> Result<T, FsError> {
    match T::split(result) {
        Some((value, [])) => Ok(value),
        _ => Err(FsError::Answer { entry }),
    }
}

fn root_of(header: &[u8]) -> Option<FsInode> {
    let (magic, _) = u64::split(header)?;
    let at = usize::try_from(ROOT_NUMBER).ok()?;
    let (number, _) = u64::split(header.get(at..)?)?;
    let root = FsInode { number, generation: ROOT_GENERATION };
    (magic == MAGIC && number != 0).then_some(root)
}

fn random_session() -> Result<[u64; 2], FsError> {
    let random = || {
        let mut bytes = [0; 8];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| FsError::Machine("there are no random numbers".into()))?;
        Ok::<u64, FsError>(u64::from_le_bytes(bytes))
    };
    Ok([random()?, random()?])
}

/// Whether a thread of this machine has a SIGKILL that waits for it: it can do nothing any more but
/// end, and would wait for the kernel's request until then. A signal that ends a program and is not
/// handled is one, too.
fn is_killed(thread: u32) -> bool {
    has_signal(thread).is_kill
}

/// Signals that wait for a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingSignals {
    /// One that it cannot but end by.
    pub(crate) is_kill: bool,
    /// One that it neither blocks nor ignores.
    pub(crate) is_any: bool,
}

/// The signals that wait for a thread of this machine; none for thread 0, and for one of another
/// space of process numbers.
pub(crate) fn has_signal(thread: u32) -> PendingSignals {
    if thread == 0 {
        return PendingSignals::default();
    }
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"));
    status.map_or_else(|_| PendingSignals::default(), |status| signals_of(&status))
}

fn signals_of(status: &str) -> PendingSignals {
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let (mut pending, mut passed) = (0, 0);
    for line in status.lines() {
        let Some((name, set)) = line.split_once(':') else { continue };
        let Ok(set) = u64::from_str_radix(set.trim(), 16) else { continue };
        match name {
            "SigPnd" | "ShdPnd" => pending |= set,
            "SigBlk" | "SigIgn" => passed |= set,
            _ => {}
        }
    }
    PendingSignals { is_kill: pending & KILL != 0, is_any: pending & !passed != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_thread_is_seen_by_its_pending_signals() {
        let status = |own: &str, all: &str| format!("Name:\tcat\nSigPnd:\t{own}\nShdPnd:\t{all}\n");
        assert!(signals_of(&status("0000000000000100", "0000000000000000")).is_kill);
        assert!(signals_of(&status("0000000000000000", "0000000000000102")).is_kill);
        let others = signals_of(&status("0000000000000002", "0000000000004000"));
        assert_eq!(others, PendingSignals { is_kill: false, is_any: true });
        let blocked = status("2", "4000") + "SigBlk:\t4000\nSigIgn:\t2\n";
        assert_eq!(signals_of(&blocked), PendingSignals::default());
        assert_eq!(signals_of("SigPnd:\tnonsense"), PendingSignals::default());
        assert!(!is_killed(0) && !is_killed(std::process::id()));
    }

    #[test]
    fn a_region_without_a_file_system_has_no_root() {
        let mut header = vec![0; 64];
        assert_eq!(root_of(&header), None);
        header[..8].copy_from_slice(&MAGIC.to_le_bytes());
        assert_eq!(root_of(&header), None);
        header[40] = 1;
        assert_eq!(root_of(&header), Some(FsInode { number: 1, generation: 1 }));
        assert_eq!(root_of(&header[..44]), None);
    }
}
