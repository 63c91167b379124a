//! Which machines take part, and how one gets to them: host lists, keys, dialing.
//!
//! What comes out is a socket with its session ([`Secured`](outboard_verbs::Secured)), between
//! two ends that have proven a service's key to each other; what they then say is not known here,
//! and no service is named but a node's own, `status`. Everything that waits has a limit of time,
//! and nothing that a stranger does makes it hold more than a bound.
//!
//! Modules in reading order: [`hosts`] (lists of hosts with their ports and slots), [`keys`] (where
//! key files are), [`known`] (who was met where), [`dial`] (the side that connects), [`node`] (the
//! side that serves), [`status`] (what a node tells of itself), [`codec`] (control messages as
//! octets), [`hub`] (many peers on one thread).
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

pub mod codec;
pub mod dial;
pub mod hosts;
pub mod hub;
pub mod keys;
pub mod known;
pub mod node;
pub mod status;

/// The port of nodes where a host list gives none.
pub const NODE_PORT: u16 = 7410;
