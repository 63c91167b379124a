//! The service's table of a node's configuration.
//!
//! docs/fs.md, "A node's table", has one with every key and what it means.

use super::accounts::{BoundUser, GroupSource, IdentityQuota, UserRules};
use crate::protocol::NO_LIMIT;
use crate::protocol::volatile::VOLATILE_MAX;
use crate::store::{FsStoreOptions, StoreShape, SyncMode};
use outboard_cluster::hosts::{Host, HostList};
use outboard_cluster::node::{Needs, TableError};
use outboard_secure::NodeId;
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of a store's data where nothing is said.
const SIZE: u64 = 8 << 30;
const SIZE_VOLATILE: u64 = 1 << 30;
const SIZE_MIN: u64 = 1 << 20;
/// Bytes of metadata, at least and at most.
const METADATA_MIN: u64 = 4 << 20;
const METADATA_MAX: u64 = 3 << 30;
/// Bytes of data for which there is one of metadata, where nothing is said.
const DATA_OF_ONE: u64 = 16;
/// Bytes of a page of WebAssembly: regions have whole pages.
const PAGE: u64 = 64 << 10;
const BLOCK: u64 = 4096;
/// Bytes that any disk writes in a second.
const DISK_A_SECOND: u64 = 32 << 20;

/// See this file's first lines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FsTable {
    store: Option<PathBuf>,
    /// There is no store: everything is in memory, and clients change it by one-sided verbs.
    #[serde(default)]
    pub(super) volatile: bool,
    size: Option<SizeWord>,
    metadata: Option<SizeWord>,
    #[serde(default)]
    sync: SyncWord,
    #[serde(default = "yes")]
    pub(super) root_squash: bool,
    /// Clients may read all metadata one-sided.
    #[serde(default)]
    pub(super) one_sided: bool,
    allow: Option<Vec<String>>,
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    groups: GroupsWord,
    /// Identities that are one user.
    #[serde(default)]
    uid: HashMap<String, UserWord>,
    /// What identities may have made.
    #[serde(default)]
    quota: HashMap<String, QuotaTable>,
    /// What the store is: a server's, or a replica, if it is not one of a server's by now.
    #[serde(default)]
    pub(super) role: RoleWord,
    /// The host that has a replica of it.
    replica: Option<String>,
    /// Jobs of this service: the node's own word, which every table may have.
    #[serde(rename = "slots")]
    _slots: Option<u32>,
}

/// Bytes: a number, or a number with a unit.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a size is a number of bytes, or text such as \"8GiB\"")]
enum SizeWord {
    Bytes(u64),
    Text(String),
}

/// When commits go to the disk.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SyncWord {
    /// Before any change is answered.
    Always,
    /// When a client asks, and each second.
    #[default]
    Second,
    /// When the system likes.
    Never,
}

/// What a store is at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RoleWord {
    #[default]
    Server,
    Replica,
}

/// What an identity may have made.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaTable {
    bytes: Option<SizeWord>,
    inodes: Option<u64>,
}

impl QuotaTable {
    fn quota(&self) -> Result<IdentityQuota, String> {
        let bytes = self.bytes.as_ref().map(SizeWord::bytes).transpose()?;
        let blocks = bytes.map_or(NO_LIMIT, |bytes| bytes / BLOCK);
        Ok(IdentityQuota { blocks, inodes: self.inodes.unwrap_or(NO_LIMIT) })
    }
}

/// Whose word counts about a user's groups.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GroupsWord {
    #[default]
    Server,
    Client,
}

/// A user: a number, or user and group.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a user is a number, or text such as \"1000:100\"")]
enum UserWord {
    Number(u32),
    Text(String),
}

impl UserWord {
    fn user(&self) -> Result<BoundUser, String> {
        let text = match self {
            Self::Number(uid) => return Ok(BoundUser { uid: *uid, gid: None }),
            Self::Text(text) => text,
        };
        let both = text.split_once(':').map_or((text.as_str(), None), |(u, g)| (u, Some(g)));
        let uid = both.0.parse().ok();
        let gid = both.1.map(|gid| gid.parse().ok());
        match (uid, gid) {
            (Some(uid), None) => Ok(BoundUser { uid, gid: None }),
            (Some(uid), Some(Some(gid))) => Ok(BoundUser { uid, gid: Some(gid) }),
            _ => Err(format!("{text:?} is no user: write its number, or \"1000:100\"")),
        }
    }
}

const fn yes() -> bool {
    true
}

