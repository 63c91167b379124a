//! `outboard key`: the cluster's key, services' keys, and the list of revoked nodes.

use crate::Outcome;
use crate::services::SERVICES;
use clap::Subcommand;
use outboard_cluster::keys::{Key as Held, KeyPaths, KeysError};
use outboard_cluster::status::STATUS;
use outboard_secure::{ClusterKey, Identity, KeyFileError, NodeId, Revoked, ServiceName};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// Keys: access to the services of a cluster.
///
/// The key is in ~/.config/outboard/key unless OUTBOARD_KEY names another file. Every machine and
/// user of a cluster has a copy of it, or of one service's key.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  outboard key new
  outboard key export compile --to alice.key")]
pub(crate) enum KeyCommand {
    /// Make a key for a new cluster; fails if there is one.
    #[command(after_help = "Example:
  outboard key new")]
    New,
    /// Write one service's key to a file, for users who may use only that service.
    ///
    /// A holder of the file can also offer the service in this machine's place. On the user's
    /// machine OUTBOARD_KEY names it, or it is ~/.config/outboard/key.
    #[command(after_help = "Example:
  outboard key export compile --to alice.key")]
    Export {
        /// The service.
        service: ServiceName,
        /// The file, which must not exist [default: SERVICE.key].
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Shut a node or user out here; repeat it on every machine that it must not reach.
    ///
    /// `outboard key show` prints its number there, and a node's log here. Nodes that run notice
    /// within seconds. A user who kept a copy of the key can return with a new identity: only a
    /// new key prevents that.
    #[command(after_help = "Example:
  outboard key revoke 2f9d1c0a4b7e8d6655aa0c1b2d3e4f50 --why 'laptop lost'")]
    Revoke {
        /// Its number: 32 hexadecimal digits.
        node: NodeId,
        /// A comment for readers of the list.
        #[arg(long, value_name = "TEXT", default_value = "")]
        why: String,
        /// The list [default: ~/.config/outboard/revoked].
        #[arg(long, value_name = "FILE")]
        list: Option<PathBuf>,
    },
    /// Show the key's kind, and this user's number for other nodes. The key itself is not shown.
    #[command(after_help = "Example:
  outboard key show")]
    Show {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(command: KeyCommand) -> Outcome {
    let places = || KeyPaths::from_environment(|name| std::env::var_os(name));
    match command {
        KeyCommand::New => new(&places()?),
        KeyCommand::Export { service, to } => export(&places()?, &service, to),
        KeyCommand::Revoke { node, why, list } => {
            let list = list.map_or_else(|| Ok(places()?.revoked), Ok::<_, KeysError>)?;
            Revoked::append(&list, node, &why)?;
            say(&format!("{node} is on {}", list.display()))
        }
        KeyCommand::Show { json } => show(&places()?, json),
    }
}

fn new(places: &KeyPaths) -> Outcome {
    ClusterKey::create(&places.key).map_err(|error| match error {
        KeyFileError::Exists { path } => format!(
            "{} is there already and is not overwritten: use it, or name another file in \
             OUTBOARD_KEY",
            path.display()
        ),
        error => error.to_string(),
    })?;
    let path = places.key.display();
    say(&format!(
        "made {path}: copy it to every machine of the cluster, readable by its owner only"
    ))
}

fn export(places: &KeyPaths, service: &ServiceName, to: Option<PathBuf>) -> Outcome {
    let known: Vec<&str> = SERVICES.iter().map(|spec| spec.name).chain([STATUS]).collect();
    if !known.contains(&service.as_str()) {
        let (service, known) = (service.as_str(), known.join(", "));
        return Err(format!("there is no service {service:?}; there are: {known}").into());
    }
    let no_key = || format!("{} is another service's key", places.key.display());
    let key = Held::load(&places.key)?.service(service).ok_or_else(no_key)?;
    let path = to.unwrap_or_else(|| format!("{}.key", service.as_str()).into());
    key.export(&path)?;
    say(&format!("wrote {}: its holders may use {}", path.display(), service.as_str()))
}

fn show(places: &KeyPaths, as_json: bool) -> Outcome {
    let kind = match Held::load(&places.key) {
        Ok(Held::Cluster(_)) => "the cluster's key: every service".to_owned(),
        Ok(Held::Service(key)) => format!("the key of service {} alone", key.name().as_str()),
        Err(KeysError::NoKey { .. }) => "none".to_owned(),
        Err(error) => return Err(error.into()),
    };
    let node = Identity::load_or_create(&places.identity)?.node();
    let revoked: Vec<String> = places.revoked()?.nodes().map(|node| node.to_string()).collect();
    if as_json {
        let path = places.key.display().to_string();
        let told = json!({
            "node": node.to_string(), "key": { "file": path, "kind": kind }, "revoked": revoked,
        });
        return say(&told.to_string());
    }
    let count = revoked.len();
    let (key, list) = (places.key.display(), places.revoked.display());
    say(&format!("node     {node}\nkey      {key}: {kind}\nrevoked  {list}: {count} nodes"))
}

fn say(text: &str) -> Outcome {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}
