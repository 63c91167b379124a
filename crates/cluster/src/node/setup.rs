//! What a node needs before its loop begins: names, credentials, addresses, signals.

use super::config::{ConfigError, NeededUser, Needs, NodeConfig, Reach, ServiceSpec};
use super::devices;
use super::directories::{self, DirectoryError};
use super::link::ServiceSetup;
use super::lists::Lists;
use super::process::ServiceProcess;
use super::supervisor::LISTENERS;
use super::user::User;
use crate::keys::{Key, KeyPaths, KeysError};
use crate::status;
use outboard_secure::{Credentials, Fabric, Identity, NodeId, Revoked, ServiceName};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Instant;

/// Why a node does not start, or does not go on.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The operator's.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The key's, identity's or lists'.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// A service's directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The key file gives no key of a service.
    #[error(
        "the key file {path} is of another service than {service}: name the cluster's key, or \
         serve what it is for", path = path.display()
    )]
    NoKey {
        /// The service.
        service: String,
        /// The file.
        path: PathBuf,
    },
    /// A service must be root, and the node is not.
    #[error(
        "the table {service} of the configuration asks for a service that runs as root, and this \
         node does not: start the node as root, or take that out of the table"
    )]
    NotRoot {
        /// The service.
        service: String,
    },
    /// A service could not start, for a reason that does not pass.
    #[error("service {service} cannot start: see what it said before")]
    ServiceNotStarted {
        /// The service.
        service: String,
    },
    /// A service did not end in order with the node: what it had to keep may be lost.
    #[error("service {service} did not end in order ({status}): see what it said before")]
    ServiceFailed {
        /// The service.
        service: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}{}", listen_advice(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Services are started from this process's own program, which only `/proc` names.
    #[error("cannot start services from {OWN_PROGRAM}: {source}; is /proc mounted?")]
    NoProgram {
        /// What the system says.
        source: io::Error,
    },
    /// This machine refuses something else.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

/// The program that a service's process is started from: this one, also after a newer one has
/// taken its place.
pub(super) const OWN_PROGRAM: &str = "/proc/self/exe";

/// Without it every start of a service would fail.
pub(super) fn check_program(path: &str) -> Result<(), NodeError> {
    std::fs::metadata(path).map(drop).map_err(|source| NodeError::NoProgram { source })
}

/// What to do about an address that cannot be listened on, after a semicolon; may be empty.
fn listen_advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "; another node may be there",
        io::ErrorKind::AddrNotAvailable => {
            "; the address is not this machine's: choose one that `ip address` lists, or 0.0.0.0 \
             for all"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 need CAP_NET_BIND_SERVICE",
        _ => "",
    }
}

pub(super) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> NodeError {
    move |source| NodeError::System { what, source: source.into() }
}

/// Lets this process have as many descriptors as the system allows: handshakes, sessions and pipes
/// are some, and programs' own bounds are narrower.
pub fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With a lower limit, some connections wait a little longer.
    let _raised = setrlimit(Resource::Nofile, limit);
}

pub(super) fn names(
    config: &NodeConfig,
    known: &[ServiceSpec],
) -> Result<Vec<ServiceName>, NodeError> {
    let parsed = config.served(known).into_iter().map(|name| {
        let unknown = |_| ConfigError::Service {
            setting: "serve",
            name: name.clone(),
            known: "names of lower-case letters".into(),
        };
        name.parse().map_err(unknown)
    });
    Ok(parsed.collect::<Result<_, _>>()?)
}

