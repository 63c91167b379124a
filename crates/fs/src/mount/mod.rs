//! A file system on a directory of this machine, through FUSE.
//!
//! The kernel checks rights first (default_permissions), the service again. What the service says
//! is not trusted: names, kinds and lengths that cannot be are errors, and by default neither
//! set-user-id programs nor devices count.
//!
//! Names and attributes are kept under leases: the service says what others change. A file's bytes
//! are kept by the kernel for as long as the file is the same each time it is opened
//! (close-to-open); small writes are gathered and sent when a file is closed, synced, read or asked
//! about here, or when they are many. A process that is killed waits for no service: its requests
//! are given up within a second.
//!
//! Modules in reading order: `options`, `inodes` (the kernel's numbers), `known` (names and
//! attributes), `recent` (in mounts that keep neither), `attributes`, `gather` and `ahead` (small
//! writes and sequential reads), `kept_ahead` (how much of that), `later` (attributes that go with
//! them), `files` (open files), `tree` (what requests do), `blocks`, `looking` (what they look up),
//! `xattrs`, `lists` and `shown` (directories), `locks` and `locking` (locks of files), `replies`
//! and `serve` (the kernel's requests), `notices`, `lent` (names that the kernel has), `attach`
//! (mounting), `detach` (its end).

mod ahead;
mod attach;
mod attributes;
mod blocks;
mod detach;
mod files;
mod gather;
mod inodes;
mod kept_ahead;
mod known;
mod later;
mod lent;
mod lists;
mod locking;
mod locks;
mod looking;
mod notices;
mod options;
mod recent;
mod replies;
mod serve;
mod shown;
mod tree;
mod xattrs;

pub use attach::{FsMountError, unmount_at};
pub use detach::MountEnd;
pub use options::{FsCacheMode, FsMountOptions, FsOptionError};

use crate::client::FsClient;
use crate::protocol::FsNote;
use attach::{Attached, attach};
use fuser::{Session, SessionUnmounter};
use serve::FsHandlers;
use std::path::Path;
use std::sync::Arc;
use tree::MountedTree;

/// A file system that is mounted, and served once [`serve`](Self::serve) is called.
pub struct FsMount {
    end: MountEnd,
    session: Session<FsHandlers>,
    unmounter: Option<SessionUnmounter>,
    tree: Arc<MountedTree>,
}

impl std::fmt::Debug for FsMount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FsMount").finish_non_exhaustive()
    }
}

impl FsMount {
    /// Mounts a file system on a directory, by a path without links; `source` is what the machine's
    /// table of mounts says of where it comes from.
    ///
    /// # Errors
    /// [`FsMountError`].
    pub fn mount(
        client: Arc<FsClient>,
        directory: &Path,
        source: &str,
        options: &FsMountOptions,
    ) -> Result<Self, FsMountError> {
        let tree = Arc::new(MountedTree::new(client, *options));
        let handlers = || FsHandlers(Arc::clone(&tree));
        let Attached { session, unmounter } = attach(directory, source, options, handlers)?;
        let end = MountEnd::new(directory, &tree);
        tree.handle_notices(session.notifier()).map_err(FsMountError::Session)?;
        tree.send_what_is_held().map_err(FsMountError::Session)?;
        tree.look_after_locks(session.notifier()).map_err(FsMountError::Session)?;
        Ok(Self { end, session, unmounter, tree })
    }

    /// What ends it from another thread.
    #[must_use]
    pub fn end(&self) -> MountEnd {
        self.end.clone()
    }

    /// Serves the kernel's requests until the file system is unmounted.
    ///
    /// # Errors
    /// [`FsMountError::Session`].
    pub fn serve(self) -> Result<(), FsMountError> {
        let Self { session, unmounter, tree, .. } = self;
        let served = session.run();
        // It is unmounted by now; dropping this would do it again.
        drop(unmounter);
        // Others need not wait for its leases to end.
        tree.client.note(&FsNote::KeepsNothing);
        tree.client.end();
        served.map_err(FsMountError::Session)
    }
}
