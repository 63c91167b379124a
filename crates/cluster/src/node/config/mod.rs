//! What a node's operator says: a file, and flags that override it.
//!
//! ```toml
//! listen = ["127.0.0.1:7410"]   # addresses with ports
//! serve = ["compile"]           # services; default: those that a program serves by default
//! slots = 4                     # jobs at a time; default: as many as processors
//! sessions = 64                 # of one identity with one service at a time
//! key = "/etc/outboard/key"     # default: as for clients, see OUTBOARD_KEY
//! identity = "/etc/outboard/identity"
//! revoked = "/etc/outboard/revoked"
//! allowed = "/etc/outboard/allowed"   # if given, no other identity is admitted
//! trusted_fabric = false        # true: clients that say so too may talk in clear
//! log = "info"                  # which events go to standard error
//! user = "nobody"               # the user of all services, where the node is root
//!
//! [compile]                     # for that service alone
//! slots = 2                     # ... as every service's table: its jobs at a time
//!
//! [tenant.2f9d1c0a4b7e8d6655aa0c1b2d3e4f50]   # what one identity may use
//! serve = ["compile"]
//! sessions = 4
//! slots = 1
//!
//! [reach.cast]                  # which services of other nodes the service `cast` may reach
//! cast = "n[01-14]"             # ... "*": on any node
//! ```
//!
//! It is checked as a whole before anything starts (`file` gives faults their lines).

mod file;
mod policy;
mod table;

pub use policy::Tenant;
pub(super) use policy::{Grant, Grants, Reach};
pub use table::{NeededUser, Needs, ServiceSpec, ServiceTable, TableError};

use super::user::User;
use crate::NODE_PORT;
use outboard_secure::{NodeId, ServiceName};
use policy::Reachable;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Sessions of one identity with one service, at most, unless the operator sets another limit.
const SESSIONS: u32 = 64;
/// Slots of a node, at most: more make no sense on any machine.
const SLOTS_MAX: u32 = 1024;
/// The setting of a service's table that the node itself reads.
const TABLE_SLOTS: &str = "slots";

/// The settings of the file and the flags; `None` for those that neither gives.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Where to listen.
    pub listen: Option<Vec<SocketAddr>>,
    /// Services to offer.
    pub serve: Option<Vec<String>>,
    /// Jobs at a time.
    pub slots: Option<u32>,
    /// Sessions of one identity with one service at a time.
    pub sessions: Option<u32>,
    /// The key's file.
    pub key: Option<PathBuf>,
    /// The static key pair's file.
    pub identity: Option<PathBuf>,
    /// The list of revoked nodes.
    pub revoked: Option<PathBuf>,
    /// The list of allowed identities; no other is admitted.
    pub allowed: Option<PathBuf>,
    /// No third party reads or alters what the network carries.
    pub trusted_fabric: Option<bool>,
    /// The user of all services, where the node is root.
    pub user: Option<String>,
    /// Which events are logged, for this program's subscriber; services get it as OUTBOARD_LOG.
    pub log: Option<String>,
    /// Limits of single identities.
    #[serde(default)]
    pub tenant: BTreeMap<String, Tenant>,
    /// Which services of other nodes a service may reach: on which hosts, or `*`.
    #[serde(default)]
    pub reach: BTreeMap<String, BTreeMap<String, String>>,
    /// A table for each service, given to it.
    #[serde(skip)]
    pub tables: BTreeMap<String, toml::Value>,
}

/// What is wrong with the operator's settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}; --config names the file", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line of the file is invalid.
    #[error("{}, line {line}: {message}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// An unknown word.
    #[error("{word:?} is neither a setting of a node nor a service's table; services: {known}")]
    Unknown {
        /// The word.
        word: String,
        /// Services that there are.
        known: String,
    },
    /// A service that does not exist.
    #[error("there is no service {name:?}; there are: {known}")]
    Service {
        /// The setting that names it.
        setting: &'static str,
        /// Its name.
        name: String,
        /// Services that there are.
        known: String,
    },
    /// A service's table is invalid.
    #[error("the table [{service}]: {message}")]
    Table {
        /// The service.
        service: String,
        /// What is wrong.
        message: String,
    },
    /// No slots, or more than make sense.
    #[error("a node has 1 to {SLOTS_MAX} slots, not {found}: give --slots or slots another number")]
    Slots {
        /// What was given.
        found: u32,
    },
    /// No sessions.
    #[error("sessions = 0 lets no identity in: give another number, or leave it out")]
    Sessions,
    /// A tenant that is no node's number.
    #[error(
        "[tenant.{found}]: a tenant is named by 32 hexadecimal digits, see `outboard key show`"
    )]
    Tenant {
        /// What was given.
        found: String,
    },
    /// Hosts that are no list of hosts.
    #[error("[reach.{service}] {target}: {message}; write a list of hosts, or \"*\" for all")]
    Reach {
        /// The service that is to reach another.
        service: String,
        /// The other.
        target: String,
        /// What is wrong.
        message: String,
    },
    /// No such user, or root.
    #[error(
        "services cannot run as user {name:?}: name an ordinary user of /etc/passwd, or uid:gid"
    )]
    User {
        /// What was given.
        name: String,
    },
}

