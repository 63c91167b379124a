//! The server's side: a thread that brings the replica everything, then what was missed, and then
//! each group of commits as the log writes it.
//!
//! A replica that is away, or too slow, holds up nobody for longer than [`PATIENCE`]: the server
//! goes on without it, says so, and brings it up to date when it is back.

use super::fence;
use super::messages::{
    CopyHead, FRAME_MAX, FollowedStore, PIECE, ReplicaAnswer, ReplicaMessage, ReplicaState,
    ShippedAnswer,
};
use super::shipping::ShippingState;
use super::stream::{ReplicaError, ReplicaStream};
use crate::protocol::{BLOCK_LEN, FsBlocksRun};
use crate::store::feed::{CommitAnswer, CommitGroup, FeedParcel};
use crate::store::record::records;
use crate::store::{DataFile, FsSnapshots, FsStore, StoreFeed, SyncMode, blocks_in_use};
use outboard_cluster::hosts::Host;
use outboard_cluster::node::Requester;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long a replica that is followed closely may take to have what it was sent.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take to have a whole copy, or much that it has missed, on its disk.
const LONG: Duration = Duration::from_secs(300);
/// How often something is said where nothing is committed.
const BEAT: Duration = Duration::from_secs(1);
/// How long nothing is tried after that has failed.
const PAUSE: Duration = Duration::from_millis(500);
/// Letters of a refusal that are shown.
const WHY_MAX: usize = 500;
/// The service of both.
const SERVICE: &str = "fs";
/// The metadata of a copy, while it is made.
const METADATA: &str = "copy.metadata";

/// What is shipped, and where to.
#[derive(Debug)]
pub(crate) struct ShipperOptions {
    pub(crate) requester: Requester,
    pub(crate) host: Host,
    /// The store's directory.
    pub(crate) dir: PathBuf,
    pub(crate) sync: SyncMode,
}

/// See this file's first lines.
#[derive(Debug)]
struct LogShipper {
    options: ShipperOptions,
    feed: StoreFeed,
    snapshots: FsSnapshots,
    data: Arc<DataFile>,
    followed: FollowedStore,
    state: Arc<ShippingState>,
}

/// Starts to ship a store that nothing was committed to yet. What comes of it is shown by the
/// result.
pub(crate) fn ship(store: &FsStore, options: ShipperOptions) -> io::Result<Arc<ShippingState>> {
    let own = store.superblock();
    let followed = FollowedStore {
        uuid: own.uuid,
        block_count: own.block_count,
        region_len: own.region_len,
        epoch: own.epoch,
        incarnation: own.incarnation,
        base: store.seq_of(0),
    };
    let state = Arc::new(ShippingState::new(&options.host));
    let shipper = LogShipper {
        options,
        feed: store.feed(),
        snapshots: store.snapshots(),
        data: Arc::clone(store.data()),
        followed,
        state: Arc::clone(&state),
    };
    shipper.feed.feed().begin();
    thread::Builder::new().name("fs-ship".into()).spawn(move || shipper.run())?;
    Ok(state)
}

impl LogShipper {
    fn run(self) {
        while !self.feed.feed().is_over() {
            let ended = self.session().or_else(|error| self.left(error));
            self.feed.change(|feed| feed.open());
            match ended {
                Err(ReplicaError::Over) | Ok(()) => return,
                Err(ReplicaError::Superseded { epoch }) => {
                    fence::end(&self.options.dir, epoch, &self.options.host.to_string());
                }
                Err(error) => self.state.away(&error.to_string()),
            }
            thread::sleep(PAUSE);
        }
    }

    /// A session has ended: if the replica is a server now, nothing is acknowledged any more.
    fn left(&self, error: ReplicaError) -> Result<(), ReplicaError> {
        if matches!(error, ReplicaError::Stream(_)) && self.feed.feed().is_gated() {
            self.look_for_successor()?;
        }
        Err(error)
    }

    /// One session, until it ends.
    fn session(&self) -> Result<(), ReplicaError> {
        let mut stream = ReplicaStream::new(self.dial()?);
        let state = match self.greet(&mut stream) {
            Err(error @ ReplicaError::Stream(_)) => {
                // It may be no replica any more.
                self.look_for_successor()?;
                return Err(error);
            }
            greeted => greeted?,
        };
        let mut at = match self.can_go_on(&state) {
            true => state.last,
            false => self.copy(&mut stream)?,
        };
        self.feed.change(|feed| feed.hold());
        self.state.catches_up();
        at = self.send_next(&mut stream, at, &ReplicaMessage::CatchUp, Duration::ZERO)?;
        self.feed.change(|feed| feed.gate(at));
        self.state.in_step(at);
        loop {
            at = self.send_next(&mut stream, at, &ReplicaMessage::Step(at), BEAT)?;
            self.state.in_step(at);
        }
    }

