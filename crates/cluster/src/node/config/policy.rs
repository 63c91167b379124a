//! What identities may use, and which services a service may reach on other nodes.
//!
//! Values only: the supervisor asks them and acts.

use crate::hosts::{Host, HostList, HostsError};
use outboard_secure::{NodeId, ServiceName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one identity may use; settings that are not given are as for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Services; default: all that are served.
    pub serve: Option<Vec<String>>,
    /// Sessions with one service at a time.
    pub sessions: Option<u32>,
    /// Slots of one service.
    pub slots: Option<u32>,
}

/// What an identity may use of one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Grant {
    pub(in super::super) sessions: u32,
    pub(in super::super) slots: u32,
}

/// What all identities may use.
#[derive(Debug)]
pub(in super::super) struct Grants {
    pub(in super::super) tenants: BTreeMap<NodeId, Tenant>,
    pub(in super::super) sessions: u32,
}

impl Grants {
    /// What an identity may use of a service that has `slots`; `None`: nothing.
    pub(in super::super) fn of(&self, node: NodeId, service: &str, slots: u32) -> Option<Grant> {
        let Some(tenant) = self.tenants.get(&node) else {
            return Some(Grant { sessions: self.sessions, slots });
        };
        if tenant.serve.as_ref().is_some_and(|serve| !serve.iter().any(|name| name == service)) {
            return None;
        }
        let sessions = tenant.sessions.unwrap_or(self.sessions);
        (sessions > 0).then(|| Grant { sessions, slots: tenant.slots.unwrap_or(slots).min(slots) })
    }
}

/// Hosts on which a service may be reached.
#[derive(Debug)]
pub(super) enum Reachable {
    Any,
    These(HostList),
}

impl Reachable {
    pub(super) fn parse(text: &str) -> Result<Self, HostsError> {
        if text == "*" { Ok(Self::Any) } else { text.parse().map(Self::These) }
    }

    /// Ports matter where the operator gives them.
    fn contains(&self, host: &Host) -> bool {
        let is_it = |known: &Host| {
            known.name() == host.name() && known.port().is_none_or(|port| Some(port) == host.port())
        };
        match self {
            Self::Any => true,
            Self::These(hosts) => hosts.iter().any(is_it),
        }
    }
}

/// Which services a service may reach, and where.
#[derive(Debug, Default)]
pub(in super::super) struct Reach(BTreeMap<(String, ServiceName), Reachable>);

impl Reach {
    pub(super) fn add(&mut self, service: &str, target: ServiceName, hosts: Reachable) {
        self.0.insert((service.to_owned(), target), hosts);
    }

    /// Services whose keys are needed for it.
    pub(in super::super) fn targets(&self) -> impl Iterator<Item = &ServiceName> {
        self.0.keys().map(|(_, target)| target)
    }

    pub(in super::super) fn allows(&self, service: &str, target: &ServiceName, at: &Host) -> bool {
        let hosts = self.0.get(&(service.to_owned(), target.clone()));
        hosts.is_some_and(|hosts| hosts.contains(at))
    }
}
