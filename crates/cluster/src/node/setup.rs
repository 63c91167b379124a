//! What a node needs before its loop begins: names, credentials, addresses, signals.

use super::config::{Config, ConfigError};
use super::lists::Lists;
use super::supervisor::LISTENERS;
use crate::keys::{Key, KeysError, Places};
use crate::status;
use outboard_secure::{Credentials, Fabric, Identity, Revoked, ServiceName};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Why a node does not start, or does not go on.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The operator's.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The key's, identity's or lists'.
    #[error(transparent)]
    Keys(#[from] KeysError),
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
    /// An address cannot be had.
    #[error("cannot listen on {address}: {source}; another node may be there")]
    Listen {
        /// The address.
        address: SocketAddr,
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

pub(super) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> NodeError {
    move |source| NodeError::System { what, source: source.into() }
}

/// Strangers and guests are descriptors; the bounds here are narrower than what the system allows.
pub(super) fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With fewer, some wait a little longer.
    let _raised = setrlimit(Resource::Nofile, limit);
}

pub(super) fn names(config: &Config) -> Result<Vec<ServiceName>, NodeError> {
    let serve = config.serve.as_deref().unwrap_or_default();
    let parsed = serve.iter().map(|name| {
        let unknown = |_| ConfigError::Service { name: name.clone(), known: String::new() };
        name.parse().map_err(unknown)
    });
    Ok(parsed.collect::<Result<_, _>>()?)
}

/// Credentials for these services, and for a node's own where the key gives it; the files are where
/// the operator or else the environment says.
pub(super) fn lists(
    config: &Config,
    places: Places,
    names: &[ServiceName],
) -> Result<Lists, NodeError> {
    let path = config.key.clone().unwrap_or(places.key);
    let key = Key::load_or_create(&path)?;
    if let Some(name) = names.iter().find(|name| key.service(name).is_none()) {
        return Err(NodeError::NoKey { service: name.as_str().into(), path });
    }
    let all: Vec<ServiceName> = names.iter().cloned().chain([status::service()]).collect();
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
