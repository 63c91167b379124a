//! The service's process: from its supervisor's first word to the last.

use super::service::{Options, Service, Status};
use super::toolchains::Programs;
use crate::sandbox::{Launch, Limits, check};
use outboard_cluster::node::{Arrival, ServiceLink};
use outboard_store::Store;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The service's table of a node's configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// Programs in place of compilers: a name, and `DIR/bin/PROGRAM`.
    toolchains: BTreeMap<String, PathBuf>,
    /// Where contents are kept [default: the user's cache].
    cache: Option<PathBuf>,
    /// Octets that contents may have there, in MiB.
    cache_mib: Option<u64>,
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
    let cache = config.cache.or_else(user_cache);
    let instead = config.toolchains.into_iter().map(|(name, at)| (name.into(), at)).collect();
    Ok(Options {
        name: host_name(),
        slots: link.slots(),
        programs: Programs::new(cache.as_deref(), instead),
        store: store(cache.as_deref(), config.cache_mib)?,
        launch,
        limits,
    })
}

/// Contents on disk where there is a place for them, and in memory only otherwise.
fn store(cache: Option<&Path>, mib: Option<u64>) -> Result<Store, Box<dyn Error>> {
    let _ = (cache, mib);
    Ok(Store::default())
}

fn user_cache() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    base.filter(|base| base.is_absolute()).map(|base| base.join("outboard"))
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
