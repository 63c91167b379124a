//! A client of a volatile file system, which executes nothing at the server: it takes the lock by a
//! CompareSwap, reads what it needs, changes the structures by Writes, and gives the lock back.
//!
//! What is read and changed the module says, which is executed here on pages of the region as they
//! are when it touches them: so the structures are described once. The service checks nothing; the
//! module's checks of rights are this client's own.
//!
//! Modules in reading order: `lock` (who may change something now), `apply` (changes, whole also
//! where a client ends in their midst), `bytes` (of files).

mod apply;
mod bytes;
mod lock;

use super::counts::RoundTrips;
use super::error::{FsError, result_of};
use super::{FOR_EVER, FsClient, FsClientOptions, MODULE, root_of};
use crate::check::{FsCheckReport, check_region};
use crate::protocol::volatile::{DATA_REGION, SHARED_REGION, WRITES_MAX};
use crate::protocol::{BLOCK_LEN, FsBlocksRun, FsInitArgs, FsInode, FsLayout, REGION, ROOT};
use lock::HeldLock;
use outboard_active::{
    ActiveCall, ActiveClient, ActiveClientOptions, DialActive, ModuleHash, RemoteRegion,
};
use outboard_verbs::{Context, MemError, SharedRegion};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What round trips are counted as.
const COUNTED: &str = "rdma";
/// How long verbs may take: shorter than a lock is believed to be held.
const LIMIT: Duration = Duration::from_secs(2);
/// Bytes of an image that are read at once: in few enough pieces for the time that a lock is held.
const IMAGE_PIECE: usize = 1 << 20;
/// Pages of an entry that are read together, at most.
const PAGES_MAX: usize = 48;
/// Modules, each after those that it imports.
const MODULES: [(&str, &[u8]); 6] = [
    ("alloc", include_bytes!("../../../../../modules/built/alloc.wasm")),
    ("blocks", include_bytes!("../../../../../modules/built/blocks.wasm")),
    ("table", include_bytes!("../../../../../modules/built/table.wasm")),
    ("names", include_bytes!("../../../../../modules/built/names.wasm")),
    ("inode", include_bytes!("../../../../../modules/built/inode.wasm")),
    ("fs", MODULE),
];
/// Entries of the module that a client executes: those that make sense without a service.
const ENTRIES: &[&str] = &[
    "access",
    "create",
    "find",
    "get",
    "get_xattr",
    "link",
    "list",
    "list_xattr",
    "make",
    "open",
    "remove_xattr",
    "rename",
    "rmdir",
    "seek",
    "set",
    "set_xattr",
    "share",
    "stats",
    "target",
    "unlink",
    "walk",
];

/// See this file's first lines.
pub(super) struct RdmaVariant(Mutex<RdmaLink>);

/// A connection, and what is known of what is at its other end.
pub(super) struct RdmaLink {
    client: ActiveClient,
    metadata: RemoteRegion,
    data: RemoteRegion,
    shared: RemoteRegion,
    lock: HeldLock,
    /// Pages that entries have touched when they were executed last.
    pages: HashMap<&'static str, Vec<usize>>,
    /// Blocks that are reserved, and not used yet.
    pool: Vec<FsBlocksRun>,
    /// Round trips of the operation that is under way.
    trips: u64,
}

/// Who asks, as far as it matters how long to wait.
pub(super) type GoesOn<'a> = &'a dyn Fn() -> bool;

impl RdmaVariant {
    /// Connects to a service that has a volatile file system, and makes one if its memory is new.
    pub(super) fn connect(
        context: &Context,
        dial: DialActive,
        options: &FsClientOptions,
    ) -> Result<(Self, FsInode), FsError> {
        let limits = ActiveClientOptions { limit: options.connect, ..<_>::default() };
        let mut client = ActiveClient::connect(context, dial, limits)?;
        let metadata = client.attach(REGION)?;
        let (Ok(data), Ok(shared)) = (client.attach(DATA_REGION), client.attach(SHARED_REGION))
        else {
            return Err(FsError::NotVolatile);
        };
        for (name, bytes) in MODULES {
            client.know(name, bytes)?;
        }
        // It takes seconds: longer than a lock may be held.
        client.prepare_here(ModuleHash::of(MODULE))?;
        client.options_mut().limit = LIMIT;
        let (pages, pool, trips) = (HashMap::new(), Vec::new(), 0);
        let lock = HeldLock::new()?;
        let mut link = RdmaLink { client, metadata, data, shared, lock, pages, pool, trips };
        let root = link.held(&|| true, RdmaLink::begin)?;
        link.trips = 0;
        Ok((Self(Mutex::new(link)), root))
    }

