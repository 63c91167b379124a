//! The service's process: its configuration and its start.

use super::options::CastServiceOptions;
use super::policy::{CastPolicy, CastRoot};
use super::service::CastService;
use crate::lazy::remove_dead_views_of;
use crate::protocol::SERVICE;
use crate::receive::{SecurityXattrs, SpecialBits};
use outboard_cluster::hosts::Host;
use outboard_cluster::hub::HubOptions;
use outboard_cluster::node::{NeededUser, Needs, ServiceLink, ServiceTable, TableError};
use outboard_cluster::service::run;
use outboard_secure::{NodeId, ServiceName};
use serde::Deserialize;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The service's table of a node's configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CastTable {
    /// Directories below which files may be published.
    roots: Vec<RootEntry>,
    /// MiB for the windows of all casts, at most.
    memory: Option<u32>,
    /// Bytes of one cast, at most.
    bytes: Option<u64>,
    /// Casts of one identity at a time.
    casts: Option<usize>,
    /// Whether setuid and setgid bits are kept.
    setuid: bool,
    /// Whether extended attributes of the kernel's are kept.
    security_xattrs: bool,
    /// Whether files may get the owners that a source names.
    chown: bool,
    /// Whether the service is root, where the node is.
    as_root: bool,
    /// Hours for which the remains of a broken cast are kept.
    keep_broken_hours: Option<u32>,
    /// Jobs of this service: the node's own word, which every table may have.
    #[serde(rename = "slots")]
    _slots: Option<u32>,
}

/// A root: its path, or that and more.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a root is a path, or { path = \"...\" } with owners = [\"...\"], \
                 directory = \"...\" or both"
)]
enum RootEntry {
    Path(PathBuf),
    Table(RootTable),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RootTable {
    /// As sources name it.
    path: PathBuf,
    /// Where it is on this machine, if sources name it otherwise.
    directory: Option<PathBuf>,
    /// The identities that it belongs to.
    owners: Option<Vec<String>>,
}

impl RootEntry {
    fn root(&self) -> Result<CastRoot, String> {
        let (path, directory, owners) = match self {
            Self::Path(path) => (path, None, None),
            Self::Table(root) => (&root.path, root.directory.as_ref(), root.owners.as_ref()),
        };
        let directory = directory.unwrap_or(path);
        if let Some(relative) = [path, directory].into_iter().find(|path| !path.is_absolute()) {
            return Err(format!("root {}: write an absolute path", relative.display()));
        }
        let parse = |owner: &String| -> Result<NodeId, String> {
            let parsed = owner.parse();
            parsed.map_err(|error| format!("owner {owner:?} of {}: {error}", path.display()))
        };
        let owners = owners.map(|owners| owners.iter().map(parse).collect()).transpose()?;
        Ok(CastRoot { owners, ..CastRoot::at(path, directory) })
    }
}

impl CastTable {
    fn roots(&self) -> Result<Vec<CastRoot>, String> {
        self.roots.iter().map(RootEntry::root).collect()
    }

    fn needs(&self) -> Result<Needs, String> {
        let lacks = [(self.chown, "chown"), (self.security_xattrs, "security_xattrs")];
        if let Some((_, what)) = lacks.iter().find(|(is_set, _)| *is_set && !self.as_root) {
            return Err(format!(
                "{what} = true needs a service that is root: add as_root = true, or take it out"
            ));
        }
        let user = if self.as_root { NeededUser::Root } else { NeededUser::Any };
        Ok(Needs { user, devices: vec!["/dev/fuse".into()], ..Needs::default() })
    }

