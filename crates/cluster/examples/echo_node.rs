//! A node whose services send back what they receive: how a program offers services without the
//! loop of `outboard_cluster::service`.
//!
//! `cargo run --example echo_node -- DIRECTORY [SETTINGS]` serves on a free port of loopback with
//! the key and identity in that directory (made there if need be), and with the settings in that
//! file.

use outboard_cluster::hosts::HostList;
use outboard_cluster::keys::KeyPaths;
use outboard_cluster::node::{
    Arrival, Needs, NodeConfig, Requester, ServiceLink, ServiceSpec, ServiceTable, Supervisor,
    TableError, serve,
};
use outboard_verbs::Secured;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::error::Error;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What makes this program a service.
const HIDDEN: &str = "service";

const SERVICES: &[ServiceSpec] = &[
    ServiceSpec { name: "echo", by_default: true, check, run: echo },
    ServiceSpec { name: "other", by_default: true, check, run: echo },
];

/// The settings of a service's table.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    greeting: String,
    place: Option<PathBuf>,
}

fn check(table: ServiceTable<'_>) -> Result<Needs, TableError> {
    let settings: Settings = table.read()?;
    Ok(Needs { directories: settings.place.into_iter().collect(), ..Needs::default() })
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [hidden, name] if hidden == HIDDEN => serve(name, SERVICES),
        [directory] => finish(node(directory, None)),
        [directory, settings] => finish(node(directory, Some(settings))),
        _ => finish(Err("name a directory".into())),
    }
}

fn finish(outcome: Result<(), Box<dyn Error>>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn node(directory: &str, settings: Option<&str>) -> Result<(), Box<dyn Error>> {
    let config = settings
        .map(|path| NodeConfig::read(Path::new(path), SERVICES))
        .transpose()?
        .unwrap_or_default();
    let free = NodeConfig { listen: Some(vec!["127.0.0.1:0".parse()?]), ..NodeConfig::default() };
    let config = free.overridden_by(config);
    let places = KeyPaths::beneath(Path::new(directory));
    let supervisor = Supervisor::new(config, places, SERVICES, vec![HIDDEN.into()])?;
    println!("{} {}", supervisor.addresses()[0], supervisor.node());
    Ok(supervisor.run()?)
}

/// Each session has a thread; the `greeting` of the service's table is sent first.
fn echo(mut link: ServiceLink) -> ExitCode {
    let kept = Arc::new(Mutex::new(link.take_kept()));
    let (now, total) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counts = (Arc::clone(&now), Arc::clone(&total));
    link.on_report(move || {
        let (now, total) = (counts.0.load(Ordering::SeqCst), counts.1.load(Ordering::SeqCst));
        json!({ "jobs_now": now, "jobs_total": total })
    });
    let settings: Settings = serde_json::from_value(link.config().clone()).unwrap_or_default();
    let greeting = settings.greeting;
    loop {
        match link.next(None) {
            Arrival::Session(stream, permit) => {
                let (now, greeting) = (Arc::clone(&now), greeting.clone());
                let (kept, requester) = (Arc::clone(&kept), link.requester());
                total.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    now.fetch_add(1, Ordering::SeqCst);
                    // A session that the peer ends is no error.
                    let _gone = attend(stream, &greeting, &requester, &kept);
                    drop(permit);
                    now.fetch_sub(1, Ordering::SeqCst);
                });
            }
            Arrival::Revoked(node) => eprintln!("echo: {node} is revoked"),
            Arrival::Nothing => {}
            Arrival::Stop => return ExitCode::SUCCESS,
        }
    }
}

fn attend(
    mut stream: Secured,
    greeting: &str,
    requester: &Requester,
    kept: &Mutex<BTreeMap<String, OwnedFd>>,
) -> Result<(), Box<dyn Error>> {
    let later = || Instant::now() + Duration::from_secs(60);
    stream.send(greeting.as_bytes(), later())?;
    loop {
        let mut received = Vec::new();
        stream.receive(&mut received, later())?;
        let words: Vec<&str> = str::from_utf8(&received).unwrap_or_default().split(' ').collect();
        match words[..] {
            ["identify"] => {
                let user = rustix::process::geteuid().as_raw();
                let groups = rustix::process::getgroups().map_or(0, |groups| groups.len());
                let key = std::env::var_os("OUTBOARD_KEY").is_some();
                let process = std::process::id();
                let told = json!({ "user": user, "groups": groups, "key": key, "pid": process });
                stream.send(told.to_string().as_bytes(), later())?;
            }
            ["dial", host, service] => {
                let said = relay(requester, host, service);
                let said = said.unwrap_or_else(|error| error.to_string().into_bytes());
                stream.send(&said, later())?;
            }
            ["keep", name, text] => {
                let said =
                    keep(requester, name, text).map_or_else(|e| e.to_string(), |()| "kept".into());
                stream.send(said.as_bytes(), later())?;
            }
            ["kept", name] => {
                let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let mut text = [0; 64];
                let len = kept.get(name).map_or(Ok(0), |fd| rustix::io::pread(fd, &mut text, 0))?;
                drop(kept);
                stream.send(if len == 0 { b"nothing" } else { &text[..len] }, later())?;
            }
            _ => stream.send(&received, later())?,
        }
    }
}

/// The answer of another node's service, reached through the supervisor: this process has no key.
fn relay(requester: &Requester, host: &str, service: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let (hosts, limit): (HostList, _) = (host.parse()?, Duration::from_secs(20));
    let mut stream = requester.dial(&hosts.hosts()[0], &service.parse()?, limit)?;
    stream.send(b"identify", Instant::now() + limit)?;
    let mut received = Vec::new();
    stream.receive(&mut received, Instant::now() + limit)?;
    Ok(received)
}

/// Memory with that text, which outlives this process.
fn keep(requester: &Requester, name: &str, text: &str) -> Result<(), Box<dyn Error>> {
    let memory = memfd_create("echo", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::io::write(&memory, text.as_bytes())?;
    fcntl_add_seals(&memory, SealFlags::GROW | SealFlags::SHRINK)?;
    Ok(requester.keep(name, memory)?)
}
