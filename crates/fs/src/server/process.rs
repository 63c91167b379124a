//! The service's process: a store becomes a region, which is served.
//!
//! The region's memory and its journal are kept by the node's supervisor. If they are there and are
//! those that the store knows, the service before was killed, and nothing is lost; else the store
//! is recovered from its checkpoints and its log.

use super::accounts::UserRules;
use super::backend::{FsBackend, FsBackendOptions};
use super::modules;
use super::table::{FsTable, RoleWord};
use crate::protocol::{HEADER_SHOWN, REGION, SQUASH_ROOT};
use crate::replica::ship::{ShipperOptions, ship};
use crate::replica::shipping::ShippingState;
use crate::replica::{fence, node};
use crate::store::role::StoreRole;
use crate::store::{FsStore, FsStoreError, FsStoreOptions, OpenedStore};
use outboard_active::service::{
    ActiveLimits, ActiveService, ActiveServiceOptions, RegionKeeper, RegionSetup, ServedRegion,
    begin_region, hub_options, kept_region,
};
use outboard_cluster::hub::HubOptions;
use outboard_cluster::node::{Needs, ServiceLink, ServiceTable, TableError};
use outboard_cluster::service::{SpinMode, run};
use outboard_offcode::{ActiveRegion, ModuleStore, Wasmtime};
use outboard_secure::NodeId;
use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of metadata that one execution may change: the module asks for 4 MiB.
const WRITES_MAX: usize = 8 << 20;
/// How long a store may stay locked, and how often that is looked at.
const LOCKED_MAX: Duration = Duration::from_secs(10);
const LOCKED_PAUSE: Duration = Duration::from_millis(50);
/// The file in a store's directory that is there while somebody has a lock.
pub(crate) const LOCK_MARKER: &str = "locked";
/// Bytes of answers that wait for a client: as many as it may have asked for.
const ANSWERS_MAX: usize = 128 << 20;

/// Checks the service's table, before a node starts.
///
/// # Errors
/// Reports the operator's mistake in the table.
pub fn check_table(table: ServiceTable<'_>) -> Result<Needs, TableError> {
    table.read::<FsTable>()?.check()
}

/// Runs the service until its node ends.
pub fn serve(link: ServiceLink) -> ExitCode {
    let table = read_table(&link);
    match table.and_then(|table| Ok((task(&table)?, table))) {
        Ok((StoreTask::Serve, table)) => serve_by(link, &table, service),
        Ok((StoreTask::Remember, table)) => serve_by(link, &table, super::volatile::service),
        Ok((StoreTask::Follow(dir, allow), _)) => node::run(link, &dir, allow),
        Err(error) => link.not_started(&*error),
    }
}

fn read_table(link: &ServiceLink) -> Result<FsTable, Box<dyn Error>> {
    let table = serde_json::from_value(link.config().clone());
    Ok(table.map_err(|why| format!("table {} of the configuration: {why}", link.service()))?)
}

/// What is done with a store.
enum StoreTask {
    Serve,
    /// There is none.
    Remember,
    Follow(PathBuf, Option<HashSet<NodeId>>),
}

/// What the operator wants, and what has become of the store since.
fn task(table: &FsTable) -> Result<StoreTask, Box<dyn Error>> {
    if table.volatile {
        return Ok(StoreTask::Remember);
    }
    let dir = table.store()?;
    let is_replica = table.role == RoleWord::Replica;
    match StoreRole::of(dir)? {
        StoreRole::Promoted => Ok(StoreTask::Serve),
        StoreRole::Own if is_replica && dir.join("superblock").exists() => Err(format!(
            "{} is a store of its own: name an empty directory for a replica",
            dir.display()
        )
        .into()),
        _ if is_replica => Ok(StoreTask::Follow(dir.clone(), table.allow()?)),
        StoreRole::Own => Ok(StoreTask::Serve),
        StoreRole::Fenced { epoch, by } => Err(fence::refusal(epoch, &by).into()),
        StoreRole::Replica(_) => Err(format!(
            "{} is a replica: `outboard fs replica --store` runs it, and `outboard fs promote` \
             makes it the server",
            dir.display()
        )
        .into()),
    }
}

type MakeService = fn(&mut ServiceLink, &FsTable) -> Result<ActiveService, Box<dyn Error>>;

fn serve_by(mut link: ServiceLink, table: &FsTable, make: MakeService) -> ExitCode {
    match make(&mut link, table) {
        Ok(service) => run(link, HubOptions { waiting_max: ANSWERS_MAX, ..hub_options() }, service),
        Err(error) => link.not_started(&*error),
    }
}