impl SizeWord {
    fn bytes(&self) -> Result<u64, String> {
        match self {
            Self::Bytes(bytes) => Ok(*bytes),
            Self::Text(text) => outboard_active::service::parse_size(text)
                .map(|bytes| bytes as u64)
                .ok_or_else(|| {
                    format!(
                        "{text:?} is no size: write a number and KiB, MiB or GiB, as in \"8GiB\""
                    )
                }),
        }
    }
}

impl FsTable {
    /// The store's directory.
    pub(super) fn store(&self) -> Result<&PathBuf, TableError> {
        let missing = || {
            TableError::incomplete(
                "no store: name its directory, by outboard fs serve --store DIR, or in the \
                 configuration as [fs] with store = \"/var/lib/outboard/fs\"",
            )
        };
        let store = self.store.as_ref().ok_or_else(missing)?;
        match store.is_absolute() {
            true => Ok(store),
            false => {
                let why = format!("store = {}: write an absolute path", store.display());
                Err(TableError::new(why))
            }
        }
    }

    /// How large a store is made; `None`: as large as it is, or the usual size.
    pub(super) fn shape(&self) -> Result<StoreShape, String> {
        let usual = if self.volatile { SIZE_VOLATILE } else { SIZE };
        let size = self.size.as_ref().map(SizeWord::bytes).transpose()?.unwrap_or(usual);
        if self.volatile && size > VOLATILE_MAX {
            return Err(format!("size = {size}: a volatile file system has 3 GiB at most"));
        }
        if size < SIZE_MIN {
            return Err(format!("size = {size}: a store has 1 MiB at least"));
        }
        let metadata = match &self.metadata {
            Some(metadata) => metadata.bytes()?,
            None => (size / DATA_OF_ONE).clamp(64 << 20, METADATA_MAX),
        };
        if !(METADATA_MIN..=METADATA_MAX).contains(&metadata) {
            return Err(format!("metadata = {metadata}: from 4 MiB to 3 GiB"));
        }
        Ok(StoreShape { block_count: size / BLOCK, region_len: metadata.next_multiple_of(PAGE) })
    }

    /// Whether the operator says how large the store is.
    pub(super) fn says_size(&self) -> bool {
        self.size.is_some() || self.metadata.is_some()
    }

    pub(super) fn options(&self) -> FsStoreOptions {
        let at_least_every = Duration::from_secs(1);
        let sync = match self.sync {
            SyncWord::Always => SyncMode::Always,
            SyncWord::Second => SyncMode::OnRequest { at_least_every },
            SyncWord::Never => SyncMode::Never,
        };
        FsStoreOptions { sync, ..FsStoreOptions::default() }
    }

    /// The host of the replica.
    pub(super) fn replica(&self) -> Result<Option<Host>, String> {
        let host = |word: &String| -> Result<Host, String> {
            let hosts: HostList = word.parse().map_err(|error| format!("replica: {error}"))?;
            match hosts.hosts() {
                [host] => Ok(host.clone()),
                hosts => Err(format!("replica: {word} are {} hosts: name one", hosts.len())),
            }
        };
        self.replica.as_ref().map(host).transpose()
    }

    /// The identities that may change something; `None`: every one that has the service's key.
    pub(super) fn allow(&self) -> Result<Option<HashSet<NodeId>>, String> {
        self.allow.as_deref().map(identities).transpose()
    }

    /// The identities that may only look.
    pub(super) fn read(&self) -> Result<HashSet<NodeId>, String> {
        identities(&self.read)
    }

    /// Who clients are.
    pub(super) fn users(&self) -> Result<UserRules, String> {
        let groups = match self.groups {
            GroupsWord::Server => GroupSource::Server,
            GroupsWord::Client => GroupSource::Client,
        };
        let bound = self.uid.iter().map(|(id, user)| Ok((identity(id)?, user.user()?)));
        let quotas = self.quota.iter().map(|(id, quota)| Ok((identity(id)?, quota.quota()?)));
        let bound = bound.collect::<Result<_, String>>()?;
        Ok(UserRules { groups, bound, quotas: quotas.collect::<Result<_, String>>()? })
    }

    /// Checks everything; what the service needs.
    pub(super) fn check(&self) -> Result<Needs, TableError> {
        let shape = self.shape().map_err(TableError::new)?;
        if self.volatile {
            return self.check_volatile();
        }
        let store = self.store()?;
        self.allow().and_then(|_| self.read()).map_err(TableError::new)?;
        self.users().and_then(|_| self.replica()).map_err(TableError::new)?;
        let ending = Needs::ENDING + Duration::from_secs(shape.region_len / DISK_A_SECOND);
        Ok(Needs { directories: vec![store.clone()], ending, ..Needs::default() })
    }
}

