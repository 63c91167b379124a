//! A node: a small supervisor, and one unprivileged process for each service (supervisor and
//! services are this program; a hidden command makes it a service).
//!
//! The supervisor holds the key, accepts, does the handshake, and hands the socket with its session
//! to the process of the service that was asked for. That process has no key and cannot read
//! another service's memory: an attacker that takes it over gains only its own sessions. Where the
//! supervisor is root, its services are ordinary users, one for each; where it is not, they are the
//! same user, and only the sandbox of a service keeps what it runs from that user's files.
//!
//! The handshakes under way are bounded in number and time; at the bound, the address that has most
//! of them loses its oldest. The supervisor parses no bytes of a peer but its handshake's.
//!
//! Modules in reading order: `config` (what the file and the flags say), `user` (the users that
//! services are) and `directories` (what they own), `log`, `lists` (revoked and allowed nodes),
//! `acceptor` (handshakes under way), `wire` (messages between supervisor and service), `kept`
//! (memory that outlives a service's process), `process` (a service from the supervisor's side),
//! `dialing` (other nodes' services), `report` (answers to `status`), `setup` and `supervisor`
//! (before the loop, and the loop), `link` (the service's side) with `permit` (sessions of one
//! identity), `listener` (a service that accepts for itself, outside a node).

mod acceptor;
mod config;
mod devices;
mod dialing;
mod directories;
mod kept;
mod link;
mod listener;
mod lists;
mod log;
mod permit;
mod process;
mod report;
mod setup;
mod supervisor;
mod user;
mod wire;

pub use config::{
    ConfigError, NeededUser, Needs, NodeConfig, ServiceSpec, ServiceTable, TableError, Tenant,
};
pub use directories::DirectoryError;
pub use link::{Arrival, RequestError, Requester, ServiceLink, ServiceMain, serve};
pub use listener::SessionListener;
pub use permit::Permit;
pub use setup::{NodeError, raise_open_files};
pub use supervisor::Supervisor;
