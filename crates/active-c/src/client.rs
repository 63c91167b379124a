//! Clients: open, close, the descriptor; and what this side keeps of one.

use crate::abi::{ADAPTIVE, BLOCK, COptions, COutboardActive, SPIN};
use crate::args::{self, CPlace};
use crate::guard::{CResult, guarded};
use crate::status::{CFailure, CStatus};
use crate::table;
use outboard_active::protocol::SERVICE;
use outboard_active::{
    ActiveClient, ActiveClientOptions, CallTicket, DialActive, RemoteRegion, ResultMemory, WaitMode,
};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::{Host, HostList};
use outboard_secure::ServiceName;
use outboard_verbs::Context;
use std::collections::HashMap;
use std::env;
use std::ffi::{OsString, c_char, c_int};
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::{Duration, Instant};

/// A client, and what C calls the things that it has.
#[derive(Debug)]
pub(crate) struct CClient {
    pub(crate) active: ActiveClient,
    pub(crate) regions: HashMap<u32, RemoteRegion>,
    pub(crate) buffers: HashMap<u32, ResultMemory>,
    /// Calls that were submitted, and the address that comes back with each outcome.
    pub(crate) users: HashMap<CallTicket, usize>,
    /// The number of the latest region or buffer.
    latest: u32,
    /// Whether the program may sleep on the descriptor.
    pub(crate) has_descriptor: bool,
}

impl CClient {
    /// The number of a new region or buffer.
    pub(crate) fn number(&mut self) -> CResult<u32> {
        let next = self.latest.checked_add(1);
        self.latest = next.ok_or_else(|| CFailure::argument("4 billion regions and buffers"))?;
        Ok(self.latest)
    }

    /// A region by its number.
    pub(crate) fn region(&self, number: u32) -> CResult<RemoteRegion> {
        let found = self.regions.get(&number).cloned();
        found.ok_or_else(|| CFailure::argument(format!("this client has no region {number}")))
    }
}

fn host(node: &str) -> CResult<Host> {
    let list: HostList = node.parse().map_err(|error| CFailure::argument(format!("{error}")))?;
    match list.hosts() {
        [host] => Ok(host.clone()),
        hosts => Err(CFailure::argument(format!("node names {} hosts: name one", hosts.len()))),
    }
}

fn client_options(options: &COptions) -> CResult<ActiveClientOptions> {
    let default = ActiveClientOptions::default();
    Ok(ActiveClientOptions {
        wait: match options.wait {
            ADAPTIVE => WaitMode::Adaptive,
            BLOCK => WaitMode::Block,
            SPIN => WaitMode::Spin,
            other => Err(CFailure::argument(format!("there is no way to wait {other}")))?,
        },
        limit: match options.timeout_ms {
            0 => default.limit,
            limit => Duration::from_millis(limit.into()),
        },
        in_flight: match options.in_flight {
            0 => default.in_flight,
            limit => limit as usize,
        },
        ..default
    })
}

/// Dials with the key at `key`, or where the environment says.
fn dialer(host: Host, key: Option<OsString>) -> CResult<DialActive> {
    let service = SERVICE.parse::<ServiceName>();
    let service = service.map_err(|error| CFailure::new(CStatus::Bug, error.to_string()))?;
    let variable = |name: &str| match &key {
        Some(key) if name == "OUTBOARD_KEY" => Some(key.clone()),
        _ => env::var_os(name),
    };
    let dialer = Dialer::from_environment(variable, std::slice::from_ref(&service))?;
    Ok(Box::new(move |limit| {
        let dialled = dialer.dial(&host, &service, Instant::now() + limit);
        dialled.map_err(|error| error.to_string())
    }))
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_open(
    node: *const c_char,
    options: *const COptions,
    client: *mut *mut COutboardActive,
) -> c_int {
    guarded("outboard_active_open", || {
        // SAFETY: the program's.
        let place = unsafe { CPlace::new("client", client)? };
        place.set(ptr::null_mut());
        // SAFETY: the program's.
        let host = host(unsafe { args::text("node", node)? })?;
        let options = match options.is_null() {
            true => COptions::default(),
            // SAFETY: the program's.
            false => unsafe { args::sized("options", options)? },
        };
        let key = match options.key.is_null() {
            true => None,
            // SAFETY: the program's.
            false => Some(unsafe { args::text("options->key", options.key)? }.into()),
        };
        let own = client_options(&options)?;
        let active = ActiveClient::connect(&Context::open()?, dialer(host, key)?, own)?;
        place.set(table::insert(CClient {
            active,
            regions: HashMap::new(),
            buffers: HashMap::new(),
            users: HashMap::new(),
            latest: 0,
            has_descriptor: false,
        }));
        Ok(CStatus::Ok)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn outboard_active_close(client: *mut COutboardActive) -> c_int {
    guarded("outboard_active_close", || table::remove(client).map(|()| CStatus::Ok))
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_descriptor(
    client: *mut COutboardActive,
    descriptor: *mut c_int,
) -> c_int {
    guarded("outboard_active_descriptor", || {
        // SAFETY: the program's.
        let place = unsafe { CPlace::new("descriptor", descriptor)? };
        table::with(client, |client| {
            place.set(client.active.descriptor()?.as_raw_fd());
            client.has_descriptor = true;
            Ok(CStatus::Ok)
        })
    })
}
