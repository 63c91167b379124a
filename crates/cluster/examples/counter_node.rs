//! A service in one page of code: it adds up numbers that its peers send; the peers can also read
//! the sum from its memory. The memory outlives the service's process.
//!
//! `cargo run --example counter_node -- DIRECTORY [SETTINGS]`, as with `echo_node`.

use outboard_cluster::codec::Protocol;
use outboard_cluster::hub::{Hub, HubEvent, HubOptions, PeerId};
use outboard_cluster::keys::KeyPaths;
use outboard_cluster::node::{
    Needs, NodeConfig, Permit, ServiceLink, ServiceSpec, Supervisor, serve,
};
use outboard_cluster::service::{self, Service, ServiceError};
use outboard_verbs::{Access, SharedRegion, Space};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

/// The protocol of this service: a peer sends a number to add, the service answers with the place
/// of the count and its value.
const PROTOCOL: Protocol = Protocol::version(3);

const SERVICES: &[ServiceSpec] = &[ServiceSpec {
    name: "counter",
    by_default: true,
    check: |table| table.read::<Nothing>().map(|_| Needs::default()),
    run: |link| match Counter::new(link) {
        Ok((link, counter)) => service::run(link, HubOptions::default(), counter),
        Err(error) => {
            eprintln!("counter: {error}");
            ExitCode::FAILURE
        }
    },
}];

/// Its table in the configuration has no settings.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

struct Counter {
    /// What peers read, in a memfd that the supervisor keeps.
    count: SharedRegion,
}

impl Counter {
    fn new(mut link: ServiceLink) -> Result<(ServiceLink, Self), ServiceError> {
        let count = match link.take_kept().remove("count") {
            Some(kept) => SharedRegion::from_memfd(kept)?,
            None => {
                let count = SharedRegion::memfd(c"count", 8, Space::Reserved)?;
                link.requester().keep("count", count.descriptor()?)?;
                count
            }
        };
        Ok((link, Self { count }))
    }
}

impl Service for Counter {
    type Tag = ();
    type Report = Value;

    fn arrived(
        &mut self,
        hub: &mut Hub<()>,
        peer: PeerId,
        _permit: &Permit,
    ) -> Result<(), ServiceError> {
        let exposed = hub.expose(peer, self.count.slice(0..8)?, Access::REMOTE_READ)?;
        Ok(hub.send(peer, &PROTOCOL.encode(&exposed))?)
    }

    fn handle(&mut self, hub: &mut Hub<()>, event: HubEvent<()>) -> Result<(), ServiceError> {
        if let HubEvent::Message { peer, bytes } = event {
            let count = self.count.load_u64(0)?.wrapping_add(PROTOCOL.decode(&bytes)?);
            self.count.store_u64(0, count)?;
            hub.send(peer, &PROTOCOL.encode(&count))?;
        }
        Ok(())
    }

    fn gone(&mut self, _hub: &mut Hub<()>, _peer: PeerId) {}

    fn report(&self) -> Value {
        json!({ "count": self.count.load_u64(0).unwrap_or_default(), "pid": std::process::id() })
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &words[..] {
        [hidden, name] if hidden == "service" => return serve(name, SERVICES),
        [directory] => node(directory, None),
        [directory, settings] => node(directory, Some(settings)),
        _ => Err("name a directory".into()),
    };
    outcome.map_or_else(
        |error| {
            eprintln!("{error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn node(directory: &str, settings: Option<&str>) -> Result<(), ServiceError> {
    let read = |path| NodeConfig::read(Path::new(path), SERVICES);
    let free = NodeConfig { listen: Some(vec!["127.0.0.1:0".parse()?]), ..NodeConfig::default() };
    let config = free.overridden_by(settings.map(read).transpose()?.unwrap_or_default());
    let places = KeyPaths::beneath(Path::new(directory));
    let supervisor = Supervisor::new(config, places, SERVICES, vec!["service".into()])?;
    println!("{} {}", supervisor.addresses()[0], supervisor.node());
    Ok(supervisor.run()?)
}