    fn policy(&self) -> CastPolicy {
        let default = CastPolicy::default();
        let hours = |hours| Duration::from_secs(u64::from(hours) * 3600);
        CastPolicy {
            bytes_max: self.bytes.unwrap_or(default.bytes_max),
            casts_max: self.casts.unwrap_or(default.casts_max),
            special_bits: if self.setuid { SpecialBits::Keep } else { SpecialBits::Drop },
            security_xattrs: match self.security_xattrs {
                true => SecurityXattrs::Keep,
                false => SecurityXattrs::Refuse,
            },
            may_chown: self.chown,
            keep_broken: self.keep_broken_hours.map_or(default.keep_broken, hours),
        }
    }
}

/// Checks the service's table, before a node starts.
///
/// # Errors
/// Reports the operator's mistake in the table.
pub fn check_table(table: ServiceTable<'_>) -> Result<Needs, TableError> {
    let config: CastTable = table.read()?;
    if config.roots.is_empty() {
        return Err(TableError::new(
            "no roots: name the directories below which files may be published, as in \
             roots = [\"/var/cast\"] in the table [cast]",
        ));
    }
    config.roots().map_err(TableError::new)?;
    config.needs().map_err(TableError::new)
}

/// Runs the service until its node ends.
pub fn serve(link: ServiceLink) -> ExitCode {
    match service(&link) {
        Ok(service) => run(link, HubOptions::default(), service),
        Err(error) => {
            eprintln!("outboard: service {}: {error}", link.service());
            ExitCode::FAILURE
        }
    }
}

fn service(link: &ServiceLink) -> Result<CastService, Box<dyn Error>> {
    let config: CastTable = match link.config() {
        serde_json::Value::Null => CastTable::default(),
        table => serde_json::from_value(table.clone())
            .map_err(|error| format!("table {} of the configuration: {error}", link.service()))?,
    };
    let (requester, cast): (_, ServiceName) = (link.requester(), SERVICE.parse()?);
    let dial = move |host: &Host, limit: Duration| {
        requester.dial(host, &cast, limit).map_err(|error| error.to_string())
    };
    let memory = config.memory.map(|mib| u64::from(mib) << 20);
    let memory = memory.unwrap_or(CastServiceOptions::MEMORY_DEFAULT);
    let (roots, policy) = (config.roots()?, config.policy());
    remove_dead_views_of(roots.iter().map(|root| root.directory.as_path()));
    Ok(CastService::new(CastServiceOptions { roots, memory, policy, dial: Arc::new(dial) })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_secure::Identity;
    use serde_json::json;

    fn roots_of(table: serde_json::Value) -> Result<Vec<CastRoot>, String> {
        let table: CastTable = serde_json::from_value(table).map_err(|error| error.to_string())?;
        table.roots()
    }

    #[test]
    fn roots_have_owners_or_none() {
        let owner = Identity::generate().expect("an identity").node();
        let owned = json!({ "path": "/own", "owners": [owner.to_string()] });
        let roots = roots_of(json!({ "roots": ["/all", owned] })).expect("legal");
        assert_eq!(roots[0], CastRoot::new("/all".into()));
        assert_eq!(roots[1].owners.as_deref(), Some(&[owner][..]));
        let placed = json!({ "roots": [{ "path": "/data", "directory": "/disk/data" }] });
        assert_eq!(roots_of(placed).expect("legal"), [CastRoot::at("/data", "/disk/data")]);
        let mistakes = [
            (json!(["all"]), "absolute path"),
            (json!([{ "path": "/own", "owners": ["me"] }]), "owner \"me\" of /own"),
            (json!([{ "path": "/own", "directory": "disk" }]), "root disk: write an absolute"),
            (json!([{ "path": "/own", "owner": [] }]), "a root is a path, or"),
            (json!([7]), "a root is a path, or"),
        ];
        for (roots, why) in mistakes {
            let found = roots_of(json!({ "roots": roots })).expect_err("a mistake");
            assert!(found.contains(why), "{found}");
        }
    }

    #[test]
    fn what_only_root_can_do_needs_a_service_that_is_root() {
        let needs = |table| serde_json::from_value::<CastTable>(table).expect("legal").needs();
        assert_eq!(needs(json!({})).map(|needs| needs.user), Ok(NeededUser::Any));
        for what in ["chown", "security_xattrs"] {
            let why = needs(json!({ what: true })).expect_err("not root");
            assert!(why.contains(what) && why.contains("as_root = true"), "{why}");
            let both = needs(json!({ what: true, "as_root": true }));
            assert_eq!(both.map(|needs| needs.user), Ok(NeededUser::Root));
        }
    }

    #[test]
    fn nothing_is_kept_or_given_that_the_table_does_not_name() {
        let policy = |table| serde_json::from_value::<CastTable>(table).expect("legal").policy();
        assert_eq!(policy(json!({})), CastPolicy::default());
        let table = json!({
            "bytes": 5, "casts": 2, "setuid": true, "security_xattrs": true, "chown": true,
            "keep_broken_hours": 2,
        });
        let expected = CastPolicy {
            bytes_max: 5,
            casts_max: 2,
            special_bits: SpecialBits::Keep,
            security_xattrs: SecurityXattrs::Keep,
            may_chown: true,
            keep_broken: Duration::from_secs(7200),
        };
        assert_eq!(policy(table), expected);
    }
}
