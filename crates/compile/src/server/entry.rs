//! The service's process: its configuration and its start.

use super::service::{CompileService, ServiceOptions};
use super::toolchains::Programs;
use crate::sandbox::{JobLimits, Launch, check};
use outboard_cluster::hub::HubOptions;
use outboard_cluster::node::{Needs, ServiceLink, ServiceTable, TableError};
use outboard_cluster::service::run;
use outboard_store::{Store, default_directory};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Bytes of stored contents unless the configuration says otherwise.
const STORE_BYTES: u64 = 4 << 30;

/// The service's table of a node's configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CompileTable {
    /// Programs in place of compilers: a name, and `DIR/bin/PROGRAM`.
    toolchains: BTreeMap<String, PathBuf>,
    /// Where contents and the identities of compilers are stored [default: the user's cache].
    cache: Option<PathBuf>,
    /// Limit of the stored contents, in MiB.
    cache_mib: Option<u64>,
    /// Accept compilers that are not installed here from clients: the sandbox is then the only
    /// boundary.
    accept_toolchains: bool,
    /// Memory limit of one job, in MiB.
    memory_mib: Option<u64>,
}

/// Checks the service's table, before a node starts.
///
/// # Errors
/// Reports the operator's mistake in the table.
pub fn check_table(table: ServiceTable<'_>) -> Result<Needs, TableError> {
    let config: CompileTable = table.read()?;
    let directories = config.cache.into_iter().collect();
    Ok(Needs { directories, devices: vec!["/dev/fuse".into()], ..Needs::default() })
}

/// Runs the service until its node ends. `arguments` make this program a sandbox's supervisor.
pub fn serve(link: ServiceLink, arguments: &[&str]) -> ExitCode {
    match options(&link, arguments).and_then(|options| Ok(CompileService::new(options)?)) {
        Ok(service) => run(link, HubOptions::default(), service),
        Err(error) => {
            eprintln!("outboard: service {}: {error}", link.service());
            ExitCode::FAILURE
        }
    }
}

fn options(link: &ServiceLink, arguments: &[&str]) -> Result<ServiceOptions, Box<dyn Error>> {
    let config: CompileTable = match link.config() {
        serde_json::Value::Null => CompileTable::default(),
        table => serde_json::from_value(table.clone())
            .map_err(|error| format!("table {} of the configuration: {error}", link.service()))?,
    };
    let launch = Launch {
        // By its path, a service's user may not reach it.
        program: PathBuf::from("/proc/self/exe"),
        arguments: arguments.iter().map(OsString::from).collect(),
        identity: None,
    };
    check(&launch)?;
    let mut limits = JobLimits::default();
    if let Some(mib) = config.memory_mib {
        limits.memory = mib << 20;
    }
    let instead = config.toolchains.into_iter().map(|(name, at)| (name.into(), at)).collect();
    let programs = Programs::new(config.cache.as_deref(), instead);
    let store = store(config.cache, config.cache_mib)?;
    if config.accept_toolchains && store.is_none() {
        return Err("accept_toolchains needs a place for them: set cache".into());
    }
    Ok(ServiceOptions {
        slots: link.slots(),
        programs,
        store,
        accept_toolchains: config.accept_toolchains,
        launch,
        limits,
    })
}

/// Opens the store, if there is a directory for it.
fn store(directory: Option<PathBuf>, mib: Option<u64>) -> Result<Option<Store>, Box<dyn Error>> {
    let quota = mib.map_or(STORE_BYTES, |mib| mib << 20);
    match (directory, default_directory()) {
        (Some(directory), _) => Ok(Some(Store::open(&directory.join("store"), quota)?)),
        // The operator did not ask for a store, so a failure is no error.
        (None, Ok(directory)) => Ok(Store::open(&directory, quota).ok()),
        (None, Err(_)) => Ok(None),
    }
}
