//! Which machines take part, and how services on them talk.
//!
//! Knows no service and no message's meaning. No host list, however it was written, expands beyond
//! [`hosts::HOSTS_MAX`]; what a peer sends is bounded by [`hub::MESSAGE_MAX`].
//!
//! Modules in reading order: [`hosts`] (lists of hosts with their ports and slots), [`codec`]
//! (control messages as octets), [`hub`] (many peers on one thread).
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
pub mod hosts;
pub mod hub;
