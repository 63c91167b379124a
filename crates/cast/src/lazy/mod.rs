//! `--lazy`: the tree is seen at the destination as soon as its manifest is here, and a read of
//! what has not come yet fetches it out of turn.
//!
//! A read-only FUSE file system is mounted on a hidden directory beside the staging directory,
//! `.outboard-cast-view-…`, before the node says that it is ready: a machine that cannot mount
//! refuses the cast instead of failing later. When the manifest is verified, each top-level name
//! appears at the destination as a symbolic link into the view. When all is here and published, the
//! link and the finished file or directory change places by one rename (RENAME_EXCHANGE), so that
//! no moment is without the name, and no mount point is ever in the way of one. A name that
//! `--replace` replaces keeps its old content until then; `--merge` has no view.
//!
//! Names and attributes come from the manifest. A read of chunks that are held is answered from
//! the staged file. Otherwise the chunk is demanded ([`crate::relay::DemandFrom`]), and the answer
//! waits until it is verified; many readers of one chunk are one demand, and a sequential reader's
//! next chunks are demanded before it reads them. A demand that has brought nothing for a second
//! goes to the source itself, each second anew. Reads fail (EIO) only when the cast has been given
//! up at this node.
//!
//! After publication the view is detached. Processes that have a file of it open, mapped or
//! running, or stand in one of its directories, go on with it: an open file has its descriptor, and
//! the view ends with the last of them, or with the service. [`VIEWS_MAX`] views can be at a time;
//! then `--lazy` is refused. A killed service leaves a dead mount and links: they go when the
//! service starts again, or the next cast to the same destination.
//!
//! With privileges the mount is made here, for all users. Without them `fusermount3` makes it; then
//! other users see it only if /etc/fuse.conf says `user_allow_other`.
//!
//! Never writes a file, and knows nothing of connections.
//!
//! Modules in reading order: `index` (names to entries), `attributes`, `ahead` (what a sequential
//! reader is given), `waits` (reads that wait), `server` (both together), `serve` (the kernel's
//! requests), `mount`, `links` (names at the destination), `view` (from mount to end), `stale`.

mod ahead;
mod attributes;
mod index;
mod links;
mod mount;
mod serve;
mod server;
mod stale;
#[cfg(test)]
mod tests;
mod view;
mod waits;

pub(crate) use server::DemandChunks;
pub(crate) use stale::{remove_dead_views, remove_dead_views_of};
pub(crate) use view::LazyView;

use crate::tree::HIDDEN_PREFIX;
use serde::{Deserialize, Serialize};

/// Views of a process at a time, those that only wait for processes to close files among them.
const VIEWS_MAX: usize = 64;

/// When a cast's files are seen at the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShowMode {
    /// When all is here.
    #[default]
    Complete,
    /// As soon as their names are known: reads wait for what has not come. Needs FUSE.
    AtOnce,
}

/// How the names of views' directories begin, before the suffix of their staging directory.
fn view_prefix() -> Vec<u8> {
    [HIDDEN_PREFIX, b"view-"].concat()
}
