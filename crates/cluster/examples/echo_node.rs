//! A node with a service that says again what it hears, and one that only `outboard` could serve:
//! how a program offers services.
//!
//! `cargo run --example echo_node -- DIRECTORY [SETTINGS]` serves on a free port of loopback with
//! the key and identity in that directory (made there if need be), and with the settings in that
//! file.

use outboard_cluster::keys::Places;
use outboard_cluster::node::{Arrival, Config, Entry, ServiceLink, Supervisor, serve};
use outboard_verbs::Secured;
use serde_json::json;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What makes this program a service.
const HIDDEN: &str = "service";

const SERVICES: &[(&str, Entry)] = &[("echo", echo), ("other", echo)];

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
    let config =
        settings.map(|path| Config::read(Path::new(path))).transpose()?.unwrap_or_default();
    let free = Config { listen: Some(vec!["127.0.0.1:0".parse()?]), ..Config::default() };
    let config = free.overridden_by(config);
    let known: Vec<&str> = SERVICES.iter().map(|(name, _)| *name).collect();
    let places = Places::beneath(Path::new(directory));
    let supervisor = Supervisor::new(config, places, &known, vec![HIDDEN.into()])?;
    println!("{} {}", supervisor.addresses()[0], supervisor.node());
    Ok(supervisor.run()?)
}

/// One thread a guest; `{"greeting": ...}` of the service's table is said first.
fn echo(link: ServiceLink) -> ExitCode {
    let (now, total) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counts = (Arc::clone(&now), Arc::clone(&total));
    link.on_report(move || {
        let (now, total) = (counts.0.load(Ordering::SeqCst), counts.1.load(Ordering::SeqCst));
        json!({ "jobs_now": now, "jobs_total": total })
    });
    let greeting = link.config()["greeting"].as_str().unwrap_or_default().to_owned();
    loop {
        match link.next(None) {
            Arrival::Guest(stream) => {
                let (now, greeting) = (Arc::clone(&now), greeting.clone());
                total.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    now.fetch_add(1, Ordering::SeqCst);
                    // A guest that goes is no fault of ours.
                    let _gone = attend(stream, &greeting);
                    now.fetch_sub(1, Ordering::SeqCst);
                });
            }
            Arrival::Revoked(node) => eprintln!("echo: {node} must go"),
            Arrival::Nothing => {}
            Arrival::Stop => return ExitCode::SUCCESS,
        }
    }
}

fn attend(mut stream: Secured, greeting: &str) -> Result<(), Box<dyn Error>> {
    let later = || Instant::now() + Duration::from_secs(60);
    stream.send(greeting.as_bytes(), later())?;
    loop {
        let mut heard = Vec::new();
        stream.receive(&mut heard, later())?;
        match &heard[..] {
            b"who" => {
                let user = rustix::process::geteuid().as_raw();
                let groups = rustix::process::getgroups().map_or(0, |groups| groups.len());
                let key = std::env::var_os("OUTBOARD_KEY").is_some();
                let process = std::process::id();
                let told = json!({ "user": user, "groups": groups, "key": key, "pid": process });
                stream.send(told.to_string().as_bytes(), later())?;
            }
            _ => stream.send(&heard, later())?,
        }
    }
}
