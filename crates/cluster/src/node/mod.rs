//! A node: a small supervisor, and one unprivileged process for each service (supervisor and
//! services are this program; a hidden command makes it a service).
//!
//! The supervisor holds the key, accepts, does the handshake, and hands the socket with its session
//! to the process of the service that was asked for. That process has no key, and no other
//! service's memory: who breaks into it has what it has. Where the supervisor is root, its services
//! are an ordinary user; where it is not, they are the same user, and only the sandbox of a service
//! keeps what it runs from that user's files.
//!
//! A stranger costs one place of many among those whose handshake is under way, for a few seconds;
//! of the addresses that have most of those, the oldest goes first. The peer's octets are parsed by
//! the handshake alone.
//!
//! Modules in reading order: `config` (what the file and the flags say), `user` (whom services
//! are), `log`, `lists` (who is refused), `door` (handshakes under way), `wire` (what supervisor
//! and service tell each other), `process` (a service from the supervisor's side), `report`
//! (answers to `status`), `setup` and `supervisor` (before the loop, and the loop), `link` (the
//! service's side).

mod config;
mod door;
mod link;
mod lists;
mod log;
mod process;
mod report;
mod setup;
mod supervisor;
mod user;
mod wire;

pub use config::{Config, ConfigError};
pub use link::{Arrival, Entry, ServiceLink, serve};
pub use setup::NodeError;
pub use supervisor::Supervisor;