fn service(link: &mut ServiceLink, table: &FsTable) -> Result<ActiveService, Box<dyn Error>> {
    let opened = open(table.store()?, table)?;
    let setup = RegionSetup {
        write_max: WRITES_MAX,
        allow: table.allow()?,
        read: table.read()?,
        shown: Some(if table.one_sided { usize::MAX } else { HEADER_SHOWN }),
        epoch: opened.superblock().epoch,
        ..RegionSetup::new(REGION, usize::try_from(opened.superblock().region_len)?)
    };
    let (kept, mut keeper) = (link.take_kept(), link.requester());
    let options = table.options();
    let marker = table.store()?.join(LOCK_MARKER);
    let (store, served) = begin((opened, &marker), setup, (kept, &mut keeper), options)?;
    let flags = if table.root_squash { SQUASH_ROOT } else { 0 };
    let shipping = |host| {
        let (requester, dir) = (link.requester(), table.store()?.clone());
        let options = ShipperOptions { requester, host, dir, sync: options.sync };
        Ok::<_, Box<dyn Error>>(ship(&store, options)?)
    };
    let shipping = table.replica()?.map(shipping).transpose()?;
    if let Err(error) = super::snapshots::listen(table.store()?, store.snapshots()) {
        tracing::warn!(%error, "no snapshots can be made");
    }
    serve_region(store, served, (options, flags, marker), (table.users()?, shipping))
}

/// Opens a store, or makes it.
fn open(directory: &Path, table: &FsTable) -> Result<OpenedStore, Box<dyn Error>> {
    let shape = table.shape()?;
    match unlocked(directory) {
        Err(FsStoreError::NotAStore { .. }) => Ok(OpenedStore::create(directory, shape)?),
        Ok(opened) if table.says_size() => {
            opened.expect(shape)?;
            Ok(opened)
        }
        opened => Ok(opened?),
    }
}

/// Opens a store. One whose server was killed is locked until the system has done away with it.
fn unlocked(directory: &Path) -> Result<OpenedStore, FsStoreError> {
    let begun = Instant::now();
    loop {
        match OpenedStore::open(directory) {
            Err(FsStoreError::Locked { .. }) if begun.elapsed() < LOCKED_MAX => {
                thread::sleep(LOCKED_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// The region of a store, and the store in use.
fn begin(
    (opened, marker): (OpenedStore, &Path),
    setup: RegionSetup,
    (mut kept, keeper): (BTreeMap<String, OwnedFd>, &mut impl RegionKeeper),
    options: FsStoreOptions,
) -> Result<(FsStore, ServedRegion), Box<dyn Error>> {
    let incarnation = opened.superblock().incarnation;
    let resumed = kept_region(&setup, incarnation, &mut kept)?;
    for name in kept.into_keys() {
        // It is discarded with the node at the latest.
        let _discarded = keeper.discard(&name);
    }
    if let Some(served) = resumed {
        tracing::info!("the region outlived the service before");
        let store = opened.adopt(&served.region, incarnation, options)?;
        return Ok((store, served));
    }
    let recovered = opened.recover()?;
    if let Some(why) = &recovered.passed_over {
        tracing::warn!(
            why,
            "a checkpoint is not whole, and the other one is used: it was being written when the \
             server ended, or the disk has changed it"
        );
    }
    if !recovered.is_orderly && recovered.last_seq > 0 {
        // Who had a lock is not known: all are waited for.
        File::create(marker)?;
    }
    tracing::info!(
        commit = recovered.last_seq,
        was_closed = recovered.is_orderly,
        "the store is read"
    );
    let served = begin_region(setup, recovered.memory.clone(), keeper)?;
    let store = opened.start(recovered, &served.region, served.incarnation, options)?;
    Ok((store, served))
}

fn serve_region(
    store: FsStore,
    served: ServedRegion,
    (options, flags, marker): (FsStoreOptions, u64, PathBuf),
    (users, shipping): (UserRules, Option<Arc<ShippingState>>),
) -> Result<ActiveService, Box<dyn Error>> {
    let limits = ActiveLimits::default();
    let engine = Wasmtime::new(outboard_active::service::cache_directory().as_deref())?;
    let modules = Arc::new(ModuleStore::new(Arc::new(engine), limits.store));
    let region: Arc<ActiveRegion> = Arc::clone(&served.region);
    let (loads, scans) = (Arc::clone(&modules), Arc::clone(&modules));
    let mut service = ActiveService::new(ActiveServiceOptions {
        regions: vec![served],
        store: modules,
        operators: modules::hashes(),
        limits,
        spin: SpinMode::Adaptive,
    })?;
    let module = modules::fs_module();
    let (waker, sync) = (service.waker(), options.sync);
    let lock_marker = Some(marker);
    let (sender, loaded) = mpsc::channel();
    let wakes = waker.clone();
    // Clients connect meanwhile, and their requests wait.
    thread::Builder::new().name("fs-modules".into()).spawn(move || {
        // The service may have ended.
        let _sent = sender.send(modules::load(&loads).map_err(|error| error.to_string()));
        wakes.wake();
    })?;
    let options = FsBackendOptions {
        region,
        module,
        modules: scans,
        store,
        sync,
        flags,
        waker,
        lock_marker,
        users,
        shipping,
        loaded,
    };
    let backend = FsBackend::new(options);
    match service.back(REGION, Box::new(backend)) {
        true => Ok(service),
        false => Err("the service lost its region: a fault of its own".into()),
    }
}
