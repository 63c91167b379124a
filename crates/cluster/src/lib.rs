//! Machines of a cluster and the services on them: host lists, keys, dialing, nodes, and what
//! services are built from.
//!
//! The result is a socket with its session ([`Secured`](outboard_verbs::Secured)), between two ends
//! that have proven to each other that they hold a service's key. This crate knows no service's
//! messages and names no service but a node's own, `status`. Every wait has a time limit, and an
//! unauthenticated peer can use no more than bounded memory and descriptors.
//!
//! Modules in reading order: [`hosts`] (lists of hosts with their ports and slots), [`keys`] (where
//! key files are), [`known`] (nodes met before), [`dial`] (the side that connects), [`node`] (the
//! side that serves), [`status`] (a node's report), [`codec`] (control messages as bytes), [`hub`]
//! (many peers on one thread), [`waker`] (wakes that thread), [`workers`] (do what that thread must
//! not wait for), [`line_limit`] (limits the lines that peers cause in its log), `arrivals` (peers
//! being connected), [`pool`] (connections that are dialled again) and [`service`] (the loop of a
//! service over all that).
//!
//! # Examples
//!
//! ```
//! use outboard_cluster::hosts::HostList;
//!
//! let hosts: HostList = "n[01-03]/4,big:7411/32".parse()?;
//! assert_eq!(hosts.to_string(), "n01/4,n02/4,n03/4,big:7411/32");
//! assert_eq!(hosts.iter().map(|host| host.port_or(7400)).max(), Some(7411));
//!
//! let error = "n[14-01]".parse::<HostList>().unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "host list, line 1, column 3, at \"14-01\": the range runs backwards: write the smaller \
//!      number first"
//! );
//! # Ok::<(), outboard_cluster::hosts::HostsError>(())
//! ```

#![forbid(unsafe_code)]

mod arrivals;
pub mod codec;
pub mod dial;
pub mod hosts;
pub mod hub;
pub mod keys;
pub mod known;
pub mod line_limit;
pub mod node;
pub mod pool;
pub mod service;
pub mod status;
pub mod waker;
pub mod workers;

#[cfg(test)]
#[path = "../tests/support/sessions.rs"]
mod sessions;

// What tests of other crates share with this one's calls it by its name.
#[cfg(test)]
extern crate self as outboard_cluster;

/// The port of nodes where a host list gives none.
pub const NODE_PORT: u16 = 7410;
