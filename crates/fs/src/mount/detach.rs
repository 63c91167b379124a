//! The end of a mount that its server wants: it is taken away wherever it is mounted. Where it is
//! mounted nowhere any more, or cannot be taken away, what it holds is sent.

use super::attach::{FsMountError, unmount_at};
use super::tree::MountedTree;
use crate::client::FsCaller;
use crate::protocol::FsNote;
use outboard_unix::mounts::mounts;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// A mount that is served, for those who end it.
#[derive(Clone, Debug)]
pub struct MountEnd {
    directory: PathBuf,
    /// The file system's device number in the mount table; `None` where there is no table.
    device: Option<Vec<u8>>,
    tree: Arc<MountedTree>,
}

impl MountEnd {
    /// Of what was just mounted on a directory.
    pub(super) fn new(directory: &Path, tree: &Arc<MountedTree>) -> Self {
        let mounted = mounts().unwrap_or_default();
        let device = mounted.into_iter().rfind(|mount| mount.path() == directory);
        let device = device.map(|mount| mount.device);
        Self { directory: directory.to_owned(), device, tree: Arc::clone(tree) }
    }

    /// Unmounts the file system, wherever it was moved or bound to. Processes that have files open
    /// keep them. False where it is mounted nowhere.
    ///
    /// # Errors
    /// [`FsMountError::Unmount`].
    pub fn unmount(&self) -> Result<bool, FsMountError> {
        let Some(device) = &self.device else {
            return unmount_at(&self.directory).map(|()| true);
        };
        let all = mounts().map_err(|error| FsMountError::Unmount {
            path: self.directory.clone(),
            why: error.to_string(),
        })?;
        let own = all.iter().rev().filter(|mount| mount.device == *device);
        let mut is_mounted = false;
        for mount in own {
            let covering = all.iter().rfind(|other| other.at == mount.at);
            if covering.is_some_and(|covering| covering.id != mount.id) {
                let why = "another file system is mounted over it: unmount that first".to_owned();
                return Err(FsMountError::Unmount { path: mount.path().to_owned(), why });
            }
            unmount_at(mount.path())?;
            is_mounted = true;
        }
        Ok(is_mounted)
    }

    /// Sends what is held, and says good-bye to the service. Waits for that at most so long.
    pub fn send_held(&self, limit: Duration) {
        let (sent, wait) = mpsc::channel::<()>();
        let tree = Arc::clone(&self.tree);
        let send = move || {
            tree.settle_all(&FsCaller::default());
            // Others need not wait for its leases to end.
            tree.client.note(&FsNote::KeepsNothing);
            drop(sent);
        };
        if thread::Builder::new().name("fs-end".into()).spawn(send).is_ok() {
            let _over = wait.recv_timeout(limit);
        }
    }
}