    fn dial(&self) -> Result<outboard_verbs::Secured, ReplicaError> {
        let service = SERVICE.parse().map_err(|_| ReplicaError::Foreign)?;
        let dialled = self.options.requester.dial(&self.options.host, &service, PATIENCE);
        dialled.map_err(|error| ReplicaError::Unreachable(error.to_string()))
    }

    fn greet(&self, stream: &mut ReplicaStream) -> Result<ReplicaState, ReplicaError> {
        stream.send(&ReplicaMessage::Follow(self.followed), PATIENCE)?;
        match stream.receive(PATIENCE)? {
            ReplicaAnswer::State(state) => Ok(state),
            answer => Err(unexpected(answer)),
        }
    }

    /// Whether whoever answers no replica's messages is a server with a later epoch.
    fn look_for_successor(&self) -> Result<(), ReplicaError> {
        let requester = self.options.requester.clone();
        let host = self.options.host.clone();
        let epoch = fence::epoch_of(Box::new(move |limit| {
            let service = SERVICE.parse().map_err(|_| "no name".to_owned())?;
            requester.dial(&host, &service, limit).map_err(|error| error.to_string())
        }));
        match epoch.filter(|epoch| *epoch > self.followed.epoch) {
            Some(epoch) => Err(ReplicaError::Superseded { epoch }),
            None => Ok(()),
        }
    }

    /// Whether all that the replica lacks is kept here.
    fn can_go_on(&self, state: &ReplicaState) -> bool {
        let is_same_run = state.incarnation == self.followed.incarnation
            && state.base == self.followed.base
            && state.epoch == self.followed.epoch;
        // Without flushes this machine may have lost, and made anew, what the replica has.
        let is_sure = self.options.sync != SyncMode::Never || is_same_run;
        let is_its = state.is_whole && state.of == Some(self.followed.uuid);
        is_its && is_same_run && is_sure && self.feed.feed().has_behind(state.last)
    }

    /// Brings the replica everything; returns the commit that it has then.
    fn copy(&self, stream: &mut ReplicaStream) -> Result<u64, ReplicaError> {
        self.state.copies();
        self.feed.feed().begin();
        let metadata = self.metadata()?;
        let disk = |source| ReplicaError::Disk { what: METADATA, source };
        let (head, hold) = self.snapshots.begin(metadata.try_clone().map_err(disk)?)?;
        let copy = CopyHead { uuid: head.superblock.uuid, seq: head.seq };
        stream.send(&ReplicaMessage::Copy(copy), PATIENCE)?;
        let (mut at, len) = (0, metadata.metadata().map_err(disk)?.len());
        let mut bytes = vec![0; PIECE];
        while at < len {
            let part = usize::try_from(len - at).unwrap_or(PIECE).min(PIECE);
            metadata.read_exact_at(&mut bytes[..part], at).map_err(disk)?;
            stream.send(&ReplicaMessage::Metadata(&bytes[..part]), PATIENCE)?;
            at += part as u64;
        }
        let held = blocks_in_use(metadata, &head)?;
        let all = FsBlocksRun { start: 0, len: head.superblock.block_count };
        for (run, is_taken) in held.parts(all) {
            if is_taken {
                self.send_blocks(stream, run, SkipZeros::Yes)?;
            }
        }
        stream.send(&ReplicaMessage::Copied, PATIENCE)?;
        let has = answered(stream, LONG)?;
        drop(hold);
        match has == head.seq {
            true => Ok(has),
            false => Err(ReplicaError::Foreign),
        }
    }

    /// A file without a name, for a copy's metadata.
    fn metadata(&self) -> Result<File, ReplicaError> {
        let path = self.options.dir.join(METADATA);
        let make = || {
            let mut options = File::options();
            let file = options.read(true).write(true).create(true).truncate(true).open(&path)?;
            fs::remove_file(&path).map(|()| file)
        };
        make().map_err(|source| ReplicaError::Disk { what: METADATA, source })
    }