impl ConfigError {
    /// The setting or table at fault.
    fn key(&self) -> Option<&str> {
        match self {
            Self::File { .. } | Self::Line { .. } => None,
            Self::Unknown { word, .. } => Some(word),
            Self::Service { setting, .. } => Some(setting),
            Self::Table { service, .. } => Some(service),
            Self::Slots { .. } => Some("slots"),
            Self::Sessions => Some("sessions"),
            Self::Tenant { .. } => Some("tenant"),
            Self::Reach { .. } => Some("reach"),
            Self::User { .. } => Some("user"),
        }
    }
}

impl NodeConfig {
    /// Flags take precedence over the file.
    #[must_use]
    pub fn overridden_by(self, flags: Self) -> Self {
        Self {
            listen: flags.listen.or(self.listen),
            serve: flags.serve.or(self.serve),
            slots: flags.slots.or(self.slots),
            sessions: flags.sessions.or(self.sessions),
            key: flags.key.or(self.key),
            identity: flags.identity.or(self.identity),
            revoked: flags.revoked.or(self.revoked),
            allowed: flags.allowed.or(self.allowed),
            trusted_fabric: flags.trusted_fabric.or(self.trusted_fabric),
            user: flags.user.or(self.user),
            log: flags.log.or(self.log),
            tenant: self.tenant.into_iter().chain(flags.tenant).collect(),
            reach: self.reach.into_iter().chain(flags.reach).collect(),
            tables: self.tables.into_iter().chain(flags.tables).collect(),
        }
    }

    /// The services to serve, each once: those that are named, or else those that this program
    /// serves by default.
    #[must_use]
    pub fn served(&self, known: &[ServiceSpec]) -> Vec<String> {
        let own = || known.iter().filter(|spec| spec.by_default).map(|spec| spec.name.to_owned());
        let mut served = self.serve.clone().unwrap_or_else(|| own().collect());
        served.sort();
        served.dedup();
        served
    }

    /// Checks all of it against the services that there are; what they need, by name.
    pub(super) fn check(
        &self,
        known: &[ServiceSpec],
    ) -> Result<BTreeMap<String, Needs>, ConfigError> {
        self.check_file(known)?;
        let served = self.served(known);
        let needs = known.iter().map(|spec| {
            let needs = match self.table_needs(spec) {
                Err(fault) if served.iter().any(|name| name == spec.name) => {
                    return Err(refused(spec.name, &fault));
                }
                needs => needs.unwrap_or_default(),
            };
            Ok((spec.name.to_owned(), needs))
        });
        needs.collect()
    }

    /// As [`Self::check`], of a file to which flags may add what services need.
    fn check_file(&self, known: &[ServiceSpec]) -> Result<(), ConfigError> {
        self.check_settings(known)?;
        self.check_policy(known)?;
        for (word, value) in &self.tables {
            let spec = known.iter().find(|spec| spec.name == word);
            let Some(spec) = spec.filter(|_| value.is_table()) else {
                return Err(ConfigError::Unknown { word: word.clone(), known: names(known) });
            };
            self.table_slots(word)?;
            if let Err(fault) = self.table_needs(spec)
                && !fault.is_incomplete()
            {
                return Err(refused(word, &fault));
            }
        }
        Ok(())
    }

    /// What a service needs, by its table or without one.
    fn table_needs(&self, spec: &ServiceSpec) -> Result<Needs, TableError> {
        let table = self.tables.get(spec.name).cloned();
        let table = table.unwrap_or_else(|| toml::Table::new().into());
        (spec.check)(ServiceTable::merged(own_words(table)))
    }

