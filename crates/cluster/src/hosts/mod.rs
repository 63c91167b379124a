//! Lists of hosts, with a port and a number of slots each.
//!
//! ```text
//! list    = host { separator host }        separator: one comma, or blanks and new lines
//! host    = ( name | "[" IPv6 "]" ) [ ":" port ] [ "/" slots ]
//! name    = letters, digits, "-", ".", "_", and groups
//! group   = "[" range { "," range } "]"    each of its numbers in turn
//! range   = number [ "-" number ]          leading zeros are kept: 08-11 is 08 09 10 11
//! ```
//!
//! `#` begins a comment that ends with its line. This is Slurm's syntax (`SLURM_JOB_NODELIST`) and
//! more; of several groups in a name, the last counts fastest. A bracket at the start of a host
//! holds an IPv6 address if there is a colon in it.
//!
//! Order is kept. A host that is named again with the same port is the same host: it stays where
//! it was named first and its slots add up, as in the node files of MPI and PBS, which name a host
//! once a slot. If slots are given in one place and not in another, the meaning is unclear: that is
//! an error. `n1` and `n1:7411` are two hosts, because this module does not know a service's
//! default port.
//!
//! Nothing here checks whether a host exists.

mod error;
mod parse;
mod source;

pub use error::{HostsError, Problem};

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// Hosts that a list may have, before equal ones are merged.
pub const HOSTS_MAX: usize = 65_536;

/// Slots that a host may have.
pub const SLOTS_MAX: u32 = 65_535;

/// A machine that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    name: Box<str>,
    port: Option<u16>,
    slots: Option<NonZeroU32>,
}

/// Hosts in their order, at least one, each with its port once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostList(Vec<Host>);

impl Host {
    /// Its name, IPv4 address, or IPv6 address without brackets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port that the list gives it, if any.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The port that the list gives it, or else the service's default port.
    #[must_use]
    pub fn port_or(&self, own: u16) -> u16 {
        self.port.unwrap_or(own)
    }

    /// How many jobs may run there at once; `None`: as many as the host itself offers.
    #[must_use]
    pub fn slots(&self) -> Option<NonZeroU32> {
        self.slots
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]", self.name)?;
        } else {
            f.write_str(&self.name)?;
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        self.slots.map_or(Ok(()), |slots| write!(f, "/{slots}"))
    }
}

impl HostList {
    /// The hosts, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Host> {
        self.0.iter()
    }

    /// The hosts, in order.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.0
    }

    /// Keeps each host once, with all its slots.
    fn merged(entries: Vec<parse::HostEntry>) -> Result<Self, parse::ParseFault> {
        let mut hosts: Vec<Host> = Vec::new();
        let mut places = HashMap::new();
        for parse::HostEntry { host, at } in entries {
            let place = *places.entry((host.name.clone(), host.port)).or_insert(hosts.len());
            match hosts.get_mut(place) {
                Some(known) => {
                    let sum = total(known.slots, host.slots);
                    known.slots = sum.map_err(|problem| parse::ParseFault { problem, at })?;
                }
                None => hosts.push(host),
            }
        }
        Ok(Self(hosts))
    }
}

/// The slots of a host that is named twice.
fn total(
    one: Option<NonZeroU32>,
    other: Option<NonZeroU32>,
) -> Result<Option<NonZeroU32>, Problem> {
    match (one, other) {
        (None, None) => Ok(None),
        (Some(one), Some(other)) => {
            let sum = one.saturating_add(other.get());
            if sum.get() > SLOTS_MAX { Err(Problem::Slots) } else { Ok(Some(sum)) }
        }
        _ => Err(Problem::SlotsOnce),
    }
}

impl FromStr for HostList {
    type Err = HostsError;

    fn from_str(text: &str) -> Result<Self, HostsError> {
        Self::parse(text, "host list")
    }
}

/// One line that reads back as the same list.
impl fmt::Display for HostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, host) in self.0.iter().enumerate() {
            write!(f, "{}{host}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl<'a> IntoIterator for &'a HostList {
    type Item = &'a Host;
    type IntoIter = std::slice::Iter<'a, Host>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests;
