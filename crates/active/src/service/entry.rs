//! The service's process: its configuration and its start.

use super::active::{ActiveService, LOADERS};
use super::operator::load_directory;
use super::options::ActiveServiceOptions;
use super::regions::{RegionKeeper, open_regions};
use super::table::ActiveTable;
use crate::protocol::BATCH_MAX;
use outboard_cluster::hub::HubOptions;
use outboard_cluster::node::{
    Needs, RequestError, Requester, ServiceLink, ServiceTable, TableError,
};
use outboard_cluster::service::run;
use outboard_offcode::low_priority::LowPriority;
use outboard_offcode::{ModuleStore, Wasmtime};
use std::collections::HashSet;
use std::env;
use std::error::Error;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Bytes of answers that wait for a client which does not take them.
const ANSWERS_MAX: usize = 32 << 20;

/// Batches of a client that are received before they are handled. Each has memory of the largest
/// one, for every connection.
const RECEIVES: usize = 4;

/// How much compiling yields to everything else of this machine.
const COMPILERS_NICE: i32 = 10;

/// Checks the service's table, before a node starts.
///
/// # Errors
/// Reports the operator's mistake in the table.
pub fn check_table(table: ServiceTable<'_>) -> Result<Needs, TableError> {
    table.read::<ActiveTable>()?.check()
}

/// The sizes that the service gives its hub.
#[must_use]
pub fn hub_options() -> HubOptions {
    let (message_max, waiting_max) = (BATCH_MAX, ANSWERS_MAX);
    HubOptions { message_max, receives: RECEIVES, waiting_max, ..HubOptions::default() }
}

/// Runs the service until its node ends.
pub fn serve(mut link: ServiceLink) -> ExitCode {
    match service(&mut link) {
        Ok(service) => run(link, hub_options(), service),
        Err(error) => link.not_started(&*error),
    }
}

impl RegionKeeper for Requester {
    fn keep(&mut self, name: &str, memory: OwnedFd) -> Result<(), RequestError> {
        Self::keep(self, name, memory)
    }

    fn discard(&mut self, name: &str) -> Result<(), RequestError> {
        Self::discard(self, name)
    }
}

fn service(link: &mut ServiceLink) -> Result<ActiveService, Box<dyn Error>> {
    let config: ActiveTable = match link.config() {
        serde_json::Value::Null => ActiveTable::default(),
        table => serde_json::from_value(table.clone())
            .map_err(|error| format!("table {} of the configuration: {error}", link.service()))?,
    };
    let limits = config.limits()?;
    let (kept, mut keeper) = (link.take_kept(), link.requester());
    let regions = open_regions(config.regions()?, kept, &mut keeper)?;
    let engine = Wasmtime::new(cache_directory().as_deref())?;
    let compilers = LowPriority::new("outboard-compile", LOADERS, COMPILERS_NICE)?;
    let store = ModuleStore::new(Arc::new(engine), limits.store).with_compilers(compilers);
    let store = Arc::new(store);
    let operators = match &config.modules {
        Some(directory) => load_directory(&store, directory, limits.store.module.bytes)
            .map_err(|error| format!("modules = {}: {error}", directory.display()))?,
        None => HashSet::new(),
    };
    let spin = config.spin();
    let options = ActiveServiceOptions { regions, store, operators, limits, spin };
    Ok(ActiveService::new(options)?)
}

/// Where compiled code is kept from one process to the next: `None` if there is no such directory,
/// which only costs time.
#[must_use]
pub fn cache_directory() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let top = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    let own = top.join("outboard/active");
    fs::create_dir_all(&own).ok().map(|()| own)
}
