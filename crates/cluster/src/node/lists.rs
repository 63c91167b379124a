//! The lists of revoked and of allowed nodes: files that an operator may change while the node
//! runs. If a list becomes unreadable, its last readable state stays in force. A
//! thread looks at the files, so that a disk that hangs delays changes and nothing else.

use crate::keys::KeysError;
use crate::waker::Waker;
use outboard_secure::{Credentials, KeyFileError, NodeId, Revoked, RevokedError};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// The file of a list.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    mark: Option<Mark>,
}

/// The files, for the thread that looks at them.
#[derive(Debug)]
struct ListFiles {
    revoked: Watched,
    allowed: Option<Watched>,
}

/// What a look at the files found.
#[derive(Debug, Default)]
struct Look {
    revoked: Option<Revoked>,
    allowed: Option<Revoked>,
    faults: Vec<RevokedError>,
}

/// The attributes by which a change of a file is noticed: device, inode, length, and time of the
/// last change.
type Mark = (u64, u64, u64, i64, i64);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Lists {
    credentials: Arc<Credentials>,
    allowed: Option<Revoked>,
    /// Until the thread has them.
    files: Option<ListFiles>,
    looks: Option<mpsc::Receiver<Look>>,
}

/// What has changed.
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
        let (revoked, shut_out) = Watched::read(revoked, !named)?;
        let allowed = allowed.map(|path| Watched::read(path, false)).transpose()?;
        let (allowed, admitted) = allowed.unzip();
        credentials.revoked = shut_out;
        let files = Some(ListFiles { revoked, allowed });
        Ok(Self { credentials: Arc::new(credentials), allowed: admitted, files, looks: None })
    }

    /// Has a thread look at the files, which wakes the loop when something has changed. It ends
    /// after the lists.
    pub(super) fn watch(&mut self, waker: Waker) -> io::Result<()> {
        let Some(mut files) = self.files.take() else { return Ok(()) };
        let (found, looks) = mpsc::channel();
        self.looks = Some(looks);
        let look = move || {
            loop {
                thread::sleep(LOOK);
                if found.send(files.look()).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        thread::Builder::new().name("outboard-lists".into()).spawn(look).map(drop)
    }

    pub(super) fn credentials(&self) -> &Arc<Credentials> {
        &self.credentials
    }

    /// Whether a node that has proven the key is admitted.
    pub(super) fn admits(&self, node: NodeId) -> bool {
        !self.is_revoked(node) && self.allowed.as_ref().is_none_or(|allowed| allowed.contains(node))
    }

    pub(super) fn is_revoked(&self, node: NodeId) -> bool {
        self.credentials.revoked.contains(node)
    }

    /// Takes what the thread has found since the last call.
    pub(super) fn poll(&mut self) -> Option<Changes> {
        let look = self.looks.as_ref()?.try_recv().ok()?;
        Some(self.take(look))
    }

    fn take(&mut self, look: Look) -> Changes {
        let mut changes = Changes { shut_out: Vec::new(), faults: look.faults };
        if let Some(revoked) = look.revoked {
            let new = revoked.nodes().filter(|node| !self.is_revoked(*node));
            changes.shut_out.extend(new);
            let mut credentials = Credentials::clone(&self.credentials);
            credentials.revoked = revoked;
            self.credentials = Arc::new(credentials);
        }
        if let Some(allowed) = look.allowed {
            let before = self.allowed.replace(allowed);
            let before = before.iter().flat_map(Revoked::nodes);
            changes.shut_out.extend(before.filter(|node| !self.admits(*node)));
        }
        changes
    }
}

impl ListFiles {
    /// Reads again what has changed.
    fn look(&mut self) -> Look {
        let mut look = Look::default();
        match self.revoked.look_again() {
            Ok(list) => look.revoked = list,
            Err(fault) => look.faults.push(fault),
        }
        match self.allowed.as_mut().map(Watched::look_again) {
            Some(Ok(list)) => look.allowed = list,
            Some(Err(fault)) => look.faults.push(fault),
            None => {}
        }
        look
    }
}

impl Watched {
    fn read(path: PathBuf, may_be_missing: bool) -> Result<(Self, Revoked), KeysError> {
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
        Ok((Self { path, mark }, list))
    }

    /// The list, if it has changed.
    fn look_again(&mut self) -> Result<Option<Revoked>, RevokedError> {
        let mark = mark(&self.path);
        if mark == self.mark {
            return Ok(None);
        }
        // Noted also when the file is invalid now, so that this is reported once.
        self.mark = mark;
        Revoked::load(&self.path).map(Some)
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
        let mut files = lists.files.take().expect("nothing looks at them yet");
        let mut look_again = |lists: &mut Lists| lists.take(files.look());
        assert_eq!(look_again(&mut lists).shut_out, [one]);
        assert!(!lists.admits(one) && lists.credentials().revoked.contains(one));
        fs::write(&path, "spoilt").expect("written");
        assert_eq!(look_again(&mut lists).faults.len(), 1);
        assert!(!lists.admits(one));
        assert_eq!(look_again(&mut lists).faults.len(), 0, "said once");
        fs::remove_dir_all(&directory).expect("removed");
    }
}
