//! The service's process: its configuration and its start.

use super::service::{CastService, CastServiceOptions};
use super::storage::CastRoot;
use crate::protocol::SERVICE;
use outboard_cluster::hosts::Host;
use outboard_cluster::hub::HubOptions;
use outboard_cluster::node::{Needs, ServiceLink, ServiceTable, TableError};
use outboard_cluster::service::run;
use outboard_secure::ServiceName;
use serde::Deserialize;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The service's table of a node's configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CastTable {
    /// Directories below which files may be published.
    roots: Vec<RootEntry>,
    /// MiB for the windows of all casts, at most.
    memory: Option<u32>,
    /// Jobs of this service: the node's own word, which every table may have.
    #[serde(rename = "slots")]
    _slots: Option<u32>,
}

/// A root.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a root is a path, or { path = ..., directory = ... }")]
enum RootEntry {
    Path(PathBuf),
    Placed { path: PathBuf, directory: PathBuf },
}

impl RootEntry {
    fn root(&self) -> Result<CastRoot, String> {
        let (path, directory) = match self {
            Self::Path(path) => (path, path),
            Self::Placed { path, directory } => (path, directory),
        };
        match [path, directory].into_iter().find(|path| !path.is_absolute()) {
            Some(path) => Err(format!("root {}: write an absolute path", path.display())),
            None => Ok(CastRoot { path: path.clone(), directory: directory.clone() }),
        }
    }
}

/// Checks the service's table, before a node starts.
///
/// # Errors
/// Reports the operator's mistake in the table.
pub fn check_table(table: ServiceTable<'_>) -> Result<Needs, TableError> {
    let config: CastTable = table.read()?;
    if config.roots.is_empty() {
        return Err(TableError::new(
            "no roots: name the directories below which files may be published, as in \
             roots = [\"/var/cast\"] in the table [cast]",
        ));
    }
    config.roots().map(|_| Needs::default()).map_err(TableError::new)
}

impl CastTable {
    fn roots(&self) -> Result<Vec<CastRoot>, String> {
        self.roots.iter().map(RootEntry::root).collect()
    }
}

/// Runs the service until its node ends.
pub fn serve(link: ServiceLink) -> ExitCode {
    match service(&link) {
        Ok(service) => run(link, HubOptions::default(), service),
        Err(error) => {
            eprintln!("outboard: service {}: {error}", link.service());
            ExitCode::FAILURE
        }
    }
}

fn service(link: &ServiceLink) -> Result<CastService, Box<dyn Error>> {
    let config: CastTable = match link.config() {
        serde_json::Value::Null => CastTable::default(),
        table => serde_json::from_value(table.clone())
            .map_err(|error| format!("table {} of the configuration: {error}", link.service()))?,
    };
    let (requester, cast): (_, ServiceName) = (link.requester(), SERVICE.parse()?);
    let dial = move |host: &Host, limit: Duration| {
        requester.dial(host, &cast, limit).map_err(|error| error.to_string())
    };
    let memory = config.memory.map(|mib| u64::from(mib) << 20);
    let memory = memory.unwrap_or(CastServiceOptions::MEMORY_DEFAULT);
    let roots = config.roots()?;
    Ok(CastService::new(CastServiceOptions { roots, memory, dial: Arc::new(dial) })?)
}