impl FsTable {
    /// What nobody would see to is a mistake.
    fn check_volatile(&self) -> Result<Needs, TableError> {
        self.allow().and_then(|_| self.read()).map_err(TableError::new)?;
        let is_protected = !self.uid.is_empty() || !self.quota.is_empty();
        let why = match (self.store.is_some(), is_protected, self.one_sided) {
            (true, ..) => "it has no store: leave it out, or volatile",
            (_, true, _) => "nobody sees to [fs.uid] and [fs.quota]: leave them out",
            (.., true) => "all of it is shown: leave one_sided out",
            (false, false, false) => return Ok(Needs::default()),
        };
        Err(TableError::new(format!("a file system is volatile, and {why}")))
    }
}

fn identity(id: &str) -> Result<NodeId, String> {
    id.parse().map_err(|error| format!("{id:?}: {error}"))
}

fn identities(all: &[String]) -> Result<HashSet<NodeId>, String> {
    all.iter().map(|id| identity(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn checked(value: Value) -> Result<StoreShape, String> {
        let table: FsTable = serde_json::from_value(value).map_err(|why| why.to_string())?;
        table.check().map_err(|why| why.to_string())?;
        table.shape()
    }

    #[test]
    fn a_store_has_a_directory_and_sizes() {
        let shape = checked(json!({ "store": "/var/lib/x", "size": "1GiB" })).expect("legal");
        assert_eq!(shape, StoreShape { block_count: 1 << 18, region_len: 64 << 20 });
        let shape = checked(json!({ "store": "/x", "size": "1MiB", "metadata": "5MiB" }));
        assert_eq!(shape.map(|shape| shape.region_len), Ok(5 << 20));
        let large = checked(json!({ "store": "/x", "size": "1024GiB" })).expect("legal");
        assert_eq!(large.region_len, METADATA_MAX);
    }

    const ID: &str = "2f9d1c0a4b7e8d6655aa0c1b2d3e4f50";

    #[test]
    fn an_identity_is_a_user() {
        for (word, uid, gid) in [(json!(7), 7, None), (json!("7:8"), 7, Some(8))] {
            let table = json!({ "store": "/x", "uid": { (ID): word } });
            let table: FsTable = serde_json::from_value(table).expect("legal");
            let users = table.users().expect("legal");
            assert_eq!(users.groups, GroupSource::Server);
            let node = ID.parse().expect("an identity");
            assert_eq!(users.bound.get(&node), Some(&BoundUser { uid, gid }));
        }
    }

    #[test]
    fn mistakes_are_told() {
        let mistakes = [
            (json!({}), "no store"),
            (json!({ "store": "x" }), "absolute path"),
            (json!({ "store": "/x", "size": "8" }), "1 MiB at least"),
            (json!({ "store": "/x", "size": "lots" }), "\"lots\" is no size"),
            (json!({ "store": "/x", "metadata": "4GiB" }), "to 3 GiB"),
            (json!({ "store": "/x", "sync": "often" }), "unknown variant"),
            (json!({ "store": "/x", "allow": ["me"] }), "32 hexadecimal"),
            (json!({ "store": "/x", "groups": "mine" }), "unknown variant"),
            (json!({ "store": "/x", "uid": { "me": 5 } }), "32 hexadecimal"),
            (json!({ "store": "/x", "uid": { (ID): "5:x" } }), "\"5:x\" is no user"),
            (json!({ "store": "/x", "uid": { (ID): true } }), "a user is a number"),
            (json!({ "store": "/x", "quota": { (ID): { "bytes": "x" } } }), "\"x\" is no size"),
            (json!({ "store": "/x", "quota": { (ID): { "files": 7 } } }), "unknown field"),
            (json!({ "stoer": "/x" }), "unknown field"),
            (json!({ "volatile": true, "store": "/x" }), "it has no store"),
            (json!({ "volatile": true, "one_sided": true }), "leave one_sided out"),
            (json!({ "volatile": true, "size": "4GiB" }), "3 GiB at most"),
            (json!({ "volatile": true, "quota": { (ID): { "inodes": 1 } } }), "nobody sees to"),
        ];
        for (value, why) in mistakes {
            let found = checked(value).expect_err("a mistake");
            assert!(found.contains(why), "{found}, not {why}");
        }
    }
}
