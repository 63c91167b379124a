//! The files of one cast at a node.

use super::policy::{CastPolicy, CastRoot, reserved_names, root_of};
use super::sweep::Sweep;
use crate::lazy::{DemandChunks, LazyView, ShowMode, remove_dead_views};
use crate::member::{ChunkStore, KeepFault};
use crate::protocol::CastBegin;
use crate::receive::{
    AtOnce, CastIdentity, Destination, LentMemory, PublishMode, PublishReport, ReadBack,
    ReceiveError, ReceiveOptions, Receiver,
};
use crate::schedule::ChunkSet;
use crate::sign::{ChunkHashes, SignError, VerifiedChunk, VerifiedMemory};
use crate::tree::open_beneath;
use outboard_secure::NodeId;
use outboard_verbs::{SharedRegion, SharedSlice};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How often a destination is tried that another receiver of the same files still uses.
const BUSY_ATTEMPTS: u32 = 20;
/// The pause between two attempts.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// What casts may do at this node; shared by all.
#[derive(Debug)]
pub(crate) struct CastAllowance {
    pub(super) roots: Vec<CastRoot>,
    pub(super) policy: CastPolicy,
    pub(super) sweep: Sweep,
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
        allowed: &CastAllowance,
        begin: &CastBegin,
        hashes: Arc<ChunkHashes>,
        source: NodeId,
        demand: DemandChunks,
    ) -> Result<Self, String> {
        let path = Path::new(OsStr::from_bytes(&begin.destination));
        let (root, rest) = root_of(&allowed.roots, path, source)?;
        allowed.policy.admit_len(hashes.header().shape.stream_len())?;
        let mut options = ReceiveOptions::new(CastIdentity::new(source.to_string().as_bytes()));
        options.attributes = allowed.policy.attributes(begin.owners)?;
        (options.publish, options.flush) = (begin.publish, begin.flush);
        let reserved = reserved_names(&allowed.roots, &root.directory.join(rest), source)?;
        let destination = || Ok(open_destination(root, rest, path)?.reserving(reserved.clone()));
        remove_dead_views(&destination()?);
        let receiver = begin_soon(&hashes, &options, destination)?;
        allowed.sweep.note(path, &root.directory.join(rest));
        let held = receiver.read_back();
        let view = match begin.show {
            ShowMode::Complete => None,
            ShowMode::AtOnce => match show(&receiver, begin.publish, demand) {
                Ok(view) => Some(view),
                Err(why) => {
                    // What a broken cast has left is for the next one without a view.
                    if receiver.left_chunks().next().is_none() {
                        receiver.abandon();
                    }
                    return Err(why);
                }
            },
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

    /// The bitmap of what is held, as other nodes may read it.
    pub(super) fn bitmap(&self) -> &SharedRegion {
        self.held.bitmap().memory()
    }

    /// Those of some chunks that can be read as memory, with at most `room` bytes of copies. Asks
    /// the disk.
    pub(super) fn lend(&self, chunks: &[u32], mut room: u64) -> Vec<(u32, LentMemory)> {
        let lend = |chunk: &u32| match self.held.lend(*chunk, room) {
            Ok(lent) => {
                let lent = lent?;
                room = room.saturating_sub(lent.copied_bytes);
                Some((*chunk, lent))
            }
            Err(error) => {
                tracing::debug!(chunk, %error, "not lent");
                None
            }
        };
        chunks.iter().filter_map(lend).collect()
    }

    /// Takes the chunk of a cast that has no other.
    pub(super) fn take_only(&self, bytes: &[u8]) -> Result<(), String> {
        let left = self.receiver.resume().map_err(|error| error.to_string())?;
        let taken = match left {
            0 => self.hashes.verify(0, bytes).map_err(unsigned).and_then(|chunk| self.put(&chunk)),
            _ => self.came(0),
        };
        taken.map_err(|fault| match fault {
            KeepFault::Forged(why) | KeepFault::Local(why) => why,
            fault @ (KeepFault::NoRunYet | KeepFault::Ended) => format!("{fault:?}"),
        })
    }

    /// Steps of publishing that are done. Asks no disk.
    pub(super) fn steps(&self) -> u64 {
        self.receiver.steps()
    }

    fn put(&self, chunk: &VerifiedChunk<'_>) -> Result<(), KeepFault> {
        self.receiver.put(chunk).map_err(fault)?;
        self.came(chunk.chunk())
    }

    /// Checks and writes a chunk that was read from another node's memory.
    pub(super) fn keep_bytes(&self, chunk: u32, bytes: &[u8]) -> Result<(), KeepFault> {
        let verified = self.hashes.verify(chunk, bytes).map_err(unsigned)?;
        self.put(&verified)
    }

    /// A chunk is held.
    fn came(&self, chunk: u32) -> Result<(), KeepFault> {
        self.show_names().map_err(KeepFault::Local)?;
        self.view.iter().for_each(|view| view.came(chunk));
        Ok(())
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

    fn verify(&self, chunk: u32, memory: SharedSlice) -> Result<VerifiedMemory, KeepFault> {
        self.hashes.verify_memory(chunk, memory).map_err(unsigned)
    }

    fn keep(&self, verified: &VerifiedMemory) -> Result<(), KeepFault> {
        self.put(&verified.as_chunk())
    }

    fn keep_at_once(&self, verified: &VerifiedMemory) -> AtOnce<Result<(), KeepFault>> {
        // A view wakes programs that wait for the chunk.
        if self.view.is_some() {
            return AtOnce::Never;
        }
        self.receiver.put_at_once(&verified.as_chunk()).map(|put| put.map(drop).map_err(fault))
    }

    fn load(&self, chunk: u32, into: &mut Vec<u8>) -> Result<(), String> {
        self.held.read_chunk(chunk, into).map_err(|error| error.to_string())?;
        // Its owner may have changed what is published: checked here, it does not count as forged.
        let changed = |_| "a file that was published here has been changed since".to_owned();
        self.hashes.verify(chunk, into).map(drop).map_err(changed)
    }

    fn take_claims(&self) -> Option<ChunkSet> {
        self.receiver.take_claims()
    }

    fn can_check(&self, chunk: u32) -> bool {
        self.receiver.can_check(chunk)
    }

    fn check(&self, chunk: u32) -> Result<bool, KeepFault> {
        let is_here = self.receiver.check(chunk).map_err(fault)?;
        if is_here {
            self.came(chunk)?;
        }
        Ok(is_here)
    }
}

fn unsigned(error: SignError) -> KeepFault {
    match error {
        SignError::NoRunYet { .. } => KeepFault::NoRunYet,
        error => KeepFault::Forged(error.to_string()),
    }
}

fn fault(error: ReceiveError) -> KeepFault {
    match error {
        ReceiveError::Ended => KeepFault::Ended,
        error => KeepFault::Local(error.to_string()),
    }
}

/// Begins. The source may have broken a cast off just now, whose receiver is not gone yet.
fn begin_soon(
    hashes: &Arc<ChunkHashes>,
    options: &ReceiveOptions,
    destination: impl Fn() -> Result<Destination, String>,
) -> Result<Receiver, String> {
    let mut attempts = BUSY_ATTEMPTS;
    loop {
        attempts -= 1;
        match Receiver::begin(destination()?, Arc::clone(hashes), options.clone()) {
            Err(ReceiveError::Busy { .. }) if attempts > 0 => thread::sleep(BUSY_PAUSE),
            begun => return begun.map_err(|error| error.to_string()),
        }
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
fn open_destination(root: &CastRoot, rest: &Path, path: &Path) -> Result<Destination, String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let unopened = |errno| {
        let advice = match errno {
            Errno::NOENT => "make the directory first",
            Errno::ACCESS | Errno::PERM => "let the user that the service runs as write there",
            Errno::XDEV | Errno::LOOP => {
                "links below a root are not followed: name the directory itself"
            }
            _ => "see that it is a directory and no link: links below a root are not followed",
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
