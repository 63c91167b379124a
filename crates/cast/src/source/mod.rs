//! The side that starts a cast: it reads the files, signs them, dials every node and is number 0 of
//! the schedule.
//!
//! It waits until each node is ready or has failed, then sends the first plan. When a node is lost,
//! or a connection between two nodes, it sends a plan without it, from what each said last that it
//! holds. A node that could not be reached is dialled again as long as the cast lasts. It ends when
//! every node has published or failed. The caller brings the dialling, and hence the keys.
//!
//! Modules: `service` (the loop's work), `start` (when a cast begins), `care` (plans, and nodes
//! that stop), `late` (nodes that come late), `nodes` (what is known of each node), `watch` (what
//! has stopped), `silence` and `slow` (what is too slow beside the others), `order` (their
//! numbers), `progress` (what is shown of them), `signing`, `at_once` (casts that are one message
//! to each), `buffers` (its files as chunks), `absence` (times when it was stopped itself).

mod absence;
mod at_once;
mod buffers;
mod care;
mod late;
mod nodes;
mod order;
mod progress;
mod service;
mod signing;
mod silence;
mod slow;
mod start;
#[cfg(test)]
mod tests;
mod watch;

pub use crate::member::DialNode;
pub use buffers::{SourceBuffers, UnknownBuffers};
pub use order::{NodeTopology, this_machine};
pub use progress::{CastProgress, NodeProgress, NodeStage, ProgressSender};

use crate::lazy::ShowMode;
use crate::protocol::{CastBegin, CastMessage, JoinToken, NODES_MAX, PROTOCOL};
use crate::receive::{FlushMode, OwnerWish, PublishMode};
use crate::schedule::{LinkModel, PlanError, PlanRequest, ScheduleKind};
use crate::sign::{CastHeader, CastKey, ChunkLen, SignError, StreamShape};
use crate::tree::{CastSource, ScanOptions, SkippedFiles, SourceReader, TreeError, scan};
use order::NodeNumbers;
use outboard_cluster::hosts::HostList;
use outboard_cluster::hub::{HubOptions, MESSAGE_MAX};
use outboard_cluster::service::{ServiceError, ServiceLoop};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use service::{SourceService, SourceSetup};
use std::num::{NonZeroU32, NonZeroU64};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Files that the source keeps open.
const DESCRIPTORS_MAX: usize = 64;

/// What to cast where.
pub struct CastRequest {
    /// Files and directories.
    pub sources: Vec<CastSource>,
    /// The directory at each node: an absolute path.
    pub destination: PathBuf,
    /// The nodes, without the source.
    pub nodes: HostList,
    /// How to walk the sources.
    pub scan: ScanOptions,
    /// Bytes in a chunk; `None`: what suits the number of bytes
    /// ([`ChunkLen::for_cast`]).
    pub chunk_len: Option<ChunkLen>,
    /// The kind of schedule; `None`: what suits the number of nodes and bytes
    /// ([`ScheduleKind::for_cast`]).
    pub kind: Option<ScheduleKind>,
    /// The switches above the nodes, which are numbered accordingly. The source is found in it by
    /// this machine's name.
    pub topology: Option<NodeTopology>,
    /// Where the source takes chunks from.
    pub buffers: SourceBuffers,
    /// What to do with names that are there.
    pub publish: PublishMode,
    /// When receivers flush.
    pub flush: FlushMode,
    /// When names are seen at the nodes.
    pub show: ShowMode,
    /// How many nodes must have it, and how much each sends.
    pub limits: CastLimits,
    /// Reaches nodes.
    pub dial: DialNode,
    /// Where the source reports how far the cast has come.
    pub progress: Option<ProgressSender>,
}

/// What a cast asks of its nodes, and allows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CastLimits {
    /// Nodes that must publish for the cast to [succeed](CastOutcome::has_succeeded); it does not
    /// begin with fewer that can be reached. `None`: all of them, and it begins with any.
    pub min_nodes: Option<u32>,
    /// Bytes a second that each node sends, the source among them, at most. `None`: no limit.
    pub rate: Option<NonZeroU64>,
}

impl CastRequest {
    /// Complete new names, by what suits the number of nodes and bytes, without limits.
    #[must_use]
    pub fn new(
        sources: Vec<CastSource>,
        destination: PathBuf,
        nodes: HostList,
        dial: DialNode,
    ) -> Self {
        Self {
            sources,
            destination,
            nodes,
            scan: ScanOptions::default(),
            chunk_len: None,
            kind: None,
            topology: None,
            buffers: SourceBuffers::default(),
            publish: PublishMode::New,
            flush: FlushMode::Later,
            show: ShowMode::Complete,
            limits: CastLimits::default(),
            dial,
            progress: None,
        }
    }
}

impl std::fmt::Debug for CastRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CastRequest").field("sources", &self.sources).finish_non_exhaustive()
    }
}

/// What became of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOutcome {
    /// As the list has it.
    pub host: String,
    /// How many names it has published, or why it has not.
    pub result: Result<u32, String>,
    /// Chunks that it holds, as it said last; all of them if it has published.
    pub held_chunks: u64,
    /// Chunks of them that it has read from other nodes' memory by itself, because it came late.
    pub read_chunks: u64,
    /// From the first dial until it had published or failed.
    pub took: Duration,
}

