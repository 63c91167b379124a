//! What an end brings to every handshake: its identity, its keys, the nodes that it refuses, and
//! whether its operator trusts the network.
//!
//! Values only; the handshake judges them.

use crate::identity::Identity;
use crate::key::ServiceKey;
use crate::name::ServiceName;
use crate::revoked::Revoked;
use std::collections::BTreeMap;

/// What an end brings to every handshake.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Its identity.
    pub identity: Identity,
    /// The services that it may use, or offers.
    pub keys: Keyring,
    /// What its operator says of the network.
    pub fabric: Fabric,
    /// The nodes that it refuses.
    pub revoked: Revoked,
}

/// What an operator says of the network between the ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fabric {
    /// Others may read or alter what it carries: nothing passes in clear.
    #[default]
    Untrusted,
    /// No third party reads or alters what it carries: bytes may pass in clear if the other end's
    /// operator says so too.
    Trusted,
}

/// What is sent once the handshake is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// AES-256-GCM records.
    Encrypted,
    /// The bytes themselves. Only the handshake is authenticated.
    Trusted,
}

impl Mode {
    /// In clear only if both operators said so.
    pub(crate) fn between(one: Fabric, other: Fabric) -> Self {
        match (one, other) {
            (Fabric::Trusted, Fabric::Trusted) => Self::Trusted,
            _ => Self::Encrypted,
        }
    }
}

/// Service keys by name.
#[derive(Clone, Debug, Default)]
pub struct Keyring(BTreeMap<ServiceName, ServiceKey>);

impl Keyring {
    /// The key of a service, if there is one.
    #[must_use]
    pub fn key(&self, service: &ServiceName) -> Option<&ServiceKey> {
        self.0.get(service)
    }

    /// The services whose keys are here.
    pub fn services(&self) -> impl Iterator<Item = &ServiceName> {
        self.0.keys()
    }
}

/// Of two keys of one service, the later stays.
impl FromIterator<ServiceKey> for Keyring {
    fn from_iter<I: IntoIterator<Item = ServiceKey>>(keys: I) -> Self {
        Self(keys.into_iter().map(|key| (key.name().clone(), key)).collect())
    }
}
