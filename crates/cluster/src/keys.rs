//! Where a user's key files are, and the credentials that they give. Set by OUTBOARD_KEY,
//! OUTBOARD_FABRIC and XDG_CONFIG_HOME.
//!
//! ```text
//! ~/.config/outboard/key           a cluster's key, or one service's (or the file OUTBOARD_KEY)
//! ~/.config/outboard/identity      this user's or node's key pair; made at first use
//! ~/.config/outboard/revoked       nodes to refuse; a missing file is an empty list
//! ~/.config/outboard/known_nodes   the node met at each address
//! ```
//!
//! It asks the environment through a function and reads no file but these.

use outboard_secure::{
    ClusterKey, Credentials, Fabric, Holding, Identity, KeyFileError, Keyring, Revoked,
    RevokedError, ServiceKey, ServiceName,
};
use outboard_unix::staged::directory_of;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPaths {
    /// The key.
    pub key: PathBuf,
    /// Whether the operator has named the key's file: then none is made there.
    pub is_key_named: bool,
    /// The static key pair.
    pub identity: PathBuf,
    /// The list of revoked nodes.
    pub revoked: PathBuf,
    /// The list of known nodes.
    pub known_nodes: PathBuf,
}

/// What a key file holds.
#[derive(Debug)]
pub enum Key {
    /// The key of a cluster: every service's can be derived.
    Cluster(ClusterKey),
    /// The key of one service.
    Service(ServiceKey),
}

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The environment does not say where this user's files are.
    #[error(
        "it is not known where this user's keys are: set HOME, or XDG_CONFIG_HOME, to an absolute \
         path, or name the key's file in OUTBOARD_KEY"
    )]
    NoHome,
    /// There is no key.
    #[error(
        "there is no key at {}: copy it from a machine of the cluster, or make one for a new \
         cluster with `outboard key new`; OUTBOARD_KEY names another file", path.display()
    )]
    NoKey {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A list that is named is not there.
    #[error(
        "there is no list of nodes at {}: `touch` it to begin with an empty one, or correct the \
         path; `outboard key revoke NUMBER --list FILE` adds to it", path.display()
    )]
    NoList {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// OUTBOARD_FABRIC has an unknown value.
    #[error("OUTBOARD_FABRIC is {found:?}: it must be trusted or untrusted")]
    Fabric {
        /// What it is.
        found: OsString,
    },
    /// A key file is not good.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// The list of revoked nodes is not good.
    #[error(transparent)]
    Revoked(#[from] RevokedError),
}

impl KeyPaths {
    /// Where the environment says they are: without a home, beside the key's file. Pass
    /// `|name| std::env::var_os(name)`.
    ///
    /// # Errors
    /// [`KeysError::NoHome`].
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, KeysError> {
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let config = absolute("XDG_CONFIG_HOME");
        let config = config.or_else(|| absolute("HOME").map(|home| home.join(".config")));
        let key = variable("OUTBOARD_KEY").filter(|key| !key.is_empty()).map(PathBuf::from);
        match (config, key) {
            (Some(config), None) => Ok(Self::beneath(&config.join("outboard"))),
            (Some(config), Some(key)) => Ok(Self::beneath(&config.join("outboard")).with_key(key)),
            (None, Some(key)) => Ok(Self::beside(key)),
            (None, None) => Err(KeysError::NoHome),
        }
    }

    /// All beside the key that the operator has named, as where daemons are started without a home.
    #[must_use]
    pub fn beside(key: PathBuf) -> Self {
        Self::beneath(directory_of(&key)).with_key(key)
    }

    fn with_key(self, key: PathBuf) -> Self {
        Self { key, is_key_named: true, ..self }
    }

    /// All in one directory.
    #[must_use]
    pub fn beneath(directory: &Path) -> Self {
        Self {
            key: directory.join("key"),
            is_key_named: false,
            identity: directory.join("identity"),
            revoked: directory.join("revoked"),
            known_nodes: directory.join("known_nodes"),
        }
    }

    /// What a client of these services brings along; the identity is made if there is none.
    ///
    /// # Errors
    /// See [`KeysError`]. Services whose keys the key file does not give are left out: dialing
    /// them says so.
    pub fn client(
        &self,
        services: &[ServiceName],
        fabric: Fabric,
    ) -> Result<Credentials, KeysError> {
        Ok(Credentials {
            keys: Key::load(&self.key)?.ring(services),
            identity: Identity::load_or_create(&self.identity)?,
            fabric,
            revoked: self.revoked()?,
        })
    }

    /// The list of revoked nodes; no file is an empty list.
    ///
    /// # Errors
    /// [`KeysError::Revoked`].
    pub fn revoked(&self) -> Result<Revoked, KeysError> {
        match Revoked::load(&self.revoked) {
            Err(RevokedError::File(KeyFileError::Missing { .. })) => Ok(Revoked::default()),
            loaded => Ok(loaded?),
        }
    }
}

/// What the environment says of the network: OUTBOARD_FABRIC is `trusted` where no third party
/// reads or alters what it carries. Bytes pass in clear only if the node's operator says so too.
///
/// # Errors
/// [`KeysError::Fabric`] when it is something else.
pub fn fabric(variable: impl Fn(&str) -> Option<OsString>) -> Result<Fabric, KeysError> {
    match variable("OUTBOARD_FABRIC") {
        None => Ok(Fabric::Untrusted),
        Some(word) if word == "untrusted" || word.is_empty() => Ok(Fabric::Untrusted),
        Some(word) if word == "trusted" => Ok(Fabric::Trusted),
        Some(found) => Err(KeysError::Fabric { found }),
    }
}

impl Key {
    /// Reads a cluster's or a service's key, whichever it is.
    ///
    /// # Errors
    /// [`KeysError::NoKey`], and [`KeysError::File`] when it is neither, or others may read it.
    pub fn load(path: &Path) -> Result<Self, KeysError> {
        match ClusterKey::load(path) {
            Ok(key) => Ok(Self::Cluster(key)),
            Err(KeyFileError::Format { found: Some(Holding::ServiceKey), .. }) => {
                Ok(Self::Service(ServiceKey::load(path)?))
            }
            Err(KeyFileError::Missing { path }) => Err(KeysError::NoKey { path }),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Key::load`], and makes a new cluster's key if there is none.
    ///
    /// # Errors
    /// As [`Key::load`], and when the file cannot be made.
    pub fn load_or_create(path: &Path) -> Result<Self, KeysError> {
        match Self::load(path) {
            Err(KeysError::NoKey { .. }) => Ok(Self::Cluster(ClusterKey::load_or_create(path)?)),
            loaded => loaded,
        }
    }

    /// A service's key, if this one gives it.
    #[must_use]
    pub fn service(&self, name: &ServiceName) -> Option<ServiceKey> {
        match self {
            Self::Cluster(key) => Some(key.service(name)),
            Self::Service(key) => (key.name() == name).then(|| key.clone()),
        }
    }

    /// The keys of those services that this one gives.
    #[must_use]
    pub fn ring(&self, services: &[ServiceName]) -> Keyring {
        services.iter().filter_map(|name| self.service(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(variables: &[(&str, &str)]) -> Result<KeyPaths, KeysError> {
        KeyPaths::from_environment(|name| {
            let set = variables.iter().find(|(known, _)| *known == name);
            set.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_environment_says_where() {
        let home = places(&[("HOME", "/h")]).expect("a home");
        assert_eq!(home, KeyPaths::beneath(Path::new("/h/.config/outboard")));
        let given = places(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x"), ("OUTBOARD_KEY", "k")]);
        let given = given.expect("a home");
        assert_eq!(given.key, Path::new("k"));
        assert!(given.is_key_named && !home.is_key_named);
        assert_eq!(given.identity, Path::new("/x/outboard/identity"));
        // Relative ones mean nothing (XDG base directory specification).
        let relative = places(&[("XDG_CONFIG_HOME", "x"), ("HOME", "/h"), ("OUTBOARD_KEY", "")]);
        assert_eq!(relative.expect("a home"), home);
        assert!(matches!(places(&[("HOME", "")]), Err(KeysError::NoHome)));
        let homeless = places(&[("OUTBOARD_KEY", "/etc/cluster/key-7")]).expect("a key's file");
        assert_eq!(homeless.key, Path::new("/etc/cluster/key-7"));
        assert_eq!(homeless.identity, Path::new("/etc/cluster/identity"));
        assert!(homeless.is_key_named);
    }
}