    /// Sends what is behind a commit, if anything is within a limit; returns what the replica has
    /// then. `first` says how, or, where there is nothing, that there is nothing.
    fn send_next(
        &self,
        stream: &mut ReplicaStream,
        at: u64,
        first: &ReplicaMessage<'_>,
        limit: Duration,
    ) -> Result<u64, ReplicaError> {
        let feed = self.feed.feed();
        if feed.is_over() {
            return Err(ReplicaError::Over);
        }
        let parcel = feed.take(at, limit).ok_or(ReplicaError::TooFar)?;
        let is_catch_up = matches!(first, ReplicaMessage::CatchUp);
        let patience = if is_catch_up { LONG } else { PATIENCE };
        let sent = self.send_parcel(stream, at, &parcel, is_catch_up.then_some(first));
        let has = sent.and_then(|last| match answered(stream, patience)? {
            has if has == last => Ok(has),
            _ => Err(ReplicaError::Foreign),
        });
        match has {
            Ok(has) => self.feed.change(|feed| feed.shipped(has)),
            Err(_) => feed.put_back(&parcel.blocks),
        }
        has
    }

    /// Sends a parcel, and returns the last commit of it.
    fn send_parcel(
        &self,
        stream: &mut ReplicaStream,
        at: u64,
        parcel: &FeedParcel,
        first: Option<&ReplicaMessage<'_>>,
    ) -> Result<u64, ReplicaError> {
        if let Some(first) = first {
            stream.send(first, PATIENCE)?;
        }
        for run in &parcel.blocks {
            self.send_blocks(stream, *run, SkipZeros::No)?;
        }
        for group in &parcel.groups {
            send_commits(stream, group, at)?;
        }
        let last = if parcel.groups.is_empty() { at } else { parcel.last };
        stream.send(&ReplicaMessage::Step(last), PATIENCE)?;
        Ok(last)
    }

    fn send_blocks(
        &self,
        stream: &mut ReplicaStream,
        run: FsBlocksRun,
        skip: SkipZeros,
    ) -> Result<(), ReplicaError> {
        const BLOCKS: u64 = PIECE as u64 / BLOCK_LEN;
        let (mut start, end) = (run.start, run.start + run.len);
        let mut bytes = Vec::new();
        while start < end {
            let len = BLOCKS.min(end - start);
            bytes.resize(usize::try_from(len * BLOCK_LEN).unwrap_or(PIECE), 0);
            let read = self.data.read(start, 0, &mut bytes);
            read.map_err(|source| ReplicaError::Disk { what: "data", source })?;
            // A new file has zeros.
            if skip == SkipZeros::No || bytes.iter().any(|byte| *byte != 0) {
                stream.send(&ReplicaMessage::Blocks { start, bytes: &bytes }, PATIENCE)?;
            }
            start += len;
        }
        Ok(())
    }
}

/// Whether blocks of zeros need not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SkipZeros {
    Yes,
    No,
}

/// Sends the commits of a group that are behind one, with their answers.
fn send_commits(
    stream: &mut ReplicaStream,
    group: &CommitGroup,
    behind: u64,
) -> Result<(), ReplicaError> {
    let (mut rest, mut answers) = (&group.records[..], &group.answers[..]);
    while !rest.is_empty() {
        let (mut len, mut answered, mut last) = (0, 0, 0);
        for record in records(rest) {
            let own = answers[answered..].iter().take_while(|one| one.seq <= record.seq);
            let more: usize = own.clone().map(|one| one.bytes.len() + 64).sum();
            if len > 0 && len + record.len + more > PIECE {
                break;
            }
            (len, answered, last) = (len + record.len, answered + own.count(), record.seq);
        }
        let (some, others) = rest.split_at(len);
        let (own, later) = answers.split_at(answered);
        if last > behind {
            let answers = own.iter().map(shipped).collect();
            stream.send(&ReplicaMessage::Commits { records: some, answers }, PATIENCE)?;
        }
        if len == 0 || len > FRAME_MAX {
            return Err(ReplicaError::Foreign);
        }
        (rest, answers) = (others, later);
    }
    Ok(())
}

fn shipped(answer: &CommitAnswer) -> ShippedAnswer<'_> {
    let CommitAnswer { seq, id, bytes } = answer;
    ShippedAnswer { seq: *seq, client: id.client, number: id.number, bytes }
}

/// The commit that the replica says it has.
fn answered(stream: &mut ReplicaStream, limit: Duration) -> Result<u64, ReplicaError> {
    match stream.receive(limit)? {
        ReplicaAnswer::Has(seq) => Ok(seq),
        answer => Err(unexpected(answer)),
    }
}

/// An answer that is another one than that which was waited for.
pub(super) fn unexpected(answer: ReplicaAnswer) -> ReplicaError {
    match answer {
        ReplicaAnswer::Superseded { epoch } => ReplicaError::Superseded { epoch },
        ReplicaAnswer::Refused(why) => ReplicaError::Refused(why.chars().take(WHY_MAX).collect()),
        _ => ReplicaError::Foreign,
    }
}