    fn check_settings(&self, known: &[ServiceSpec]) -> Result<(), ConfigError> {
        let is_known = |name: &&String| !known.iter().any(|spec| spec.name == **name);
        if let Some(name) = self.serve.iter().flatten().find(is_known) {
            let (name, known) = (name.clone(), names(known));
            return Err(ConfigError::Service { setting: "serve", name, known });
        }
        if let Some(found) = self.slots.filter(|slots| !(1..=SLOTS_MAX).contains(slots)) {
            return Err(ConfigError::Slots { found });
        }
        if self.sessions == Some(0) {
            return Err(ConfigError::Sessions);
        }
        self.user().map(drop)
    }

    fn check_policy(&self, known: &[ServiceSpec]) -> Result<(), ConfigError> {
        let named = self.tenant.values().flat_map(|tenant| tenant.serve.iter().flatten());
        let named = named.map(|name| ("tenant", name));
        let reaching = self.reach.keys().map(|name| ("reach", name));
        for (setting, name) in named.chain(reaching) {
            if !known.iter().any(|spec| spec.name == name) {
                let (name, known) = (name.clone(), names(known));
                return Err(ConfigError::Service { setting, name, known });
            }
        }
        self.tenants()?;
        self.reachable().map(drop)
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let own = || vec![SocketAddr::from((Ipv4Addr::LOCALHOST, NODE_PORT))];
        self.listen.clone().unwrap_or_else(own)
    }

    pub(super) fn slots_or_processors(&self) -> u32 {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.slots.unwrap_or_else(|| u32::try_from(processors()).unwrap_or(SLOTS_MAX))
    }

    /// Jobs at a time of one service.
    pub(super) fn slots_of(&self, service: &str) -> u32 {
        let own = self.table_slots(service).ok().flatten();
        own.unwrap_or_else(|| self.slots_or_processors())
    }

    fn table_slots(&self, service: &str) -> Result<Option<u32>, ConfigError> {
        let Some(value) = self.tables.get(service).and_then(|table| table.get(TABLE_SLOTS)) else {
            return Ok(None);
        };
        let slots = value.as_integer().and_then(|slots| u32::try_from(slots).ok());
        match slots.filter(|slots| (1..=SLOTS_MAX).contains(slots)) {
            Some(slots) => Ok(Some(slots)),
            None => Err(ConfigError::Table {
                service: service.to_owned(),
                message: format!("slots: a service has 1 to {SLOTS_MAX} slots"),
            }),
        }
    }

    /// The setting that a service's own table gives.
    pub(super) fn table(&self, service: &str) -> Value {
        let table = self.tables.get(service).cloned().map(own_words);
        let table = table.and_then(|table| serde_json::to_value(table).ok());
        table.unwrap_or_else(|| serde_json::json!({}))
    }

    /// The user of all services, if one is named.
    pub(super) fn user(&self) -> Result<Option<User>, ConfigError> {
        self.user.as_deref().map(User::find).transpose()
    }

    pub(super) fn tenants(&self) -> Result<BTreeMap<NodeId, Tenant>, ConfigError> {
        let tenant = |(found, tenant): (&String, &Tenant)| match found.parse() {
            Ok(node) => Ok((node, tenant.clone())),
            Err(_) => Err(ConfigError::Tenant { found: found.clone() }),
        };
        self.tenant.iter().map(tenant).collect()
    }

    /// What an identity may use of each service, if nothing is said of it.
    pub(super) fn sessions_or_own(&self) -> u32 {
        self.sessions.unwrap_or(SESSIONS)
    }

    pub(super) fn reachable(&self) -> Result<Reach, ConfigError> {
        let mut reach = Reach::default();
        for (service, targets) in &self.reach {
            for (target, hosts) in targets {
                let wrong = |message: String| ConfigError::Reach {
                    service: service.clone(),
                    target: target.clone(),
                    message,
                };
                let name = ServiceName::parse(target.as_bytes());
                let name = name.map_err(|error| wrong(error.to_string()))?;
                let hosts = Reachable::parse(hosts).map_err(|error| wrong(error.to_string()))?;
                reach.add(service, name, hosts);
            }
        }
        Ok(reach)
    }
}

fn names(known: &[ServiceSpec]) -> String {
    known.iter().map(|spec| spec.name).collect::<Vec<_>>().join(", ")
}

fn refused(service: &str, fault: &TableError) -> ConfigError {
    ConfigError::Table { service: service.to_owned(), message: fault.to_string() }
}

/// A service's table without the words that are the node's.
fn own_words(mut table: toml::Value) -> toml::Value {
    if let Some(words) = table.as_table_mut() {
        words.remove(TABLE_SLOTS);
    }
    table
}

#[cfg(test)]
mod tests;
