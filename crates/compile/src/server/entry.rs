//! The service's process: from its supervisor's first word to the last.

use super::service::{Options, Service, Status};
use super::toolchains::Programs;
use crate::sandbox::{Launch, Limits, check};
use outboard_cluster::node::{Arrival, ServiceLink};
use outboard_store::{Store, default_directory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Octets that contents may have on disk if nobody says.
const STORE_OCTETS: u64 = 4 << 30;

/// The service's table of a node's configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// Programs in place of compilers: a name, and `DIR/bin/PROGRAM`.
    toolchains: BTreeMap<String, PathBuf>,
    /// Where contents and what is known of compilers stay [default: the user's cache].
    cache: Option<PathBuf>,
    /// Octets that contents may have there, in MiB.
    cache_mib: Option<u64>,
    /// Take compilers that are not installed here from clients: the sandbox is then the only
    /// boundary.
    accept_toolchains: bool,
    /// Octets that one job may have in memory, in MiB.
    memory_mib: Option<u64>,
}

/// Runs the service until its node ends. `arguments` make this program a sandbox's anchor.
pub fn serve(link: &ServiceLink, arguments: &[&str]) -> ExitCode {
    match run(link, arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("outboard: service {}: {error}", link.service());
            ExitCode::FAILURE
        }
    }
}

fn run(link: &ServiceLink, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut service = Service::new(options(link, arguments)?)?;
    let status = Arc::new(Mutex::new(service.status()));
    let shown = Arc::clone(&status);
    link.on_report(move || report(&shown.lock().unwrap_or_else(PoisonError::into_inner)));
    loop {
        loop {
            match link.next(Some(Duration::ZERO)) {
                Arrival::Guest(stream) => service.admit(stream)?,
                Arrival::Revoked(node) => service.shut_out(node),
                Arrival::Stop => return Ok(()),
                Arrival::Nothing => break,
            }
        }
        service.turn(Instant::now())?;
        *status.lock().unwrap_or_else(PoisonError::into_inner) = service.status();
        let left = service.deadline().saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left)?;
        let mut fds = [PollFd::new(&service, PollFlags::IN), PollFd::new(link, PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn report(status: &Status) -> serde_json::Value {
    // Plain data has a value.
    serde_json::to_value(status).unwrap_or_default()
}

fn options(link: &ServiceLink, arguments: &[&str]) -> Result<Options, Box<dyn Error>> {
    let config: Config = match link.config() {
        serde_json::Value::Null => Config::default(),
        table => serde_json::from_value(table.clone())
            .map_err(|error| format!("table {} of the configuration: {error}", link.service()))?,
    };
    let launch = Launch {
        program: std::env::current_exe()?,
        arguments: arguments.iter().map(OsString::from).collect(),
        identity: None,
    };
    check(&launch)?;
    let mut limits = Limits::default();
    if let Some(mib) = config.memory_mib {
        limits.memory = mib << 20;
    }
    let instead = config.toolchains.into_iter().map(|(name, at)| (name.into(), at)).collect();
    let programs = Programs::new(config.cache.as_deref(), instead);
    let store = store(config.cache, config.cache_mib)?;
    if config.accept_toolchains && store.is_none() {
        return Err("accept_toolchains needs a place for them: set cache".into());
    }
    Ok(Options {
        slots: link.slots(),
        programs,
        store,
        accept_toolchains: config.accept_toolchains,
        launch,
        limits,
    })
}

/// Contents stay where there is a place for them.
fn store(directory: Option<PathBuf>, mib: Option<u64>) -> Result<Option<Store>, Box<dyn Error>> {
    let quota = mib.map_or(STORE_OCTETS, |mib| mib << 20);
    match (directory, default_directory()) {
        (Some(directory), _) => Ok(Some(Store::open(&directory.join("store"), quota)?)),
        // Nobody has asked for it.
        (None, Ok(directory)) => Ok(Store::open(&directory, quota).ok()),
        (None, Err(_)) => Ok(None),
    }
}