    fn link(&self) -> MutexGuard<'_, RdmaLink> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something while nobody else changes anything.
    fn held<T>(
        &self,
        (trips, goes_on): (&RoundTrips, GoesOn<'_>),
        work: impl FnOnce(&mut RdmaLink) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let mut link = self.link();
        let done = link.held(goes_on, work);
        trips.add_many(COUNTED, std::mem::take(&mut link.trips));
        done
    }

    /// What the service would answer.
    pub(super) fn ask(
        &self,
        asked: (&RoundTrips, GoesOn<'_>),
        entry: &'static str,
        args: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        match entry {
            // Nothing is ever durable.
            "sync" => Ok(Vec::new()),
            entry if ENTRIES.contains(&entry) => self.held(asked, |link| link.run(entry, args)),
            _ => Err(FsError::of(libc::EOPNOTSUPP)),
        }
    }
}

impl FsClient {
    /// Checks a volatile file system as it is now, as [`check_region`] does; nothing changes
    /// meanwhile.
    ///
    /// # Errors
    /// [`FsError::NotVolatile`]: it is none; others as all requests.
    pub fn check_volatile(&self) -> Result<FsCheckReport, FsError> {
        let rdma = self.rdma.as_ref().ok_or(FsError::NotVolatile)?;
        let (image, blocks) = rdma.held((&self.trips, &|| true), RdmaLink::image)?;
        Ok(check_region(&image, blocks))
    }
}

impl RdmaLink {
    /// All metadata as they are, and how many blocks there are.
    fn image(&mut self) -> Result<(SharedRegion, u64), FsError> {
        let machine = |error: MemError| FsError::Machine(error.to_string());
        let len = usize::try_from(self.metadata.len()).unwrap_or(usize::MAX);
        let image = SharedRegion::zeroed(len).map_err(machine)?;
        for at in (0..len).step_by(IMAGE_PIECE) {
            let size = IMAGE_PIECE.min(len - at);
            let piece = self.metadata.read(&mut self.client, at as u64, size)?;
            image.copy_in(at, &piece).map_err(machine)?;
        }
        self.must_be_sure()?;
        Ok((image, self.data.len() / BLOCK_LEN))
    }

    /// The root directory, of a file system that is there or is made now.
    fn begin(&mut self) -> Result<FsInode, FsError> {
        let header = self.metadata.read(&mut self.client, ROOT, 64)?;
        if let Some(root) = root_of(&header) {
            return Ok(root);
        }
        if header.iter().any(|byte| *byte != 0) {
            return Err(FsError::Answer { entry: "the region's header" });
        }
        let blocks = self.data.len() / BLOCK_LEN;
        let args = FsInitArgs { blocks, first: 10, mode: 0o1777, ..FsInitArgs::default() };
        self.run("init", &args.bytes())?;
        let header = self.metadata.read(&mut self.client, ROOT, 64)?;
        root_of(&header).ok_or(FsError::Answer { entry: "the region's header" })
    }

    /// Executes an entry here, and has the region be as it leaves it. The lock is held.
    fn run(&mut self, entry: &'static str, args: &[u8]) -> Result<Vec<u8>, FsError> {
        let call = ActiveCall {
            limit: Some(FOR_EVER),
            ..ActiveCall::new(&self.metadata, ModuleHash::of(MODULE), entry, args)
        };
        let pages = self.pages.remove(entry).unwrap_or_default();
        let executed = self.client.execute_to_write(&call, WRITES_MAX, &pages)?;
        self.trips += executed.trips;
        if executed.pages.len() <= PAGES_MAX {
            self.pages.insert(entry, executed.pages);
        }
        let result = result_of(executed.outcome)?;
        self.must_be_sure()?;
        if !executed.writes.is_empty() {
            self.apply(&executed.writes)?;
        }
        Ok(result)
    }
}
