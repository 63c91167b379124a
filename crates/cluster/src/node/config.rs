//! What a node's operator says: a file, and flags that override it.
//!
//! ```toml
//! listen = ["127.0.0.1:7410"]   # addresses with ports
//! serve = ["compile"]           # services; each may have a table of its own
//! slots = 4                     # jobs at a time; default: as many as processors
//! key = "/etc/outboard/key"     # default: as for clients, see OUTBOARD_KEY
//! identity = "/etc/outboard/identity"
//! revoked = "/etc/outboard/revoked"
//! allowed = "/etc/outboard/allowed"   # if given, nobody else gets in
//! trusted_fabric = false        # true: clients that say so too may talk in clear
//! user = "nobody"               # whom services are, where the node is root
//!
//! [compile]                     # for that service alone
//! ```

use crate::NODE_PORT;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Octets of a configuration file, at most.
const LEN_MAX: u64 = 1 << 20;

/// What the file and the flags say; what neither says is `None`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Config {
    /// Where to listen.
    pub listen: Option<Vec<SocketAddr>>,
    /// Services to offer.
    pub serve: Option<Vec<String>>,
    /// Jobs at a time.
    pub slots: Option<u32>,
    /// The key's file.
    pub key: Option<PathBuf>,
    /// The static key pair's file.
    pub identity: Option<PathBuf>,
    /// The list of revoked nodes.
    pub revoked: Option<PathBuf>,
    /// The list of those who alone get in.
    pub allowed: Option<PathBuf>,
    /// Nobody else reads or alters what the network carries.
    pub trusted_fabric: Option<bool>,
    /// Whom services are, where the node is root.
    pub user: Option<String>,
    /// A table for each service, given to it.
    #[serde(flatten)]
    pub tables: BTreeMap<String, toml::Value>,
}

/// What is wrong with what the operator says.
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
    /// The file is not as it must be.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where, and what.
        message: String,
    },
    /// A word that means nothing.
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
        /// Its name.
        name: String,
        /// Services that there are.
        known: String,
    },
    /// No slots.
    #[error("a node has at least one slot: give --slots or slots another number than 0")]
    Slots,
    /// No such user, or root.
    #[error(
        "services cannot run as user {name:?}: name an ordinary user of /etc/passwd, or uid:gid"
    )]
    User {
        /// What was given.
        name: String,
    },
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`] when it cannot be read or is not as it must be.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::File { path: path.into(), source };
        if fs::metadata(path).map_err(failed)?.len() > LEN_MAX {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        toml::from_str(&text).map_err(|error| {
            let message = error.to_string().trim_end().replace('\n', "; ");
            ConfigError::Syntax { path: path.into(), message }
        })
    }

    /// What flags say goes before what a file says.
    #[must_use]
    pub fn overridden_by(self, flags: Self) -> Self {
        Self {
            listen: flags.listen.or(self.listen),
            serve: flags.serve.or(self.serve),
            slots: flags.slots.or(self.slots),
            key: flags.key.or(self.key),
            identity: flags.identity.or(self.identity),
            revoked: flags.revoked.or(self.revoked),
            allowed: flags.allowed.or(self.allowed),
            trusted_fabric: flags.trusted_fabric.or(self.trusted_fabric),
            user: flags.user.or(self.user),
            tables: self.tables.into_iter().chain(flags.tables).collect(),
        }
    }

    /// Checks names against the services that there are; repeated ones count once.
    pub(super) fn check(&mut self, known: &[&str]) -> Result<(), ConfigError> {
        let listed = || known.join(", ");
        for (word, value) in &self.tables {
            if !known.contains(&word.as_str()) || !value.is_table() {
                return Err(ConfigError::Unknown { word: word.clone(), known: listed() });
            }
        }
        let serve = self.serve.get_or_insert_with(|| known.iter().map(|&s| s.into()).collect());
        if let Some(name) = serve.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(ConfigError::Service { name: name.clone(), known: listed() });
        }
        serve.sort();
        serve.dedup();
        if self.slots == Some(0) { Err(ConfigError::Slots) } else { Ok(()) }
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let own = || vec![SocketAddr::from((Ipv4Addr::LOCALHOST, NODE_PORT))];
        self.listen.clone().unwrap_or_else(own)
    }

    pub(super) fn slots_or_processors(&self) -> u32 {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.slots.unwrap_or_else(|| u32::try_from(processors()).unwrap_or(u32::MAX))
    }

    /// What is said to one service alone.
    pub(super) fn table(&self, service: &str) -> serde_json::Value {
        let table = self.tables.get(service).and_then(|table| serde_json::to_value(table).ok());
        table.unwrap_or_else(|| serde_json::json!({}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Config {
        toml::from_str(text).expect("a configuration")
    }

    #[test]
    fn flags_go_before_the_file() {
        let file = parse("slots = 2\nserve = [\"b\", \"a\", \"b\"]\n[a]\nx = [1]\n");
        let flags = Config { slots: Some(3), ..Config::default() };
        let mut config = file.overridden_by(flags);
        config.check(&["a", "b"]).expect("right");
        assert_eq!(
            (config.slots, config.serve.clone()),
            (Some(3), Some(vec!["a".into(), "b".into()]))
        );
        assert_eq!(config.table("a"), serde_json::json!({ "x": [1] }));
        assert_eq!(config.table("b"), serde_json::json!({}));
        assert_eq!(config.addresses(), ["127.0.0.1:7410".parse().expect("an address")]);
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let check = |text| parse(text).check(&["a"]).expect_err("wrong").to_string();
        assert!(check("slot = 2").contains("\"slot\" is neither"));
        assert!(check("a = 2").contains("\"a\" is neither"));
        assert!(check("[b]\nx = 1").contains("\"b\" is neither"));
        assert!(check("serve = [\"c\"]").contains("no service \"c\""));
        assert!(check("slots = 0").contains("at least one slot"));
    }
}