/// Credentials for these services and those that they may reach, and for a node's own where the
/// key gives it; the files are where the operator or else the environment says. A key is made
/// only where the operator has not named its file.
pub(super) fn lists(
    config: &NodeConfig,
    places: KeyPaths,
    names: &[ServiceName],
    reach: &Reach,
) -> Result<Lists, NodeError> {
    let named = config.key.is_some() || places.is_key_named;
    let path = config.key.clone().unwrap_or(places.key);
    let key = if named { Key::load(&path)? } else { Key::load_or_create(&path)? };
    let needed: Vec<ServiceName> = names.iter().chain(reach.targets()).cloned().collect();
    if let Some(name) = needed.iter().find(|name| key.service(name).is_none()) {
        return Err(NodeError::NoKey { service: name.as_str().into(), path });
    }
    let all: Vec<ServiceName> = needed.into_iter().chain([status::service()]).collect();
    let identity = config.identity.clone().unwrap_or(places.identity);
    let trusted = config.trusted_fabric.unwrap_or(false);
    let credentials = Credentials {
        identity: Identity::load_or_create(&identity).map_err(KeysError::from)?,
        keys: key.ring(&all),
        fabric: if trusted { Fabric::Trusted } else { Fabric::Untrusted },
        revoked: Revoked::default(),
    };
    let (named, revoked) = (config.revoked.is_some(), config.revoked.clone());
    let revoked = revoked.unwrap_or(places.revoked);
    Ok(Lists::read(credentials, revoked, named, config.allowed.clone())?)
}

/// The services, each with its user and its directories; no process is started yet.
pub(super) fn services(
    config: &NodeConfig,
    names: Vec<ServiceName>,
    needs: &BTreeMap<String, Needs>,
    (node, now): (NodeId, Instant),
) -> Result<Vec<ServiceProcess>, NodeError> {
    let named = config.user()?;
    let is_root = rustix::process::geteuid().is_root();
    let mut users: Vec<User> = Vec::new();
    let mut services = Vec::new();
    for name in names {
        let service = name.as_str();
        let needs = needs.get(service).cloned().unwrap_or_default();
        let user = match needs.user {
            NeededUser::Root if !is_root => {
                return Err(NodeError::NotRoot { service: service.into() });
            }
            NeededUser::Root => None,
            NeededUser::Any => is_root.then(|| named.unwrap_or_else(|| User::own(service, &users))),
        };
        users.extend(user);
        directories::make(&name, user, &needs.directories)?;
        // A service that cannot open a device reports what to do.
        let give = |user: User| needs.devices.iter().map(move |device| devices::give(device, user));
        let _given: Vec<_> = user.into_iter().flat_map(give).collect();
        let setup = ServiceSetup {
            service: service.into(),
            node: node.to_string(),
            slots: config.slots_of(service),
            config: config.table(service),
            kept: 0,
            ending_s: needs.ending.max(Needs::ENDING).as_secs(),
        };
        services.push(ServiceProcess::new(setup, name, user, now));
    }
    Ok(services)
}

pub(super) fn listen(
    epoll: &OwnedFd,
    addresses: &[SocketAddr],
) -> Result<Vec<TcpListener>, NodeError> {
    let bound = addresses.iter().enumerate().map(|(index, &address)| {
        let failed = |source| NodeError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        watch(epoll, &listener, LISTENERS + index as u64).map_err(failed)?;
        Ok(listener)
    });
    bound.collect()
}

pub(super) fn watch(epoll: &OwnedFd, fd: impl AsFd, token: u64) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, EventData::new_u64(token), EventFlags::IN)?)
}

/// A descriptor that is readable when one of these signals has come.
pub(super) fn watch_signals(
    epoll: &OwnedFd,
    signals: &[i32],
    token: u64,
) -> Result<UnixStream, NodeError> {
    let failed = system("cannot watch signals");
    let (reader, writer) = UnixStream::pair().map_err(&failed)?;
    reader.set_nonblocking(true).map_err(&failed)?;
    for signal in signals {
        let writer = writer.try_clone().map_err(&failed)?;
        signal_hook::low_level::pipe::register(*signal, writer).map_err(&failed)?;
    }
    watch(epoll, &reader, token).map_err(failed)?;
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_busy_address_may_be_another_nodes() {
        let told = |kind: io::ErrorKind| {
            let address = SocketAddr::from(([192, 0, 2, 1], 7621));
            NodeError::Listen { address, source: kind.into() }.to_string()
        };
        assert!(told(io::ErrorKind::AddrInUse).ends_with("another node may be there"));
        let foreign = told(io::ErrorKind::AddrNotAvailable);
        assert!(foreign.contains("is not this machine's") && !foreign.contains("another node"));
    }

    #[test]
    fn a_node_without_proc_does_not_start() {
        check_program(OWN_PROGRAM).expect("this program");
        let error = check_program("/proc/none").expect_err("no program").to_string();
        assert!(error.ends_with("is /proc mounted?"), "{error}");
    }
}