/// What became of a cast.
#[derive(Clone, Debug)]
pub struct CastOutcome {
    /// By node, in the list's order.
    pub nodes: Vec<NodeOutcome>,
    /// Bytes of the stream.
    pub stream_len: u64,
    /// Bytes in a chunk.
    pub chunk_len: ChunkLen,
    /// Chunks of the stream.
    pub chunks: u32,
    /// The kind of schedule by which they went.
    pub kind: ScheduleKind,
    /// Chunks that the source itself wrote to nodes.
    pub sent_chunks: u64,
    /// Plans that were sent: one, and one more for each loss and finding.
    pub plans: u32,
    /// From the first dial to the last outcome.
    pub took: Duration,
    /// How many nodes had to publish.
    pub required: usize,
    /// Devices, sockets and pipes among the sources, which no node has got.
    pub skipped: SkippedFiles,
}

impl CastOutcome {
    /// Whether as many nodes have published as had to.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.nodes.iter().filter(|node| node.result.is_ok()).count() >= self.required
    }
}

/// Why there was no cast, or it ended for all nodes.
#[derive(Debug, thiserror::Error)]
pub enum CastError {
    /// What was to be cast cannot be read, or changed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// It cannot be signed.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// The caller's: more chunks than can be numbered.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The caller's.
    #[error("{found} nodes: a cast has at most {} receivers", NODES_MAX - 1)]
    Nodes {
        /// How many were given.
        found: usize,
    },
    /// The caller's: each node must know all names, which go in one message.
    #[error(
        "the names of the nodes have {found} bytes together: {MESSAGE_MAX} are possible; name them \
         shorter"
    )]
    Names {
        /// Bytes of the message.
        found: usize,
    },
    /// The caller's.
    #[error("{path:?}: give an absolute path for the destination")]
    Destination {
        /// As given.
        path: PathBuf,
    },
    /// This machine's, or the source's files changed.
    #[error("{0}")]
    Source(String),
    /// This machine's.
    #[error("this machine: {0}")]
    System(#[from] rustix::io::Errno),
}

/// Casts; returns when each node has published or failed.
///
/// # Errors
/// [`CastError`]: nothing was published by nodes that had not done so before.
pub fn cast(request: CastRequest) -> Result<CastOutcome, CastError> {
    let found = request.nodes.hosts().len();
    if found >= NODES_MAX {
        return Err(CastError::Nodes { found });
    }
    if !request.destination.is_absolute() {
        return Err(CastError::Destination { path: request.destination });
    }
    let setup = prepare(&request)?;
    let skipped = setup.reader.tree().skipped().clone();
    let (sender, outcome) = mpsc::channel();
    let service = SourceService::new(setup, sender)?;
    let broken = |error: ServiceError| CastError::Source(error.to_string());
    let mut looping = ServiceLoop::new(HubOptions::default(), service).map_err(broken)?;
    loop {
        looping.turn(Instant::now()).map_err(broken)?;
        if let Ok(outcome) = outcome.try_recv() {
            return Ok(CastOutcome { skipped, ..outcome });
        }
        let left = looping.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let limit = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&looping, PollFlags::IN)], limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Walks the sources and makes the cast's key.
fn prepare(request: &CastRequest) -> Result<SourceSetup, CastError> {
    let tree = scan(request.sources.clone(), &request.scan)?;
    let manifest = tree.manifest();
    let found = request.nodes.hosts().len();
    let fitting = || ChunkLen::for_cast(manifest.stream_len());
    let chunk_len = request.chunk_len.unwrap_or_else(fitting);
    let header = CastHeader::new(manifest.bytes(), manifest.stream_len(), chunk_len)?;
    let reader = SourceReader::new(tree, chunk_len, DESCRIPTORS_MAX)?;
    let key = CastKey::generate()?;
    let numbers = NodeNumbers::new(found, request.topology.as_ref());
    let hosts = numbers.places.iter().map(|place| request.nodes.hosts()[*place].to_string());
    let nodes: Vec<String> = std::iter::once(String::new()).chain(hosts).collect();
    let kind = match request.kind {
        Some(kind) => kind,
        None => choose(request, &nodes, &numbers, header.shape)?,
    };
    let only = at_once::only_chunk(request, kind, &reader, (&header, &key))?;
    let begin = CastBegin {
        key: key.public(),
        header: header.sign(&key),
        nodes,
        you: 0,
        kind,
        token: JoinToken(crate::sign::random()?),
        destination: request.destination.as_os_str().as_bytes().to_vec(),
        publish: request.publish,
        flush: request.flush,
        show: request.show,
        owners: match request.scan.chown {
            Some(_) => OwnerWish::Source,
            None => OwnerWish::Receiver,
        },
        rate: request.limits.rate,
        only,
    };
    check_names(&begin)?;
    Ok(SourceSetup {
        header,
        key,
        reader: Arc::new(reader),
        buffers: request.buffers,
        begin,
        numbers,
        progress: request.progress.clone(),
        min_nodes: request.limits.min_nodes,
        dial: Arc::clone(&request.dial),
    })
}

/// Whether all names fit into a message to a node.
fn check_names(begin: &CastBegin) -> Result<(), CastError> {
    if begin.only.is_some() {
        // Then no node is sent any.
        return Ok(());
    }
    let found = PROTOCOL.encode(&CastMessage::Begin(Box::new(begin.clone()))).len();
    if found > MESSAGE_MAX { Err(CastError::Names { found }) } else { Ok(()) }
}

fn choose(
    request: &CastRequest,
    nodes: &[String],
    numbers: &NodeNumbers,
    shape: StreamShape,
) -> Result<ScheduleKind, PlanError> {
    ScheduleKind::for_cast(&PlanRequest {
        nodes: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
        bytes: shape.stream_len(),
        chunk_bytes: NonZeroU32::new(shape.chunk_len().bytes()).unwrap_or(NonZeroU32::MIN),
        link: LinkModel::of_rate(request.limits.rate),
        switches: numbers.switches.clone(),
    })
}
