//! Which machines take part: host lists as people and schedulers write them.
//!
//! Reads text and nothing else: it opens no socket, resolves no name, and touches the file system
//! and the environment only where a function says so. No list, however it was written, expands
//! beyond [`hosts::HOSTS_MAX`].
//!
//! Modules in reading order: [`hosts`] (lists of hosts with their ports and slots).
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

pub mod hosts;
