//! Clients of a node's service `active`, with the user's own key.

use crate::Failure;
use outboard_active::protocol::SERVICE;
use outboard_active::{ActiveClient, ActiveClientOptions, DialActive, RemoteRegion, WaitMode};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::HostList;
use outboard_verbs::Context;
use std::time::{Duration, Instant};

/// How long a node that is just starting may take.
const START_MAX: Duration = Duration::from_secs(5);

/// `block`, `adaptive` or `spin`.
pub(crate) fn wait_mode(word: &str) -> Result<WaitMode, Failure> {
    match word {
        "block" => Ok(WaitMode::Block),
        "adaptive" => Ok(WaitMode::Adaptive),
        "spin" => Ok(WaitMode::Spin),
        _ => Err(format!("{word} is none of block, adaptive, spin").into()),
    }
}

/// A dialer with this user's key.
pub(crate) fn dialer() -> Result<Dialer, Failure> {
    Ok(Dialer::from_environment(|name| std::env::var_os(name), &[SERVICE.parse()?])?)
}

/// Connects to a node, which may be starting, and attaches a region.
pub(crate) fn connect(
    host: &str,
    region: &str,
    wait: &str,
) -> Result<(ActiveClient, RemoteRegion), Failure> {
    connect_with(&Context::open()?, host, region, wait)
}

/// So many connections of one thread, which polls them.
pub(crate) fn connect_all(
    host: &str,
    region: &str,
    count: usize,
) -> Result<Vec<(ActiveClient, RemoteRegion)>, Failure> {
    let context = Context::open()?;
    (0..count).map(|_| connect_with(&context, host, region, "spin")).collect()
}

/// The same with a context that other clients use too.
fn connect_with(
    context: &Context,
    host: &str,
    region: &str,
    wait: &str,
) -> Result<(ActiveClient, RemoteRegion), Failure> {
    let hosts: HostList = host.parse()?;
    let host = hosts.hosts().first().cloned().ok_or("no host")?;
    let options = ActiveClientOptions { wait: wait_mode(wait)?, ..ActiveClientOptions::default() };
    let started = Instant::now();
    loop {
        let (host, dialer) = (host.clone(), dialer()?);
        let dial: DialActive = Box::new(move |limit| {
            let service = SERVICE.parse().map_err(|_| "the service has no name")?;
            let dialled = dialer.dial(&host, &service, Instant::now() + limit);
            dialled.map_err(|error| error.to_string())
        });
        match ActiveClient::connect(context, dial, options) {
            Err(error) if started.elapsed() > START_MAX => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
            Ok(mut client) => {
                let region = client.attach(region)?;
                return Ok((client, region));
            }
        }
    }
}
