//! The files of one cast at a node.

use crate::lazy::{DemandChunks, LazyView, ShowMode, remove_dead_views};
use crate::member::{ChunkStore, KeepFault};
use crate::protocol::CastBegin;
use crate::receive::{
    CastIdentity, Destination, PublishMode, PublishReport, ReadBack, ReceiveError, ReceiveOptions,
    Receiver,
};
use crate::sign::{ChunkHashes, SignError};
use crate::tree::open_beneath;
use outboard_secure::NodeId;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A directory below which files may be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CastRoot {
    /// Its path as sources name it: absolute.
    pub path: PathBuf,
    /// Where it is on this machine.
    pub directory: PathBuf,
}

impl CastRoot {
    /// A directory that sources name as this machine does.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { directory: path.clone(), path }
    }
}

/// See the [module](self).
pub(crate) struct NodeStore {
    /// First, so that it ends before the receiver does.
    view: Option<LazyView>,
    hashes: Arc<ChunkHashes>,
    receiver: Receiver,
    held: ReadBack,
}

impl NodeStore {
    /// Begins to receive. Asks the disk.
    pub(super) fn open(
        roots: &[CastRoot],
        begin: &CastBegin,
        hashes: Arc<ChunkHashes>,
        source: NodeId,
        demand: DemandChunks,
    ) -> Result<Self, String> {
        let path = Path::new(OsStr::from_bytes(&begin.destination));
        let destination = open_destination(roots, path)?;
        remove_dead_views(&destination);
        let identity = CastIdentity::new(source.to_string().as_bytes());
        let mut options = ReceiveOptions::new(identity);
        (options.publish, options.flush) = (begin.publish, begin.flush);
        let receiver = Receiver::begin(destination, Arc::clone(&hashes), options)
            .map_err(|error| error.to_string())?;
        let held = receiver.read_back();
        let view = match begin.show {
            ShowMode::Complete => None,
            ShowMode::AtOnce => Some(show(&receiver, begin.publish, demand)?),
        };
        let store = Self { hashes, receiver, held, view };
        store.show_names()?;
        Ok(store)
    }

    /// Lets what was received appear. Asks the disk.
    pub(super) fn publish(&self) -> Result<PublishReport, String> {
        let report = self.receiver.publish().map_err(|error| error.to_string())?;
        self.view.iter().for_each(LazyView::published);
        Ok(report)
    }

    /// Lets names appear for which there is a view, when they are known.
    fn show_names(&self) -> Result<(), String> {
        let Some(view) = &self.view else { return Ok(()) };
        view.show(|| self.receiver.staged_view()).map_err(|error| error.to_string())
    }
}

impl ChunkStore for NodeStore {
    fn is_signed(&self, chunk: u32) -> bool {
        self.hashes.hash(chunk).is_some()
    }

    fn keep(&self, chunk: u32, bytes: &[u8]) -> Result<(), KeepFault> {
        let verified = self.hashes.verify(chunk, bytes).map_err(|error| match error {
            SignError::NoRunYet { .. } => KeepFault::NoRunYet,
            error => KeepFault::Forged(error.to_string()),
        })?;
        let put = self.receiver.put(&verified);
        put.map_err(|error| match error {
            ReceiveError::Ended => KeepFault::Ended,
            error => KeepFault::Local(error.to_string()),
        })?;
        self.show_names().map_err(KeepFault::Local)?;
        self.view.iter().for_each(|view| view.came(chunk));
        Ok(())
    }

    fn load(&self, chunk: u32, into: &mut Vec<u8>) -> Result<(), String> {
        self.held.read_chunk(chunk, into).map_err(|error| error.to_string())
    }
}

/// Begins to show what is received.
fn show(
    receiver: &Receiver,
    publish: PublishMode,
    demand: DemandChunks,
) -> Result<LazyView, String> {
    if publish == PublishMode::Merge {
        return Err("--lazy shows whole names, and --merge has none: leave one out".into());
    }
    LazyView::mount(receiver, demand).map_err(|error| error.to_string())
}

/// A directory below a root, reached without leaving it.
fn open_destination(roots: &[CastRoot], path: &Path) -> Result<Destination, String> {
    let refused = || {
        let shown = roots.iter().map(|root| root.path.display().to_string());
        let shown = shown.collect::<Vec<_>>().join(", ");
        format!("{} is below none of this node's roots: {shown}", path.display())
    };
    let below = roots.iter().find_map(|root| Some((root, path.strip_prefix(&root.path).ok()?)));
    let (root, rest) = below.ok_or_else(refused)?;
    if !rest.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(refused());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let unopened = |errno| {
        let advice = match errno {
            Errno::NOENT => "make the directory first",
            Errno::ACCESS | Errno::PERM => "let the user that the service runs as write there",
            Errno::XDEV | Errno::LOOP => "a link leads out of the root",
            _ => "see that it is a directory",
        };
        format!("{}: {errno}; {advice}", path.display())
    };
    let top = fs::open(&root.directory, flags, Mode::empty()).map_err(unopened)?;
    let directory = match rest.as_os_str().is_empty() {
        true => top,
        false => open_beneath(top.as_fd(), rest.as_os_str().as_bytes(), flags, Mode::empty())
            .map_err(unopened)?,
    };
    Ok(Destination::new(directory, path.to_owned()))
}
