//! The lists of revoked and of allowed nodes: files that an operator may change while the node
//! runs. If a list becomes unreadable, its last readable state stays in force.

use crate::keys::KeysError;
use outboard_secure::{Credentials, KeyFileError, NodeId, Revoked, RevokedError};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A list and the file that it came from.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    mark: Option<Mark>,
    list: Revoked,
}

/// The attributes by which a change of a file is noticed: device, inode, length, and time of the
/// last change.
type Mark = (u64, u64, u64, i64, i64);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Lists {
    credentials: Arc<Credentials>,
    revoked: Watched,
    allowed: Option<Watched>,
}

/// What a look at the files found.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Nodes that were admitted before and no longer are.
    pub(super) shut_out: Vec<NodeId>,
    /// Lists that cannot be used.
    pub(super) faults: Vec<RevokedError>,
}

impl Lists {
    /// Reads both lists. Where no file of revoked nodes was `named`, none is an empty list.
    pub(super) fn read(
        mut credentials: Credentials,
        revoked: PathBuf,
        named: bool,
        allowed: Option<PathBuf>,
    ) -> Result<Self, KeysError> {
        let revoked = Watched::read(revoked, !named)?;
        let allowed = allowed.map(|path| Watched::read(path, false)).transpose()?;
        credentials.revoked = revoked.list.clone();
        Ok(Self { credentials: Arc::new(credentials), revoked, allowed })
    }

    pub(super) fn credentials(&self) -> &Arc<Credentials> {
        &self.credentials
    }

    /// Whether a node that has proven the key is admitted.
    pub(super) fn admits(&self, node: NodeId) -> bool {
        !self.is_revoked(node)
            && self.allowed.as_ref().is_none_or(|allowed| allowed.list.contains(node))
    }

    pub(super) fn is_revoked(&self, node: NodeId) -> bool {
        self.revoked.list.contains(node)
    }

    /// Reads again what has changed.
    pub(super) fn look_again(&mut self) -> Changes {
        let mut changes = Changes::default();
        match self.revoked.look_again() {
            Ok(Some(before)) => {
                let now = &self.revoked.list;
                changes.shut_out.extend(now.nodes().filter(|node| !before.contains(*node)));
                let mut credentials = Credentials::clone(&self.credentials);
                credentials.revoked = now.clone();
                self.credentials = Arc::new(credentials);
            }
            Ok(None) => {}
            Err(fault) => changes.faults.push(fault),
        }
        match self.allowed.as_mut().map(Watched::look_again) {
            Some(Ok(Some(before))) => {
                let gone = before.nodes().filter(|node| !self.admits(*node));
                changes.shut_out.extend(gone);
            }
            Some(Err(fault)) => changes.faults.push(fault),
            _ => {}
        }
        changes
    }
}

impl Watched {
    fn read(path: PathBuf, may_be_missing: bool) -> Result<Self, KeysError> {
        let mark = mark(&path);
        let list = match Revoked::load(&path) {
            Err(RevokedError::File(KeyFileError::Missing { .. })) if may_be_missing => {
                Revoked::default()
            }
            Err(RevokedError::File(KeyFileError::Missing { path })) => {
                return Err(KeysError::NoList { path });
            }
            loaded => loaded?,
        };
        Ok(Self { path, mark, list })
    }

    /// The list before, if it has changed.
    fn look_again(&mut self) -> Result<Option<Revoked>, RevokedError> {
        let mark = mark(&self.path);
        if mark == self.mark {
            return Ok(None);
        }
        // Noted also when the file is invalid now, so that this is reported once.
        self.mark = mark;
        let list = Revoked::load(&self.path)?;
        Ok(Some(std::mem::replace(&mut self.list, list)))
    }
}

fn mark(path: &PathBuf) -> Option<Mark> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_secure::{Fabric, Identity, Keyring};

    #[test]
    fn lists_are_read_again_when_they_change_and_hold_when_they_are_spoilt() {
        let directory = std::env::temp_dir().join(format!("outboard-lists-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("revoked");
        let allowed = directory.join("allowed");
        let credentials = Credentials {
            identity: Identity::generate().expect("random numbers"),
            keys: Keyring::default(),
            fabric: Fabric::Untrusted,
            revoked: Revoked::default(),
        };
        let [one, other] = [NodeId::of(&[1; 32]), NodeId::of(&[2; 32])];
        Revoked::append(&allowed, one, "").expect("written");
        let named = Lists::read(credentials.clone(), path.clone(), true, None);
        let error = named.expect_err("a list that is named must be there").to_string();
        assert!(error.contains("touch"), "{error}");
        let mut lists =
            Lists::read(credentials, path.clone(), false, Some(allowed.clone())).expect("lists");
        assert!(lists.admits(one) && !lists.admits(other));
        Revoked::append(&path, one, "lost").expect("written");
        assert_eq!(lists.look_again().shut_out, [one]);
        assert!(!lists.admits(one) && lists.credentials().revoked.contains(one));
        fs::write(&path, "spoilt").expect("written");
        assert_eq!(lists.look_again().faults.len(), 1);
        assert!(!lists.admits(one));
        assert_eq!(lists.look_again().faults.len(), 0, "said once");
        fs::remove_dir_all(&directory).expect("removed");
    }
}
